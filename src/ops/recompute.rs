//! Activation checkpointing: memory for time (`torch.utils.checkpoint`; Chen et al., "Training Deep
//! Nets with Sublinear Memory Cost", 2016).
//!
//! The function runs as usual, and its ops enter the graph as usual, but through
//! [`saved_tensors_hooks`](crate::autograd::saved_tensors_hooks) what they save is replaced by empty slots. The first
//! slot that backward opens runs the function again, with hooks that fill all slots still alive in the order
//! in which they were made. (PyTorch's `use_reentrant=False`.) So `grad`, `create_graph`, hooks and nested
//! checkpoints work, and each parameter's gradient arrives once.
//!
//! A selective one also keeps the results of the ops that cost most, which say so by [`keep`]: the second run takes them
//! from there, in order.

use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::random::{GeneratorState, default_generator, fork_rng_at};
use crate::amp::Snapshot;
use crate::autograd::{
    FORWARD, Hooks, SavedTensor, at_end_of_pass, enable_grad, has_mode, is_grad_enabled, with_hooks,
};
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// Runs `f` on `inputs` without keeping what its ops save for backward; backward runs it again, with the
/// same random numbers and under the same `autocast`, when it needs that. `f` must do the same both times. Parameters that `f` refers to
/// get their gradients as usual; checkpoints may be nested.
///
/// Under `no_grad` and inside a [`dual_level`](crate::autograd::forward_ad::dual_level) it just runs `f`.
///
/// With `DistributedDataParallel` a parameter may be used in several checkpoints: it is one leaf of one
/// graph, whose hook runs once, when its gradient is complete.
///
/// ```
/// use torchrs::{Tensor, autograd::checkpoint};
/// let x = Tensor::from([2f64]).requires_grad_(true);
/// let y = checkpoint(|inputs| inputs[0].exp().exp(), &[&x]);
/// y.sum().backward();
/// let e = 2f64.exp();
/// assert!((x.grad().unwrap().item() - e * e.exp()).abs() < 1e-9 * e * e.exp());
/// ```
///
/// # Panics
/// Backward throws [`Error::Autograd`] when the second run saves other tensors than the first, or an input
/// was changed in place meanwhile.
#[track_caller]
pub fn checkpoint(
    f: impl Fn(&[Tensor]) -> Tensor + Send + Sync + 'static,
    inputs: &[&Tensor],
) -> Tensor {
    checkpoint_many(move |inputs| vec![f(inputs)], inputs).swap_remove(0)
}

/// [`checkpoint`] of a function with several outputs.
///
/// ```
/// use torchrs::{Tensor, autograd::checkpoint_many};
/// let x = Tensor::from([2f64]).requires_grad_(true);
/// let y = checkpoint_many(|t| vec![t[0].exp(), &t[0] * &t[0]], &[&x]);
/// y[1].backward();
/// assert_eq!((y.len(), x.grad().unwrap().item()), (2, 4.0));
/// ```
///
/// # Panics
/// As [`checkpoint`].
#[track_caller]
pub fn checkpoint_many(
    f: impl Fn(&[Tensor]) -> Vec<Tensor> + Send + Sync + 'static,
    inputs: &[&Tensor],
) -> Vec<Tensor> {
    checkpointed(Box::new(f), inputs, false)
}

/// [`checkpoint`] that keeps the results of matrix products and of
/// [`scaled_dot_product_attention`](Tensor::scaled_dot_product_attention): all else is computed again, such as norms and
/// activation functions, which cost little and take as much memory (`create_selective_checkpoint_contexts`; Korthikanti
/// et al., "Reducing Activation Recomputation in Large Transformer Models", 2022). Attention with dropout is computed
/// again where no kernel does it.
///
/// ```
/// use torchrs::{Tensor, autograd::checkpoint_selective};
/// let weight = Tensor::from([[2f64]]).requires_grad_(true);
/// let w = weight.clone();
/// let y = checkpoint_selective(move |x| x[0].exp().matmul(&w).sin(), &[&Tensor::from([[0f64]])]);
/// y.backward();
/// // The product is not computed again; its sine and the exponential are.
/// assert_eq!(weight.grad().unwrap().item(), 2f64.cos());
/// ```
///
/// # Panics
/// As [`checkpoint`], and backward throws [`Error::Autograd`] when a result that was kept was changed in place: use
/// [`checkpoint`] for such a function.
#[track_caller]
pub fn checkpoint_selective(
    f: impl Fn(&[Tensor]) -> Tensor + Send + Sync + 'static,
    inputs: &[&Tensor],
) -> Tensor {
    checkpointed(Box::new(move |inputs| vec![f(inputs)]), inputs, true).swap_remove(0)
}

