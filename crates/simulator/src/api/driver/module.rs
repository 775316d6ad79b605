//! Modules and their functions.

use super::{call, call_in_context, put};
use crate::code::Code;
use crate::device::{
    self, MAX_THREADS_MULTIPROCESSOR, SHARED_MEMORY_MULTIPROCESSOR, SHARED_MEMORY_OPTIN, WARP,
};
use crate::graph::capture;
use crate::module::{FUNCTIONS, MODULES, Module};
use crate::registry::Handle;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::Ordering;

/// Loads what `nvrtcGetCUBIN` gave.
#[unsafe(no_mangle)]
pub extern "C" fn cuModuleLoadData(place: *mut Handle, image: *const c_void) -> Code {
    call_in_context(|device| {
        capture::check_unsafe_call()?;
        if image.is_null() || place.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller gives an image.
        let module = unsafe { Module::load(device, image.cast())? };
        put(place, MODULES.insert(module))
    })
}

/// Unloads a module; kernels in flight are still done.
#[unsafe(no_mangle)]
pub extern "C" fn cuModuleUnload(handle: Handle) -> Code {
    call_in_context(|_| {
        capture::check_unsafe_call()?;
        MODULES.remove(handle)?.forget_functions();
        Ok(())
    })
}

/// A kernel by its name.
#[unsafe(no_mangle)]
pub extern "C" fn cuModuleGetFunction(
    place: *mut Handle,
    module: Handle,
    name: *const c_char,
) -> Code {
    call_in_context(|_| {
        // Code may be loaded only now.
        capture::check_unsafe_call()?;
        if name.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: the caller gives a C string.
        let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| Code::NOT_FOUND)?;
        put(place, MODULES.get(module)?.function(name)?)
    })
}

/// One of a kernel's numbers. Local memory is not known here: zero.
#[unsafe(no_mangle)]
pub extern "C" fn cuFuncGetAttribute(value: *mut i32, attribute: i32, function: Handle) -> Code {
    call(|| {
        let function = FUNCTIONS.get(function)?;
        let number = match attribute {
            0 => function.max_threads() as i32,
            1 => function.declared_shared,
            // Sizes of constant and local memory; the way of caching; clusters.
            2 | 3 | 7 | 10..=15 => 0,
            // Registers of a thread.
            4 => 32,
            // The versions of the intermediate and of the binary code.
            5 | 6 => 90,
            8 => function.max_shared.load(Ordering::Relaxed),
            9 => function.carveout.load(Ordering::Relaxed),
            _ => return Err(Code::INVALID_VALUE),
        };
        put(value, number)
    })
}

/// Sets one of those that can be set.
#[unsafe(no_mangle)]
pub extern "C" fn cuFuncSetAttribute(function: Handle, attribute: i32, value: i32) -> Code {
    call(|| {
        let function = FUNCTIONS.get(function)?;
        match attribute {
            8 if (0..=SHARED_MEMORY_OPTIN as i32 - function.declared_shared).contains(&value) => {
                function.max_shared.store(value, Ordering::Relaxed)
            }
            9 if (-1..=100).contains(&value) => function.carveout.store(value, Ordering::Relaxed),
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    })
}

/// How many blocks a multiprocessor holds at a time.
#[unsafe(no_mangle)]
pub extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut i32,
    function: Handle,
    threads: i32,
    shared_bytes: usize,
) -> Code {
    call(|| {
        let function = FUNCTIONS.get(function)?;
        if threads <= 0 || threads as u32 > function.max_threads() {
            return Err(Code::INVALID_VALUE);
        }
        if shared_bytes > function.max_shared.load(Ordering::Relaxed) as usize {
            return put(blocks, 0);
        }
        let threads = (threads as u32).next_multiple_of(WARP);
        let by_threads = MAX_THREADS_MULTIPROCESSOR / threads;
        // Each block takes a KiB beside what it asks for.
        let shared_bytes = shared_bytes + function.declared_shared as usize;
        let by_memory = SHARED_MEMORY_MULTIPROCESSOR as usize / (shared_bytes + 1024);
        let most = device::attribute(0, 106)? as u32;
        put(blocks, by_threads.min(by_memory as u32).min(most) as i32)
    })
}
