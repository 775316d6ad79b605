//! Tensors kept for backward.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::node::{Edge, Node};
use super::saved_hooks::{self, Hooks};
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Shape, Tensor};

/// A tensor kept for backward: its bytes and where its own gradient would go, but not the tensor
/// object, so that a graph never refers to itself in a circle.
///
/// ```
/// use torchrs::{Tensor, autograd::{BackwardCtx, SavedTensor, no_grad, record}};
/// let x = Tensor::from([2f64]).requires_grad_(true);
/// let y = record("cube", &[&x], no_grad(|| &x * &x * &x), |saver| {
///     let saved: SavedTensor = saver.save(&x);
///     move |ctx: &BackwardCtx| {
///         let x = ctx.get(&saved);
///         [Some(ctx.grad(0) * &x * &x * 3.0)].into_iter().collect()
///     }
/// });
/// y.backward();
/// assert_eq!(x.grad().unwrap().item(), 12.0);
/// ```
pub struct SavedTensor {
    /// A tensor object of its own, which knows its version when it was saved. Of an [`Unusual`] one an empty tensor may stand
    /// here.
    data: Tensor,
    // Both together are returned in two registers, and an op's backward is put together of those.
    source: Source,
}

/// Where the gradient of a saved tensor goes: mostly to an input or output of the node that saves it, which has the edge. A
/// kind in the lower two bits, and a number.
#[derive(Clone, Copy)]
pub(super) struct Source(u64);

impl Source {
    const KIND: u64 = 3;
    /// Nowhere: it needs none.
    const CONSTANT: u64 = 0;
    /// It is an input of the node that saved it.
    const INPUT: u64 = 1;
    /// It is an output of the node that saved it.
    const OUTPUT: u64 = 2;
    /// Where the [`Unusual`] says.
    const UNUSUAL: u64 = 3;

    /// Of a tensor that a node with these inputs saves; `UNUSUAL` if that has no edge to where its gradient goes.
    pub fn of(tensor: &Tensor, inputs: &[&Tensor]) -> Source {
        if !tensor.wants_grad() {
            return Source(Self::CONSTANT);
        }
        match inputs.iter().position(|input| input.ptr_eq(tensor)) {
            Some(input) => Source((input as u64) << 2 | Self::INPUT),
            None => Source(Self::UNUSUAL),
        }
    }

    pub fn output(index: usize) -> Source {
        Source((index as u64) << 2 | Self::OUTPUT)
    }

    fn kind(self) -> u64 {
        self.0 & Self::KIND
    }

    fn index(self) -> usize {
        (self.0 >> 2) as usize
    }

    fn edge(self, node: &Node) -> Option<Edge> {
        match self.kind() {
            Self::INPUT => node.0.edges[self.index()].clone(),
            Self::OUTPUT => Some(Edge::to_output(node.clone(), self.index())),
            _ => None,
        }
    }
}

/// What few saved tensors have. It is kept with the tensor object.
pub(super) struct Unusual {
    packed: Option<Packed>,
    /// Where the gradient goes, if that is no edge of the node.
    edge: Option<Edge>,
    source: Source,
}

/// What hooks made of a tensor.
struct Packed {
    value: Box<dyn Any + Send + Sync>,
    hooks: Arc<dyn Hooks>,
    like: (Shape, Dtype),
    /// The value is a tensor over the same memory: a change of that is seen.
    shares: bool,
}

impl SavedTensor {
    #[track_caller]
    pub(crate) fn input(tensor: &Tensor) -> Self {
        Self::new(tensor, Source::of(tensor, &[]))
    }

    #[track_caller]
    pub(super) fn new(tensor: &Tensor, source: Source) -> Self {
        if tensor.is_inference() {
            throw(Error::Autograd(format!(
                "an inference tensor (of shape {:?}) cannot be saved for backward; copy it with \
                 `clone_contiguous()` outside inference mode and use the copy",
                tensor.shape()
            )));
        }
        let data = tensor.detach_with_tangent();
        tensor.storage().count_changes();
        data.0.attr_version.store(tensor.version(), Relaxed);
        let hooks = saved_hooks::innermost();
        if hooks.is_none() && source.kind() != Source::UNUSUAL {
            return SavedTensor { data, source };
        }
        Self::unusual(tensor, data, source, hooks)
    }

