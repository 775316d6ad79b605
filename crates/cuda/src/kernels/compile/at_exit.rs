//! The compiler's own threads of work and the end of the process: a process that ends while one of its threads compiles
//! crashes in NVRTC, whose data goes first. So the end waits for what is being compiled, and nothing begins after it.
//!
//! What is said last to be done at the end is done first. NVRTC makes data at its first compilation and says then when it
//! goes, so a first one of nothing comes before the gate: only who ends a process within its few milliseconds can crash.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::{RwLock, RwLockReadGuard};

use torchrs_error::{Error, Result};

static GATE: RwLock<()> = RwLock::new(());
/// The process whose threads compile.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Leave to compile until it is dropped. `first` compiles something, so that the compiler's data goes after the gate is
/// shut.
///
/// # Errors
/// [`Error::Device`] once the process ends.
pub(crate) fn begin(first: impl FnOnce()) -> Result<RwLockReadGuard<'static, ()>> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        first();
        OWNER.store(std::process::id(), Relaxed);
        // SAFETY: a function without arguments that unwinds nowhere.
        unsafe { libc::atexit(shut) };
    });
    GATE.try_read_recursive()
        .ok_or_else(|| Error::Device("the process ends, nothing is compiled any more".to_owned()))
}

/// Waits for those that compile, and lets nobody begin. A process that was forked has none of those threads.
extern "C" fn shut() {
    if OWNER.load(Relaxed) != std::process::id() {
        return;
    }
    std::mem::forget(GATE.write());
}