#[track_caller]
fn checkpointed(f: Function, inputs: &[&Tensor], selective: bool) -> Vec<Tensor> {
    let given: Vec<Tensor> = inputs.iter().map(|t| (*t).clone()).collect();
    if !is_grad_enabled() || has_mode(FORWARD) {
        return f(&given);
    }
    let segment = Arc::new(Segment {
        // Through the hooks that are there now: in a checkpoint, the inputs of one inside are not kept.
        inputs: inputs.iter().map(|t| (SavedTensor::input(t), t.requires_grad())).collect(),
        f,
        random: default_generator().get_state(),
        precision: Snapshot::take(),
        slots: Mutex::default(),
        results: selective.then(Mutex::default),
    });
    let run = || with_hooks(Arc::new(Emptying(segment.clone())), || (segment.f)(&given));
    with_role(segment.results.is_some().then(|| Role::Keeping(segment.clone())), run)
}

/// Whether a selective checkpoint runs, which keeps results of some ops.
pub(in crate::ops) fn is_selective() -> bool {
    ROLE.with_borrow(Option::is_some)
}

/// What the op `op` computes at its heart, without history, if a selective checkpoint has kept it in its first run and
/// runs a second time. (No closure: in one the line of the program is not known.)
#[track_caller]
#[inline]
pub(in crate::ops) fn recalled<const N: usize>(op: &'static str) -> Option<[Tensor; N]> {
    match is_selective() {
        false => None,
        true => recalled_by_role(op),
    }
}

#[track_caller]
fn recalled_by_role<const N: usize>(op: &'static str) -> Option<[Tensor; N]> {
    let known = ROLE.with_borrow_mut(|role| match role {
        Some(Role::Using(segment, next)) => {
            *next += 1;
            Some(segment.result(op, *next - 1))
        }
        _ => None,
    })?;
    let other = |_| throw(changed(op, "has other results in its second run"));
    Some(known.try_into().unwrap_or_else(other))
}

/// Keeps what was computed in place of what [`recalled`] did not have, in a selective checkpoint's first run.
#[inline]
pub(in crate::ops) fn keep<const N: usize>(op: &'static str, results: [Tensor; N]) -> [Tensor; N] {
    if is_selective() {
        keep_by_role(op, &results);
    }
    results
}

fn keep_by_role(op: &'static str, results: &[Tensor]) {
    ROLE.with_borrow(|role| {
        if let Some(Role::Keeping(segment)) = role
            && let Some(all) = &segment.results
        {
            let tensors = results.iter().map(Tensor::detach).collect();
            let versions = results.iter().map(Tensor::version).collect();
            all.lock().push(Kept { op, versions, tensors });
        }
    });
}

fn changed(op: &str, what: &str) -> Error {
    Error::Autograd(format!(
        "checkpoint_selective: `{op}` {what}; its function must do the same both times"
    ))
}

/// What a selective checkpoint's function does at the moment on this thread.
enum Role {
    /// Its first run.
    Keeping(Arc<Segment>),
    /// Its second, which so many results were taken for.
    Using(Arc<Segment>, usize),
}

thread_local! {
    static ROLE: RefCell<Option<Role>> = const { RefCell::new(None) };
}

/// Runs `f` in a role, and goes back to the one before.
fn with_role<T>(role: Option<Role>, f: impl FnOnce() -> T) -> T {
    struct Restore(Option<Role>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let own = ROLE.replace(self.0.take());
            drop(own);
        }
    }
    let _restore = Restore(ROLE.replace(role));
    f()
}

/// The results of an op's first run.
struct Kept {
    op: &'static str,
    tensors: Vec<Tensor>,
    versions: Vec<u32>,
}

