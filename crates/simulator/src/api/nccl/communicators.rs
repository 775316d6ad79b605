//! Communicators: how they come into being, what they are, how they end.

use crate::context;
use crate::nccl::board::{MAX_RANKS, State};
use crate::nccl::communicator::{self, COMMUNICATORS};
use crate::nccl::id::{self, UniqueId};
use crate::nccl::outcome::{Outcome, Result};
use crate::nccl::split::{self, NO_COLOR};
use crate::registry::Handle;
use std::ffi::c_char;
use std::ptr::null_mut;

/// 2.27.3, as NCCL writes it.
const VERSION: i32 = 22703;

/// The beginning of `ncclConfig_t`.
#[repr(C)]
#[derive(Debug)]
pub struct Config {
    /// Bytes of the caller's structure.
    pub size: usize,
    /// Says that it was initialised.
    pub magic: u32,
    /// NCCL's version in the caller's header.
    pub version: u32,
    /// Whether calls block; the least number stands for "not set".
    pub blocking: i32,
}

const MAGIC: u32 = 0xcafe_beef;

/// Writes a result where the caller wants it.
fn put<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return Err(Outcome::INVALID_ARGUMENT);
    }
    // SAFETY: the caller of the C function gave it for this.
    unsafe { place.write(value) };
    Ok(())
}

/// Whether a configuration asks for calls that block.
fn blocks(config: *const Config) -> Result<bool> {
    if config.is_null() {
        return Ok(true);
    }
    // SAFETY: the caller gives a configuration, or nothing.
    let config = unsafe { &*config };
    match config.magic {
        MAGIC => Ok(config.blocking != 0),
        _ => Err(Outcome::INVALID_ARGUMENT),
    }
}

/// NCCL's version.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetVersion(version: *mut i32) -> Outcome {
    put(version, VERSION).into()
}

/// A new unique id.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetUniqueId(place: *mut UniqueId) -> Outcome {
    id::make().and_then(|id| put(place, id)).into()
}

/// Joins a communicator and waits for the other ranks.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommInitRank(
    place: *mut Handle,
    world: i32,
    id: UniqueId,
    rank: i32,
) -> Outcome {
    ncclCommInitRankConfig(place, world, id, rank, null_mut())
}

/// Joins a communicator; whether it waits for the others is part of the configuration.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommInitRankConfig(
    place: *mut Handle,
    world: i32,
    id: UniqueId,
    rank: i32,
    config: *mut Config,
) -> Outcome {
    let begin = || {
        let device = context::current()?;
        let blocking = blocks(config)?;
        let most = MAX_RANKS as i32;
        if place.is_null() || !(1..=most).contains(&world) || !(0..world).contains(&rank) {
            return Err(Outcome::INVALID_ARGUMENT);
        }
        let (handle, communicator) = communicator::create(device, blocking)?;
        put(place, handle)?;
        let (rank, world) = (rank as usize, world as usize);
        if blocking {
            return communicator.join(&id, rank, world).inspect_err(|_| {
                let _ = COMMUNICATORS.remove(handle);
                let _ = put(place, null_mut());
                communicator.end(State::Aborted);
            });
        }
        communicator.submit(Box::new(move |communicator| {
            if communicator.join(&id, rank, world).is_ok() {
                communicator.set_in_progress(false);
            }
        }));
        Err(Outcome::IN_PROGRESS)
    };
    begin().into()
}

/// Makes a communicator of the ranks that give the same colour, in the order of their keys.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommSplit(
    parent: Handle,
    color: i32,
    key: i32,
    place: *mut Handle,
    config: *mut Config,
) -> Outcome {
    let begin = || {
        let parent = communicator::get(parent)?;
        parent.check_ready()?;
        if color < NO_COLOR || place.is_null() {
            return Err(Outcome::INVALID_ARGUMENT);
        }
        let blocking = if config.is_null() { parent.blocking } else { blocks(config)? };
        let (handle, child) = match color {
            NO_COLOR => (null_mut(), None),
            _ => {
                let (handle, child) = communicator::create(parent.device, blocking)?;
                (handle, Some(child))
            }
        };
        put(place, handle)?;
        if parent.blocking {
            return split::split(&parent, color, key, child.as_deref());
        }
        parent.set_in_progress(true);
        std::thread::spawn(move || {
            let done = split::split(&parent, color, key, child.as_deref());
            parent.set_in_progress(false);
            if let (Ok(()), Some(child)) = (done, child) {
                child.set_in_progress(false);
            }
        });
        Err(Outcome::IN_PROGRESS)
    };
    begin().into()
}

/// Begins to end a communicator: what was called is done first.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommFinalize(handle: Handle) -> Outcome {
    let begin = || {
        let communicator = communicator::get(handle)?;
        communicator.check_ready()?;
        if communicator.blocking {
            communicator.drain();
            communicator.outlive_graphs();
            return Ok(());
        }
        communicator.set_in_progress(true);
        communicator.submit(Box::new(|communicator| {
            communicator.outlive_graphs();
            communicator.set_in_progress(false);
        }));
        Err(Outcome::IN_PROGRESS)
    };
    begin().into()
}

/// Ends a communicator; what was called is done first.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommDestroy(handle: Handle) -> Outcome {
    finish(handle, State::Left).into()
}

/// Ends a communicator at once; its calls on streams end without a result.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommAbort(handle: Handle) -> Outcome {
    finish(handle, State::Aborted).into()
}

fn finish(handle: Handle, state: State) -> Result {
    let removed = COMMUNICATORS.remove(handle).map_err(|_| Outcome::INVALID_ARGUMENT)?;
    removed.end(state);
    removed.outlive_graphs();
    Ok(())
}

/// What has gone wrong since, or that a call is under way.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommGetAsyncError(handle: Handle, place: *mut Outcome) -> Outcome {
    communicator::get(handle).and_then(|communicator| put(place, communicator.outcome())).into()
}

/// A code's text.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(outcome: Outcome) -> *const c_char {
    outcome.text().as_ptr()
}

/// The last message of a communicator.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetLastError(handle: Handle) -> *const c_char {
    communicator::get(handle).map_or(c"".as_ptr(), |communicator| communicator.message())
}

/// How many ranks there are.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommCount(handle: Handle, place: *mut i32) -> Outcome {
    communicator::get(handle).and_then(|one| put(place, one.place()?.world as i32)).into()
}

/// The device.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommCuDevice(handle: Handle, place: *mut i32) -> Outcome {
    communicator::get(handle).and_then(|one| put(place, one.device as i32)).into()
}

/// This rank.
#[unsafe(no_mangle)]
pub extern "C" fn ncclCommUserRank(handle: Handle, place: *mut i32) -> Outcome {
    communicator::get(handle).and_then(|one| put(place, one.place()?.rank as i32)).into()
}
