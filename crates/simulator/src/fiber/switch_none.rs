//! No fibers: on this architecture no kernel runs, and [`crate::kernel::launch`] says so.

use super::Entry;
use std::ffi::c_void;

/// Whether this machine has fibers.
pub const AVAILABLE: bool = false;

/// Is never called.
///
/// # Safety
/// None is needed.
pub unsafe extern "C" fn switch(_save: *mut *mut u8, _to: *mut u8, _touched: *mut c_void) {
    std::process::abort()
}

/// Is never called.
///
/// # Safety
/// None is needed.
pub unsafe fn prepare(_top: *mut u8, _entry: Entry, _argument: *mut c_void) -> *mut u8 {
    std::process::abort()
}

/// Is never called.
///
/// # Safety
/// None is needed.
pub unsafe fn redirect(_context: *mut c_void, _to: *mut u8) {
    std::process::abort()
}
