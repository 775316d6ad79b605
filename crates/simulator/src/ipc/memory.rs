//! Device memory of other processes.

use super::handle::{Description, Kind};
use crate::code::{Code, Result};
use crate::faults;
use crate::memory::block::Block;
use crate::memory::blocks;
use crate::memory::mapping::Mapping;
use crate::settings::Fault;
use parking_lot::Mutex;
use std::collections::HashMap;

/// What is open: where it lies, and how often it was opened.
static OPEN: Mutex<Option<HashMap<Description, (usize, usize)>>> = Mutex::new(None);

/// The handle of the whole block in which an address lies.
pub fn export(address: usize) -> Result<[u8; 64]> {
    let block =
        blocks::containing(address).filter(|block| !block.imported).ok_or(Code::INVALID_VALUE)?;
    let mapping = block.mapping();
    let offset = block.address() - mapping.start();
    Ok(Description::of(mapping.fd(), block.device, offset, block.bytes)?.encode(Kind::Memory))
}

/// Opens a handle for a device; the same address each time.
pub fn open(device: usize, handle: &[u8; 64]) -> Result<usize> {
    let description = Description::decode(handle, Kind::Memory)?;
    if description.is_own() {
        return Err(Code::INVALID_CONTEXT);
    }
    if faults::is_set(Fault::NoPeer)
        && description.device as usize != crate::device::physical(device)
    {
        return Err(Code::PEER_ACCESS_UNSUPPORTED);
    }
    let mut open = OPEN.lock();
    let open = open.get_or_insert_default();
    if let Some((address, count)) = open.get_mut(&description) {
        *count += 1;
        return Ok(*address);
    }
    let fd = description.open()?;
    let (offset, bytes) = (description.offset as usize, description.bytes as usize);
    let len = (offset + bytes).next_multiple_of(crate::memory::mapping::page());
    let mapping = Mapping::of(fd, len).map_err(|_| Code::MAP_FAILED)?;
    let address = blocks::insert(Block::new(device, mapping, offset, bytes, true)).address();
    open.insert(description, (address, 1));
    Ok(address)
}

/// Closes what was opened; true when that was the last time.
pub fn close(address: usize) -> Result<bool> {
    let mut open = OPEN.lock();
    let open = open.get_or_insert_default();
    let (description, count) = open
        .iter_mut()
        .find(|(_, (at, _))| *at == address)
        .map(|(description, (_, count))| (*description, count))
        .ok_or(Code::INVALID_VALUE)?;
    *count -= 1;
    if *count > 0 {
        return Ok(false);
    }
    open.remove(&description);
    blocks::remove(address, true)?;
    Ok(true)
}

/// Whether closing this address would be the last time.
pub fn is_last(address: usize) -> bool {
    let open = OPEN.lock();
    open.iter().flat_map(HashMap::values).any(|(at, count)| *at == address && *count == 1)
}

/// Forgets all that lies within blocks which are gone.
pub fn forget_closed() {
    let mut open = OPEN.lock();
    open.get_or_insert_default().retain(|_, (address, _)| blocks::containing(*address).is_some());
}
