//! What autograd knows about a tensor, and the methods by which users meet it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use smallvec::smallvec;

use super::engine;
use super::inplace::regenerated_edge;
use super::node::{Edge, Hook, Kind, Node, NodeState};
use crate::Tensor;
use crate::error::{Error, throw};
use crate::tensor::REQUIRES_GRAD;

type PostHook = Arc<dyn Fn(&Tensor) + Send + Sync>;

/// Gradient, history and hooks of a tensor. Made when first needed.
#[derive(Default)]
pub(crate) struct AutogradMeta {
    pub grad: Option<Tensor>,
    /// The output of which node this tensor is.
    pub history: Option<Edge>,
    /// A leaf's accumulator; it holds the leaf, so the leaf must not hold it.
    pub accumulator: Weak<Node>,
    /// Where the first gradient is written and what `.grad` then is (a DDP bucket's view).
    pub grad_target: Option<Tensor>,
    pub hooks: Vec<(u64, Hook)>,
    pub post_hooks: Vec<(u64, PostHook)>,
    pub retains_grad: bool,
}

static HOOK_ID: AtomicU64 = AtomicU64::new(0);

/// A registered hook; [`remove`](Self::remove) takes it away. Dropping the handle does not.
pub struct HookHandle(Box<dyn FnOnce() + Send + Sync>);

impl HookHandle {
    /// One that removes by `remove`.
    pub(crate) fn new(remove: impl FnOnce() + Send + Sync + 'static) -> Self {
        HookHandle(Box::new(remove))
    }

    /// Removes the hook.
    pub fn remove(self) {
        (self.0)()
    }
}

impl Tensor {
    fn with_meta<T>(&self, f: impl FnOnce(&mut AutogradMeta) -> T) -> T {
        f(self.0.meta.lock().get_or_insert_default())
    }

    /// Reads the meta, if there is one.
    fn peek_meta<T: Default>(&self, f: impl FnOnce(&AutogradMeta) -> T) -> T {
        self.0.meta.lock().as_deref().map(f).unwrap_or_default()
    }

    /// True when ops on this tensor are recorded: it is a leaf that collects a gradient, or was
    /// computed from one.
    #[inline]
    pub fn requires_grad(&self) -> bool {
        self.has_flag(REQUIRES_GRAD)
            || self.base().is_some_and(|b| b.has_flag(REQUIRES_GRAD) && self.is_stale_view())
    }

    /// Makes this leaf collect a gradient, or not (`torch.Tensor.requires_grad_`).
    ///
    /// # Panics
    /// Throws for integer and bool tensors, and when switched off on a tensor that has history.
    #[track_caller]
    pub fn requires_grad_(&self, requires_grad: bool) -> Tensor {
        if requires_grad && !self.dtype().is_floating_point() {
            throw(Error::dtype(
                "requires_grad_",
                format!(
                    "only floating-point tensors can require a gradient, this one is {}",
                    self.dtype()
                ),
            ));
        }
        if !self.is_leaf() {
            if !requires_grad {
                throw(Error::Autograd(
                    "requires_grad_(false) on a tensor with history; use `detach()`".into(),
                ));
            }
            return self.clone();
        }
        if requires_grad {
            self.0.flags.fetch_or(REQUIRES_GRAD, Relaxed);
        } else {
            self.0.flags.fetch_and(!REQUIRES_GRAD, Relaxed);
        }
        self.clone()
    }

    /// True when the tensor has no history (`torch.Tensor.is_leaf`).
    pub fn is_leaf(&self) -> bool {
        !self.requires_grad() || self.grad_fn().is_none()
    }

    /// The node that computed this tensor, if it has history.
    pub fn grad_fn(&self) -> Option<Arc<Node>> {
        if !self.requires_grad() {
            return None;
        }
        regenerated_edge(self)
            .or_else(|| self.peek_meta(|m| m.history.clone()))
            .map(|edge| edge.node)
    }

    /// The collected gradient (`torch.Tensor.grad`).
    pub fn grad(&self) -> Option<Tensor> {
        self.peek_meta(|m| m.grad.clone())
    }

    /// Replaces the gradient; `None` clears it.
    ///
    /// # Panics
    /// Throws when shape or dtype differ from the tensor's.
    #[track_caller]
    pub fn set_grad(&self, grad: Option<Tensor>) {
        if let Some(g) = &grad
            && (g.shape() != self.shape() || g.dtype() != self.dtype())
        {
            throw(Error::argument(
                "set_grad",
                "grad",
                format!(
                    "has shape {:?} and dtype {}; the tensor has {:?} and {}",
                    g.shape(),
                    g.dtype(),
                    self.shape(),
                    self.dtype()
                ),
            ));
        }
        if grad.is_none() && self.0.meta.lock().is_none() {
            return;
        }
        let old = self.with_meta(|m| std::mem::replace(&mut m.grad, grad));
        drop(old);
    }

    /// Says where this leaf's gradient lives: the first gradient of each step is written into
    /// `target`, which then is `.grad`; later ones are added there. DDP points it into a bucket.
    pub(crate) fn set_grad_target(&self, target: Option<Tensor>) {
        self.with_meta(|m| m.grad_target = target);
    }

