//! The error that says where the memory went.

use std::fmt;

/// What is known when a request cannot be served.
#[derive(Clone, Debug, Default)]
pub struct OutOfMemory {
    /// Whose memory.
    pub name: String,
    /// Bytes that were asked for.
    pub requested: usize,
    /// The source's bytes.
    pub total: usize,
    /// The source's free bytes.
    pub free: usize,
    /// Bytes that this process may have, if that is less than all.
    pub limit: Option<usize>,
    /// Bytes in use by tensors.
    pub allocated: usize,
    /// Bytes reserved by the allocator.
    pub reserved: usize,
    /// The longest free chunk.
    pub largest_free: usize,
    /// Bytes in private pools of graphs.
    pub in_graphs: usize,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cached = self.reserved - self.allocated;
        write!(
            f,
            "{} has no room for {}. Of its {}, {} are free. Process {} holds {} in its cache of \
             device memory: {} allocated to tensors, {} reserved but unallocated (the largest \
             free piece is {}).",
            self.name,
            Bytes(self.requested),
            Bytes(self.total),
            Bytes(self.free),
            std::process::id(),
            Bytes(self.reserved),
            Bytes(self.allocated),
            Bytes(cached),
            Bytes(self.largest_free),
        )?;
        if self.in_graphs > 0 {
            write!(f, " {} belong to captured graphs.", Bytes(self.in_graphs))?;
        }
        if let Some(limit) = self.limit {
            write!(f, " The process may have {} (set_memory_fraction).", Bytes(limit))?;
        }
        let others = self.total.saturating_sub(self.free).saturating_sub(self.reserved);
        if others > self.total / 4 {
            write!(
                f,
                " {} are used by other processes or libraries: see `nvidia-smi`.",
                Bytes(others)
            )?;
        }
        if cached >= self.requested && cached > self.allocated / 4 {
            f.write_str(
                " Much is reserved but in pieces too small: shapes that change from step to step \
                 do that; round them to a few sizes.",
            )
        } else {
            f.write_str(
                " A smaller batch, accumulated gradients, bf16 or activation checkpointing need \
                 less.",
            )
        }
    }
}

/// Bytes as people read them.
struct Bytes(usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            ..1024 => write!(f, "{} bytes", self.0),
            1024..0x10_0000 => write!(f, "{:.2} KiB", bytes / 1024.0),
            0x10_0000..0x4000_0000 => write!(f, "{:.2} MiB", bytes / 1_048_576.0),
            _ => write!(f, "{:.2} GiB", bytes / 1_073_741_824.0),
        }
    }
}
