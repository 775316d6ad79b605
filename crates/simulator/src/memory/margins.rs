//! The bytes between a block and its forbidden pages, where `TORCHRS_SIMULATED_GUARD` is set: they hold a
//! pattern, so that a write into them is seen when the kernel is done.

use super::block::Block;
use super::blocks;
use crate::settings::{self, Guard};
use std::ops::Range;

/// A NaN in all types that numbers have; no zero, so that it is seen where it is used.
const PATTERN: u8 = 0xff;

/// Whether margins are looked at.
fn is_on() -> bool {
    settings::get().guard != Guard::Rounded
}

/// The margins of a block that this process allocated.
fn of(block: &Block) -> [Range<usize>; 2] {
    let mapping = block.mapping();
    [mapping.start()..block.address(), block.end()..mapping.start() + mapping.bytes()]
}

/// Writes the pattern around a new block.
pub fn mark(block: &Block) {
    if is_on() {
        for margin in of(block) {
            // SAFETY: pages of the block's own mapping, which belong to nobody.
            unsafe { (margin.start as *mut u8).write_bytes(PATTERN, margin.len()) };
        }
    }
}

/// Says what was written beside blocks since the last call, and mends it.
pub fn spoiled() -> Option<String> {
    if !is_on() {
        return None;
    }
    let mut said = None;
    blocks::each(|block| {
        for margin in of(block).into_iter().filter(|_| !block.imported) {
            // SAFETY: as above; the block's mapping lives as long as the table has it.
            let find = |address: &usize| unsafe { *(*address as *const u8) != PATTERN };
            if let Some(address) = margin.clone().find(find) {
                let place = match address.checked_sub(block.end()) {
                    Some(past) => format!("{past} bytes after the end of"),
                    None => format!("{} bytes before", block.address() - address),
                };
                let (bytes, start, device) = (block.bytes, block.address(), block.device);
                said = Some(format!(
                    "a write to {address:#x}, {place} the allocation of {bytes} bytes at {start:#x} on device {device}"
                ));
                mark(block);
            }
        }
    });
    said
}
