//! Largest and smallest elements, and where they are. `amax`, `amin`, `max()` and `min()` share the
//! gradient among equal extremes; `max_dim` and `min_dim` also give an index, to which all of the
//! gradient goes. NaN counts as the extreme, of equal ones the first is taken.

use std::marker::PhantomData;

use smallvec::smallvec;

use super::cuda::{self, Finish, reduce};
use super::dims::Dims;
use crate::autograd::record;
use crate::cpu::{
    folds::extreme::Extreme, folds::extreme::Ordered, folds::extreme::extremes,
    folds::fold::SharedMut,
};
use crate::error::{Error, throw};
use crate::loops::fold::Plan;
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, Order, values};
use crate::ops::gpu;
use crate::profiler;
use crate::tensor::{Dtype, Element, Tensor, dtype::widest};

/// Throws when a dimension to reduce has no elements: there is no extreme of nothing.
#[track_caller]
fn assert_not_empty(op: &str, x: &Tensor, dims: &Dims) {
    if dims.count(x) == 0 {
        let d = (0..x.dim()).find(|&d| dims.reduced[d] && x.shape()[d] == 0).unwrap_or(0);
        throw(Error::shape(
            op,
            format!(
                "dimension {d} of shape {:?} has no elements to take the extreme of",
                x.shape()
            ),
        ));
    }
}

/// The extremes, not recorded.
#[track_caller]
fn extreme_of<const LARGEST: bool>(op: &str, x: &Tensor, dims: &Dims) -> Tensor {
    let wide = widest(op, x.dtype());
    if let Some(gpu) = gpu::of(op, &[x]) {
        let kernel = if LARGEST { "Max" } else { "Min" };
        return reduce(gpu, kernel, x, dims, x.dtype(), Finish::Nothing);
    }
    let wide = x.detach().to_dtype(wide);
    let out = match wide.dtype() {
        Dtype::F64 => dims.fold(&Extreme::<f64, LARGEST>(PhantomData), &wide),
        Dtype::F32 => dims.fold(&Extreme::<f32, LARGEST>(PhantomData), &wide),
        _ => dims.fold(&Extreme::<i64, LARGEST>(PhantomData), &wide),
    };
    out.to_dtype(x.dtype())
}

#[track_caller]
fn extreme_values<const LARGEST: bool>(
    op: &'static str,
    x: &Tensor,
    dims: &[i64],
    keepdim: bool,
    nans_share: bool,
) -> Tensor {
    let _span = profiler::op(op);
    let dims = Dims::new(op, x, dims, keepdim);
    assert_not_empty(op, x, &dims);
    record(op, &[x], extreme_of::<LARGEST>(op, x, &dims), |saver| {
        let (x, y) = (saver.save(x), saver.save_output(0));
        move |ctx| {
            let (x, y) = (ctx.get(&x).detach(), ctx.get(&y).detach());
            let restore = |t: &Tensor| dims.restore(t, x.shape());
            let y = restore(&y);
            // NaN equals nothing: where the extreme is NaN, all gradients are, unless NaNs share.
            let mut equal = x.eq(&y);
            if nans_share {
                equal = equal.logical_or(&x.isnan().logical_and(&y.isnan()));
            }
            let equal = equal.to_dtype(x.dtype());
            let share = &equal / equal.sum_dim(&dims.reduced_list(), true);
            smallvec![Some(restore(&ctx.grad(0)) * share)]
        }
    })
}

/// Values and indices along `dim`, not recorded.
#[track_caller]
fn extremes_along<const LARGEST: bool>(
    op: &'static str,
    x: &Tensor,
    dim: i64,
    keepdim: bool,
) -> (Tensor, Tensor) {
    let dims = Dims::new(op, x, &[dim], keepdim);
    assert_not_empty(op, x, &dims);
    let wide = widest(op, x.dtype());
    if let Some(gpu) = gpu::of(op, &[x]) {
        return cuda::extremes(gpu, LARGEST, x, &dims);
    }
    let wide = x.detach().to_dtype(wide);
    let values = Tensor::empty(dims.shape(x), wide.dtype().on_host());
    let indices = Tensor::empty(dims.shape(x), Dtype::I64.on_host());
    match wide.dtype() {
        Dtype::F64 => run::<f64, LARGEST>(&wide, &dims, &values, &indices),
        Dtype::F32 => run::<f32, LARGEST>(&wide, &dims, &values, &indices),
        _ => run::<i64, LARGEST>(&wide, &dims, &values, &indices),
    }
    (values.to_dtype(x.dtype()), indices)
}

