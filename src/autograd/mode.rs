//! What ops on this thread do besides computing: record history, make inference tensors, carry tangents,
//! pack what they save, remember where they were called, cast their inputs. One word per thread, which an
//! op reads once.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;

use crate::error::{Error, Result, throw};

/// Ops record history.
pub(crate) const GRAD: u16 = 1;
/// New tensors are inference tensors, and nothing is recorded.
pub(crate) const INFERENCE: u16 = 2;
/// A dual level is open: tangents are carried along.
pub(crate) const FORWARD: u16 = 4;
/// Dual tensors count as requiring a gradient: an op is saving for its own tangent.
pub(crate) const SAVING_FOR_TANGENT: u16 = 8;
/// Saved tensors go through hooks.
pub(crate) const HOOKS: u16 = 16;
/// Nodes remember where they were made.
pub(crate) const ANOMALY: u16 = 32;
/// In anomaly mode, NaN in a gradient is an error.
pub(crate) const CHECK_NAN: u16 = 64;
/// Ops may have to cast their inputs (`amp`).
pub(crate) const AUTOCAST: u16 = 128;
/// The thread has not asked yet what the environment switches on.
const FRESH: u16 = 1 << 15;

thread_local! {
    static MODE: Cell<u16> = const { Cell::new(GRAD | FRESH) };
}

/// This thread's bits.
#[inline]
pub(crate) fn mode() -> u16 {
    let mode = MODE.get();
    if mode & FRESH == 0 { mode } else { begin() }
}

/// A thread's first look at its mode.
///
/// # Panics
/// Throws [`Error::Config`] when [`DETECT_ANOMALY`] holds anything but 0 or 1.
#[cold]
fn begin() -> u16 {
    static OF_ENVIRONMENT: OnceLock<u16> = OnceLock::new();
    // Also where it throws, so that what is called on the way does not come here again.
    MODE.set(GRAD);
    let bits = *OF_ENVIRONMENT.get_or_init(|| {
        let variable = std::env::var_os(DETECT_ANOMALY).unwrap_or_default();
        match anomaly_from(&variable.to_string_lossy()) {
            Ok(true) => ANOMALY | CHECK_NAN,
            Ok(false) => 0,
            Err(error) => throw(error),
        }
    });
    MODE.set(GRAD | bits);
    GRAD | bits
}

/// The environment variable that switches anomaly mode on in all threads of a program.
const DETECT_ANOMALY: &str = "TORCHRS_DETECT_ANOMALY";

fn anomaly_from(value: &str) -> Result<bool> {
    match value.trim() {
        "" | "0" => Ok(false),
        "1" => Ok(true),
        other => Err(Error::config(DETECT_ANOMALY, format!("is `{other}`: must be 0 or 1"))),
    }
}

/// True when this thread has one of the bits.
#[inline]
pub(crate) fn has_mode(bit: u16) -> bool {
    mode() & bit != 0
}

/// Sets and clears bits of this thread's mode until it is dropped, which restores those bits.
pub(crate) struct ModeGuard {
    changed: u16,
    previous: u16,
    /// The mode belongs to a thread: the guard must stay on it.
    _not_send: PhantomData<*const ()>,
}

impl ModeGuard {
    #[inline]
    pub fn new(set: u16, clear: u16) -> Self {
        let previous = mode();
        MODE.set((previous | set) & !clear);
        ModeGuard { changed: set | clear, previous, _not_send: PhantomData }
    }
}

impl Drop for ModeGuard {
    #[inline]
    fn drop(&mut self) {
        MODE.set((MODE.get() & !self.changed) | (self.previous & self.changed));
    }
}

/// Sets or clears a bit for good.
#[inline]
pub(crate) fn set_mode(bit: u16, on: bool) {
    let mode = mode();
    MODE.set(if on { mode | bit } else { mode & !bit });
}

/// True when ops on this thread record history (`torch.is_grad_enabled`). Never inside
/// [`inference_mode`].
#[inline]
pub fn is_grad_enabled() -> bool {
    mode() & (GRAD | INFERENCE) == GRAD
}

/// True inside [`inference_mode`] on this thread (`torch.is_inference_mode_enabled`).
#[inline]
pub fn is_inference_mode_enabled() -> bool {
    has_mode(INFERENCE)
}

/// Switches recording on this thread on or off for good (`torch.set_grad_enabled` as a function); inside
/// [`no_grad`], [`enable_grad`] or [`grad_mode`], until their end.
///
/// ```
/// use torchrs::autograd::{is_grad_enabled, no_grad, set_grad_enabled};
/// set_grad_enabled(false);
/// assert!(!is_grad_enabled());
/// set_grad_enabled(true);
/// no_grad(|| set_grad_enabled(true));
/// assert!(is_grad_enabled());
/// ```
pub fn set_grad_enabled(mode: bool) {
    set_mode(GRAD, mode);
}