/// `functions` one after the other, in `segments` checkpoints of about equally many; the last one runs
/// as usual (`torch.utils.checkpoint.checkpoint_sequential`).
///
/// ```
/// use std::sync::Arc;
/// use torchrs::{Tensor, autograd::{Layer, checkpoint_sequential}};
/// let layers: Vec<Layer> = (0..4).map(|_| Arc::new(|x: &Tensor| x.sin()) as Layer).collect();
/// let x = Tensor::from([1f64]).requires_grad_(true);
/// assert_eq!(checkpoint_sequential(&layers, 2, &x).item(), 1f64.sin().sin().sin().sin());
/// ```
///
/// # Panics
/// Throws when `segments` is 0 or more than there are functions.
#[track_caller]
pub fn checkpoint_sequential(functions: &[Layer], segments: usize, input: &Tensor) -> Tensor {
    if segments == 0 || segments > functions.len() {
        throw(Error::argument(
            "checkpoint_sequential",
            "segments",
            format!("{segments} for {} functions; it is between 1 and that", functions.len()),
        ));
    }
    let run = |part: &[Layer], x: &Tensor| part.iter().fold(x.clone(), |x, f| f(&x));
    let size = functions.len() / segments;
    let (kept, last) = functions.split_at(size * (segments - 1));
    let x = kept.chunks(size).fold(input.clone(), |x, part| {
        let part = part.to_vec();
        checkpoint(move |x| run(&part, &x[0]), &[&x])
    });
    run(last, &x)
}

/// A function of [`checkpoint_sequential`].
///
/// ```
/// use std::sync::Arc;
/// use torchrs::{Tensor, autograd::Layer};
/// let weight = Tensor::from([[2f32]]);
/// let layer: Layer = Arc::new(move |x: &Tensor| x.matmul(&weight));
/// assert_eq!(layer(&Tensor::from([[3f32]])).item(), 6.0);
/// ```
pub type Layer = Arc<dyn Fn(&Tensor) -> Tensor + Send + Sync>;

type Function = Box<dyn Fn(&[Tensor]) -> Vec<Tensor> + Send + Sync>;

/// One call of [`checkpoint`].
struct Segment {
    f: Function,
    /// With whether they require a gradient.
    inputs: Vec<(SavedTensor, bool)>,
    /// The random numbers' state before the first run.
    random: GeneratorState,
    /// The autocast around the first run.
    precision: Snapshot,
    /// In place of what the first run saved, in order. Nodes hold them, and drop them when they have run.
    slots: Mutex<Vec<Weak<Slot>>>,
    /// What ops have computed, in order, of a selective one.
    results: Option<Mutex<Vec<Kept>>>,
}

/// In place of a saved tensor.
#[derive(Default)]
struct Slot {
    value: Mutex<Option<Tensor>>,
}

/// Hooks of the first run: nothing is kept.
struct Emptying(Arc<Segment>);

impl Hooks for Emptying {
    fn pack(&self, _: Tensor) -> Box<dyn Any + Send + Sync> {
        let slot = Arc::new(Slot::default());
        self.0.slots.lock().push(Arc::downgrade(&slot));
        Box::new(slot)
    }

    fn unpack(&self, value: &(dyn Any + Send + Sync)) -> Tensor {
        let slot: &Arc<Slot> = value.downcast_ref().expect("what `pack` gave");
        if let Some(tensor) = &*slot.value.lock() {
            return tensor.clone();
        }
        self.0.run_again(slot).unwrap_or_else(|| {
            throw(Error::Autograd(
                "checkpoint: the function's second run saved fewer tensors for backward than its first; it \
                 must do the same both times"
                    .into(),
            ))
        })
    }
}

/// Hooks of the second run: what it saves fills the slots.
struct Filling {
    slots: Vec<Option<Arc<Slot>>>,
    next: AtomicUsize,
    /// The slot that is asked for, and what came for it: another thread may empty the slot at once.
    wanted: Arc<Slot>,
    found: Mutex<Option<Tensor>>,
}

impl Hooks for Filling {
    fn pack(&self, tensor: Tensor) -> Box<dyn Any + Send + Sync> {
        if let Some(Some(slot)) = self.slots.get(self.next.fetch_add(1, Relaxed)) {
            if Arc::ptr_eq(slot, &self.wanted) {
                *self.found.lock() = Some(tensor.clone());
            }
            *slot.value.lock() = Some(tensor.clone());
        }
        Box::new(tensor)
    }

    fn unpack(&self, value: &(dyn Any + Send + Sync)) -> Tensor {
        value.downcast_ref::<Tensor>().expect("what `pack` gave").clone()
    }
}

impl Segment {
    /// The results of the op that came as number `place`.
    #[track_caller]
    fn result(&self, op: &'static str, place: usize) -> Vec<Tensor> {
        let all = self.results.as_ref().map(|all| all.lock());
        let Some(kept) = all.as_ref().and_then(|all| all.get(place)) else {
            throw(changed(op, "did not run so often in its first run"))
        };
        if kept.op != op {
            throw(changed(op, &format!("takes the place of `{}`", kept.op)));
        }
        if kept.tensors.iter().zip(&kept.versions).any(|(t, &version)| t.version() != version) {
            throw(changed(op, "has a result that was changed in place"));
        }
        kept.tensors.iter().map(Tensor::detach).collect()
    }

