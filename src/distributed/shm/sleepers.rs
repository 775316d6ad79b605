//! How ranks wait for a rank's word: its flag, which only grows, and the number of those who sleep on it.
//!
//! A sleeper counts itself and then looks at the flag; a rank that arrives changes the flag and then looks for
//! sleepers. All four are sequentially consistent, so that one of the two sees the other: either the sleeper sees
//! the arrival and does not sleep, or the rank sees the sleeper and wakes it. Between its look and its sleep the flag
//! may change: the kernel compares it with what was seen, under the lock under which it wakes, and does not put to
//! sleep then. What a rank wrote before it arrived is seen by whoever sees the arrival.
//!
//! A sleeper may die. It stays counted, which costs its peers a system call each time they arrive, and no more.
//!
//! `crates/interleavings` runs this file in every order.

use super::atomic::{AtomicU32, Ordering::SeqCst};

/// Counts the flag up, and wakes those who sleep on it.
pub fn arrive(flag: &AtomicU32, step: u32, sleepers: &AtomicU32, wake: impl FnOnce()) {
    flag.fetch_add(step, SeqCst);
    if sleepers.load(SeqCst) != 0 {
        wake();
    }
}

/// Sleeps until `look` finds in the flag what it looks for. `sleep` returns when the flag is not what it is given, when
/// it was woken, or for no reason; with a result it ends the wait.
pub fn sleep_until<T>(
    flag: &AtomicU32,
    sleepers: &AtomicU32,
    look: impl Fn(u32) -> Option<T>,
    mut sleep: impl FnMut(u32) -> Option<T>,
) -> T {
    sleepers.fetch_add(1, SeqCst);
    let end = loop {
        let seen = flag.load(SeqCst);
        if let Some(end) = look(seen).or_else(|| sleep(seen)) {
            break end;
        }
    };
    sleepers.fetch_sub(1, SeqCst);
    end
}
