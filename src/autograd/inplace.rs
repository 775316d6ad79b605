//! In-place ops in the graph. The changed tensor becomes an output of the op; when it is a view,
//! its base's history is rewritten: the base becomes the output of a node that cuts the view's part
//! out of the gradient, sends it through the op, and puts the result back (PyTorch's `CopySlices`).
//! Other views of the base notice by the version counter and take their history from the base anew.

use std::sync::atomic::Ordering::Relaxed;

use smallvec::smallvec;

use super::node::{BackwardCtx, Edge, Grads, Node};
use super::record::{Saver, new_node, record};
use super::{is_grad_enabled, will_record};
use crate::Tensor;
use crate::error::{Error, throw};
use crate::storage::Storage;
use crate::tensor::ONE_OF_SEVERAL;
use crate::tensor::layout::Layout;

impl Tensor {
    /// True for a view whose base was changed in place after the view's history was recorded.
    pub(crate) fn is_stale_view(&self) -> bool {
        self.base().is_some() && self.0.attr_version.load(Relaxed) != self.version()
    }

    pub(crate) fn mark_view_fresh(&self) {
        self.0.attr_version.store(self.version(), Relaxed);
    }

    /// Throws if an in-place op on this tensor would be an error: call before touching its bytes.
    #[track_caller]
    pub fn assert_inplace_legal(&self, op: &str) {
        if self.layout().may_overlap_itself() {
            throw(Error::argument(
                op,
                "self",
                format!(
                    "several elements of shape {:?} with strides {:?} are the same memory (an \
                     expanded tensor?); write to a clone",
                    self.shape(),
                    self.strides()
                ),
            ));
        }
        if !is_grad_enabled() {
            return;
        }
        let is_grad_leaf = |t: &Tensor| t.requires_grad() && t.is_leaf();
        if is_grad_leaf(self) || self.base().is_some_and(is_grad_leaf) {
            throw(Error::Autograd(format!(
                "{op}: in-place change of {} that requires a gradient; do it under `no_grad`, or on \
                 a clone",
                if self.base().is_some() { "a view of a leaf" } else { "a leaf" }
            )));
        }
        let records = self.requires_grad() || self.base().is_some_and(Tensor::requires_grad);
        if records && self.has_flag(ONE_OF_SEVERAL) {
            throw(Error::Autograd(format!(
                "{op}: in-place change of one of several views that `unbind`, `split` or `chunk` gave \
                 (or of a view of it); write to a clone, or to the part that `select` or `narrow` gives"
            )));
        }
        if let Some(base) = self.base()
            && base.requires_grad()
            && !self.requires_grad()
        {
            throw(Error::Autograd(format!(
                "{op}: in-place change of a view that was made under `no_grad`, while its base has \
                 history; make the view with recording on, or change it under `no_grad`"
            )));
        }
    }
}

/// Records an in-place op that has just changed `target`: counts the change, and makes `target` the
/// output of the op if it is to be recorded. `inputs[0]` is `target` itself (its old value); an op
/// that overwrites it returns `None` for it. Call
/// [`assert_inplace_legal`](Tensor::assert_inplace_legal) first.
pub fn record_inplace<B>(
    name: &'static str,
    target: &Tensor,
    inputs: &[&Tensor],
    make: impl FnOnce(&Saver) -> B,
) where
    B: Fn(&BackwardCtx) -> Grads + Send + Sync + 'static,
{
    debug_assert!(inputs[0].ptr_eq(target));
    if !will_record(inputs) || !target.dtype().is_floating_point() {
        target.storage().bump_version();
        return;
    }
    // Edges before the version changes: afterwards `target` would look stale.
    let edges: smallvec::SmallVec<[Option<Edge>; 3]> =
        inputs.iter().map(|t| t.gradient_edge()).collect();
    let Some(base) = target.base().cloned() else {
        target.storage().bump_version();
        let backward = make(&Saver { outputs: std::slice::from_ref(target) });
        let node = new_node(name, edges, std::slice::from_ref(target), backward);
        target.set_history(Edge { node, output: 0 });
        return;
    };
    let mut base_edges = edges.clone();
    base_edges[0] = base.gradient_edge();
    target.storage().bump_version();
    let inner = new_node(
        name,
        // The op's own node never enters the graph; it carries what the closure may ask for.
        // Its first input always counts: the base's gradient outside the view passes through.
        edges,
        std::slice::from_ref(target),
        make(&Saver { outputs: std::slice::from_ref(target) }),
    );
    let (base_layout, view_layout) = (base.layout().clone(), target.layout().clone());
    let node = new_node("copy_slices", base_edges, std::slice::from_ref(&base), move |ctx| {
        copy_slices_backward(ctx, &inner, &base_layout, &view_layout)
    });
    base.set_history(Edge { node, output: 0 });
}

fn copy_slices_backward(
    ctx: &BackwardCtx,
    inner: &std::sync::Arc<Node>,
    base: &Layout,
    view: &Layout,
) -> Grads {
    let grad = ctx.grad(0);
    let result = like_base(&grad, base);
    result.copy_(&grad);
    let slice = result.as_strided(&view.shape, &view.strides, view.offset - base.offset);
    let grad_slice = slice.clone_contiguous();
    // The closure is run through the outer node's retain rule: it lives as long as that node does.
    let mut grads = inner.run(&[Some(grad_slice)], true);
    if ctx.needs(0) {
        match grads[0].take() {
            Some(g) => slice.copy_(&g),
            None => slice.fill_(0.0),
        };
        grads[0] = Some(result);
    }
    grads
}

/// An uninitialised tensor with the base's shape and strides, at offset 0.
fn like_base(grad: &Tensor, base: &Layout) -> Tensor {
    let layout = Layout { offset: 0, ..base.clone() };
    Tensor::from_parts(Storage::host(layout.extent() * grad.dtype().size()), layout, grad.dtype())
}

/// The history of a view whose base was changed in place since: a strided cut out of the base.
pub(crate) fn regenerated_edge(view: &Tensor) -> Option<Edge> {
    let base = view.base()?;
    if !view.is_stale_view() || !base.requires_grad() {
        return None;
    }
    let (base_layout, view_layout) = (base.layout().clone(), view.layout().clone());
    let node =
        new_node("as_strided", smallvec![base.gradient_edge()], std::slice::from_ref(view), {
            move |ctx: &BackwardCtx| {
                smallvec![Some(scatter_into_base(&ctx.grad(0), &base_layout, &view_layout))]
            }
        });
    let edge = Edge { node, output: 0 };
    view.set_history(edge.clone());
    Some(edge)
}

/// Zeros of the base's shape with `grad` at the view's place.
pub(crate) fn scatter_into_base(grad: &Tensor, base: &Layout, view: &Layout) -> Tensor {
    let result = like_base(grad, base);
    result.fill_(0.0);
    let slice = result.as_strided(&view.shape, &view.strides, view.offset - base.offset);
    if !view.may_overlap_itself() {
        slice.copy_(grad);
        return result;
    }
    slice.add_overlapping(&grad.detach());
    let (base, view) = (base.clone(), view.clone());
    record("as_strided_backward", &[grad], result, |_| {
        move |ctx: &BackwardCtx| {
            let g = ctx.grad(0);
            let dense = like_base(&g, &base);
            dense.copy_(&g);
            smallvec![Some(dense.as_strided(&view.shape, &view.strides, view.offset - base.offset))]
        }
    })
}
