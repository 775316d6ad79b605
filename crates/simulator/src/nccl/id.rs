//! Unique ids: how ranks find each other. On one machine an id names an open memfd of the process that made it, which
//! has to live until all ranks have joined. In a job on several hosts it says where that process listens.

use super::board;
use super::outcome::{Outcome, Result};
use super::root::Root;
use crate::ipc::handle::{Description, Kind};
use crate::memory::mapping::Mapping;
use crate::settings;
use parking_lot::Mutex;

/// A `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId(pub [u8; 128]);

/// What this process has made and may be asked for.
static MADE: Mutex<Vec<(Description, Mapping)>> = Mutex::new(Vec::new());
/// Ids that a process keeps: older ones were used long ago, or never will be.
const KEPT: usize = 256;

/// Makes an id and what is behind it: memory or, in a job on several hosts, somebody who listens.
pub fn make() -> Result<UniqueId> {
    if settings::get().spans_hosts {
        let root = Root::start().map_err(|error| {
            eprintln!("simulated NCCL: no unique id: {error}");
            Outcome::SYSTEM_ERROR
        })?;
        return Ok(UniqueId(root.encode()));
    }
    let memory = Mapping::new(board::BYTES).map_err(|_| Outcome::SYSTEM_ERROR)?;
    let description = Description::of(memory.fd(), 0, 0, board::BYTES)?;
    let mut id = UniqueId([0; 128]);
    id.0[..64].copy_from_slice(&description.encode(Kind::Communicator));
    let mut made = MADE.lock();
    if made.len() == KEPT {
        made.remove(0);
    }
    made.push((description, memory));
    Ok(id)
}

/// Maps the memory behind an id.
pub fn open(id: &UniqueId) -> Result<Mapping> {
    let bytes = id.0.first_chunk().ok_or(Outcome::INTERNAL_ERROR)?;
    let description =
        Description::decode(bytes, Kind::Communicator).map_err(|_| Outcome::INVALID_ARGUMENT)?;
    // The process that made it is gone, or has forgotten it.
    let fd = description.open().map_err(|_| Outcome::REMOTE_ERROR)?;
    Mapping::of(fd, board::BYTES).map_err(|_| Outcome::SYSTEM_ERROR)
}

/// Closes what an id of this process named: everybody has it.
pub fn forget(id: &UniqueId) {
    let Some(bytes) = id.0.first_chunk() else { return };
    if let Ok(description) = Description::decode(bytes, Kind::Communicator) {
        MADE.lock().retain(|(other, _)| *other != description);
    }
}
