//! The driver's functions, by family. Each checks what CUDA checks, in its order, and gives CUDA's codes.
//!
//! All of them take C's pointers: callers promise what `cuda.h` asks of them, which is the safety
//! contract of every function here.

pub mod context;
pub mod device;
pub mod event;
pub mod graph;
pub mod init;
pub mod ipc;
pub mod kernel;
pub mod memcpy;
pub mod memory;
pub mod module;
pub mod stream;

use crate::code::{Code, Result};
use crate::{context as contexts, work};
use std::sync::atomic::{AtomicBool, Ordering};

static INITIALIZED: AtomicBool = AtomicBool::new(false);

/// The frame of a function that needs no context.
fn call(body: impl FnOnce() -> Result) -> Code {
    if !INITIALIZED.load(Ordering::Acquire) {
        return Code::NOT_INITIALIZED;
    }
    if work::in_host_function() {
        return Code::NOT_PERMITTED;
    }
    body().into()
}

/// The frame of a function that needs a whole context, whose device it gets.
fn call_in_context(body: impl FnOnce(usize) -> Result) -> Code {
    call(|| body(contexts::current()?))
}

/// Writes a result where the caller wants it.
fn put<T>(place: *mut T, value: T) -> Result {
    if place.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller of the C function gave it for this.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes a text and its final zero where the caller wants it, cut to the room there.
fn put_text(place: *mut std::ffi::c_char, room: i32, text: &str) -> Result {
    if place.is_null() || room <= 0 {
        return Err(Code::INVALID_VALUE);
    }
    let bytes = text.len().min(room as usize - 1);
    // SAFETY: the caller of the C function says that there is this much room.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr(), place.cast(), bytes);
        place.add(bytes).write(0);
    }
    Ok(())
}
