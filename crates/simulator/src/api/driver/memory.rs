//! Device memory, pinned host memory, and what a pointer is.

use super::{call_in_context, put};
use crate::code::{Code, Result};
use crate::graph::capture;
use crate::memory::{Place, blocks, host, place};
use crate::{context, counters, settings, stream};
use std::ffi::c_void;

/// Free and all memory of the current device.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Code {
    call_in_context(|device| {
        let memory = settings::get().memory;
        put(free, memory.saturating_sub(blocks::used(device)))?;
        put(total, memory)
    })
}

/// Allocates device memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemAlloc_v2(pointer: *mut u64, bytes: usize) -> Code {
    call_in_context(|device| {
        capture::check_unsafe_call()?;
        if pointer.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        put(pointer, blocks::allocate(device, bytes)? as u64)
    })
}

/// Waits for all work of a device and frees its memory; as in CUDA, null is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(pointer: u64) -> Code {
    call_in_context(|_| {
        capture::check_unsafe_call()?;
        if pointer == 0 {
            return Ok(());
        }
        let block = blocks::containing(pointer as usize).ok_or(Code::INVALID_VALUE)?;
        if block.imported || block.address() != pointer as usize {
            return Err(Code::INVALID_VALUE);
        }
        counters::SYNCHRONIZING_CALLS.count();
        stream::synchronize_device(block.device)?;
        blocks::remove(pointer as usize, false)
    })
}

/// Allocates pinned host memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: u32) -> Code {
    call_in_context(|device| {
        capture::check_unsafe_call()?;
        if pointer.is_null() || flags & !7 != 0 {
            return Err(Code::INVALID_VALUE);
        }
        put(pointer, host::allocate(device, bytes)? as *mut c_void)
    })
}

/// Frees it, after all work is done that may use it.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFreeHost(pointer: *mut c_void) -> Code {
    call_in_context(|device| {
        capture::check_unsafe_call()?;
        let range = host::containing(pointer as usize).ok_or(Code::INVALID_VALUE)?;
        if !range.allocated || range.start != pointer as usize {
            return Err(Code::INVALID_VALUE);
        }
        counters::SYNCHRONIZING_CALLS.count();
        stream::synchronize_device(device)?;
        host::free(pointer as usize)
    })
}

/// Pins the caller's memory.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: u32) -> Code {
    call_in_context(|device| {
        capture::check_unsafe_call()?;
        if flags & !15 != 0 {
            return Err(Code::INVALID_VALUE);
        }
        host::register(device, pointer as usize, bytes)
    })
}

/// Ends that.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostUnregister(pointer: *mut c_void) -> Code {
    call_in_context(|_| {
        capture::check_unsafe_call()?;
        host::unregister(pointer as usize)
    })
}

/// The address of pinned memory for devices, which is the host's.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemHostGetDevicePointer_v2(
    place: *mut u64,
    pointer: *mut c_void,
    flags: u32,
) -> Code {
    call_in_context(|_| {
        if flags != 0 || host::containing(pointer as usize).is_none() {
            return Err(Code::INVALID_VALUE);
        }
        put(place, pointer as u64)
    })
}

/// One of the properties of a pointer.
#[unsafe(no_mangle)]
pub extern "C" fn cuPointerGetAttribute(
    place_of: *mut c_void,
    attribute: u32,
    pointer: u64,
) -> Code {
    call_in_context(|_| {
        if place_of.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        match place(pointer as usize, 0)? {
            Place::Device(block) => of_block(place_of, attribute, pointer, &block),
            Place::Pinned => of_pinned(place_of, attribute, pointer),
            Place::Pageable => Err(Code::INVALID_VALUE),
        }
    })
}

/// A property of a pointer to device memory.
fn of_block(
    place: *mut c_void,
    attribute: u32,
    pointer: u64,
    block: &crate::memory::block::Block,
) -> Result {
    match attribute {
        1 => put(place.cast(), context::handle(block.device)),
        // The type of memory is 2 for device memory.
        2 => put(place.cast(), 2u32),
        3 => put(place.cast(), pointer),
        4 => Err(Code::INVALID_VALUE),
        6 | 8 => put(place.cast(), 0u32),
        7 | 20 => put(place.cast(), block.id),
        9 => put(place.cast(), block.device as i32),
        10 => put(place.cast(), u32::from(!block.imported)),
        11 | 19 => put(place.cast(), block.address() as u64),
        12 | 18 => put(place.cast(), block.bytes),
        13 => put(place.cast(), 1u32),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// A property of a pointer to pinned host memory.
fn of_pinned(place: *mut c_void, attribute: u32, pointer: u64) -> Result {
    let range = host::containing(pointer as usize).ok_or(Code::INVALID_VALUE)?;
    match attribute {
        1 => put(place.cast(), context::handle(range.device)),
        // The type of memory is 1 for the host's.
        2 => put(place.cast(), 1u32),
        3 | 4 => put(place.cast(), pointer),
        6 | 8 | 10 => put(place.cast(), 0u32),
        7 | 20 => put(place.cast(), range.start as u64),
        9 => put(place.cast(), range.device as i32),
        11 | 19 => put(place.cast(), range.start as u64),
        12 | 18 => put(place.cast(), range.end - range.start),
        13 => put(place.cast(), 1u32),
        _ => Err(Code::INVALID_VALUE),
    }
}
