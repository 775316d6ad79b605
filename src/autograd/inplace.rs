//! In-place ops in the graph. The changed tensor becomes an output of the op; when it is a view,
//! its base's history is rewritten: the base becomes the output of a node that cuts the view's part
//! out of the gradient, sends it through the op, and puts the result back (PyTorch's `CopySlices`).
//! Other views of the base notice by the version counter and take their history from the base anew.

use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use smallvec::{SmallVec, smallvec};

use super::anomaly::watch_forward;
use super::mode::{FORWARD, has_mode, is_inference_mode_enabled};
use super::node::{BackwardCtx, BackwardFn, Edge, Grads, Held, Node};
use super::record::{Direct, Saver, edges, is_differentiated, new_node, record};
use super::{forward_ad, is_grad_enabled, will_record};
use crate::error::{Error, throw};
use crate::storage::{Storage, race::Use};
use crate::tensor::{Dtype, Layout, ONE_OF_SEVERAL, Tensor};

impl Tensor {
    /// True for a view whose base was changed in place after the view's history was recorded.
    pub(crate) fn is_stale_view(&self) -> bool {
        self.base().is_some() && self.0.attr_version.load(Relaxed) != self.version()
    }

    pub(crate) fn mark_view_fresh(&self) {
        if self.base().is_some() {
            self.0.attr_version.store(self.version(), Relaxed);
        }
    }

    /// Throws where nobody may write the tensor's memory.
    #[inline]
    #[track_caller]
    pub(crate) fn assert_writable(&self, op: &str) {
        if let Err(error) = self.storage().check_writable(op, "self") {
            throw(error);
        }
    }

