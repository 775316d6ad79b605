//! What a process has one of: its memory and its profiler. Other tests would be counted too, and change what
//! is counted; these take turns.

mod host_memory;
mod profiler;

use parking_lot::{Mutex, MutexGuard};

/// Held for the length of a test: the process is its own meanwhile.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock()
}
