//! Forward-mode differentiation by dual numbers (`torch.autograd.forward_ad`): inside a [`dual_level`] a
//! tensor may carry a tangent, and what is computed from it carries the tangent that follows.
//!
//! Every op has a forward derivative because it has a backward. That is linear in the gradient that it
//! gets, v -> Jᵀv, and its own derivative by v, applied to a tangent t, is
//!
//! ```text
//! d/dv <Jᵀv, t> = J t
//! ```
//!
//! so it is recorded once, for some v (zero will do), and differentiated. Pointwise rows, views and matrix
//! products, whose J t is at hand, say it directly (`record_with_tangent`).
//!
//! Tangents are never changed in place: an in-place op gives its target a new one. A view's tangent counts
//! as long as its memory is what it was; then it is cut out of the base's, as with histories.
//!
//! ```
//! use torchrs::Tensor;
//! use torchrs::autograd::forward_ad::{dual_level, make_dual, unpack_dual};
//! let (x, v) = (Tensor::from([2f64, 3.]), Tensor::from([1f64, 10.]));
//! let tangent = dual_level(|| {
//!     let x = make_dual(&x, &v);
//!     unpack_dual(&(&x * &x)).tangent
//! });
//! assert_eq!(tangent.unwrap().to_vec::<f64>(), [4.0, 60.0]);
//! ```

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use smallvec::{SmallVec, smallvec};

use super::GraphMode;
use super::engine::{fit, grad};
use super::inplace::{Elements, like_base};
use super::mode::{AUTOCAST, FORWARD, GRAD, ModeGuard, SAVING_FOR_TANGENT, has_mode};
use super::node::{BackwardCtx, BackwardFn, Node};
use super::{is_grad_enabled, record};
use crate::counted::WeakCounted;
use crate::error::{Error, throw};
use crate::tensor::{Layout, TANGENT, Tensor, TensorImpl};

/// A tangent, among a tensor's [`Extras`](super::variable::Extras).
pub(crate) struct Tangent {
    /// The dual level that it belongs to; outside, it does not count.
    level: u64,
    /// The storage's version when it was set: decides for views.
    version: u32,
    value: Tensor,
}

thread_local! {
    /// The number of this thread's dual level, if [`FORWARD`] is set.
    static LEVEL: Cell<u64> = const { Cell::new(0) };
    /// The tensors that carry tangents of it.
    static DUALS: RefCell<Vec<WeakCounted<TensorImpl>>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` inside a dual level (`torch.autograd.forward_ad.dual_level`). Tangents belong to the level and
/// to the thread: they disappear at its end.
///
/// ```
/// use torchrs::{Tensor, autograd::forward_ad::{dual_level, make_dual, unpack_dual}};
/// let (x, v) = (Tensor::from([0.5f64, 2.0]), Tensor::from([1.0f64, 10.0]));
/// let tangent = dual_level(|| {
///     let y = make_dual(&x, &v).sin();
///     unpack_dual(&y).tangent.unwrap()
/// });
/// assert_eq!(tangent.to_vec::<f64>(), (x.cos() * v).to_vec::<f64>());
/// ```
///
/// # Panics
/// Throws [`Error::Autograd`] inside another dual level: there is one at a time, as in PyTorch.
#[track_caller]
pub fn dual_level<T>(f: impl FnOnce() -> T) -> T {
    if LEVEL.get() != 0 {
        throw(Error::Autograd(
            "dual_level inside another one: nested forward-mode differentiation is not supported; use \
             `grad` with create_graph for one of the two"
                .into(),
        ));
    }
    /// Takes the level's tangents away, also when `f` panics.
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            LEVEL.set(0);
            for dual in DUALS.take().iter().filter_map(WeakCounted::upgrade) {
                Tensor(dual).clear_tangent();
            }
        }
    }
    static NEXT: AtomicU64 = AtomicU64::new(1);
    LEVEL.set(NEXT.fetch_add(1, Relaxed));
    let _leave = Leave;
    let _mode = ModeGuard::new(FORWARD, 0);
    f()
}