    /// Throws if an in-place op on this tensor would be an error: call before touching its bytes.
    #[track_caller]
    pub(crate) fn assert_inplace_legal(&self, op: &str) {
        self.assert_writable(op);
        self.note(Use::Write);
        if !self.is_contiguous() && self.layout().may_overlap_itself() {
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
        if self.is_inference() && !is_inference_mode_enabled() {
            throw(Error::Autograd(format!(
                "{op}: in-place change of an inference tensor outside inference mode; change a copy \
                 (`clone_contiguous()`)"
            )));
        }
        if !is_grad_enabled() {
            return;
        }
        if has_mode(FORWARD) {
            self.assert_no_shared_primal(op);
        }
        if !self.requires_grad() && !self.base().is_some_and(Tensor::requires_grad) {
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

    /// A dual tensor shares memory with the tensor it was made of, whose history would not learn of the
    /// change.
    #[track_caller]
    fn assert_no_shared_primal(&self, op: &str) {
        let whole = self.base().unwrap_or(self);
        if whole.grad_fn().is_some_and(|node| node.0.name == "make_dual") {
            throw(Error::Autograd(format!(
                "{op}: in-place change of what `make_dual` gave for a tensor that requires a gradient; \
                 change a clone"
            )));
        }
    }
}

/// Records an in-place op that has just changed `target`: counts the change, and makes `target` the
/// output of the op if it is to be recorded. `inputs[0]` is `target` itself (its old value); an op
/// that overwrites it returns `None` for it.
///
/// ```
/// use torchrs::{Tensor, autograd::{BackwardCtx, no_grad, record_inplace}};
/// fn triple_(x: &Tensor) {
///     no_grad(|| _ = x.mul_(3.0));
///     record_inplace("triple_", x, &[x], |_| {
///         |ctx: &BackwardCtx| [Some(ctx.grad(0) * 3.0)].into_iter().collect()
///     });
/// }
/// let x = Tensor::from([2f64]).requires_grad_(true);
/// let y = &x * 1.0;
/// triple_(&y);
/// y.backward();
/// assert_eq!((y.item(), x.grad().unwrap().item()), (6.0, 3.0));
/// ```
#[inline]
#[track_caller]
pub fn record_inplace<B>(
    name: &'static str,
    target: &Tensor,
    inputs: &[&Tensor],
    make: impl FnOnce(&Saver) -> B,
) where
    B: Fn(&BackwardCtx) -> Grads + Send + Sync + 'static,
{
    if !target.dtype().is_differentiable() || !is_differentiated(inputs) {
        target.storage().bump_version();
        return;
    }
    rewrite(name, target, inputs, |saver| Box::new(make(saver)), None);
}

/// [`record_inplace`] for an op that makes `target`'s new tangent from those of the inputs directly, as
/// in [`record_with_tangent`](super::record_with_tangent).
#[inline]
#[track_caller]
pub(crate) fn record_inplace_with_tangent<B>(
    name: &'static str,
    target: &Tensor,
    inputs: &[&Tensor],
    make: impl FnOnce(&Saver) -> B,
    tangent: impl FnOnce(&[Option<Tensor>]) -> Option<Tensor>,
) where
    B: Fn(&BackwardCtx) -> Grads + Send + Sync + 'static,
{
    if !target.dtype().is_differentiable() || !is_differentiated(inputs) {
        target.storage().bump_version();
        return;
    }
    let tangent = has_mode(FORWARD).then(|| Box::new(tangent) as Direct);
    rewrite(name, target, inputs, |saver| Box::new(make(saver)), tangent);
}

#[track_caller]
fn rewrite(
    name: &'static str,
    target: &Tensor,
    inputs: &[&Tensor],
    make: impl FnOnce(&Saver) -> BackwardFn,
    direct: Option<Direct<'_>>,
) {
    debug_assert!(inputs[0].ptr_eq(target));
    watch_forward(name, inputs, std::slice::from_ref(target), Location::caller());
    let recorded = will_record(inputs);
    let base = target.base().cloned();
    let tangents = forward_ad::tangents(inputs);
    let base_tangent = base.as_ref().and_then(Tensor::tangent);
    // Edges before the version changes: afterwards `target` would look stale.
    let edges = edges(inputs);
    let mut base_edges = edges.clone();
    if let Some(base) = &base {
        base_edges[0] = base.gradient_edge().filter(|_| recorded);
    }
    let retaining: Vec<&Tensor> = [Some(target), base.as_ref()]
        .into_iter()
        .flatten()
        .filter(|t| recorded && t.retains_grad())
        .collect();
    for (t, node) in retaining.iter().filter_map(|t| Some((t, t.grad_fn()?))) {
        node.release(t);
    }
    target.storage().bump_version();
    let outputs = std::slice::from_ref(target);
    let saver = Saver::new(outputs);
    let backward = Arc::new(match (&tangents, &direct) {
        (Some(_), None) => forward_ad::saving(recorded, || make(&saver)),
        _ => make(&saver),
    });
    // Of a view, the op's own node never enters the graph; it carries what the closure may ask for. Its
    // first input always counts: the base's gradient outside the view passes through.
    let at = Location::caller();
    let node = new_node(name, outputs, at, |into| {
        *into = edges;
        (Held::Shared(backward.clone()), saver.saved_nothing())
    });
    match (&base, recorded) {
        (_, false) => {}
        (None, true) => target.set_history(Edge::to_output(node.clone(), 0)),
        (Some(base), true) => {
            let inner = node.clone();
            let (all, part) = (base.layout().clone(), target.layout().clone());
            let backward: BackwardFn =
                Box::new(move |ctx| copy_slices_backward(ctx, &inner, &all, &part));
            let outputs = std::slice::from_ref(base);
            let outer = new_node("copy_slices", outputs, at, |into| {
                *into = base_edges;
                (Held::Own(backward), saver.saved_nothing())
            });
            base.set_history(Edge::to_output(outer, 0));
        }
    }
    for t in retaining {
        if let Some(edge) = t.gradient_edge() {
            edge.node.retain(edge.output, t);
        }
    }
    if let Some(tangents) = tangents {
        let new = match direct {
            Some(direct) => {
                let _apart = forward_ad::suspended();
                direct(&tangents)
            }
            None => forward_ad::push_forward(&node, &backward, inputs, &tangents).swap_remove(0),
        };
        saver.set_tangents(std::slice::from_ref(&new));
        forward_ad::set_changed(target, base_tangent, new);
    }
}

fn copy_slices_backward(ctx: &BackwardCtx, inner: &Node, base: &Layout, view: &Layout) -> Grads {
    let [whole, part] = Elements::of(ctx.node.0.outputs[0].1, inner.0.outputs[0].1);
    let (base, view) = (&whole.layout(base), &part.layout(view));
    let grad = whole.cut(ctx.grad(0));
    let result = like_base(&grad, base);
    result.copy_(&grad);
    let slice = result.as_strided(&view.shape, &view.strides, view.offset - base.offset);
    let grad_slice = part.join(slice.clone_contiguous());
    // The closure is run through the outer node's retain rule: it lives as long as that node does.
    let edges = inner.0.edges.iter().enumerate();
    let wanted: SmallVec<[bool; 4]> = edges.map(|(i, e)| e.is_some() && ctx.needs(i)).collect();
    let mut grads = inner.run(&[Some(grad_slice)], true, Some(&wanted), &[], (None, None, None));
    if ctx.needs(0) {
        match grads[0].take() {
            Some(g) => slice.copy_(&part.cut(g)),
            None => slice.fill_(0.0),
        };
        grads[0] = Some(whole.join(result));
    }
    grads
}

/// Where a view has the parts of its complex base as elements (`view_as_real`), or pairs of a real base
/// as complex numbers, the complex one of the two is seen as pairs of real numbers while one is cut out
/// of the other.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Elements {
    AsTheyAre,
    Pairs,
}

impl Elements {
    /// How base and view of these types are seen.
    pub fn of(base: Dtype, view: Dtype) -> [Elements; 2] {
        match (base.is_complex(), view.is_complex()) {
            (true, false) => [Elements::Pairs, Elements::AsTheyAre],
            (false, true) => [Elements::AsTheyAre, Elements::Pairs],
            _ => [Elements::AsTheyAre; 2],
        }
    }

    pub fn layout(self, layout: &Layout) -> Layout {
        if self == Elements::Pairs { layout.pairs() } else { layout.clone() }
    }

    pub fn cut(self, t: Tensor) -> Tensor {
        if self == Elements::Pairs { t.view_as_real() } else { t }
    }

    pub fn join(self, t: Tensor) -> Tensor {
        if self == Elements::Pairs { t.view_as_complex() } else { t }
    }
}

/// An uninitialised tensor with the base's shape and strides, at offset 0.
pub(super) fn like_base(grad: &Tensor, base: &Layout) -> Tensor {
    let layout = Layout { offset: 0, ..base.clone() };
    let storage = Storage::on(grad.device(), layout.extent() * grad.dtype().size());
    Tensor::from_parts(storage, layout, grad.dtype())
}

/// The history of a view whose base was changed in place since: a strided cut out of the base.
pub(crate) fn regenerated_edge(view: &Tensor) -> Option<Edge> {
    let base = view.base()?;
    if !view.is_stale_view() || !base.wants_grad() {
        return None;
    }
    let [whole, part] = Elements::of(base.dtype(), view.dtype());
    let (base_layout, view_layout) = (whole.layout(base.layout()), part.layout(view.layout()));
    let backward: BackwardFn = Box::new(move |ctx| {
        let grad = part.cut(ctx.grad(0));
        smallvec![Some(whole.join(scatter_into_base(&grad, &base_layout, &view_layout)))]
    });
    let (outputs, at) = (std::slice::from_ref(view), Location::caller());
    let node = new_node("as_strided", outputs, at, |edges| {
        edges.push(base.gradient_edge());
        (Held::Own(backward), true)
    });
    let edge = Edge::to_output(node, 0);
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
