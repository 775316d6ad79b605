//! NVRTC: programs and their compilation.

pub mod program;

use std::ffi::c_char;

/// `nvrtcResult`.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome(pub i32);

impl Outcome {
    /// Done.
    pub const SUCCESS: Outcome = Outcome(0);
    /// A null pointer where none may be.
    pub const INVALID_INPUT: Outcome = Outcome(3);
    /// No such program.
    pub const INVALID_PROGRAM: Outcome = Outcome(4);
    /// An option that NVRTC does not have.
    pub const INVALID_OPTION: Outcome = Outcome(5);
    /// The source has errors, which the log tells.
    pub const COMPILATION: Outcome = Outcome(6);
}

/// The version that NVRTC claims.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcVersion(major: *mut i32, minor: *mut i32) -> Outcome {
    if major.is_null() || minor.is_null() {
        return Outcome::INVALID_INPUT;
    }
    // SAFETY: the caller gave them for this.
    unsafe {
        major.write(crate::device::DRIVER_VERSION / 1000);
        minor.write(crate::device::DRIVER_VERSION % 1000 / 10);
    }
    Outcome::SUCCESS
}

/// The architectures that it knows.
pub fn architectures() -> &'static [i32] {
    match crate::faults::is_set(crate::settings::Fault::OldNvrtc) {
        true => &[75, 80, 86, 89],
        false => &[75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121],
    }
}

/// How many architectures it knows.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetNumSupportedArchs(count: *mut i32) -> Outcome {
    if count.is_null() {
        return Outcome::INVALID_INPUT;
    }
    // SAFETY: not null, and by the API's contract a place for a number.
    unsafe { count.write(architectures().len() as i32) };
    Outcome::SUCCESS
}

/// They.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetSupportedArchs(place: *mut i32) -> Outcome {
    if place.is_null() {
        return Outcome::INVALID_INPUT;
    }
    let all = architectures();
    // SAFETY: the caller has room for as many as there are.
    unsafe { place.copy_from_nonoverlapping(all.as_ptr(), all.len()) };
    Outcome::SUCCESS
}

/// A result's name.
#[unsafe(no_mangle)]
pub extern "C" fn nvrtcGetErrorString(outcome: Outcome) -> *const c_char {
    let name = match outcome.0 {
        0 => c"NVRTC_SUCCESS",
        1 => c"NVRTC_ERROR_OUT_OF_MEMORY",
        2 => c"NVRTC_ERROR_PROGRAM_CREATION_FAILURE",
        3 => c"NVRTC_ERROR_INVALID_INPUT",
        4 => c"NVRTC_ERROR_INVALID_PROGRAM",
        5 => c"NVRTC_ERROR_INVALID_OPTION",
        6 => c"NVRTC_ERROR_COMPILATION",
        7 => c"NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
        11 => c"NVRTC_ERROR_INTERNAL_ERROR",
        _ => c"NVRTC_ERROR unknown",
    };
    name.as_ptr()
}
