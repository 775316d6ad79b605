//! Functions that are called with gradients on their way: hooks of tensors, of nodes, of leaves after
//! accumulation, and of several tensors together.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::engine::{at_end_of_pass, current_pass};
use super::node::{Edge, Grads, Kind, Node};
use crate::counted::WeakCounted;
use crate::error::{Error, throw};
use crate::tensor::{Tensor, TensorImpl};

/// Replaces a gradient on its way, if it returns one.
pub(crate) type Hook = Arc<dyn Fn(&Tensor) -> Option<Tensor> + Send + Sync>;
/// Is called with a leaf whose gradient was accumulated.
pub(crate) type LeafHook = Arc<dyn Fn(&Tensor) + Send + Sync>;
/// Replaces the gradients of a node's outputs before its backward runs.
type PreHook = Arc<dyn Fn(&[Option<Tensor>]) -> Option<Vec<Option<Tensor>>> + Send + Sync>;
/// Replaces the gradients of a node's inputs; the second argument is its outputs'.
type PostHook =
    Arc<dyn Fn(&[Option<Tensor>], &[Option<Tensor>]) -> Option<Vec<Option<Tensor>>> + Send + Sync>;

/// Hooks of a node, in the order in which they run; each with the number that removes it.
#[derive(Default)]
pub(crate) struct NodeHooks {
    /// Of output tensors: (output, id, hook).
    pub tensors: Vec<(usize, u64, Hook)>,
    /// Outputs that keep their gradient, which they see after all other hooks.
    pub retained: Vec<(usize, WeakCounted<TensorImpl>)>,
    pub before: Vec<(u64, PreHook)>,
    pub after: Vec<(u64, PostHook)>,
}

static HOOK_ID: AtomicU64 = AtomicU64::new(0);

/// A registered hook; [`remove`](Self::remove) takes it away. Dropping the handle does not.
///
/// ```
/// let x = torchrs::Tensor::from([1f64]).requires_grad_(true);
/// let handle = x.register_hook(|g| Some(g * 10.0));
/// (&x * 2.0).backward();
/// handle.remove();
/// (&x * 2.0).backward();
/// assert_eq!(x.grad().unwrap().item(), 22.0);
/// ```
pub struct HookHandle(Box<dyn FnOnce() + Send + Sync>);

impl HookHandle {
    /// One that removes by `remove`.
    pub(crate) fn new(remove: impl FnOnce() + Send + Sync + 'static) -> Self {
        HookHandle(Box::new(remove))
    }

    /// Removes the hook.
    ///
    /// ```
    /// let x = torchrs::Tensor::from([1f64]).requires_grad_(true);
    /// let (kept, removed) = (x.register_hook(|g| Some(g + 1.0)), x.register_hook(|g| Some(g * 10.0)));
    /// drop(kept);
    /// removed.remove();
    /// x.sum().backward();
    /// assert_eq!(x.grad().unwrap().item(), 2.0);
    /// ```
    pub fn remove(self) {
        (self.0)()
    }
}

impl Node {
    /// Adds a hook; the handle runs `remove` on the node's hooks, if the node still lives.
    fn add_hook(
        &self,
        add: impl FnOnce(&mut NodeHooks, u64),
        remove: impl FnOnce(&mut NodeHooks, u64) + Send + Sync + 'static,
    ) -> HookHandle {
        let id = HOOK_ID.fetch_add(1, Relaxed);
        if let Some(leaf) = self.leaf() {
            leaf.with_meta(|m| m.accumulator.let_go());
        }
        add(self.0.state.lock().hooks.get_or_insert_default(), id);
        let node = self.0.downgrade();
        HookHandle::new(move || {
            if let Some(node) = node.upgrade()
                && let Some(hooks) = &mut node.state.lock().hooks
            {
                remove(hooks, id);
            }
        })
    }

    /// Calls `hook` each time before this node's backward runs, with the gradients of its outputs; a
    /// returned list replaces them (`torch.autograd.graph.Node.register_prehook`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f64]).requires_grad_(true);
    /// let y = &x * 2.0;
    /// y.grad_fn().unwrap().register_prehook(|grads| {
    ///     assert_eq!(grads[0].as_ref().unwrap().item(), 1.0);
    ///     Some(vec![Some(Tensor::from([3f64]))])
    /// });
    /// y.backward();
    /// assert_eq!(x.grad().unwrap().item(), 6.0);
    /// ```
    ///
    /// # Panics
    /// Backward throws when the list is of another length.
    pub fn register_prehook(
        &self,
        hook: impl Fn(&[Option<Tensor>]) -> Option<Vec<Option<Tensor>>> + Send + Sync + 'static,
    ) -> HookHandle {
        self.add_hook(
            |hooks, id| hooks.before.push((id, Arc::new(hook))),
            |hooks, id| hooks.before.retain(|(i, _)| *i != id),
        )
    }

