//! Pinned host memory: allocated by the driver, or the caller's own and registered.

use super::mapping::page;
use crate::code::{Code, Result};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::ptr::null_mut;

/// A range of pinned host memory.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    /// Its first address.
    pub start: usize,
    /// The address after its last one.
    pub end: usize,
    /// The device whose context was current when it was made.
    pub device: usize,
    /// Whether the driver allocated it; else the caller registered it.
    pub allocated: bool,
}

static RANGES: RwLock<BTreeMap<usize, Range>> = RwLock::new(BTreeMap::new());

/// Bytes of the mapping under an allocation.
fn mapped(bytes: usize) -> usize {
    bytes.next_multiple_of(page())
}

/// Allocates pinned memory.
pub fn allocate(device: usize, bytes: usize) -> Result<usize> {
    if bytes == 0 || bytes > isize::MAX as usize {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: a new mapping, where nothing else can be.
    let start = unsafe {
        libc::mmap(
            null_mut(),
            mapped(bytes),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(Code::OUT_OF_MEMORY);
    }
    let start = start as usize;
    RANGES.write().insert(start, Range { start, end: start + bytes, device, allocated: true });
    Ok(start)
}

/// Frees what [`allocate`] gave.
pub fn free(address: usize) -> Result {
    let mut ranges = RANGES.write();
    let range = *ranges.get(&address).filter(|range| range.allocated).ok_or(Code::INVALID_VALUE)?;
    ranges.remove(&address);
    // SAFETY: `allocate` mapped exactly this, and it was still in the table.
    unsafe { libc::munmap(address as *mut libc::c_void, mapped(range.end - range.start)) };
    Ok(())
}

/// Registers the caller's memory.
pub fn register(device: usize, address: usize, bytes: usize) -> Result {
    let end = address.checked_add(bytes).filter(|end| *end > address).ok_or(Code::INVALID_VALUE)?;
    if address == 0 || !is_mapped(address, end) {
        return Err(Code::INVALID_VALUE);
    }
    let mut ranges = RANGES.write();
    if ranges.range(..end).next_back().is_some_and(|(_, range)| range.end > address) {
        return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
    }
    ranges.insert(address, Range { start: address, end, device, allocated: false });
    Ok(())
}

/// Ends a registration; the address is the one that was registered.
pub fn unregister(address: usize) -> Result {
    let mut ranges = RANGES.write();
    match ranges.get(&address) {
        Some(range) if !range.allocated => {
            ranges.remove(&address);
            Ok(())
        }
        Some(_) => Err(Code::INVALID_VALUE),
        None => Err(Code::HOST_MEMORY_NOT_REGISTERED),
    }
}

/// The range in which an address lies.
pub fn containing(address: usize) -> Option<Range> {
    let ranges = RANGES.read();
    let (_, range) = ranges.range(..=address).next_back()?;
    (address < range.end).then_some(*range)
}

/// Whether all pages of a range are mapped.
fn is_mapped(start: usize, end: usize) -> bool {
    let page = page();
    let start = start / page * page;
    let mut resident = vec![0u8; (end - start).div_ceil(page)];
    // SAFETY: the answer has a byte for each page of the range.
    unsafe { libc::mincore(start as *mut libc::c_void, end - start, resident.as_mut_ptr()) == 0 }
}