/// A dual tensor taken apart by [`unpack_dual`].
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::autograd::forward_ad::{UnpackedDual, dual_level, make_dual, unpack_dual};
/// let (x, v) = (Tensor::from([3f64]), Tensor::from([1f64]));
/// dual_level(|| {
///     let UnpackedDual { primal, tangent } = unpack_dual(&(make_dual(&x, &v) * 5.0));
///     assert_eq!((primal.item(), tangent.unwrap().item()), (15.0, 5.0));
/// });
/// ```
#[derive(Clone, Debug)]
pub struct UnpackedDual {
    /// The tensor without its tangent, with its history.
    pub primal: Tensor,
    /// `None`: the tensor does not depend on a dual one, or its derivative is zero everywhere.
    pub tangent: Option<Tensor>,
}

/// `tensor`, which shares its memory, with a tangent (`torch.autograd.forward_ad.make_dual`). Gradients
/// flow back to both.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::autograd::forward_ad::{dual_level, make_dual, unpack_dual};
/// let (x, v) = (Tensor::from([[1f64, 2.]]), Tensor::from([[3f64, 4.]]));
/// let turned = dual_level(|| unpack_dual(&make_dual(&x, &v).t()).tangent.unwrap());
/// assert!(turned.equal(&v.t()));
/// assert!(torchrs::catch(|| make_dual(&x, &v)).is_err()); // outside
/// ```
///
/// # Panics
/// Throws outside a [`dual_level`], for other than floating-point tensors, for a tangent of another shape
/// or dtype, and for a tensor that has a tangent already.
#[track_caller]
pub fn make_dual(tensor: &Tensor, tangent: &Tensor) -> Tensor {
    if !has_mode(FORWARD) {
        throw(Error::Autograd("make_dual outside a dual_level (on this thread)".into()));
    }
    let refuse = |message: String| throw(Error::argument("make_dual", "tangent", message));
    if !tensor.dtype().is_differentiable() {
        let dtype = tensor.dtype();
        refuse(format!("of a tensor of dtype {dtype}; it must be a floating-point or complex one"));
    }
    if tangent.shape() != tensor.shape() || tangent.dtype() != tensor.dtype() {
        refuse(format!(
            "has shape {:?} and dtype {}, the tensor has {:?} and {}",
            tangent.shape(),
            tangent.dtype(),
            tensor.shape(),
            tensor.dtype()
        ));
    }
    if tensor.is_dual() {
        refuse("for a tensor that has one already; take it apart with `unpack_dual` first".into());
    }
    // A tensor of its own rather than a view: its tangent does not belong to `tensor`.
    let dual = record("make_dual", &[tensor], tensor.detach(), |_| {
        |ctx: &super::BackwardCtx| smallvec![Some(ctx.grad(0))]
    });
    // A copy: a later change of `tangent` must not change the result.
    let _apart = suspended();
    dual.with_tangent(tangent.clone_contiguous())
}

/// A tensor and its tangent (`torch.autograd.forward_ad.unpack_dual`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::autograd::forward_ad::{dual_level, make_dual, unpack_dual};
/// let x = Tensor::from([1f64, 2.]);
/// dual_level(|| {
///     let y = make_dual(&x, &x).sum();
///     assert_eq!(unpack_dual(&y).tangent.unwrap().item(), 3.0);
///     assert!(unpack_dual(&x).tangent.is_none());
/// });
/// ```
pub fn unpack_dual(tensor: &Tensor) -> UnpackedDual {
    let tangent = tensor.tangent();
    if tangent.is_none() {
        return UnpackedDual { primal: tensor.clone(), tangent };
    }
    let _apart = suspended();
    let primal = record("unpack_dual", &[tensor], tensor.detach(), |_| {
        |ctx: &super::BackwardCtx| smallvec![Some(ctx.grad(0))]
    });
    UnpackedDual { primal, tangent }
}

/// While this lives, tensors of this thread count as having no tangents, and nothing is cast: tangents are
/// of the types that their tensors have.
pub(super) fn suspended() -> ModeGuard {
    ModeGuard::new(0, FORWARD | AUTOCAST)
}

impl Tensor {
    /// True when this tensor carries a tangent of the level that is open on this thread.
    pub(crate) fn is_dual(&self) -> bool {
        self.may_be_dual() && self.tangent().is_some()
    }

    /// False for certain where neither this tensor nor its base ever had a tangent.
    #[inline]
    pub(crate) fn may_be_dual(&self) -> bool {
        has_mode(FORWARD) && self.had_tangent()
    }

