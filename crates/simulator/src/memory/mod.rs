//! Memory: what is allocated on each device, what host memory is pinned, and where a pointer points.

pub mod block;
pub mod blocks;
pub mod host;
pub mod mapping;
pub mod margins;

use crate::code::{Code, Result};
use std::sync::Arc;

/// Where a range of addresses lies.
#[derive(Debug, Clone)]
pub enum Place {
    /// Within one block of device memory.
    Device(Arc<block::Block>),
    /// Within host memory that a device can reach by itself.
    Pinned,
    /// Within other host memory, or nowhere.
    Pageable,
}

/// Where a range lies. One that begins within a block and does not end there is an error.
pub fn place(address: usize, bytes: usize) -> Result<Place> {
    if let Some(block) = blocks::containing(address) {
        return if bytes <= block.end() - address {
            Ok(Place::Device(block))
        } else {
            Err(Code::INVALID_VALUE)
        };
    }
    if address == 0 && bytes > 0 {
        return Err(Code::INVALID_VALUE);
    }
    match host::containing(address) {
        Some(range) if bytes <= range.end - address => Ok(Place::Pinned),
        Some(_) => Err(Code::INVALID_VALUE),
        None => Ok(Place::Pageable),
    }
}

/// The block of device memory in which a whole range lies.
pub fn device_range(address: usize, bytes: usize) -> Result<Arc<block::Block>> {
    match place(address, bytes)? {
        Place::Device(block) => Ok(block),
        _ => Err(Code::INVALID_VALUE),
    }
}
