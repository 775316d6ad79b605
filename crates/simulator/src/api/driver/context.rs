//! Primary contexts.

use super::{call, call_in_context, put};
use crate::code::Code;
use crate::graph::capture;
use crate::registry::Handle;
use crate::{context, counters, device, faults, ipc, memory, module, settings, stream};
use std::ptr::null_mut;

/// Retains the primary context of a device.
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRetain(place: *mut Handle, device: i32) -> Code {
    call(|| {
        let device = device::check(device)?;
        if !context::of(device).is_retained() {
            // It is made now.
            capture::check_unsafe_call()?;
        }
        put(place, context::retain(device))
    })
}

/// Releases it; after the last time all that was made in it is gone.
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> Code {
    call(|| {
        let device = device::check(device)?;
        if context::release(device)? {
            let _ = stream::synchronize_device(device);
            stream::destroy_all(device);
            for module in module::MODULES.remove_where(|module| module.device == device) {
                module.forget_functions();
            }
            memory::blocks::remove_all(device);
            ipc::memory::forget_closed();
            context::of(device).reset();
        }
        Ok(())
    })
}

/// Makes a context current on this thread; null for none.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(handle: Handle) -> Code {
    call(|| {
        let device = if handle.is_null() { None } else { Some(context::device_of(handle)?) };
        context::set_current(device);
        Ok(())
    })
}

/// The context that is current on this thread, or null.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetCurrent(place: *mut Handle) -> Code {
    call(|| put(place, context::current_or_none().map_or(null_mut(), context::handle)))
}

/// The device of the current context.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetDevice(place: *mut i32) -> Code {
    call_in_context(|device| put(place, device as i32))
}

/// Waits for all work of the current context.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSynchronize() -> Code {
    call_in_context(|device| {
        counters::SYNCHRONIZING_CALLS.count();
        capture::check_device_not_capturing(device)?;
        stream::synchronize_device(device)
    })
}

/// The priorities that streams can have, the least important first.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32) -> Code {
    call_in_context(|_| {
        if !least.is_null() {
            put(least, 0)?;
        }
        if greatest.is_null() { Ok(()) } else { put(greatest, -5) }
    })
}

/// Lets the current context reach another one's memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxEnablePeerAccess(peer: Handle, flags: u32) -> Code {
    call_in_context(|device| {
        capture::check_unsafe_call()?;
        let peer = context::device_of(peer)?;
        if flags != 0 {
            return Err(Code::INVALID_VALUE);
        }
        if peer == device {
            return Err(Code::INVALID_DEVICE);
        }
        if faults::is_set(settings::Fault::NoPeer) {
            return Err(Code::PEER_ACCESS_UNSUPPORTED);
        }
        context::of(device).enable_peer(peer)
    })
}
