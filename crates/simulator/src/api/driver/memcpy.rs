//! Copies and fills. From pageable host memory few bytes are taken before the call returns, many when the stream
//! comes to it; to pageable host memory the call returns when they are there; pinned
//! memory is read and written when the stream comes to it.

use super::stream::enqueue;
use super::{call, call_in_context};
use crate::code::{Code, Result};
use crate::graph::capture;
use crate::memory::{Place, device_range, place};
use crate::registry::Handle;
use crate::stream::{self, Stream};
use crate::work::{Fetched, Work};
use crate::{context, counters};
use std::ffi::c_void;
use std::sync::Arc;

/// Of pageable memory so many bytes are put aside at once; more are read when the stream comes to it, and the host may
/// have to wait for the device.
const STAGED: usize = 64 << 10;

/// Asks for a copy whose ends may lie anywhere.
fn copy(to: usize, from: usize, bytes: usize, stream: &Arc<Stream>) -> Result {
    if bytes == 0 {
        return Ok(());
    }
    let (target, source) = (place(to, bytes)?, place(from, bytes)?);
    counters::COPIES.count();
    match (&target, &source) {
        (Place::Pageable, _) => fetch(to, from, bytes, stream, matches!(source, Place::Pageable)),
        (_, Place::Pageable) => {
            capture_pageable(stream)?;
            if bytes > STAGED {
                // CUDA promises no more than that it is read before the stream goes on.
                counters::SYNCHRONIZING_CALLS.count();
                return enqueue(stream, Work::Copy { to, from, bytes });
            }
            // SAFETY: the caller of the copy promises that the source can be read.
            let bytes: Arc<[u8]> =
                unsafe { std::slice::from_raw_parts(from as *const u8, bytes) }.into();
            enqueue(stream, Work::Staged { to, bytes })
        }
        _ => enqueue(stream, Work::Copy { to, from, bytes }),
    }
}

/// Copies to pageable host memory and waits.
fn fetch(
    to: usize,
    from: usize,
    bytes: usize,
    stream: &Arc<Stream>,
    both_pageable: bool,
) -> Result {
    capture_pageable(stream)?;
    counters::SYNCHRONIZING_CALLS.count();
    if both_pageable {
        stream.synchronize()?;
        // SAFETY: the caller of the copy promises both ranges.
        unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
        return Ok(());
    }
    let fetched = Arc::new(Fetched::default());
    enqueue(stream, Work::Fetch { from, bytes, to: fetched.clone() })?;
    stream.synchronize()?;
    let buffer = fetched.take();
    // SAFETY: the caller of the copy promises that the target can be written.
    unsafe {
        std::ptr::copy_nonoverlapping(buffer.as_ptr(), to as *mut u8, buffer.len().min(bytes))
    };
    Ok(())
}

/// A graph cannot hold a copy of memory that it may not touch later.
fn capture_pageable(stream: &Stream) -> Result {
    capture::check_not_capturing(stream)
}

/// Copies between any two places.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: Handle) -> Code {
    call(|| copy(to as usize, from as usize, bytes, &stream::get(stream)?))
}

/// Copies from the host to a device.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    bytes: usize,
    stream: Handle,
) -> Code {
    call(|| {
        let stream = stream::get(stream)?;
        if bytes > 0 {
            device_range(to as usize, bytes)?;
        }
        copy(to as usize, from as usize, bytes, &stream)
    })
}

/// Copies from a device to the host.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    bytes: usize,
    stream: Handle,
) -> Code {
    call(|| {
        let stream = stream::get(stream)?;
        if bytes > 0 {
            device_range(from as usize, bytes)?;
        }
        copy(to as usize, from as usize, bytes, &stream)
    })
}

/// Copies on a device.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, bytes: usize, stream: Handle) -> Code {
    call(|| {
        let stream = stream::get(stream)?;
        if bytes > 0 {
            device_range(to as usize, bytes)?;
            device_range(from as usize, bytes)?;
        }
        copy(to as usize, from as usize, bytes, &stream)
    })
}

/// Copies from one device to another.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    to_context: Handle,
    from: u64,
    from_context: Handle,
    bytes: usize,
    stream: Handle,
) -> Code {
    call(|| {
        context::device_of(to_context)?;
        context::device_of(from_context)?;
        let stream = stream::get(stream)?;
        if bytes > 0 {
            device_range(to as usize, bytes)?;
            device_range(from as usize, bytes)?;
        }
        copy(to as usize, from as usize, bytes, &stream)
    })
}

/// Asks for a fill of memory that devices can reach.
fn fill(to: u64, value: u32, width: usize, count: usize, stream: Handle) -> Result {
    let stream = stream::get(stream)?;
    let bytes = count.checked_mul(width).ok_or(Code::INVALID_VALUE)?;
    if !(to as usize).is_multiple_of(width) {
        return Err(Code::INVALID_VALUE);
    }
    if bytes == 0 {
        return Ok(());
    }
    match place(to as usize, bytes)? {
        Place::Pageable => Err(Code::INVALID_VALUE),
        _ => enqueue(&stream, Work::Fill { to: to as usize, value, width, count }),
    }
}

/// Fills bytes.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: Handle) -> Code {
    call_in_context(|_| fill(to, u32::from(value), 1, count, stream))
}

/// Fills words of two bytes.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD16Async(to: u64, value: u16, count: usize, stream: Handle) -> Code {
    call_in_context(|_| fill(to, u32::from(value), 2, count, stream))
}

/// Fills words of four bytes.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemsetD32Async(to: u64, value: u32, count: usize, stream: Handle) -> Code {
    call_in_context(|_| fill(to, value, 4, count, stream))
}