    /// Runs the function a second time, to fill the slots, and returns what belongs into `wanted`. The slots
    /// are emptied at the end of the pass that runs, for the next one.
    fn run_again(self: &Arc<Self>, wanted: &Arc<Slot>) -> Option<Tensor> {
        let slots: Vec<Option<Arc<Slot>>> = self.slots.lock().iter().map(Weak::upgrade).collect();
        let filled: Vec<Weak<Slot>> = slots.iter().flatten().map(Arc::downgrade).collect();
        let empty = move || {
            for slot in filled.iter().filter_map(Weak::upgrade) {
                let old = slot.value.lock().take();
                drop(old);
            }
        };
        at_end_of_pass(empty);
        let input = |(saved, wants): &(SavedTensor, bool)| {
            let x = saved.unpack("checkpoint", None).detach();
            if *wants { x.requires_grad_(true) } else { x }
        };
        let inputs: Vec<Tensor> = self.inputs.iter().map(input).collect();
        let count = slots.len();
        let (next, found) = (AtomicUsize::new(0), Mutex::new(None));
        let filling = Arc::new(Filling { slots, next, wanted: wanted.clone(), found });
        let again = || self.precision.run(|| enable_grad(|| (self.f)(&inputs)));
        // The first run's random numbers once more, while the generator stays where it is.
        let role = self.results.is_some().then(|| Role::Using(self.clone(), 0));
        drop(with_role(role, || fork_rng_at(self.random, || with_hooks(filling.clone(), again))));
        let saved = filling.next.load(Relaxed);
        if saved != count {
            throw(Error::Autograd(format!(
                "checkpoint: the function saved {count} tensors for backward in its first run and {saved} in \
                 its second; it must do the same both times"
            )));
        }
        filling.found.lock().take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autograd;

    fn matrix() -> (Tensor, Tensor) {
        let weight = Tensor::from([[1.0f64, -2.0], [0.5, 3.0]]).requires_grad_(true);
        (Tensor::from([[0.3f64, 0.7], [-1.0, 2.0]]).requires_grad_(true), weight)
    }

    #[test]
    fn second_derivatives_and_kept_graphs() {
        let (x, weight) = matrix();
        let f = move |t: &[Tensor]| t[0].matmul(&weight).sin().exp();
        let second = |y: &Tensor| {
            let g = autograd::grad(&[&y.sum()], &[&x], &[None], autograd::GraphMode::Create)
                .swap_remove(0)
                .unwrap();
            let h =
                autograd::grad(&[&(&g * &g).sum()], &[&x], &[None], autograd::GraphMode::Retain);
            h[0].as_ref().unwrap().to_vec::<f64>()
        };
        let want = second(&f(std::slice::from_ref(&x)));
        let y = checkpoint(f, &[&x]);
        assert_eq!(second(&y), want);
        assert_eq!(second(&y), want);
    }

    #[test]
    fn parameters_learn_though_no_input_needs_a_gradient() {
        let weight = Tensor::from([3.0f64]).requires_grad_(true);
        let w = weight.clone();
        let y = checkpoint(move |t| &t[0] * &w, &[&Tensor::from([2.0f64])]);
        y.sum().backward();
        assert_eq!(weight.grad().unwrap().item(), 2.0);
    }

    #[test]
    fn activations_are_neither_kept_before_nor_after_backward() {
        static BYTES: Mutex<Vec<crate::counted::WeakCounted<crate::tensor::TensorImpl>>> =
            Mutex::new(Vec::new());
        let alive = || BYTES.lock().iter().filter(|t| t.owners() > 0).count();
        let f = |t: &[Tensor]| {
            let y = t[0].exp();
            BYTES.lock().push(y.0.downgrade());
            y.sin().exp()
        };
        let x = Tensor::from([0.5f64]).requires_grad_(true);
        let y = checkpoint(f, &[&x]);
        assert_eq!((alive(), BYTES.lock().len()), (0, 1));
        autograd::backward(&[&y], &[None], autograd::GraphMode::Retain);
        assert_eq!((alive(), BYTES.lock().len()), (0, 2));
        y.backward();
        assert_eq!((alive(), BYTES.lock().len()), (0, 3));
    }
}