    #[cold]
    fn unusual(
        tensor: &Tensor,
        mut data: Tensor,
        source: Source,
        hooks: Option<Arc<dyn Hooks>>,
    ) -> Self {
        let packed = hooks.map(|hooks| {
            let empty = Tensor::empty([0], data.dtype().on_host());
            empty.0.attr_version.store(data.0.attr_version.load(Relaxed), Relaxed);
            Packed::new(std::mem::replace(&mut data, empty), hooks)
        });
        let edge = match source.kind() {
            Source::UNUSUAL => tensor.gradient_edge(),
            _ => None,
        };
        data.with_meta(|m| m.saved = Some(Arc::new(Unusual { packed, edge, source })));
        SavedTensor { data, source: Source(Source::UNUSUAL) }
    }

    /// Of a saved output, its number and the tensor that will carry its tangent, which is known only when
    /// the op's backward is made.
    pub(crate) fn carrier(&self) -> Option<(usize, Tensor)> {
        let is_output = self.source.kind() == Source::OUTPUT;
        is_output.then(|| (self.source.index(), self.data.clone()))
    }

    /// The tensor, for `node`, or for the backward of that name if it has no node.
    pub(crate) fn unpack(&self, name: &str, node: Option<&Node>) -> Tensor {
        if self.source.kind() == Source::UNUSUAL {
            let unusual = self.data.peek_meta(|m| m.saved.clone()).expect("kept with it");
            return self.unpack_unusual(&unusual, name, node);
        }
        self.assert_unchanged(&self.data, name);
        let edge = || self.source.edge(node?);
        with_history(self.data.clone(), edge)
    }

    fn unpack_unusual(&self, unusual: &Unusual, name: &str, node: Option<&Node>) -> Tensor {
        let data = match &unusual.packed {
            Some(packed) => {
                if let (true, Some(data)) = (packed.shares, packed.value.downcast_ref()) {
                    self.assert_unchanged(data, name);
                }
                packed.unpack(name)
            }
            None => {
                self.assert_unchanged(&self.data, name);
                self.data.clone()
            }
        };
        with_history(data, || unusual.edge.clone().or_else(|| unusual.source.edge(node?)))
    }

    fn assert_unchanged(&self, data: &Tensor, name: &str) {
        data.storage().count_changes();
        let (saved, now) = (self.data.0.attr_version.load(Relaxed), data.version());
        if now != saved {
            throw(Error::Autograd(format!(
                "a tensor of shape {:?} and dtype {} that `{name}` saved for backward was changed in \
                 place since: it is at version {now}, version {saved} was saved; use the op without the \
                 trailing underscore, or change a clone",
                data.shape(),
                data.dtype(),
            )));
        }
    }
}

/// A saved tensor with the history that leads to `edge`. Without recording nobody asks for that.
fn with_history(data: Tensor, edge: impl FnOnce() -> Option<Edge>) -> Tensor {
    if !super::is_grad_enabled() {
        return data;
    }
    let Some(edge) = edge() else { return data };
    let data = data.detach_with_tangent();
    data.set_history(edge);
    data
}

impl Packed {
    fn new(data: Tensor, hooks: Arc<dyn Hooks>) -> Self {
        let like = (data.layout().shape.clone(), data.dtype());
        let storage = data.storage().clone();
        let value = saved_hooks::pack(&*hooks, data);
        let kept = value.downcast_ref::<Tensor>();
        let shares = kept.is_some_and(|t| t.storage().ptr_eq(&storage));
        Packed { value, hooks, like, shares }
    }

    fn unpack(&self, name: &str) -> Tensor {
        let data = saved_hooks::unpack(&*self.hooks, &*self.value);
        let (shape, dtype) = &self.like;
        if data.shape() != &shape[..] || data.dtype() != *dtype {
            throw(Error::Autograd(format!(
                "saved_tensors_hooks: for a tensor of shape {:?} and dtype {dtype} that `{name}` saved, \
                 `unpack` gave shape {:?} and dtype {}",
                &shape[..],
                data.shape(),
                data.dtype()
            )));
        }
        data
    }
}