fn run<T: Ordered + Element, const LARGEST: bool>(
    x: &Tensor,
    dims: &Dims,
    values: &Tensor,
    indices: &Tensor,
) {
    let plan = Plan::new(x.shape(), x.strides(), &|d| dims.reduced[d]);
    let to = SharedMut(values.data_ptr().cast::<T>());
    let places = SharedMut(indices.data_ptr().cast::<i64>());
    // SAFETY: the plan's positions are elements of `x`, which is of type T; both results are fresh
    // and have a place for each output.
    unsafe {
        extremes::<T, LARGEST>(&plan, x.data_ptr().cast(), |o, value, index| {
            to.at(o).write(value);
            places.at(o).write(index as i64);
        });
    }
}

/// Indices along `dim`.
#[track_caller]
fn places_along<const LARGEST: bool>(
    op: &'static str,
    x: &Tensor,
    dim: i64,
    keepdim: bool,
) -> Tensor {
    let Some(gpu) = gpu::of(op, &[x]) else {
        return extremes_along::<LARGEST>(op, x, dim, keepdim).1;
    };
    widest(op, x.dtype());
    let dims = Dims::new(op, x, &[dim], keepdim);
    assert_not_empty(op, x, &dims);
    cuda::places(gpu, LARGEST, x, &dims)
}

#[track_caller]
fn with_indices<const LARGEST: bool>(
    op: &'static str,
    x: &Tensor,
    dim: i64,
    keepdim: bool,
) -> (Tensor, Tensor) {
    let _span = profiler::op(op);
    let (values, indices) = extremes_along::<LARGEST>(op, x, dim, keepdim);
    let values = record(op, &[x], values, |saver| {
        let indices = saver.save(&indices);
        let shape = x.layout().shape.clone();
        let d = x.normalize_dim(op, dim);
        move |ctx| {
            smallvec![Some(select_backward(&ctx.grad(0), &ctx.get(&indices), &shape, d, keepdim))]
        }
    });
    (values, indices)
}

/// Zeros of `shape` with the gradient at the index of each result: the backward of all ops that
/// select elements along dimension `d`.
pub(in crate::ops) fn select_backward(
    grad: &Tensor,
    indices: &Tensor,
    shape: &[usize],
    d: usize,
    keepdim: bool,
) -> Tensor {
    if shape.is_empty() {
        return grad.reshape_to(&[]);
    }
    let (grad, indices) = if keepdim {
        (grad.clone(), indices.clone())
    } else {
        (grad.unsqueeze(d as i64), indices.unsqueeze(d as i64))
    };
    if grad.device().is_apart() && indices.shape()[d] == 1 {
        // One pass that writes every element, and can be differentiated.
        let mut along = vec![1; shape.len()];
        along[d] = shape[d];
        let places = Tensor::arange(0, shape[d] as i64, 1, (Dtype::I64, grad.device()));
        let elsewhere = places.reshape_to(&along).ne(&indices);
        return grad.expand(shape).masked_fill(&elsewhere, 0.0);
    }
    Tensor::zeros(shape, (grad.dtype(), grad.device())).scatter(d as i64, &indices, &grad)
}

