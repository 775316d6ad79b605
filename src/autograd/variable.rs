//! What autograd knows about a tensor, and the methods by which users meet it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use parking_lot::Mutex;
use smallvec::smallvec;

use super::engine;
use super::forward_ad::Tangent;
use super::hooks::{Hook, LeafHook};
use super::inplace::regenerated_edge;
use super::mode::is_inference_mode_enabled;
use super::node::{Edge, Kind, Node, NodeImpl, NodeState, OF_LEAVES, Outputs};
use super::saved::Unusual;
use super::sharded::Sharding;
use crate::counted::{WeakCounted, counted};
use crate::error::{Error, throw};
use crate::tensor::initial::{Initial, Unknown};
use crate::tensor::{INFERENCE_TENSOR, Layout, REQUIRES_GRAD, Shape, Tensor};

/// What autograd keeps with a tensor: a history at most with those that ops make.
#[derive(Default)]
pub(crate) struct AutogradMeta {
    /// The output of which node this tensor is.
    history: Option<Edge>,
    extras: Option<Box<Extras>>,
}

/// Gradient and hooks of a tensor. Made when first needed.
#[derive(Default)]
pub(crate) struct Extras {
    pub grad: Option<Tensor>,
    pub accumulator: Accumulator,
    /// Where the first gradient is written and what `.grad` then is (a DDP bucket's view).
    pub grad_target: Option<Tensor>,
    pub hooks: Vec<(u64, Hook)>,
    pub post_hooks: Vec<(u64, LeafHook)>,
    pub retains_grad: bool,
    pub tangent: Option<Tangent>,
    /// A parameter's dotted name in its model, for messages.
    pub name: Option<Box<str>>,
    /// Of a tensor that was moved. Never changed once it is there: references to it are about.
    pub layout: Option<Box<Layout>>,
    /// Of a tensor that was on the meta device: what gives its initial values.
    pub initial: Option<Result<Arc<Initial>, Unknown>>,
    /// Of the whole or the shard of a sharded parameter.
    pub(super) sharding: Option<Box<Sharding>>,
    /// Of the tensor object that saves another.
    pub(super) saved: Option<Arc<Unusual>>,
}

/// A leaf's accumulator, made when first needed and kept: each op on the leaf leads there.
#[derive(Default)]
pub(crate) enum Accumulator {
    #[default]
    None,
    Kept(Node),
    /// One with hooks, which live as long as a graph or the user holds it: they may hold the leaf.
    Hooked(WeakCounted<NodeImpl>),
}

impl Accumulator {
    /// Leaves the accumulator to those who hold it.
    pub fn let_go(&mut self) {
        if let Accumulator::Kept(node) = self {
            *self = Accumulator::Hooked(node.0.downgrade());
        }
    }
}

impl Tensor {
    pub(crate) fn with_meta<T>(&self, f: impl FnOnce(&mut Extras) -> T) -> T {
        f(self.0.meta.lock().extras.get_or_insert_default())
    }

    /// Reads the extras, if there are some.
    pub(crate) fn peek_meta<T: Default>(&self, f: impl FnOnce(&Extras) -> T) -> T {
        self.0.meta.lock().extras.as_deref().map(f).unwrap_or_default()
    }

    /// Notes the dotted name that a parameter has in a module. That in the whole model stays when it is named as part
    /// of a part.
    pub(crate) fn hint_name(&self, name: &str) {
        self.with_meta(|meta| {
            let known = meta.name.as_deref().and_then(|known| known.strip_suffix(name));
            if known.is_none_or(|outer| !(outer.is_empty() || outer.ends_with('.'))) {
                meta.name = Some(name.into());
            }
        });
    }

    /// The name that [`hint_name`](Self::hint_name) noted.
    pub(crate) fn name_hint(&self) -> Option<String> {
        self.peek_meta(|meta| meta.name.as_deref().map(str::to_owned))
    }

    /// True when ops on this tensor are recorded: it is a leaf that collects a gradient, or was
    /// computed from one.
    ///
    /// ```
    /// let x = torchrs::Tensor::from([1f32]);
    /// let w = torchrs::Tensor::from([2f32]).requires_grad_(true);
    /// assert!(!x.requires_grad() && w.requires_grad() && (&x * &w).requires_grad());
    /// ```
    #[inline]
    pub fn requires_grad(&self) -> bool {
        self.wants_grad() || self.wants_tangent()
    }

