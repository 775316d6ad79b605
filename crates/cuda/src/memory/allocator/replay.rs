//! The replay of recorded requests against an allocator: how a policy does on a real program's
//! sizes and order can so be measured without the program.

use std::collections::BTreeMap;

use super::caching::{CachingAllocator, Piece};
use super::source::Source;
use super::trace::{Trace, TraceEntry};
use torchrs_error::{Error, Result};

/// How a replay went.
#[derive(Clone, Copy, Debug)]
pub struct ReplayReport {
    /// The most bytes that were asked for at one time.
    pub requested: usize,
    /// The most bytes that were reserved.
    pub reserved: usize,
    /// How often the source was asked for memory.
    pub segments: u64,
    /// Part of the reserved bytes that was never asked for.
    pub fragmentation: f64,
}

impl Trace {
    /// Repeats the trace on an allocator that has done nothing else. `stream` gives the stream of
    /// a number. What the trace does not free is freed at the end.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the source is too small, [`Error::Other`] for a free of
    /// nothing.
    pub fn replay<S: Source>(
        &self,
        allocator: &CachingAllocator<S>,
        stream: impl Fn(u32) -> S::Stream,
    ) -> Result<ReplayReport> {
        let mut live: BTreeMap<u32, Piece> = BTreeMap::new();
        let mut count = 0;
        for entry in &self.0 {
            match *entry {
                TraceEntry::Allocate { bytes, stream: number } => {
                    live.insert(count, allocator.allocate(bytes, stream(number))?);
                    count += 1;
                }
                TraceEntry::Free(number) => {
                    let piece = live.remove(&number).ok_or_else(|| {
                        Error::Other(format!("allocation trace: {number} is freed but not there"))
                    })?;
                    allocator.free(piece)?;
                }
            }
        }
        live.into_values().try_for_each(|piece| allocator.free(piece))?;
        let statistics = allocator.statistics();
        Ok(ReplayReport {
            requested: statistics.requested.peak,
            reserved: statistics.reserved.peak,
            segments: statistics.segments.added,
            fragmentation: statistics.fragmentation(),
        })
    }
}