macro_rules! extreme_ops {
    ($($LARGEST:literal, $word:literal, $amax:ident, $max:ident, $max_dim:ident, $argmax:ident, $argmax_dim:ident, $name:literal, $each:literal, $all:literal, $place:literal, $places:literal;)*) => {
        impl Tensor {$(
            #[doc = concat!("The ", $word, " element along each of `dims`, or of all if the list is empty (`torch.", stringify!($amax), "`).")]
            /// The gradient is shared evenly among equal extremes.
            ///
            /// ```
            /// let x = torchrs::Tensor::from([[1i64, 5], [4, 2]]);
            #[doc = concat!("assert_eq!(x.", stringify!($amax), "(&[1], false).to_vec::<i64>(), ", $each, ");")]
            /// ```
            ///
            /// # Panics
            /// Throws when a reduced dimension has no elements, is out of range or named twice.
            #[track_caller]
            pub fn $amax(&self, dims: &[i64], keepdim: bool) -> Tensor {
                extreme_values::<$LARGEST>(stringify!($amax), self, dims, keepdim, false)
            }

            #[doc = concat!("The ", $word, " element (`torch.", $name, "`); NaN if there is one.")]
            ///
            /// ```
            /// let x = torchrs::Tensor::from([[1i64, 5], [4, 2]]);
            #[doc = concat!("assert_eq!(x.", $name, "().item(), ", $all, ");")]
            /// ```
            ///
            /// # Panics
            /// Throws when there are no elements.
            #[track_caller]
            pub fn $max(&self) -> Tensor {
                extreme_values::<$LARGEST>($name, self, &[], false, true)
            }

            #[doc = concat!("The ", $word, " elements along `dim` and their indices (`torch.", $name, "(dim, keepdim)`). Of equal ones the first is taken.")]
            ///
            /// ```
            /// let x = torchrs::Tensor::from([[1i64, 5], [4, 2]]);
            #[doc = concat!("let (values, places) = x.", stringify!($max_dim), "(1, false);")]
            #[doc = concat!("assert_eq!(values.to_vec::<i64>(), ", $each, ");")]
            #[doc = concat!("assert_eq!(places.to_vec::<i64>(), ", $places, ");")]
            /// ```
            ///
            /// # Panics
            /// Throws when the dimension has no elements or is out of range.
            #[track_caller]
            pub fn $max_dim(&self, dim: i64, keepdim: bool) -> (Tensor, Tensor) {
                with_indices::<$LARGEST>($name, self, dim, keepdim)
            }

            #[doc = concat!("Index of the ", $word, " element in row-major order (`torch.", stringify!($argmax), "`).")]
            ///
            /// ```
            /// let x = torchrs::Tensor::from([[1i64, 5], [4, 2]]);
            #[doc = concat!("assert_eq!(x.", stringify!($argmax), "().item(), ", $place, ");")]
            /// ```
            ///
            /// # Panics
            /// Throws when there are no elements.
            #[track_caller]
            pub fn $argmax(&self) -> Tensor {
                let flat = self.detach().reshape([-1]);
                places_along::<$LARGEST>(stringify!($argmax), &flat, 0, false)
            }

            #[doc = concat!("Indices of the ", $word, " elements along `dim` (`torch.", stringify!($argmax), "(dim, keepdim)`). Of equal ones the first is taken.")]
            ///
            /// ```
            /// let x = torchrs::Tensor::from([[1i64, 5], [4, 2]]);
            #[doc = concat!("assert_eq!(x.", stringify!($argmax_dim), "(1, false).to_vec::<i64>(), ", $places, ");")]
            /// ```
            ///
            /// # Panics
            /// Throws when the dimension has no elements or is out of range.
            #[track_caller]
            pub fn $argmax_dim(&self, dim: i64, keepdim: bool) -> Tensor {
                places_along::<$LARGEST>(stringify!($argmax), self, dim, keepdim)
            }
        )*}
    };
}
extreme_ops! {
    true, "largest", amax, max, max_dim, argmax, argmax_dim, "max",
        "[5, 4]", "5.0", "1.0", "[1, 0]";
    false, "smallest", amin, min, min_dim, argmin, argmin_dim, "min",
        "[1, 2]", "1.0", "0.0", "[0, 1]";
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    let x = || vec![values([3, 4, 5], 2)];
    let long = || vec![values([2, 3000], 4)];
    // Ties: the gradient is shared, and finite differences would see a kink.
    let ties = || vec![Tensor::from([[1f64, 3., 3.], [2., 2., 2.]])];
    vec![
        OpSample::new("amax(dim=[0, 2])", x(), |x| x[0].amax(&[0, 2], false)),
        OpSample::new("amin(dim=1, keepdim)", x(), |x| x[0].amin(&[1], true)),
        OpSample::new("max", x(), |x| x[0].max()),
        OpSample::new("min", x(), |x| x[0].min()),
        OpSample::new("max(dim=1)", x(), |x| x[0].max_dim(1, false).0),
        OpSample::new("max(dim=0, keepdim)", x(), |x| x[0].max_dim(0, true).0),
        OpSample::new("min(dim=-1)", x(), |x| x[0].min_dim(-1, false).0),
        OpSample::new("min(dim=-1), 0-dim", [values([], 1)], |x| x[0].min_dim(-1, false).0),
        OpSample::new("max(dim=1), long", long(), |x| x[0].max_dim(1, false).0).no_half(),
        OpSample::new("max(dim=0) indices", x(), |x| x[0].max_dim(0, false).1).order(Order::None),
        OpSample::new("argmax(dim=1), ties", ties(), |x| x[0].argmax_dim(1, false))
            .order(Order::None),
        OpSample::new("argmin", x(), |x| x[0].argmin()).order(Order::None),
        OpSample::new("amax, u8", [Tensor::from([3u8, 200])], |x| x[0].max()),
    ]
}
