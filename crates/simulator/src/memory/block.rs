//! A block of device memory, wherever it was allocated.

use std::sync::atomic::{AtomicU64, Ordering};

use super::mapping::Mapping;

/// A block of device memory.
#[derive(Debug)]
pub struct Block {
    /// The device that it belongs to, or through which it was opened.
    pub device: usize,
    /// Bytes that were asked for.
    pub bytes: usize,
    /// Whether another process allocated it.
    pub imported: bool,
    /// A number that no other block of this process has.
    pub id: u64,
    address: usize,
    mapping: Mapping,
}

impl Block {
    /// The block in a mapping, from `offset` on, which it shares with nobody.
    pub fn new(
        device: usize,
        mapping: Mapping,
        offset: usize,
        bytes: usize,
        imported: bool,
    ) -> Block {
        static ID: AtomicU64 = AtomicU64::new(1);
        let id = ID.fetch_add(1, Ordering::Relaxed);
        Block { device, bytes, imported, id, address: mapping.start() + offset, mapping }
    }

    /// Its first address.
    pub fn address(&self) -> usize {
        self.address
    }

    /// The address after the last one that was asked for.
    pub fn end(&self) -> usize {
        self.address + self.bytes
    }

    /// The mapping in which it lies.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}
