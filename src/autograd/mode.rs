//! Whether ops on this thread record history.

use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// True when ops on this thread record history (`torch.is_grad_enabled`).
#[inline]
pub fn is_grad_enabled() -> bool {
    ENABLED.get()
}

macro_rules! guard {
    ($(#[$doc:meta])* $name:ident = $value:expr) => {
        $(#[$doc])*
        #[must_use = "the mode lasts until the guard is dropped"]
        pub struct $name {
            previous: bool,
            /// The mode belongs to a thread: the guard must stay on it.
            _not_send: PhantomData<*const ()>,
        }

        impl $name {
            /// Switches the mode until the guard is dropped.
            #[allow(clippy::new_without_default, reason = "making a guard has an effect")]
            pub fn new() -> Self {
                $name { previous: ENABLED.replace($value), _not_send: PhantomData }
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                ENABLED.set(self.previous);
            }
        }
    };
}

guard!(
    /// Switches recording off on this thread until dropped.
    NoGradGuard = false
);
guard!(
    /// Switches recording on on this thread until dropped.
    EnableGradGuard = true
);

/// Runs `f` without recording history (`torch.no_grad`).
///
/// ```
/// use torchrs::{Tensor, autograd::no_grad};
/// let w = Tensor::from([1f32, 2.]).requires_grad_(true);
/// let y = no_grad(|| &w * 2.0);
/// assert!(!y.requires_grad());
/// ```
pub fn no_grad<T>(f: impl FnOnce() -> T) -> T {
    let _guard = NoGradGuard::new();
    f()
}

/// Runs `f` with recording on, also inside [`no_grad`] (`torch.enable_grad`).
pub fn enable_grad<T>(f: impl FnOnce() -> T) -> T {
    let _guard = EnableGradGuard::new();
    f()
}