    pub(crate) fn grad_target(&self) -> Option<Tensor> {
        self.peek_meta(|m| m.grad_target.clone())
    }

    /// Computes the gradients of all leaves that led to this tensor and adds them to their `grad`
    /// (`torch.Tensor.backward`). Saved tensors are freed.
    ///
    /// # Panics
    /// Throws when the tensor has more than one element (use [`autograd::backward`] with a
    /// gradient) or no history.
    ///
    /// [`autograd::backward`]: crate::autograd::backward
    #[track_caller]
    pub fn backward(&self) {
        engine::backward(&[self], &[None], false, false);
    }

    /// Keeps the gradient of a tensor with history in its `grad` (`torch.Tensor.retain_grad`).
    #[track_caller]
    pub fn retain_grad(&self) {
        if !self.requires_grad() {
            throw(Error::Autograd(
                "retain_grad on a tensor that does not require a gradient".into(),
            ));
        }
        if self.is_leaf() || self.peek_meta(|m| m.retains_grad) {
            return;
        }
        self.with_meta(|m| m.retains_grad = true);
        let this = Arc::downgrade(&self.0);
        self.register_hook(move |grad| {
            if let Some(t) = this.upgrade().map(Tensor) {
                let sum = match t.grad() {
                    Some(old) => &old + grad,
                    None => grad.clone(),
                };
                t.set_grad(Some(sum));
            }
            None
        });
    }

    /// Calls `hook` with each gradient of this tensor; a returned tensor replaces the gradient
    /// (`torch.Tensor.register_hook`).
    ///
    /// # Panics
    /// Throws when the tensor does not require a gradient.
    #[track_caller]
    pub fn register_hook(
        &self,
        hook: impl Fn(&Tensor) -> Option<Tensor> + Send + Sync + 'static,
    ) -> HookHandle {
        let id = HOOK_ID.fetch_add(1, Relaxed);
        let Some(edge) = self.gradient_edge() else {
            throw(Error::Autograd(
                "register_hook on a tensor that does not require a gradient".into(),
            ))
        };
        if let Kind::Accumulate(_) = edge.node.kind {
            // On the leaf itself: the accumulator may die and be made anew between backwards.
            self.with_meta(|m| m.hooks.push((id, Arc::new(hook))));
            let weak = Arc::downgrade(&self.0);
            return HookHandle(Box::new(move || {
                if let Some(t) = weak.upgrade().map(Tensor) {
                    t.with_meta(|m| m.hooks.retain(|(i, _)| *i != id));
                }
            }));
        }
        edge.node.state.lock().hooks.push((edge.output, id, Arc::new(hook)));
        let weak = Arc::downgrade(&edge.node);
        HookHandle(Box::new(move || {
            if let Some(node) = weak.upgrade() {
                node.state.lock().hooks.retain(|(_, i, _)| *i != id);
            }
        }))
    }

    /// Calls `hook` with this leaf after each time its gradient was accumulated
    /// (`torch.Tensor.register_post_accumulate_grad_hook`).
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
        let weak = Arc::downgrade(&self.0);
        HookHandle(Box::new(move || {
            if let Some(t) = weak.upgrade().map(Tensor) {
                t.with_meta(|m| m.post_hooks.retain(|(i, _)| *i != id));
            }
        }))
    }

    pub(crate) fn leaf_hooks(&self) -> Vec<(u64, Hook)> {
        self.peek_meta(|m| m.hooks.clone())
    }

    pub(crate) fn run_post_hooks(&self) {
        for (_, hook) in self.peek_meta(|m| m.post_hooks.clone()) {
            hook(self);
        }
    }

    /// Where this tensor's gradient goes; `None` when it requires none.
    pub(crate) fn gradient_edge(&self) -> Option<Edge> {
        if !self.requires_grad() {
            return None;
        }
        if let Some(edge) = regenerated_edge(self) {
            return Some(edge);
        }
        let mut meta = self.0.meta.lock();
        let meta = meta.get_or_insert_default();
        if let Some(edge) = &meta.history {
            return Some(edge.clone());
        }
        let node = meta.accumulator.upgrade().unwrap_or_else(|| {
            let node = Arc::new(Node {
                seq: u64::MAX,
                name: "accumulate_grad",
                kind: Kind::Accumulate(self.clone()),
                edges: smallvec![],
                outputs: smallvec![(self.layout().shape.clone(), self.dtype())],
                state: Mutex::new(NodeState::default()),
            });
            meta.accumulator = Arc::downgrade(&node);
            node
        });
        Some(Edge { node, output: 0 })
    }

    /// Makes this tensor an output of a node.
    pub(crate) fn set_history(&self, edge: Edge) {
        let old = self.with_meta(|m| m.history.replace(edge));
        self.0.flags.fetch_or(REQUIRES_GRAD, Relaxed);
        self.mark_view_fresh();
        drop(old);
    }

    pub(crate) fn with_history(self, edge: Edge) -> Tensor {
        self.set_history(edge);
        self
    }
}