    /// Calls `hook` each time after this node's backward ran, with the gradients of its inputs and those
    /// of its outputs; a returned list replaces the former (`torch.autograd.graph.Node.register_hook`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([2f64]).requires_grad_(true);
    /// let y = x.exp();
    /// y.grad_fn().unwrap().register_hook(|inputs, outputs| {
    ///     assert_eq!(outputs[0].as_ref().unwrap().item(), 1.0);
    ///     Some(vec![inputs[0].as_ref().map(|g| g * 0.0)])
    /// });
    /// y.backward();
    /// assert_eq!(x.grad().unwrap().item(), 0.0);
    /// ```
    ///
    /// # Panics
    /// Backward throws when the list is of another length.
    pub fn register_hook(
        &self,
        hook: impl Fn(&[Option<Tensor>], &[Option<Tensor>]) -> Option<Vec<Option<Tensor>>>
        + Send
        + Sync
        + 'static,
    ) -> HookHandle {
        self.add_hook(
            |hooks, id| hooks.after.push((id, Arc::new(hook))),
            |hooks, id| hooks.after.retain(|(i, _)| *i != id),
        )
    }

    /// Whether the node may have hooks.
    pub(super) fn has_hooks(&self) -> bool {
        self.0.state.lock().hooks.is_some()
    }

    /// Hooks of the tensors that are this node's outputs. True when the node may have other hooks too.
    pub(crate) fn run_tensor_hooks(&self, grads: &mut [Option<Tensor>]) -> bool {
        let own =
            self.0.state.lock().hooks.as_ref().map(|h| (h.tensors.clone(), h.retained.clone()));
        let hooked = own.is_some();
        let (hooks, retained) = match &self.0.kind {
            Kind::Accumulate(_) => {
                let hooks = self.leaf().map(|leaf| leaf.leaf_hooks()).unwrap_or_default();
                (hooks.into_iter().map(|(id, hook)| (0, id, hook)).collect(), Vec::new())
            }
            Kind::Function => match own {
                None => return false,
                Some(own) => own,
            },
        };
        for (output, _, hook) in hooks {
            if let Some(grad) = &grads[output]
                && let Some(replaced) = hook(grad)
            {
                grads[output] = Some(replaced);
            }
        }
        for (output, tensor) in retained {
            if let Some(grad) = &grads[output]
                && let Some(tensor) = tensor.upgrade().map(Tensor)
            {
                let sum = tensor.grad().map_or_else(|| grad.clone(), |old| &old + grad);
                tensor.set_grad(Some(sum));
            }
        }
        hooked
    }

    pub(crate) fn run_prehooks(&self, grads: &mut [Option<Tensor>]) {
        let hooks = match &self.0.state.lock().hooks {
            Some(hooks) if !hooks.before.is_empty() => hooks.before.clone(),
            _ => return,
        };
        for (_, hook) in hooks {
            if let Some(new) = hook(grads) {
                self.check_length("prehook", new.len(), grads.len());
                new.into_iter().zip(&mut *grads).for_each(|(new, old)| *old = new);
            }
        }
    }

    pub(crate) fn run_posthooks(&self, inputs: &mut Grads, outputs: &[Option<Tensor>]) {
        let hooks = match &self.0.state.lock().hooks {
            Some(hooks) if !hooks.after.is_empty() => hooks.after.clone(),
            _ => return,
        };
        for (_, hook) in hooks {
            if let Some(new) = hook(inputs, outputs) {
                self.check_length("hook", new.len(), inputs.len());
                *inputs = new.into();
            }
        }
    }

    fn check_length(&self, what: &str, got: usize, want: usize) {
        if got != want {
            throw(Error::Autograd(format!(
                "a {what} of `{}` returned {got} gradients in place of {want}",
                self.0.name
            )));
        }
    }

    /// Makes output `output` keep its gradient in `tensor.grad`.
    pub(crate) fn retain(&self, output: usize, tensor: &Tensor) {
        let tensor = tensor.0.downgrade();
        self.0.state.lock().hooks.get_or_insert_default().retained.push((output, tensor));
    }

    /// Undoes [`retain`](Self::retain).
    pub(crate) fn release(&self, tensor: &Tensor) {
        if let Some(hooks) = &mut self.0.state.lock().hooks {
            hooks.retained.retain(|(_, t)| t.as_ptr() != tensor.0.as_ptr());
        }
    }
}