    /// True when the tensor, or what it is a view of, was given a tangent.
    pub(crate) fn had_tangent(&self) -> bool {
        self.has_flag(TANGENT) || self.base().is_some_and(|b| b.has_flag(TANGENT))
    }

    /// True while an op saves tensors for its tangent, and needs what the derivative by this one needs.
    #[inline]
    pub(super) fn wants_tangent(&self) -> bool {
        self.had_tangent() && has_mode(SAVING_FOR_TANGENT)
    }

    /// The tangent that this tensor carries on this thread.
    pub(crate) fn tangent(&self) -> Option<Tensor> {
        if !self.may_be_dual() {
            return None;
        }
        let level = LEVEL.get();
        let own = self.peek_meta(|m| {
            let own = m.tangent.as_ref().filter(|t| t.level == level);
            own.map(|t| (t.version, t.value.clone()))
        });
        match self.base() {
            Some(base) if own.as_ref().is_none_or(|own| own.0 != self.version()) => {
                let whole = base.tangent()?;
                let _apart = suspended();
                let [all, part] = Elements::of(base.dtype(), self.dtype());
                let whole = all.cut(in_layout_of(&whole, base.layout()));
                let (view, base) = (part.layout(self.layout()), all.layout(base.layout()));
                let Some(offset) = view.offset.checked_sub(base.offset) else {
                    throw(Error::Autograd(
                        "a view that starts before its base has no tangent after an in-place change"
                            .into(),
                    ))
                };
                Some(part.join(whole.as_strided(&view.shape, &view.strides, offset)))
            }
            _ => own.map(|own| own.1),
        }
    }

    pub(super) fn set_tangent(&self, value: Option<Tensor>) {
        let Some(value) = value else { return self.clear_tangent() };
        let new = Tangent { level: LEVEL.get(), version: self.version(), value };
        let old = self.with_meta(|m| m.tangent.replace(new));
        self.0.flags.fetch_or(TANGENT, Relaxed);
        if old.is_none() {
            DUALS.with_borrow_mut(|duals| {
                if duals.len() == duals.capacity() {
                    duals.retain(|t| t.owners() > 0);
                }
                duals.push(self.0.downgrade());
            });
        }
    }

    pub(super) fn clear_tangent(&self) {
        if self.has_flag(TANGENT) {
            self.0.flags.fetch_and(!TANGENT, Relaxed);
            let old = self.with_meta(|m| m.tangent.take());
            drop(old);
        }
    }

    pub(crate) fn with_tangent(self, value: Tensor) -> Tensor {
        self.set_tangent(Some(value));
        self
    }

    /// [`detach`](Self::detach) that keeps the tangent.
    pub(crate) fn detach_with_tangent(&self) -> Tensor {
        match self.tangent() {
            None => self.detach(),
            Some(tangent) => self.detach().with_tangent(tangent),
        }
    }
}

/// `tangent`, whose shape `layout` has, with the layout's strides.
fn in_layout_of(tangent: &Tensor, layout: &Layout) -> Tensor {
    if tangent.strides() == &layout.strides[..] {
        return tangent.clone();
    }
    let out = like_base(tangent, layout);
    out.copy_(tangent);
    out
}

/// True inside a dual level of this thread: tensors may carry tangents.
#[inline]
pub(crate) fn is_open() -> bool {
    has_mode(FORWARD)
}

/// True when the view of `x` with this layout shows nothing but elements of `x`, each of which has one
/// place: then its tangent is the same view of `x`'s tangent.
pub(crate) fn cuts(x: &Tensor, layout: &Layout) -> bool {
    let own = x.layout();
    layout.offset >= own.offset && layout.extent() <= own.extent() && !own.may_overlap_itself()
}

/// The view of `tangent`, which is `x`'s, that corresponds to the view of `x` with this layout.
pub(crate) fn same_view(x: &Tensor, tangent: &Tensor, layout: &Layout) -> Tensor {
    let whole = in_layout_of(tangent, x.layout());
    whole.as_strided(&layout.shape, &layout.strides, layout.offset - x.storage_offset())
}

/// Tangents of an op's inputs.
pub(crate) type Tangents = SmallVec<[Option<Tensor>; 3]>;

