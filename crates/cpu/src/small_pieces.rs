//! Ways that only large inputs take, taken by small ones too, so that tests of small inputs reach them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static ASKED: AtomicBool = AtomicBool::new(false);

/// From now on, in this process, builds with debug assertions take the ways of large inputs for small ones too.
/// Sums may then be taken in another order, so tests call it before they compute anything.
pub fn take_small_pieces() {
    ASKED.store(true, Relaxed);
}

/// The least size for a way, `tests` where small pieces were asked for.
#[inline]
pub(crate) fn least(size: usize, tests: usize) -> usize {
    if cfg!(debug_assertions) && ASKED.load(Relaxed) { tests } else { size }
}