    /// [`requires_grad`](Self::requires_grad), for histories only: an op that saves tensors for its
    /// tangent finds dual tensors among those that require a gradient, but none goes to them.
    #[inline]
    pub(crate) fn wants_grad(&self) -> bool {
        self.has_flag(REQUIRES_GRAD)
            || self.base().is_some_and(|b| b.has_flag(REQUIRES_GRAD) && self.is_stale_view())
    }

    /// True for a tensor that was made in [`inference_mode`](super::inference_mode), and for views of it
    /// (`torch.Tensor.is_inference`).
    #[inline]
    pub fn is_inference(&self) -> bool {
        self.has_flag(INFERENCE_TENSOR)
    }

    /// Makes this leaf collect a gradient, or not (`torch.Tensor.requires_grad_`).
    ///
    /// ```
    /// use torchrs::{Tensor, catch};
    /// let w = Tensor::from([2f32]).requires_grad_(true);
    /// assert!((&w * 3.0).requires_grad());
    /// w.requires_grad_(false); // frozen
    /// assert!(!(&w * 3.0).requires_grad());
    /// assert!(catch(|| Tensor::from([1i64]).requires_grad_(true)).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws for integer and bool tensors, when switched off on a tensor that has history, and outside
    /// inference mode for an inference tensor.
    #[track_caller]
    pub fn requires_grad_(&self, requires_grad: bool) -> Tensor {
        if requires_grad && !self.dtype().is_differentiable() {
            throw(Error::dtype(
                "requires_grad_",
                format!(
                    "only floating-point and complex tensors can require a gradient, this one is {}",
                    self.dtype()
                ),
            ));
        }
        if requires_grad && self.is_inference() && !is_inference_mode_enabled() {
            throw(Error::Autograd(
                "requires_grad_(true) on an inference tensor outside inference mode; copy it with \
                 `clone_contiguous()`"
                    .into(),
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
        // A sharded parameter has two leaves, which go together.
        for leaf in [Some(self.clone()), self.shard(), self.whole()].iter().flatten() {
            if requires_grad {
                leaf.0.flags.fetch_or(REQUIRES_GRAD, Relaxed);
            } else {
                leaf.0.flags.fetch_and(!REQUIRES_GRAD, Relaxed);
            }
        }
        self.clone()
    }

    /// True when the tensor has no history (`torch.Tensor.is_leaf`).
    ///
    /// ```
    /// let w = torchrs::Tensor::from([2f32]).requires_grad_(true);
    /// let y = &w * 3.0;
    /// assert!(w.is_leaf() && !y.is_leaf() && y.detach().is_leaf());
    /// ```
    pub fn is_leaf(&self) -> bool {
        !self.wants_grad() || self.grad_fn().is_none()
    }

    /// The node that computed this tensor, if it has history.
    ///
    /// ```
    /// let w = torchrs::Tensor::from([2f32]).requires_grad_(true);
    /// assert!(w.grad_fn().is_none());
    /// assert_eq!(w.exp().grad_fn().unwrap().name(), "exp");
    /// ```
    pub fn grad_fn(&self) -> Option<Node> {
        if !self.wants_grad() {
            return None;
        }
        regenerated_edge(self).or_else(|| self.0.meta.lock().history.clone()).map(|edge| edge.node)
    }

    /// The collected gradient (`torch.Tensor.grad`).
    ///
    /// ```
    /// let w = torchrs::Tensor::from([2f32]).requires_grad_(true);
    /// assert!(w.grad().is_none());
    /// (&w * 3.0).backward();
    /// (&w * 3.0).backward();
    /// assert_eq!(w.grad().unwrap().item(), 6.0); // they add up
    /// ```
    pub fn grad(&self) -> Option<Tensor> {
        let (grad, is_whole) = self.peek_meta(|m| {
            (m.grad.clone(), matches!(m.sharding.as_deref(), Some(Sharding::Whole { .. })))
        });
        if is_whole && grad.is_none() {
            self.refuse_gradient_of_whole();
        }
        grad
    }

    /// Replaces the gradient; `None` clears it.
    ///
    /// ```
    /// let w = torchrs::Tensor::from([2f32]).requires_grad_(true);
    /// w.set_grad(Some(w.ones_like()));
    /// (&w * 3.0).backward();
    /// assert_eq!(w.grad().unwrap().item(), 4.0);
    /// w.set_grad(None);
    /// assert!(w.grad().is_none());
    /// ```
    ///
    /// # Panics
    /// Throws when shape, dtype or device differ from the tensor's.
    #[track_caller]
    pub fn set_grad(&self, grad: Option<Tensor>) {
        if let Some(g) = &grad
            && (g.shape() != self.shape()
                || g.dtype() != self.dtype()
                || g.device() != self.device())
        {
            throw(Error::argument(
                "set_grad",
                "grad",
                format!(
                    "has shape {:?} and dtype {} on {}; the tensor has {:?} and {} on {}",
                    g.shape(),
                    g.dtype(),
                    g.device(),
                    self.shape(),
                    self.dtype(),
                    self.device()
                ),
            ));
        }
        if grad.is_none() && self.0.meta.lock().extras.is_none() {
            return;
        }
        self.shard_gets(grad.as_ref());
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
    /// ```
    /// let w = torchrs::Tensor::from([1f32, 2.]).requires_grad_(true);
    /// (&w * &w).sum().backward();
    /// assert_eq!(w.grad().unwrap().to_vec::<f32>(), [2.0, 4.0]);
    /// assert!(torchrs::catch(|| (&w * 1.0).backward()).is_err()); // two elements
    /// ```
    ///
    /// # Panics
    /// Throws when the tensor has more than one element (use [`autograd::backward`] with a
    /// gradient) or no history.
    ///
    /// [`autograd::backward`]: crate::autograd::backward
    #[track_caller]
    pub fn backward(&self) {
        engine::backward(&[self], &[None], engine::GraphMode::Free);
    }

    /// Cuts this tensor off its history, for all handles of it (`torch.Tensor.detach_`).
    ///
    /// ```
    /// let w = torchrs::Tensor::from([2f32]).requires_grad_(true);
    /// let y = &w * 3.0;
    /// y.detach_();
    /// assert!(!y.requires_grad() && y.is_leaf() && w.requires_grad());
    /// ```
    ///
    /// # Panics
    /// Throws for a view: its base would still have the history. Use [`detach`](Self::detach).
    #[track_caller]
    pub fn detach_(&self) -> &Tensor {
        if self.base().is_some() {
            throw(Error::Autograd("detach_ on a view; use `detach()`".into()));
        }
        self.0.flags.fetch_and(!REQUIRES_GRAD, Relaxed);
        self.set_tangent(None);
        let history = {
            let mut meta = self.0.meta.lock();
            if let Some(extras) = &mut meta.extras {
                extras.retains_grad = false;
            }
            meta.history.take()
        };
        drop(history);
        self
    }

    /// Where this tensor's gradient goes; `None` when it requires none.
    pub(crate) fn gradient_edge(&self) -> Option<Edge> {
        let mut edge = None;
        self.gradient_edge_to(&mut edge);
        edge
    }

    /// [`gradient_edge`](Self::gradient_edge), written to where it stays.
    #[inline(always)]
    pub(super) fn gradient_edge_to(&self, edge: &mut Option<Edge>) {
        if !self.wants_grad() {
            return;
        }
        if self.base().is_some() {
            *edge = regenerated_edge(self);
            if edge.is_some() {
                return;
            }
        }
        let meta = self.0.meta.lock();
        if let Some(Edge { node, output, leaf }) = &meta.history {
            *edge = Some(Edge { node: node.clone(), output: *output, leaf: leaf.clone() });
            return;
        }
        let kept = match meta.extras.as_ref().map(|extras| &extras.accumulator) {
            Some(Accumulator::Kept(node)) => Some(node.clone()),
            _ => None,
        };
        drop(meta);
        let node = kept.unwrap_or_else(|| self.accumulator());
        *edge = Some(Edge { node, output: 0, leaf: Some(self.clone()) });
    }

    /// The accumulator of a leaf, made if there is none.
    #[cold]
    fn accumulator(&self) -> Node {
        self.with_meta(|extras| {
            let known = match &extras.accumulator {
                Accumulator::Kept(node) => Some(node.clone()),
                Accumulator::Hooked(node) => node.upgrade().map(Node),
                Accumulator::None => None,
            };
            known.unwrap_or_else(|| {
                let node = self.new_accumulator();
                extras.accumulator = Accumulator::Kept(node.clone());
                node
            })
        })
    }

    fn new_accumulator(&self) -> Node {
        Node(counted!(NodeImpl {
            seq: OF_LEAVES,
            name: "accumulate_grad",
            kind: Kind::Accumulate(self.0.downgrade()),
            edges: smallvec![],
            outputs: Outputs::from(smallvec![(
                Shape::from_slice(self.shape()),
                self.dtype(),
                self.device()
            )]),
            state: Mutex::new(NodeState::default()),
            asks: AtomicU8::new(0),
            stream: None,
            trace: None,
        }))
    }

    /// Makes this tensor an output of a node.
    pub(crate) fn set_history(&self, edge: Edge) {
        let old = self.0.meta.lock().history.replace(edge);
        self.0.flags.fetch_or(REQUIRES_GRAD, Relaxed);
        self.mark_view_fresh();
        drop(old);
    }

    /// This tensor, which was just made, as an output of a node: mostly nobody else has it yet.
    #[inline]
    pub(crate) fn with_grad_fn(mut self, node: Node, output: usize) -> Tensor {
        let Some(new) = self.0.get_mut() else {
            self.set_history(Edge::to_output(node, output));
            return self;
        };
        new.meta.get_mut().history = Some(Edge::to_output(node, output));
        *new.flags.get_mut() |= REQUIRES_GRAD;
        self.mark_view_fresh();
        self
    }
}

#[cfg(test)]
mod tests {
    use crate::autograd::no_grad;
    use crate::ops::Conv2dOptions;
    use crate::tensor::{Dtype, Tensor};

    /// Leaves of a convolution and a linear map, and places for their gradients that hold something else.
    fn leaves() -> ([Tensor; 2], [Tensor; 2]) {
        let shapes = [&[4, 3, 3, 3][..], &[5, 144]];
        let leaf = |s: &[usize]| Tensor::randn(s, Dtype::F32).requires_grad_(true);
        (shapes.map(leaf), shapes.map(|s| Tensor::full(s, f64::NAN, Dtype::F32)))
    }

    fn loss([w, l]: &[Tensor; 2], x: &Tensor) -> Tensor {
        let y = x.conv2d(w, None, Conv2dOptions::default());
        let y = y.flatten(1, 3).linear(l, None);
        (&y * &y).sum()
    }

    fn grads(leaves: &[Tensor; 2]) -> [Tensor; 2] {
        [0, 1].map(|i| {
            let grad = leaves[i].grad().expect("backward reached it");
            leaves[i].set_grad(None);
            grad
        })
    }

    fn check(leaves: &[Tensor; 2], places: &[Tensor; 2], pass: impl Fn()) {
        pass();
        let want = grads(leaves);
        for (leaf, place) in leaves.iter().zip(places) {
            leaf.set_grad_target(Some(place.clone()));
        }
        pass();
        for (got, (want, place)) in grads(leaves).iter().zip(want.iter().zip(places)) {
            assert_eq!(got.device_ptr(), place.device_ptr());
            assert_eq!(got.to_vec::<f32>(), want.to_vec::<f32>());
        }
    }

    #[test]
    fn gradients_are_the_same_where_they_have_a_place() {
        let (leaves, places) = leaves();
        let x = Tensor::randn([2, 3, 8, 8], Dtype::F32);
        check(&leaves, &places, || loss(&leaves, &x).backward());
    }

    #[test]
    fn a_place_is_not_written_twice_in_a_pass() {
        let (leaves, places) = leaves();
        let [x, other] = [2, 3].map(|n| Tensor::randn([n, 3, 8, 8], Dtype::F32));
        check(&leaves, &places, || (loss(&leaves, &x) + loss(&leaves, &other)).backward());
        // And what is there already is added to.
        loss(&leaves, &x).backward();
        let once: Vec<f32> = leaves[0].grad().expect("one").to_vec();
        loss(&leaves, &x).backward();
        let twice: Vec<f32> = leaves[0].grad().expect("both").to_vec();
        assert!(once.iter().zip(&twice).all(|(a, b)| 2.0 * a == *b), "{once:?} {twice:?}");
    }

    #[test]
    fn what_a_hook_kept_stays_as_it_was() {
        let (leaves, places) = leaves();
        let x = Tensor::randn([2, 3, 8, 8], Dtype::F32);
        leaves.iter().zip(&places).for_each(|(l, p)| l.set_grad_target(Some(p.clone())));
        let kept = std::sync::Arc::new(parking_lot::Mutex::new(None));
        let seen = kept.clone();
        let _hook = leaves[0].register_hook(move |grad| {
            *seen.lock() = Some((grad.clone(), grad.to_vec::<f32>()));
            None
        });
        loss(&leaves, &x).backward();
        no_grad(|| _ = places[0].fill_(7.0));
        let (grad, was) = kept.lock().take().expect("the hook ran");
        assert_eq!(grad.to_vec::<f32>(), was);
    }
}
