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
