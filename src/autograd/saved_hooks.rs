//! Hooks through which all tensors go that ops save for backward: to keep them on disk, compressed, or
//! not at all (`torch.autograd.graph.saved_tensors_hooks`).

use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;

use super::mode::{FORWARD, GRAD, HOOKS, ModeGuard, mode};
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// A pair of hooks.
pub(crate) trait Hooks: Send + Sync {
    fn pack(&self, tensor: Tensor) -> Box<dyn Any + Send + Sync>;
    fn unpack(&self, value: &(dyn Any + Send + Sync)) -> Tensor;
}

thread_local! {
    /// Innermost last; only that one is called.
    static STACK: RefCell<Vec<Arc<dyn Hooks>>> = const { RefCell::new(Vec::new()) };
}

/// The hooks that saved tensors go through here.
#[inline]
pub(crate) fn innermost() -> Option<Arc<dyn Hooks>> {
    if mode() & (HOOKS | FORWARD) != HOOKS {
        return None;
    }
    STACK.with_borrow(|stack| stack.last().cloned())
}

/// Runs `f` with these hooks.
pub(crate) fn with_hooks<T>(hooks: Arc<dyn Hooks>, f: impl FnOnce() -> T) -> T {
    /// Also when `f` panics.
    struct Pop;
    impl Drop for Pop {
        fn drop(&mut self) {
            drop(STACK.with_borrow_mut(Vec::pop));
        }
    }
    STACK.with_borrow_mut(|stack| stack.push(hooks));
    let _pop = Pop;
    let _mode = ModeGuard::new(HOOKS, 0);
    f()
}

/// What is done inside a hook is neither recorded nor packed itself.
fn apart() -> ModeGuard {
    ModeGuard::new(0, GRAD | HOOKS | FORWARD)
}

#[track_caller]
pub(crate) fn pack(hooks: &dyn Hooks, tensor: Tensor) -> Box<dyn Any + Send + Sync> {
    let _apart = apart();
    let (witness, version) = (tensor.clone(), tensor.version());
    let value = hooks.pack(tensor);
    if witness.version() != version {
        throw(Error::Autograd(
            "saved_tensors_hooks: `pack` changed its tensor in place, which is the one that the \
             program computes with; change a clone"
                .into(),
        ));
    }
    value
}

pub(crate) fn unpack(hooks: &dyn Hooks, value: &(dyn Any + Send + Sync)) -> Tensor {
    let _apart = apart();
    hooks.unpack(value)
}

/// Hooks of the user's type.
struct Pair<P, U>(P, U);

impl<T, P, U> Hooks for Pair<P, U>
where
    T: Any + Send + Sync,
    P: Fn(&Tensor) -> T + Send + Sync,
    U: Fn(&T) -> Tensor + Send + Sync,
{
    fn pack(&self, tensor: Tensor) -> Box<dyn Any + Send + Sync> {
        Box::new((self.0)(&tensor))
    }

    fn unpack(&self, value: &(dyn Any + Send + Sync)) -> Tensor {
        (self.1)(value.downcast_ref().expect("what this pair's `pack` gave"))
    }
}

/// Runs `f`; every tensor that an op in it saves for backward is given to `pack`, and what that returns,
/// of any type, is kept instead (`torch.autograd.graph.saved_tensors_hooks`). Backward gets the tensor
/// back from `unpack`, as often as it asks. Inside another call the inner hooks count alone. Both run
/// without recording; `unpack` on the thread of the backward.
///
/// Inside a [`dual_level`](super::forward_ad::dual_level) tensors are kept as they are.
///
/// A change of the original in place after it was packed is only noticed where `pack` keeps the tensor
/// itself.
///
/// ```
/// use torchrs::{Dtype, Tensor, autograd::saved_tensors_hooks};
/// let x = Tensor::from([1f64, 2.]).requires_grad_(true);
/// // Saved in half the bytes.
/// let y = saved_tensors_hooks(
///     |t| t.to_dtype(Dtype::F32),
///     |t: &Tensor| t.to_dtype(Dtype::F64),
///     || x.exp(),
/// );
/// y.sum().backward();
/// assert!((x.grad().unwrap().to_vec::<f64>()[0] - 1f64.exp()).abs() < 1e-6);
/// ```
///
/// # Panics
/// Throws [`Error::Autograd`] when `pack` changes its tensor in place, and in backward when `unpack` gives
/// another shape or dtype.
#[track_caller]
pub fn saved_tensors_hooks<T: Any + Send + Sync, R>(
    pack: impl Fn(&Tensor) -> T + Send + Sync + 'static,
    unpack: impl Fn(&T) -> Tensor + Send + Sync + 'static,
    f: impl FnOnce() -> R,
) -> R {
    with_hooks(Arc::new(Pair(pack, unpack)), f)
}
