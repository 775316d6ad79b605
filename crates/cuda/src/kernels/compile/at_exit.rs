//! The compiler's own threads of work and the end of the process: a process that ends while one of its threads compiles
//! crashes in NVRTC, whose data goes first. So the end waits for what is being compiled, and nothing begins after it.

use std::sync::Once;

use parking_lot::{RwLock, RwLockReadGuard};

use torchrs_error::{Error, Result};

static GATE: RwLock<()> = RwLock::new(());

/// Leave to compile until it is dropped. The compiler is loaded already, so that its data goes after the gate is shut.
///
/// # Errors
/// [`Error::Device`] once the process ends.
pub(crate) fn begin() -> Result<RwLockReadGuard<'static, ()>> {
    static ONCE: Once = Once::new();
    // SAFETY: a function without arguments that unwinds nowhere.
    ONCE.call_once(|| _ = unsafe { libc::atexit(shut) });
    GATE.try_read_recursive()
        .ok_or_else(|| Error::Device("the process ends, nothing is compiled any more".to_owned()))
}

/// Waits for those that compile, and lets nobody begin.
extern "C" fn shut() {
    std::mem::forget(GATE.write());
}
