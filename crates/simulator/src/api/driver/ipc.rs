//! Memory and events between processes.

use super::{call, call_in_context, put};
use crate::code::Code;
use crate::event::{self, DISABLE_TIMING, Event, INTERPROCESS};
use crate::graph::capture;
use crate::ipc::{event::SharedEvent, memory};
use crate::registry::Handle;
use crate::{context, counters, stream};
use std::sync::Arc;

/// `CUipcMemHandle` and `CUipcEventHandle`, which go by value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IpcHandle(pub [u8; 64]);

/// The handle of the whole allocation in which a pointer lies.
#[unsafe(no_mangle)]
pub extern "C" fn cuIpcGetMemHandle(place: *mut IpcHandle, pointer: u64) -> Code {
    call_in_context(|_| {
        capture::check_unsafe_call()?;
        put(place, IpcHandle(memory::export(pointer as usize)?))
    })
}

/// Opens another process's memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuIpcOpenMemHandle_v2(place: *mut u64, handle: IpcHandle, flags: u32) -> Code {
    call_in_context(|device| {
        capture::check_unsafe_call()?;
        // The one flag there is must be set: peer access where it is needed.
        if flags != 1 || place.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        put(place, memory::open(device, &handle.0)? as u64)
    })
}

/// Closes it; after the last time, when work that may use it is done, it is not mapped any more.
#[unsafe(no_mangle)]
pub extern "C" fn cuIpcCloseMemHandle(pointer: u64) -> Code {
    call_in_context(|device| {
        capture::check_unsafe_call()?;
        if memory::is_last(pointer as usize) {
            counters::SYNCHRONIZING_CALLS.count();
            stream::synchronize_device(device)?;
        }
        memory::close(pointer as usize).map(|_| ())
    })
}

/// The handle of an event that was made for it.
#[unsafe(no_mangle)]
pub extern "C" fn cuIpcGetEventHandle(place: *mut IpcHandle, event: Handle) -> Code {
    call(|| {
        capture::check_unsafe_call()?;
        let event = event::get(event)?;
        context::of(event.device).check()?;
        let shared = event.shared.as_ref().ok_or(Code::INVALID_HANDLE)?;
        put(place, IpcHandle(shared.export(event.device)?))
    })
}

/// Opens another process's event, which that one has not destroyed.
#[unsafe(no_mangle)]
pub extern "C" fn cuIpcOpenEventHandle(place: *mut Handle, handle: IpcHandle) -> Code {
    call_in_context(|device| {
        capture::check_unsafe_call()?;
        let shared = Arc::new(SharedEvent::open(&handle.0)?);
        let event = Event::new(device, DISABLE_TIMING | INTERPROCESS, Some(shared));
        put(place, event::EVENTS.insert(event))
    })
}