/// The inputs' tangents; `None` where no input carries one.
#[inline]
pub(super) fn tangents(inputs: &[&Tensor]) -> Option<Tangents> {
    if !has_mode(FORWARD) || !inputs.iter().any(|t| t.may_be_dual()) {
        return None;
    }
    let all: Tangents = inputs.iter().map(|t| t.tangent()).collect();
    all.iter().any(Option::is_some).then_some(all)
}

/// Runs `f`, which saves tensors for an op's backward, so that it saves what the tangent needs; and, if
/// the op is `recorded`, with their tangents, for a backward that comes later.
pub(super) fn saving<T>(recorded: bool, f: impl FnOnce() -> T) -> T {
    let _mode = ModeGuard::new(SAVING_FOR_TANGENT, if recorded { 0 } else { FORWARD });
    f()
}

/// The tangents of a node's outputs, from its backward, as the module's head says. `like` has the inputs'
/// shapes and types.
pub(super) fn push_forward(
    node: &Node,
    backward: &BackwardFn,
    like: &[&Tensor],
    tangents: &Tangents,
) -> SmallVec<[Option<Tensor>; 1]> {
    let mut involved = like.iter().copied().chain(tangents.iter().flatten());
    let record = is_grad_enabled() && involved.any(Tensor::wants_grad);
    let _mode = (ModeGuard::new(GRAD, 0), suspended());
    let cotangents: SmallVec<[Option<Tensor>; 1]> = node
        .0
        .outputs
        .iter()
        .map(|(shape, dtype, device)| {
            let zeros = || Tensor::zeros(shape, (*dtype, *device)).requires_grad_(true);
            dtype.is_differentiable().then(zeros)
        })
        .collect();
    let wanted: SmallVec<[bool; 4]> = tangents.iter().map(Option::is_some).collect();
    let ctx = BackwardCtx {
        grads: &cotangents,
        more: None,
        node,
        wanted: Some(&wanted),
        places: &[],
        part: None,
        keep: true,
        sum: None,
    };
    let grads = node.call(backward, ctx);
    let mut pairs: Vec<(Tensor, &Tensor)> = Vec::new();
    for (i, (found, tangent)) in grads.into_iter().zip(tangents).enumerate() {
        if let (Some(g), Some(t)) = (found, tangent) {
            let shape = like[i].layout().shape.clone();
            let g = fit(node.0.name, i, g, &(shape, like[i].dtype(), like[i].device()));
            if g.requires_grad() {
                pairs.push((g, t));
            }
        }
    }
    let mut found: SmallVec<[Option<Tensor>; 1]> = smallvec![None; cotangents.len()];
    if pairs.is_empty() {
        return found;
    }
    let by: Vec<&Tensor> = cotangents.iter().flatten().collect();
    let (roots, ts): (Vec<&Tensor>, Vec<Option<&Tensor>>) =
        pairs.iter().map(|(g, t)| (g, Some(*t))).unzip();
    let mut results =
        grad(&roots, &by, &ts, if record { GraphMode::Create } else { GraphMode::Free })
            .into_iter();
    for (slot, cotangent) in found.iter_mut().zip(&cotangents) {
        if cotangent.is_some() {
            *slot = results.next().flatten();
        }
    }
    found
}

/// Gives `target`, which an op has just changed in place, its new tangent, and its base, if it is a view,
/// one that has it in its place.
pub(super) fn set_changed(target: &Tensor, base_tangent: Option<Tensor>, new: Option<Tensor>) {
    if let Some(base) = target.base()
        && (base_tangent.is_some() || new.is_some())
    {
        let _apart = suspended();
        let [whole_as, part_as] = Elements::of(base.dtype(), target.dtype());
        let old = base_tangent.map(|old| whole_as.cut(old));
        let new = new.clone().map(|new| part_as.cut(new));
        let like = old.as_ref().or(new.as_ref()).expect("one of them is there");
        let (all, part) = (whole_as.layout(base.layout()), part_as.layout(target.layout()));
        let whole = like_base(like, &all);
        match &old {
            Some(old) => whole.copy_(old),
            None => whole.fill_(0.0),
        };
        let slice = whole.as_strided(&part.shape, &part.strides, part.offset - all.offset);
        match &new {
            Some(new) => slice.copy_(new),
            None => slice.fill_(0.0),
        };
        base.set_tangent(Some(whole_as.join(whole)));
    }
    target.set_tangent(new);
}
