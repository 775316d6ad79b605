//! The beginning, versions and texts of errors.

use super::{INITIALIZED, call, put};
use crate::code::{Code, Result};
use crate::{device, settings};
use std::ffi::{CStr, c_char};
use std::sync::atomic::Ordering;

/// Initialises the driver; says once on standard error that this is a simulation.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(flags: u32) -> Code {
    if flags != 0 {
        return Code::INVALID_VALUE;
    }
    let count = device::count();
    if count == 0 {
        return Code::NO_DEVICE;
    }
    if !INITIALIZED.swap(true, Ordering::AcqRel) && !settings::get().quiet {
        let plural = if count == 1 { "" } else { "s" };
        let adversary = settings::adversary()
            .map(|seed| format!(" (adversary, seed {seed})"))
            .unwrap_or_default();
        eprintln!(
            "simulated GPU: {count} device{plural}{adversary}; results are real, speeds are not"
        );
    }
    Code::SUCCESS
}

/// The CUDA version that the driver claims.
#[unsafe(no_mangle)]
pub extern "C" fn cuDriverGetVersion(version: *mut i32) -> Code {
    put(version, device::DRIVER_VERSION).into()
}

/// Gives one of a code's two texts.
fn text(
    code: Code,
    place: *mut *const c_char,
    which: impl Fn((&'static CStr, &'static CStr)) -> &'static CStr,
) -> Result {
    match code.texts() {
        Some(texts) => put(place, which(texts).as_ptr()),
        None => {
            put(place, std::ptr::null())?;
            Err(Code::INVALID_VALUE)
        }
    }
}

/// A code's name.
#[unsafe(no_mangle)]
pub extern "C" fn cuGetErrorName(error: Code, name: *mut *const c_char) -> Code {
    text(error, name, |texts| texts.0).into()
}

/// A code's explanation.
#[unsafe(no_mangle)]
pub extern "C" fn cuGetErrorString(error: Code, string: *mut *const c_char) -> Code {
    text(error, string, |texts| texts.1).into()
}

/// How many devices there are.
#[unsafe(no_mangle)]
pub extern "C" fn cuDeviceGetCount(count: *mut i32) -> Code {
    call(|| put(count, device::count() as i32))
}