impl Tensor {
    /// Keeps the gradient of a tensor with history in its `grad` (`torch.Tensor.retain_grad`), as all
    /// hooks left it. After an in-place op it is the changed tensor's.
    ///
    /// ```
    /// let x = torchrs::Tensor::from([2f64]).requires_grad_(true);
    /// let y = &x * 3.0;
    /// y.retain_grad();
    /// (&y * &y).backward();
    /// assert_eq!((y.grad().unwrap().item(), x.grad().unwrap().item()), (12.0, 36.0));
    /// ```
    ///
    /// # Panics
    /// Throws when the tensor does not require a gradient.
    #[track_caller]
    pub fn retain_grad(&self) {
        let Some(edge) = self.gradient_edge() else {
            throw(Error::Autograd(
                "retain_grad on a tensor that does not require a gradient".into(),
            ))
        };
        if self.is_leaf() || self.retains_grad() {
            return;
        }
        self.with_meta(|m| m.retains_grad = true);
        edge.node.retain(edge.output, self);
    }

    /// True after [`retain_grad`](Self::retain_grad) on a tensor with history
    /// (`torch.Tensor.retains_grad`).
    pub fn retains_grad(&self) -> bool {
        self.peek_meta(|m| m.retains_grad)
    }

    /// Calls `hook` with each gradient of this tensor; a returned tensor replaces the gradient
    /// (`torch.Tensor.register_hook`).
    ///
    /// ```
    /// let x = torchrs::Tensor::from([2f64]).requires_grad_(true);
    /// let y = &x * 3.0;
    /// y.register_hook(|g| Some(g.clamp(-1.0, 1.0)));
    /// (&y * &y).backward(); // 12 arrives at y
    /// assert_eq!(x.grad().unwrap().item(), 3.0);
    /// ```
    ///
    /// # Panics
    /// Throws when the tensor does not require a gradient.
    #[track_caller]
    pub fn register_hook(
        &self,
        hook: impl Fn(&Tensor) -> Option<Tensor> + Send + Sync + 'static,
    ) -> HookHandle {
        let Some(Edge { node, output, .. }) = self.gradient_edge() else {
            throw(Error::Autograd(
                "register_hook on a tensor that does not require a gradient".into(),
            ))
        };
        if let Kind::Function = node.0.kind {
            return node.add_hook(
                |hooks, id| hooks.tensors.push((output, id, Arc::new(hook))),
                |hooks, id| hooks.tensors.retain(|(_, i, _)| *i != id),
            );
        }
        // On the leaf itself: an accumulator that has hooks may die and be made anew between backwards.
        let id = HOOK_ID.fetch_add(1, Relaxed);
        self.with_meta(|m| m.hooks.push((id, Arc::new(hook))));
        let weak = self.0.downgrade();
        HookHandle::new(move || {
            if let Some(t) = weak.upgrade().map(Tensor) {
                t.with_meta(|m| m.hooks.retain(|(i, _)| *i != id));
            }
        })
    }

    /// Calls `hook` with this leaf after each time its gradient was accumulated
    /// (`torch.Tensor.register_post_accumulate_grad_hook`).
    ///
    /// ```
    /// use torchrs::{Tensor, no_grad};
    /// let x = Tensor::from([5f64]).requires_grad_(true);
    /// // A step as soon as the gradient is there, which is then no longer needed.
    /// x.register_post_accumulate_grad_hook(|x| {
    ///     no_grad(|| _ = x.sub_(&x.grad().unwrap()));
    ///     x.set_grad(None);
    /// });
    /// (&x * 2.0).backward();
    /// assert!(x.item() == 3.0 && x.grad().is_none());
    /// ```
    ///
    /// # Panics
    /// Throws when the tensor is not a leaf that requires a gradient.
    #[track_caller]
    pub fn register_post_accumulate_grad_hook(
        &self,
        hook: impl Fn(&Tensor) + Send + Sync + 'static,
    ) -> HookHandle {
        if !self.requires_grad() || !self.is_leaf() {
            throw(Error::Autograd(
                "register_post_accumulate_grad_hook needs a leaf that requires a gradient".into(),
            ));
        }
        let id = HOOK_ID.fetch_add(1, Relaxed);
        self.with_meta(|m| m.post_hooks.push((id, Arc::new(hook))));
        let weak = self.0.downgrade();
        HookHandle::new(move || {
            if let Some(t) = weak.upgrade().map(Tensor) {
                t.with_meta(|m| m.post_hooks.retain(|(i, _)| *i != id));
            }
        })
    }

    fn leaf_hooks(&self) -> Vec<(u64, Hook)> {
        self.peek_meta(|m| m.hooks.clone())
    }

