//! How an op enters the graph.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::node::{BackwardCtx, Edge, Grads, Kind, Node, NodeState};
use super::{SavedTensor, is_grad_enabled};
use crate::Tensor;

static SEQUENCE: AtomicU64 = AtomicU64::new(0);

/// The next node's place in creation order.
pub(crate) fn next_seq() -> u64 {
    SEQUENCE.fetch_add(1, Relaxed)
}

/// Keeps tensors for backward; given to the closure that makes an op's backward.
pub struct Saver<'a> {
    pub(crate) outputs: &'a [Tensor],
}

impl Saver<'_> {
    /// Keeps an input (or any tensor that is not an output of this op).
    pub fn save(&self, tensor: &Tensor) -> SavedTensor {
        SavedTensor::input(tensor)
    }

    /// Keeps output `index` of the op.
    pub fn save_output(&self, index: usize) -> SavedTensor {
        SavedTensor::output(&self.outputs[index], index)
    }
}

/// True when an op on these inputs would be recorded: recording is on and one of them requires a
/// gradient.
#[inline]
pub fn will_record(inputs: &[&Tensor]) -> bool {
    is_grad_enabled() && inputs.iter().any(|t| t.requires_grad())
}

/// Records that `output` was computed from `inputs`, if that is wanted, and returns it.
///
/// `make` is called only then; it saves what backward needs and returns the backward: from the
/// output's gradient to one gradient per input (`None` where none is wanted or it is zero).
///
/// ```
/// use torchrs::{Tensor, autograd::{no_grad, record}};
/// fn cube(x: &Tensor) -> Tensor {
///     let y = no_grad(|| x * x * x);
///     record("cube", &[x], y, |saver| {
///         let x = saver.save(x);
///         move |ctx| { let x = ctx.get(&x); [Some(ctx.grad(0) * (&x * &x * 3.0))].into_iter().collect() }
///     })
/// }
/// let x = Tensor::from([2f64]).requires_grad_(true);
/// cube(&x).sum().backward();
/// assert_eq!(x.grad().unwrap().item(), 12.0);
/// ```
#[inline]
pub fn record<B>(
    name: &'static str,
    inputs: &[&Tensor],
    output: Tensor,
    make: impl FnOnce(&Saver) -> B,
) -> Tensor
where
    B: Fn(&BackwardCtx) -> Grads + Send + Sync + 'static,
{
    if will_record(inputs) && output.dtype().is_differentiable() {
        attach(name, inputs, std::slice::from_ref(&output), make);
    }
    output
}

/// [`record`] for an op with several differentiable outputs.
pub fn record_many<B>(
    name: &'static str,
    inputs: &[&Tensor],
    outputs: &[Tensor],
    make: impl FnOnce(&Saver) -> B,
) where
    B: Fn(&BackwardCtx) -> Grads + Send + Sync + 'static,
{
    if will_record(inputs) {
        attach(name, inputs, outputs, make);
    }
}

fn attach<B>(
    name: &'static str,
    inputs: &[&Tensor],
    outputs: &[Tensor],
    make: impl FnOnce(&Saver) -> B,
) where
    B: Fn(&BackwardCtx) -> Grads + Send + Sync + 'static,
{
    let edges = inputs.iter().map(|t| t.gradient_edge()).collect();
    let backward = make(&Saver { outputs });
    let node = new_node(name, edges, outputs, backward);
    for (output, t) in outputs.iter().enumerate() {
        t.set_history(Edge { node: node.clone(), output });
    }
}

pub(crate) fn new_node<B>(
    name: &'static str,
    edges: SmallVec<[Option<Edge>; 3]>,
    outputs: &[Tensor],
    backward: B,
) -> Arc<Node>
where
    B: Fn(&BackwardCtx) -> Grads + Send + Sync + 'static,
{
    Arc::new(Node {
        seq: next_seq(),
        name,
        kind: Kind::Function,
        edges,
        outputs: outputs.iter().map(|t| (t.layout().shape.clone(), t.dtype())).collect(),
        state: Mutex::new(NodeState { backward: Some(Arc::new(backward)), hooks: Vec::new() }),
    })
}
