//! Collectives, transfers and groups of them.

use crate::nccl::collective::{Collective, Kind};
use crate::nccl::communicator;
use crate::nccl::element::{DataType, Reduction};
use crate::nccl::group::{self, Operation};
use crate::nccl::mailbox::Transfer;
use crate::nccl::outcome::{Outcome, Result};
use crate::registry::Handle;
use crate::stream;
use std::ffi::c_void;

/// A collective as C gives it.
struct Raw {
    kind: Kind,
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    data_type: u32,
    reduction: u32,
    root: i32,
}

/// Starts a collective.
fn collective(raw: &Raw, handle: Handle, stream: Handle) -> Outcome {
    let begin = || -> Result {
        let communicator = communicator::get(handle)?;
        communicator.check_ready()?;
        let place = communicator.place()?;
        let bad = Outcome::INVALID_ARGUMENT;
        let data_type = DataType::from_number(raw.data_type).ok_or(bad)?;
        let reduction = Reduction::from_number(raw.reduction).ok_or(bad)?;
        if !(0..place.world as i32).contains(&raw.root) {
            return Err(bad);
        }
        let call = Collective {
            kind: raw.kind,
            send: raw.send as usize,
            receive: raw.receive as usize,
            count: raw.count,
            data_type,
            reduction,
            root: raw.root as usize,
        };
        let (sent, received) = call.bytes(place.rank, place.world);
        let buffers = [(call.send, sent), (call.receive, received)];
        let stream = stream::get(stream)?;
        group::call(&communicator, &stream, Operation::Collective(call), &buffers)
    };
    begin().into()
}

/// Starts a transfer.
fn transfer(
    sends: bool,
    address: usize,
    count: usize,
    data_type: u32,
    peer: i32,
    handle: Handle,
    stream: Handle,
) -> Outcome {
    let begin = || -> Result {
        let communicator = communicator::get(handle)?;
        communicator.check_ready()?;
        let bad = Outcome::INVALID_ARGUMENT;
        let data_type = DataType::from_number(data_type).ok_or(bad)?;
        if !(0..communicator.place()?.world as i32).contains(&peer) {
            return Err(bad);
        }
        let transfer = Transfer { sends, peer: peer as usize, address, count, data_type };
        let buffers = [(address, transfer.bytes())];
        let stream = stream::get(stream)?;
        group::call(&communicator, &stream, Operation::Transfers(vec![transfer]), &buffers)
    };
    begin().into()
}

/// Reduces to all ranks.
#[unsafe(no_mangle)]
pub extern "C" fn ncclAllReduce(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    data_type: u32,
    reduction: u32,
    communicator: Handle,
    stream: Handle,
) -> Outcome {
    let raw = Raw { kind: Kind::AllReduce, send, receive, count, data_type, reduction, root: 0 };
    collective(&raw, communicator, stream)
}

/// Gives one rank's data to all.
#[unsafe(no_mangle)]
pub extern "C" fn ncclBroadcast(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    data_type: u32,
    root: i32,
    communicator: Handle,
    stream: Handle,
) -> Outcome {
    let raw = Raw { kind: Kind::Broadcast, send, receive, count, data_type, reduction: 0, root };
    collective(&raw, communicator, stream)
}

/// Reduces to one rank.
#[unsafe(no_mangle)]
pub extern "C" fn ncclReduce(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    data_type: u32,
    reduction: u32,
    root: i32,
    communicator: Handle,
    stream: Handle,
) -> Outcome {
    let raw = Raw { kind: Kind::Reduce, send, receive, count, data_type, reduction, root };
    collective(&raw, communicator, stream)
}

/// Gives all ranks' data to all.
#[unsafe(no_mangle)]
pub extern "C" fn ncclAllGather(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    data_type: u32,
    communicator: Handle,
    stream: Handle,
) -> Outcome {
    let raw = Raw { kind: Kind::AllGather, send, receive, count, data_type, reduction: 0, root: 0 };
    collective(&raw, communicator, stream)
}

/// Reduces a part to each rank.
#[unsafe(no_mangle)]
pub extern "C" fn ncclReduceScatter(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    data_type: u32,
    reduction: u32,
    communicator: Handle,
    stream: Handle,
) -> Outcome {
    let raw =
        Raw { kind: Kind::ReduceScatter, send, receive, count, data_type, reduction, root: 0 };
    collective(&raw, communicator, stream)
}

/// Sends to one rank.
#[unsafe(no_mangle)]
pub extern "C" fn ncclSend(
    send: *const c_void,
    count: usize,
    data_type: u32,
    peer: i32,
    communicator: Handle,
    stream: Handle,
) -> Outcome {
    transfer(true, send as usize, count, data_type, peer, communicator, stream)
}

/// Receives from one rank.
#[unsafe(no_mangle)]
pub extern "C" fn ncclRecv(
    receive: *mut c_void,
    count: usize,
    data_type: u32,
    peer: i32,
    communicator: Handle,
    stream: Handle,
) -> Outcome {
    transfer(false, receive as usize, count, data_type, peer, communicator, stream)
}

/// Begins a group of calls that are started together.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> Outcome {
    group::start();
    Outcome::SUCCESS
}

/// Ends it and starts them.
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupEnd() -> Outcome {
    group::end().into()
}
