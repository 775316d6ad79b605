//! The allocator's figures.

/// A quantity that goes up and down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figure {
    /// Now.
    pub current: usize,
    /// The most since the last reset.
    pub peak: usize,
    /// All that was added since the beginning.
    pub added: u64,
    /// All that was taken away since the beginning.
    pub removed: u64,
}

impl Figure {
    #[inline]
    pub(super) fn add(&mut self, amount: usize) {
        self.current += amount;
        self.peak = self.peak.max(self.current);
        self.added += amount as u64;
    }

    #[inline]
    pub(super) fn remove(&mut self, amount: usize) {
        self.current -= amount;
        self.removed += amount as u64;
    }

    fn reset_peak(&mut self) {
        self.peak = self.current;
    }
}

/// What the allocator has done (`torch.cuda.memory_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes of chunks in use.
    pub allocated: Figure,
    /// Bytes that were asked for, before rounding, of chunks in use.
    pub requested: Figure,
    /// Bytes of chunks in use or waiting for the events of other streams.
    pub active: Figure,
    /// Bytes of segments.
    pub reserved: Figure,
    /// Chunks in use.
    pub allocations: Figure,
    /// Segments.
    pub segments: Figure,
    /// How often cached memory was given back because the source had no more.
    pub retries: u64,
    /// How often there was not enough even so.
    pub out_of_memory: u64,
    /// Bytes of free chunks in segments that are partly in use.
    pub inactive_split: usize,
}

impl Statistics {
    /// Lets every peak begin at what is now.
    pub(super) fn reset_peaks(&mut self) {
        self.allocated.reset_peak();
        self.requested.reset_peak();
        self.active.reset_peak();
        self.reserved.reset_peak();
        self.allocations.reset_peak();
        self.segments.reset_peak();
    }

    /// Part of the most memory ever reserved that was not in use when use was highest: what
    /// rounding, splitting and caching cost.
    pub fn fragmentation(&self) -> f64 {
        match self.reserved.peak {
            0 => 0.0,
            reserved => 1.0 - self.requested.peak.min(reserved) as f64 / reserved as f64,
        }
    }
}
