//! What reductions share: the dimensions that are reduced, folding over them, and what is done to each result.

use crate::cpu::{
    folds::fold::Fold, folds::fold::fold, folds::moments::is_beyond, numbers::widen::Real,
};
use crate::error::{Error, throw};
use crate::loops::fold::Plan;
use crate::tensor::{Element, Shape, Tensor, normalize_dims};
use smallvec::SmallVec;

/// PyTorch's limit, so that a program that runs here runs there.
pub(super) const MAX_DIMS: usize = 64;

/// The dimensions that an op reduces.
#[derive(Clone)]
pub(super) struct Dims {
    /// Per dimension of the input.
    pub(super) reduced: SmallVec<[bool; 5]>,
    pub(super) keepdim: bool,
}

impl Dims {
    /// The dimensions in `dims`, or all of them if the list is empty.
    #[track_caller]
    pub(super) fn new(op: &str, x: &Tensor, dims: &[i64], keepdim: bool) -> Dims {
        if !dims.is_empty() && x.dim() > MAX_DIMS {
            throw(Error::shape(
                op,
                format!(
                    "takes up to {MAX_DIMS} dimensions when some of them are named, got {}",
                    x.dim()
                ),
            ));
        }
        let mut reduced = SmallVec::from_elem(dims.is_empty(), x.dim());
        for d in normalize_dims(op, dims, x.dim()) {
            // A 0-dim tensor has no place 0.
            if let Some(place) = reduced.get_mut(d) {
                *place = true;
            }
        }
        Dims { reduced, keepdim }
    }

    /// The result's shape.
    pub(super) fn shape(&self, x: &Tensor) -> Shape {
        self.sizes(x.shape(), self.keepdim)
    }

    pub(super) fn sizes(&self, shape: &[usize], keepdim: bool) -> Shape {
        let sizes = shape.iter().zip(&self.reduced);
        sizes.filter(|(_, r)| keepdim || !**r).map(|(&n, &r)| if r { 1 } else { n }).collect()
    }

    /// Number of elements that make one of the result.
    pub(super) fn count(&self, x: &Tensor) -> usize {
        x.shape().iter().zip(&self.reduced).filter(|(_, r)| **r).map(|(n, _)| n).product()
    }

    /// The reduced dimensions as an argument of other ops; for a 0-dim tensor it is empty.
    pub(super) fn reduced_list(&self) -> SmallVec<[i64; 5]> {
        (0..self.reduced.len()).filter(|&d| self.reduced[d]).map(|d| d as i64).collect()
    }

    /// `t`, which has the result's shape, with the reduced dimensions of size 1, so that it
    /// broadcasts to `shape`, the input's.
    pub(super) fn restore(&self, t: &Tensor, shape: &[usize]) -> Tensor {
        if self.keepdim { t.clone() } else { t.reshape_to(&self.sizes(shape, true)) }
    }

    /// `x` folded: a fresh contiguous tensor of the result's shape.
    pub(super) fn fold<F: Fold<In: Element, Acc: Element>>(&self, f: &F, x: &Tensor) -> Tensor {
        assert_eq!(x.dtype(), F::In::DTYPE);
        let plan = Plan::new(x.shape(), x.strides(), &|d| self.reduced[d]);
        let out = Tensor::empty(self.shape(x), F::Acc::DTYPE.on_host());
        assert_eq!(plan.outputs(), out.numel());
        // SAFETY: the plan's positions are elements of `x`; each output has its place in `out`, which
        // is fresh, so nobody else uses it.
        unsafe { fold(f, &plan, x.data_ptr().cast(), out.data_ptr().cast()) };
        out
    }
}

/// Changes each element of a fresh contiguous tensor.
pub(super) fn finish<T: Element>(t: &Tensor, f: impl Fn(T) -> T) {
    // SAFETY: fresh, so nobody else uses it.
    unsafe { t.as_mut_slice::<T>() }.iter_mut().for_each(|v| *v = f(*v));
}

/// Whether one of these sums of squares in f32 is to be taken again in f64.
pub(super) fn beyond<T: Element + Real>(squares: &Tensor) -> bool {
    // SAFETY: fresh, so nobody else uses it.
    let squares = unsafe { squares.as_slice::<T>() };
    size_of::<T>() == 4 && squares.iter().any(|v| is_beyond(v.as_f64()))
}

/// Changes each sum of squares: by `near`, or where f32 does not hold it by `far` from that in f64, if there are such.
pub(super) fn finish_squares<T: Element + Real>(
    squares: &Tensor,
    in_f64: Option<&Tensor>,
    far: impl Fn(f64) -> f64,
    near: impl Fn(T) -> T,
) {
    let Some(wide) = in_f64 else { return finish::<T>(squares, near) };
    // SAFETY: both fresh, of these types and of the same shape.
    let (squares, wide) = unsafe { (squares.as_mut_slice::<T>(), wide.as_slice::<f64>()) };
    for (v, &wide) in squares.iter_mut().zip(wide) {
        *v = if is_beyond(v.as_f64()) { T::of(far(wide)) } else { near(*v) };
    }
}

/// A [`Fold`] without parameters in one line per part.
macro_rules! simple_fold {
    ($(#[$meta:meta])* $name:ident<$t:ty> -> $acc:ty, identity $identity:expr, map |$x:ident| $map:expr, combine |$a:ident, $b:ident| $combine:expr) => {
        $(#[$meta])*
        struct $name;
        impl crate::cpu::folds::fold::Fold for $name {
            type In = $t;
            type Acc = $acc;
            type Param = ();
            #[inline(always)]
            fn identity(&self) -> $acc {
                $identity
            }
            #[inline(always)]
            fn param(&self, _: usize) {}
            #[inline(always)]
            fn map<const FMA: bool>(&self, $x: $t, (): ()) -> $acc {
                $map
            }
            #[inline(always)]
            fn combine(&self, $a: $acc, $b: $acc) -> $acc {
                $combine
            }
        }
    };
}
pub(super) use simple_fold;