macro_rules! guard {
    ($(#[$doc:meta])* $name:ident = $set:expr, $clear:expr) => {
        $(#[$doc])*
        #[must_use = "the mode lasts until the guard is dropped"]
        pub struct $name(#[allow(dead_code, reason = "held for its drop")] ModeGuard);

        impl $name {
            /// Switches the mode until the guard is dropped.
            #[allow(clippy::new_without_default, reason = "making a guard has an effect")]
            #[inline]
            pub fn new() -> Self {
                $name(ModeGuard::new($set, $clear))
            }
        }
    };
}

guard!(
    /// Switches recording off on this thread until dropped.
    ///
    /// ```
    /// use torchrs::{Tensor, autograd::NoGradGuard};
    /// let w = Tensor::from([1f32]).requires_grad_(true);
    /// let y = {
    ///     let _guard = NoGradGuard::new();
    ///     &w * 2.0
    /// };
    /// assert!(!y.requires_grad() && (&w * 2.0).requires_grad());
    /// ```
    NoGradGuard = 0, GRAD
);
guard!(
    /// Switches recording on on this thread until dropped.
    ///
    /// ```
    /// use torchrs::{Tensor, autograd::EnableGradGuard, no_grad};
    /// let w = Tensor::from([1f32]).requires_grad_(true);
    /// let y = no_grad(|| {
    ///     let _guard = EnableGradGuard::new();
    ///     &w * 2.0
    /// });
    /// assert!(y.requires_grad());
    /// ```
    EnableGradGuard = GRAD, 0
);
guard!(
    /// [`inference_mode`] on this thread until dropped.
    ///
    /// ```
    /// use torchrs::{Tensor, autograd::InferenceModeGuard};
    /// let guard = InferenceModeGuard::new();
    /// let y = Tensor::from([1f32]) * 2.0;
    /// drop(guard);
    /// assert!(y.is_inference() && !Tensor::from([1f32]).is_inference());
    /// ```
    InferenceModeGuard = INFERENCE, GRAD | FORWARD
);

/// Runs `f` without recording history (`torch.no_grad`). Tangents of [`forward_ad`](super::forward_ad)
/// are carried along all the same, as in PyTorch.
///
/// ```
/// use torchrs::{Tensor, autograd::no_grad};
/// let w = Tensor::from([1f32, 2.]).requires_grad_(true);
/// let y = no_grad(|| &w * 2.0);
/// assert!(!y.requires_grad());
/// ```
#[inline]
pub fn no_grad<T>(f: impl FnOnce() -> T) -> T {
    let _guard = NoGradGuard::new();
    f()
}

/// Runs `f` with recording on, also inside [`no_grad`] (`torch.enable_grad`); it has no effect inside
/// [`inference_mode`].
///
/// ```
/// use torchrs::{Tensor, autograd::{enable_grad, no_grad}};
/// let x = Tensor::from([1f32]).requires_grad_(true);
/// let y = no_grad(|| enable_grad(|| &x * 2.0));
/// assert!(y.requires_grad());
/// ```
#[inline]
pub fn enable_grad<T>(f: impl FnOnce() -> T) -> T {
    let _guard = EnableGradGuard::new();
    f()
}

/// Runs `f` with recording on or off (`with torch.set_grad_enabled(mode)`).
///
/// ```
/// use torchrs::{Tensor, autograd::grad_mode};
/// let w = Tensor::from([1f32]).requires_grad_(true);
/// let forward = |train: bool| grad_mode(train, || &w * 2.0);
/// assert!(forward(true).requires_grad() && !forward(false).requires_grad());
/// ```
pub fn grad_mode<T>(mode: bool, f: impl FnOnce() -> T) -> T {
    let _guard = if mode { ModeGuard::new(GRAD, 0) } else { ModeGuard::new(0, GRAD) };
    f()
}

/// Runs `f` in inference mode (`torch.inference_mode`): nothing is recorded, and tensors made inside (but
/// not views of tensors from outside) are inference tensors for good. Outside they can be read, and
/// computed with where nothing is recorded; to be saved for backward, changed in place or made to require
/// a gradient they must be copied ([`Tensor::clone_contiguous`](crate::Tensor::clone_contiguous)).
///
/// ```
/// use torchrs::{Tensor, autograd::inference_mode, catch};
/// let w = Tensor::from([3f32]).requires_grad_(true);
/// let y = inference_mode(|| &w * 2.0);
/// assert!(y.is_inference() && !y.requires_grad());
/// assert_eq!((&y + 1.0).item(), 7.0);
/// assert!(catch(|| &w * &y).is_err());
/// (&w * y.clone_contiguous()).backward();
/// assert_eq!(w.grad().unwrap().item(), 6.0);
/// ```
pub fn inference_mode<T>(f: impl FnOnce() -> T) -> T {
    let _guard = InferenceModeGuard::new();
    f()
}

/// Leaves inference mode for the duration of `f` (`torch.inference_mode(False)`).
///
/// ```
/// use torchrs::{Tensor, autograd::{inference_mode, without_inference_mode}};
/// let x = Tensor::from([1f32]).requires_grad_(true);
/// let (inside, out) = inference_mode(|| (&x * 2.0, without_inference_mode(|| &x * 2.0)));
/// assert!(inside.is_inference() && !out.is_inference() && out.requires_grad());
/// ```
pub fn without_inference_mode<T>(f: impl FnOnce() -> T) -> T {
    let _guard = match is_inference_mode_enabled() {
        true => ModeGuard::new(GRAD, INFERENCE),
        false => ModeGuard::new(0, 0),
    };
    f()
}

#[cfg(test)]
mod tests {
    use super::anomaly_from;

    #[test]
    fn the_variable_of_anomaly_mode_is_0_or_1() {
        assert!(anomaly_from("1").unwrap() && !anomaly_from("0").unwrap());
        assert!(!anomaly_from("").unwrap());
        let error = anomaly_from("yes").unwrap_err().to_string();
        assert_eq!(error, "TORCHRS_DETECT_ANOMALY: is `yes`: must be 0 or 1");
    }
}
