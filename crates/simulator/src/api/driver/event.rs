//! Events.

use super::{call, call_in_context, put};
use crate::code::{Code, Result};
use crate::event::{self, DISABLE_TIMING, Event, INTERPROCESS, Mark, Recorded};
use crate::graph::capture;
use crate::ipc::event::SharedEvent;
use crate::registry::Handle;
use crate::work::Work;
use crate::{context, counters, stream};
use std::sync::Arc;

/// Makes an event.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventCreate(place: *mut Handle, flags: u32) -> Code {
    call_in_context(|device| {
        let shared = flags & INTERPROCESS != 0;
        if flags & !7 != 0 || (shared && flags & DISABLE_TIMING == 0) || place.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        let shared = if shared { Some(Arc::new(SharedEvent::new()?)) } else { None };
        put(place, event::EVENTS.insert(Event::new(device, flags, shared)))
    })
}

/// Destroys an event; streams that wait for it still do.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventDestroy_v2(handle: Handle) -> Code {
    call(|| {
        let event = event::EVENTS.remove(handle)?;
        if let Some(shared) = &event.shared {
            shared.destroy();
        }
        Ok(())
    })
}

/// Records an event in a stream of its context.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventRecord(handle: Handle, stream: Handle) -> Code {
    call(|| {
        let stream = stream::get(stream)?;
        context::of(stream.device).check()?;
        let event = event::get(handle)?;
        if event.device != stream.device {
            return Err(Code::INVALID_HANDLE);
        }
        match capture::point(&stream)? {
            Some(point) => {
                *event.latest.lock() = Recorded::Captured(point);
                Ok(())
            }
            None => stream.submit(Work::Record(event.record())),
        }
    })
}

/// The record that a call about an event means.
fn latest(handle: Handle) -> Result<(Arc<Event>, Option<Arc<Mark>>)> {
    let event = event::get(handle)?;
    context::of(event.device).check()?;
    let recorded = event.pending();
    match recorded {
        Recorded::Never => Ok((event, None)),
        Recorded::Live(mark) => Ok((event, Some(mark))),
        Recorded::Captured(_) => Err(Code::CAPTURED_EVENT),
    }
}

/// Whether the latest record is done.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventQuery(handle: Handle) -> Code {
    call(|| {
        let (_, mark) = latest(handle)?;
        capture::check_unsafe_call()?;
        match mark {
            Some(mark) if !mark.is_done() => Err(Code::NOT_READY),
            _ => Ok(()),
        }
    })
}

/// Waits for the latest record.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventSynchronize(handle: Handle) -> Code {
    call(|| {
        let (event, mark) = latest(handle)?;
        counters::SYNCHRONIZING_CALLS.count();
        capture::check_unsafe_call()?;
        mark.map_or(Ok(()), |mark| stream::wait_for(&mark, event.device))
    })
}

/// The time between two records, in milliseconds.
fn elapsed(milliseconds: *mut f32, start: Handle, end: Handle) -> Result {
    let (first, start) = latest(start)?;
    let (second, end) = latest(end)?;
    if (first.flags | second.flags) & DISABLE_TIMING != 0 {
        return Err(Code::INVALID_HANDLE);
    }
    let (start, end) = (start.ok_or(Code::INVALID_HANDLE)?, end.ok_or(Code::INVALID_HANDLE)?);
    if !start.is_done() || !end.is_done() {
        return Err(Code::NOT_READY);
    }
    put(milliseconds, (end.time() as f64 - start.time() as f64) as f32 * 1e-6)
}

/// The time between two events.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventElapsedTime(milliseconds: *mut f32, start: Handle, end: Handle) -> Code {
    call(|| elapsed(milliseconds, start, end))
}

/// The time between two events, under the name that later headers use.
#[unsafe(no_mangle)]
pub extern "C" fn cuEventElapsedTime_v2(
    milliseconds: *mut f32,
    start: Handle,
    end: Handle,
) -> Code {
    call(|| elapsed(milliseconds, start, end))
}
