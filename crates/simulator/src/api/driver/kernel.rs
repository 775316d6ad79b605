//! The launch of a kernel.

use super::call;
use super::stream::enqueue;
use crate::code::{Code, Result};
use crate::device::{MAX_BLOCK, MAX_GRID, MAX_THREADS};
use crate::kernel::launch::{Argument, Launch};
use crate::module::{FUNCTIONS, Function};
use crate::registry::Handle;
use crate::settings::Fault;
use crate::work::Work;
use crate::{context, counters, faults, stream};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Launches a kernel; its arguments are copied before the call returns.
#[unsafe(no_mangle)]
pub extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: Handle,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Code {
    call(|| {
        let stream = stream::get(stream)?;
        context::of(stream.device).check()?;
        let function = FUNCTIONS.get(function)?;
        if function.module.device != stream.device {
            return Err(Code::INVALID_HANDLE);
        }
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        check_shape(&function, grid, block, shared_bytes)?;
        let arguments = arguments(&function, parameters, extra)?;
        let number = counters::KERNEL_LAUNCHES.count();
        let fault = [Fault::IllegalAddress, Fault::Hang]
            .into_iter()
            .find(|fault| faults::strikes(*fault, number));
        let (module, kernel) = (function.module.clone(), function.kernel);
        let launch = Launch { module, kernel, grid, block, shared_bytes, arguments, fault };
        enqueue(&stream, Work::Kernel(Arc::new(launch)))
    })
}

/// Whether the device can run such a shape.
fn check_shape(function: &Function, grid: [u32; 3], block: [u32; 3], shared_bytes: u32) -> Result {
    let within = |sizes: [u32; 3], most: [u32; 3]| {
        sizes.iter().zip(most).all(|(size, most)| (1..=most).contains(size))
    };
    let threads = block.iter().map(|n| u64::from(*n)).product::<u64>();
    if !within(grid, MAX_GRID) || !within(block, MAX_BLOCK) || threads > u64::from(MAX_THREADS) {
        return Err(Code::INVALID_VALUE);
    }
    if threads > u64::from(function.max_threads()) {
        return Err(Code::LAUNCH_OUT_OF_RESOURCES);
    }
    if shared_bytes > function.max_shared.load(Ordering::Relaxed) as u32 {
        return Err(Code::INVALID_VALUE);
    }
    Ok(())
}

/// Copies of the arguments.
fn arguments(
    function: &Function,
    parameters: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Result<Vec<Argument>> {
    if !extra.is_null() {
        return Err(Code::NOT_SUPPORTED);
    }
    let sizes = function.sizes();
    if sizes.is_empty() {
        return Ok(Vec::new());
    }
    if parameters.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let copy = |(i, size): (usize, &u32)| {
        // SAFETY: the caller gives a pointer to each argument of the kernel.
        let from = unsafe { *parameters.add(i) };
        if from.is_null() {
            return Err(Code::INVALID_VALUE);
        }
        // SAFETY: as above; the kernel says how large the argument is.
        Ok(unsafe { Argument::copy(from.cast(), *size as usize) })
    };
    sizes.iter().enumerate().map(copy).collect()
}
