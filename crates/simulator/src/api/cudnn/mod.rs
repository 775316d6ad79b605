//! cuDNN's graph interface, as far as convolutions and attention need it: handles, descriptors with typed attributes, what engines
//! there are, plans, and their execution. As the real library it refuses what is not described to the end.
//!
//! As for the driver's functions, callers promise what `cudnn_graph.h` asks of them.

pub mod attributes;
pub mod convolution;
pub mod descriptor;
pub mod engines;
pub mod graph;
pub mod steps;
pub mod tensor;

use crate::registry::{Handle, Registry};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::ffi::c_char;

/// `cudnnStatus_t`.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status(pub i32);

impl Status {
    /// Done.
    pub const SUCCESS: Status = Status(0);
    /// There is no device, or the handle is none.
    pub const NOT_INITIALIZED: Status = Status(1001);
    /// An argument that cannot be.
    pub const BAD_PARAM: Status = Status(2000);
    /// A descriptor that was not finished.
    pub const NOT_FINALIZED: Status = Status(2004);
    /// Tensors that do not fit.
    pub const SHAPE_MISMATCH: Status = Status(2008);
    /// An attribute of another type.
    pub const ATTRIBUTE_TYPE: Status = Status(2010);
    /// What cuDNN does not compute.
    pub const NOT_SUPPORTED: Status = Status(3000);
    /// Something is wrong inside.
    pub const INTERNAL_ERROR: Status = Status(4000);
    /// The stream does not take the work.
    pub const EXECUTION_FAILED: Status = Status(5000);
}

/// A status with what was wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal(pub Status, pub String);

/// What functions inside give.
pub type Outcome<T = ()> = Result<T, Refusal>;

/// An error, with why.
fn refuse<T>(status: Status, why: impl Into<String>) -> Outcome<T> {
    Err(Refusal(status, why.into()))
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The status that a C function returns; why it is none of success is kept for the thread.
fn status(outcome: Outcome) -> Status {
    match outcome {
        Ok(()) => Status::SUCCESS,
        Err(Refusal(status, why)) => {
            LAST.set(why);
            status
        }
    }
}

/// Writes where the caller wants it.
fn put<T>(place: *mut T, value: T) -> Outcome {
    if place.is_null() {
        return refuse(Status::BAD_PARAM, "no place for the result");
    }
    // SAFETY: the caller of the C function gave it for this.
    unsafe { place.write(value) };
    Ok(())
}

/// Handles with their streams.
static HANDLES: Registry<Mutex<usize>> = Registry::new();

/// The version that cuDNN claims.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetVersion() -> usize {
    91_300
}

/// The version of CUDA that it was made for.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetCudartVersion() -> usize {
    let driver = crate::device::DRIVER_VERSION as usize;
    if crate::faults::is_set(crate::settings::Fault::NewCudnn) { driver + 1000 } else { driver }
}

/// Makes a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnCreate(place: *mut Handle) -> Status {
    if crate::context::current().is_err() {
        return status(refuse(Status::NOT_INITIALIZED, "no device is current"));
    }
    status(put(place, HANDLES.insert(Mutex::new(0))))
}

/// Ends a handle.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnDestroy(handle: Handle) -> Status {
    match HANDLES.remove(handle) {
        Ok(_) => Status::SUCCESS,
        Err(_) => status(refuse(Status::NOT_INITIALIZED, "no such handle")),
    }
}

/// Says on which stream the handle's work is done.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnSetStream(handle: Handle, stream: Handle) -> Status {
    let set = || {
        let Ok(handle) = HANDLES.get(handle) else {
            return refuse(Status::NOT_INITIALIZED, "no such handle");
        };
        *handle.lock() = stream as usize;
        Ok(())
    };
    status(set())
}

/// Why the thread's last call failed.
#[unsafe(no_mangle)]
pub extern "C" fn cudnnGetLastErrorString(text: *mut c_char, most: usize) {
    LAST.with_borrow(|last| {
        if text.is_null() || most == 0 {
            return;
        }
        let count = last.len().min(most - 1);
        // SAFETY: the caller has room for `most` characters.
        unsafe {
            std::ptr::copy_nonoverlapping(last.as_ptr().cast(), text, count);
            text.add(count).write(0);
        }
    });
}
