//! Tensors kept for backward.

use std::any::Any;
use std::sync::Arc;

use super::node::{Edge, Node};
use super::saved_hooks::{self, Hooks};
use crate::Tensor;
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Shape};

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
    data: Data,
    version: u32,
    source: Source,
}

enum Data {
    Kept(Tensor),
    Packed(Box<Packed>),
}

/// What hooks made of a tensor.
struct Packed {
    value: Box<dyn Any + Send + Sync>,
    hooks: Arc<dyn Hooks>,
    like: (Shape, Dtype),
    /// The value is a tensor over the same memory: a change of that is seen.
    shares: bool,
}

enum Source {
    /// Needs no gradient.
    Constant,
    /// Its gradient goes there.
    Edge(Edge),
    /// It is this input of the node that saved it.
    Input(usize),
    /// It is this output of the node that saved it.
    OwnOutput(usize),
}

impl SavedTensor {
    #[track_caller]
    pub(crate) fn input(tensor: &Tensor) -> Self {
        Self::new(tensor, tensor.gradient_edge().map_or(Source::Constant, Source::Edge))
    }

    /// [`input`](Self::input) `index` of the node for which it is kept.
    #[track_caller]
    pub(crate) fn input_of_node(tensor: &Tensor, index: usize) -> Self {
        let source = if tensor.wants_grad() { Source::Input(index) } else { Source::Constant };
        Self::new(tensor, source)
    }

    #[track_caller]
    pub(crate) fn output(tensor: &Tensor, index: usize) -> Self {
        Self::new(tensor, Source::OwnOutput(index))
    }

    #[track_caller]
    fn new(tensor: &Tensor, source: Source) -> Self {
        if tensor.is_inference() {
            throw(Error::Autograd(format!(
                "an inference tensor (of shape {:?}) cannot be saved for backward; copy it with \
                 `clone_contiguous()` outside inference mode and use the copy",
                tensor.shape()
            )));
        }
        let version = tensor.version();
        let data = tensor.detach_with_tangent();
        let data = match saved_hooks::innermost() {
            None => Data::Kept(data),
            Some(hooks) => {
                let like = (data.layout().shape.clone(), data.dtype());
                let storage = data.storage().clone();
                let value = saved_hooks::pack(&*hooks, data);
                let kept = value.downcast_ref::<Tensor>();
                let shares = kept.is_some_and(|t| t.storage().ptr_eq(&storage));
                Data::Packed(Box::new(Packed { value, hooks, like, shares }))
            }
        };
        SavedTensor { data, version, source }
    }

    /// Of a saved output, its number and the tensor that will carry its tangent, which is known only when
    /// the op's backward is made.
    pub(crate) fn carrier(&self) -> Option<(usize, Tensor)> {
        match (&self.data, &self.source) {
            (Data::Kept(data), Source::OwnOutput(output)) => Some((*output, data.clone())),
            _ => None,
        }
    }

    /// The tensor, for `node`, or for the backward of that name if it has no node.
    pub(crate) fn unpack(&self, name: &str, node: Option<&Node>) -> Tensor {
        let data = match &self.data {
            Data::Kept(data) => {
                self.assert_unchanged(data, name);
                data.clone()
            }
            Data::Packed(packed) => {
                if let (true, Some(data)) = (packed.shares, packed.value.downcast_ref()) {
                    self.assert_unchanged(data, name);
                }
                packed.unpack(name)
            }
        };
        // Without recording nobody asks for the history.
        if !super::is_grad_enabled() {
            return data;
        }
        let edge = match (&self.source, node) {
            (Source::Edge(edge), _) => Some(edge.clone()),
            (Source::Input(input), Some(node)) => node.0.edges[*input].clone(),
            (Source::OwnOutput(output), Some(node)) => Some(Edge::to_output(node.clone(), *output)),
            _ => None,
        };
        match edge {
            Some(edge) => data.detach_with_tangent().with_history(edge),
            None => data,
        }
    }

    fn assert_unchanged(&self, data: &Tensor, name: &str) {
        let now = data.version();
        if now != self.version {
            throw(Error::Autograd(format!(
                "a tensor of shape {:?} and dtype {} that `{name}` saved for backward was changed in \
                 place since: it is at version {now}, version {} was saved; use the op without the \
                 trailing underscore, or change a clone",
                data.shape(),
                data.dtype(),
                self.version
            )));
        }
    }
}

impl Packed {
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
