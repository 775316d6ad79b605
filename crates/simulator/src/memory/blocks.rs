//! Blocks of device memory: those that this process allocated and those that it opened from others.

use super::block::Block;
use super::mapping::Mapping;
use super::margins;
use crate::code::{Code, Result};
use crate::counters;
use crate::faults;
use crate::settings::{self, Fault, Guard};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a new block is filled with under the adversary: a NaN as f32, f16 and bf16, a huge f64.
pub const GARBAGE: [u8; 4] = 0x7ffb_7ffb_u32.to_le_bytes();

/// Addresses and sizes are multiples of this, as in CUDA.
const ALIGNMENT: usize = 512;

static BLOCKS: RwLock<BTreeMap<usize, Arc<Block>>> = RwLock::new(BTreeMap::new());
static USED: [AtomicUsize; crate::context::MAX_DEVICES] =
    [const { AtomicUsize::new(0) }; crate::context::MAX_DEVICES];

/// Where a block of so many bytes begins in a mapping.
fn offset(mapping: usize, bytes: usize) -> usize {
    match settings::get().guard {
        Guard::Rounded => mapping - bytes.next_multiple_of(ALIGNMENT),
        Guard::End(alignment) => mapping - bytes.next_multiple_of(alignment),
        Guard::Start => 0,
    }
}

/// Allocates on a device. The block's end lies as near to the forbidden page as the alignment allows,
/// unless its beginning is to lie at one.
pub fn allocate(device: usize, bytes: usize) -> Result<usize> {
    let number = counters::ALLOCATIONS.count();
    if bytes == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let size = bytes.checked_next_multiple_of(ALIGNMENT).ok_or(Code::OUT_OF_MEMORY)?;
    let limit = settings::get().memory;
    let used = &USED[device];
    let fits = |used: usize| used.checked_add(size).filter(|used| *used <= limit);
    if faults::strikes(Fault::OutOfMemory, number)
        || used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_err()
    {
        return Err(Code::OUT_OF_MEMORY);
    }
    let mapping = Mapping::new(size).map_err(|error| {
        used.fetch_sub(size, Ordering::AcqRel);
        eprintln!("simulated GPU {device}: the host gives no memory for {bytes} bytes: {error}");
        Code::OUT_OF_MEMORY
    })?;
    let offset = offset(mapping.bytes(), bytes);
    let block = Block::new(device, mapping, offset, bytes, false);
    margins::mark(&block);
    if settings::adversary().is_some() {
        fill_with_garbage(&block);
    }
    counters::ALLOCATED_BYTES.add(size as u64);
    Ok(insert(block).address())
}

/// Writes the pattern over all of a new block.
fn fill_with_garbage(block: &Block) {
    // SAFETY: the block's own bytes, which nobody has yet.
    let bytes = unsafe { std::slice::from_raw_parts_mut(block.address() as *mut u8, block.bytes) };
    bytes.chunks_mut(4).for_each(|chunk| chunk.copy_from_slice(&GARBAGE[..chunk.len()]));
}

/// Enters a block in the table.
pub fn insert(block: Block) -> Arc<Block> {
    let block = Arc::new(block);
    BLOCKS.write().insert(block.address(), block.clone());
    block
}

/// Takes a block out of the table; `imported` says which kind it must be of.
pub fn remove(address: usize, imported: bool) -> Result {
    let mut blocks = BLOCKS.write();
    match blocks.get(&address) {
        Some(block) if block.imported == imported => {}
        _ => return Err(Code::INVALID_VALUE),
    }
    let block = blocks.remove(&address);
    drop(blocks);
    if let Some(block) = block.filter(|block| !block.imported) {
        let size = block.bytes.next_multiple_of(ALIGNMENT);
        USED[block.device].fetch_sub(size, Ordering::AcqRel);
        counters::ALLOCATED_BYTES.subtract(size as u64);
    }
    Ok(())
}

/// Forgets all blocks of a device, when its context ends.
pub fn remove_all(device: usize) {
    let mut blocks = BLOCKS.write();
    let mine = |block: &Block| block.device == device;
    let addresses: Vec<(usize, bool)> = blocks
        .iter()
        .filter(|(_, block)| mine(block))
        .map(|(address, block)| (*address, block.imported))
        .collect();
    let removed: Vec<_> =
        addresses.iter().filter_map(|(address, _)| blocks.remove(address)).collect();
    drop(blocks);
    for block in removed.iter().filter(|block| !block.imported) {
        let size = block.bytes.next_multiple_of(ALIGNMENT);
        USED[device].fetch_sub(size, Ordering::AcqRel);
        counters::ALLOCATED_BYTES.subtract(size as u64);
    }
}

/// Calls a function for all blocks.
pub fn each(mut f: impl FnMut(&Block)) {
    BLOCKS.read().values().for_each(|block| f(block));
}

/// The block in which an address lies.
pub fn containing(address: usize) -> Option<Arc<Block>> {
    let blocks = BLOCKS.read();
    let (_, block) = blocks.range(..=address).next_back()?;
    (address < block.end()).then(|| block.clone())
}

/// The block nearest to an address that lies in none, for the report of a fault.
pub fn nearest(address: usize) -> Option<Arc<Block>> {
    let blocks = BLOCKS.read();
    let below = blocks
        .range(..=address)
        .next_back()
        .map(|(_, block)| (address - block.end().min(address), block));
    let above = blocks.range(address..).next().map(|(_, block)| (block.address() - address, block));
    let nearer = below.into_iter().chain(above).min_by_key(|(distance, _)| *distance);
    nearer.map(|(_, block)| block.clone())
}

/// Bytes of a device that are allocated.
pub fn used(device: usize) -> usize {
    USED[device].load(Ordering::Acquire)
}
