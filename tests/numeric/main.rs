//! Numbers: operators against definitions, models and other layouts of the same, at any size and on any number of
//! threads.

mod any_sizes;
mod draw;
mod layout_properties;
mod long_sums;
mod norms_range;
mod ops_reference;
mod pointwise;
mod pointwise_semantics;
mod threads;

use parking_lot::{Mutex, MutexGuard};

/// Held by a test that sets the number of threads, which is one for the whole process.
fn number_of_threads() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock()
}
