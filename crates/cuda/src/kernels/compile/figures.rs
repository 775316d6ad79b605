//! What the compiler and the files of its code were asked in this process: a start with everything on disk compiles nothing,
//! and reads each file once.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Programs that were compiled.
pub(crate) static COMPILED: AtomicU64 = AtomicU64::new(0);
/// Files of code that were read.
pub(crate) static READ: AtomicU64 = AtomicU64::new(0);
/// Programs that were loaded, once for each device.
pub(crate) static LOADED: AtomicU64 = AtomicU64::new(0);

/// Counts since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Programs that were compiled.
    pub compiled: u64,
    /// Files of code that were read.
    pub read: u64,
    /// Programs that were loaded, once for each device.
    pub loaded: u64,
}

/// The counts so far.
pub fn figures() -> Figures {
    Figures {
        compiled: COMPILED.load(Relaxed),
        read: READ.load(Relaxed),
        loaded: LOADED.load(Relaxed),
    }
}