    /// Whether hooks see the gradient of this leaf on its way.
    pub(super) fn has_hooks(&self) -> bool {
        self.peek_meta(|m| !m.hooks.is_empty())
    }

    /// Whether somebody is told when this leaf's gradient is there.
    pub(crate) fn is_watched(&self) -> bool {
        self.peek_meta(|m| !m.hooks.is_empty() || !m.post_hooks.is_empty())
    }

    pub(crate) fn run_post_hooks(&self) {
        for (_, hook) in self.peek_meta(|m| m.post_hooks.clone()) {
            hook(self);
        }
    }
}

/// When a hook of several tensors is called.
///
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
/// use torchrs::Tensor;
/// use torchrs::autograd::{MultiGradMode, register_multi_grad_hook};
/// static GRADS: AtomicUsize = AtomicUsize::new(0);
/// let a = Tensor::from([2f64]).requires_grad_(true);
/// let b = Tensor::from([3f64]).requires_grad_(true);
/// let count = |grads: &[Option<Tensor>]| _ = GRADS.fetch_add(grads.iter().flatten().count(), Relaxed);
/// register_multi_grad_hook(&[&a, &b], count, MultiGradMode::Any);
/// (&a * &b).backward();
/// assert_eq!(GRADS.load(Relaxed), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MultiGradMode {
    /// Once per backward, with the gradients of all tensors that it reaches.
    All,
    /// Once per backward, with the first gradient that is there.
    Any,
}

/// Calls `hook` once per backward, when the gradients of `tensors` are known
/// (`torch.autograd.graph.register_multi_grad_hook`): `None` stands for those that the backward does not
/// reach and, with [`MultiGradMode::Any`], for all but the first. With [`MultiGradMode::All`] nothing
/// happens in a backward that reaches none of them.
///
/// ```
/// use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
/// use torchrs::Tensor;
/// use torchrs::autograd::{MultiGradMode, register_multi_grad_hook};
/// static SUM: AtomicI64 = AtomicI64::new(0);
/// let a = Tensor::from([2f64]).requires_grad_(true);
/// let b = Tensor::from([3f64]).requires_grad_(true);
/// let add = |grads: &[Option<Tensor>]| {
///     let sum: i64 = grads.iter().flatten().map(Tensor::item_i64).sum();
///     SUM.fetch_add(sum, Relaxed);
/// };
/// register_multi_grad_hook(&[&a, &b], add, MultiGradMode::All);
/// (&a * &b).backward();
/// assert_eq!(SUM.load(Relaxed), 3 + 2);
/// ```
///
/// # Panics
/// Throws when a tensor does not require a gradient.
#[track_caller]
pub fn register_multi_grad_hook(
    tensors: &[&Tensor],
    hook: impl Fn(&[Option<Tensor>]) + Send + Sync + 'static,
    mode: MultiGradMode,
) -> HookHandle {
    let edge = |t: &&Tensor| {
        t.gradient_edge().unwrap_or_else(|| {
            throw(Error::Autograd(
                "register_multi_grad_hook: a tensor does not require a gradient".into(),
            ))
        })
    };
    // Leaves' accumulators must live as long as the hook, to be recognised.
    let nodes: Arc<Vec<Node>> = Arc::new(tensors.iter().map(|t| edge(t).node).collect());
    // What each pass that runs has brought so far, by its number.
    type Arrived = HashMap<u64, (usize, Vec<Option<Tensor>>)>;
    let arrived: Arc<Mutex<Arrived>> = Arc::default();
    let (hook, count) = (Arc::new(hook), tensors.len());
    let handles: Vec<HookHandle> = (0..count)
        .map(|i| {
            let (nodes, arrived, hook) = (nodes.clone(), arrived.clone(), hook.clone());
            tensors[i].register_hook(move |grad| {
                let pass = current_pass();
                let expected = match mode {
                    MultiGradMode::All => nodes.iter().filter(|n| pass.reaches(n)).count(),
                    MultiGradMode::Any => 1,
                };
                let mut passes = arrived.lock();
                let (so_far, grads) = passes.entry(pass.id).or_insert_with(|| {
                    let (arrived, id) = (Arc::downgrade(&arrived), pass.id);
                    at_end_of_pass(move || {
                        if let Some(arrived) = arrived.upgrade() {
                            arrived.lock().remove(&id);
                        }
                    });
                    (0, vec![None; count])
                });
                *so_far += 1;
                if *so_far <= expected {
                    grads[i] = Some(grad.clone());
                }
                if *so_far == expected {
                    let grads = std::mem::take(grads);
                    drop(passes);
                    hook(&grads);
                }
                None
            })
        })
        .collect();
    HookHandle::new(move || handles.into_iter().for_each(HookHandle::remove))
}
