//! How often the host waited for a device. A training step should not wait at all but where it
//! reads a number; a test asks for that.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// How often this process has waited for a device: explicit waits, copies to memory that is not
/// pinned, large copies from there, and device memory given back to the driver.
///
/// ```
/// let before = torchrs::cuda::synchronisations();
/// // ... a training step ...
/// assert_eq!(torchrs::cuda::synchronisations() - before, 0);
/// ```
#[inline]
pub fn synchronisations() -> u64 {
    COUNT.load(Relaxed)
}

/// Counts a call that waits.
#[inline]
pub(crate) fn count() {
    COUNT.fetch_add(1, Relaxed);
}
