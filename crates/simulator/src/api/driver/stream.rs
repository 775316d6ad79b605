//! Streams.

use super::{call, call_in_context, put};
use crate::code::{Code, Result};
use crate::event::{self, Recorded};
use crate::graph::capture;
use crate::registry::Handle;
use crate::stream::{self, Stream};
use crate::work::{HostFunction, Work};
use crate::{context, counters};
use std::ffi::c_void;
use std::sync::Arc;

/// Puts work at a stream's end, or into the graph that it is captured for.
pub fn enqueue(stream: &Arc<Stream>, work: Work) -> Result {
    context::of(stream.device).check()?;
    match capture::take(stream, work)? {
        Some(work) => stream.submit(work),
        None => Ok(()),
    }
}

/// Makes a stream; the priority is not used.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamCreateWithPriority(
    place: *mut Handle,
    flags: u32,
    _priority: i32,
) -> Code {
    call_in_context(|device| {
        if flags > 1 || place.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        put(place, stream::create(device))
    })
}

/// Makes a stream.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamCreate(place: *mut Handle, flags: u32) -> Code {
    cuStreamCreateWithPriority(place, flags, 0)
}

/// Destroys a stream; work that is in it is still done.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamDestroy_v2(handle: Handle) -> Code {
    call_in_context(|_| {
        let stream = stream::STREAMS.get(handle)?;
        capture::check_not_capturing(&stream)?;
        stream::destroy(handle)
    })
}

/// Waits for the work of a stream.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamSynchronize(handle: Handle) -> Code {
    call(|| {
        let stream = stream::get(handle)?;
        context::of(stream.device).check()?;
        counters::SYNCHRONIZING_CALLS.count();
        capture::check_not_capturing(&stream)?;
        capture::check_unsafe_call()?;
        stream.synchronize()
    })
}

/// Whether the work of a stream is done.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamQuery(handle: Handle) -> Code {
    call(|| {
        let stream = stream::get(handle)?;
        context::of(stream.device).check()?;
        capture::check_not_capturing(&stream)?;
        capture::check_unsafe_call()?;
        if stream.is_idle() { Ok(()) } else { Err(Code::NOT_READY) }
    })
}

/// Lets a stream wait for the latest record of an event.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) -> Code {
    call(|| {
        let stream = stream::get(stream)?;
        context::of(stream.device).check()?;
        let event = event::get(event)?;
        if flags > 1 {
            return Err(Code::INVALID_VALUE);
        }
        match event.pending() {
            Recorded::Never => Ok(()),
            Recorded::Captured(point) => capture::join(&stream, &point),
            Recorded::Live(mark) => {
                capture::isolation(&stream)?;
                stream.submit(Work::Wait(mark))
            }
        }
    })
}

/// Calls a function of the host when the stream comes to it.
#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchHostFunc(
    stream: Handle,
    function: Option<HostFunction>,
    data: *mut c_void,
) -> Code {
    call(|| {
        let function = function.ok_or(Code::INVALID_VALUE)?;
        enqueue(&stream::get(stream)?, Work::Host { function, data: data as usize })
    })
}

/// The device of a stream's context, as a context.
#[unsafe(no_mangle)]
pub extern "C" fn cuStreamGetCtx(stream: Handle, place: *mut Handle) -> Code {
    call(|| put(place, context::handle(stream::get(stream)?.device)))
}
