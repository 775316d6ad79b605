//! Vector norms `y = (sum_i |x_i|^p)^(1/p)`, with the limits p = inf (largest magnitude), -inf
//! (smallest) and 0 (number of elements that are not zero).
//!
//! `dx_i = g sign(x_i) |x_i|^(p-1) / y^(p-1)`, 0 where the norm is 0; for p = inf, shared among the
//! largest.

use std::marker::PhantomData;

use smallvec::smallvec;

use super::cuda::{Finish, reduce};
use super::dims::{Dims, beyond, finish_squares};
use crate::amp::cast_op;
use crate::autograd::{BackwardCtx, Saver, record_with_tangent};
use crate::cpu::{folds::fold::Fold, numbers::widen::Real};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::gpu;
use crate::tensor::{Dtype, Scalar, Tensor, dispatch};

/// `sum_i x_i^2`, or `sum_i |x_i|`.
struct PowerSum<T, const SQUARE: bool>(PhantomData<T>);

impl<T: Real, const SQUARE: bool> Fold for PowerSum<T, SQUARE> {
    type In = T;
    type Acc = T;
    type Param = ();
    #[inline(always)]
    fn identity(&self) -> T {
        T::ZERO
    }
    #[inline(always)]
    fn param(&self, _: usize) {}
    #[inline(always)]
    fn map<const FMA: bool>(&self, x: T, (): ()) -> T {
        if SQUARE { x * x } else { x.magnitude() }
    }
    #[inline(always)]
    fn combine(&self, a: T, b: T) -> T {
        a + b
    }
}

/// The norm, not recorded.
#[track_caller]
fn norm_of(x: &Tensor, p: f64, dims: &Dims) -> Tensor {
    if let Some(gpu) = gpu::of("norm", &[x]) {
        let fold = |name, finish| reduce(gpu, name, x, dims, x.dtype(), finish);
        return match p {
            2.0 => fold("Squares", Finish::Root),
            1.0 => fold("Magnitudes", Finish::Nothing),
            _ => {
                let wide = x.detach().to_dtype(x.dtype().compute());
                general_norm(&wide, p, dims).to_dtype(x.dtype())
            }
        };
    }
    let wide = x.detach().to_dtype(x.dtype().compute());
    let out = dispatch!(compute wide.dtype(), "norm", T => match p {
        2.0 => {
            let out = dims.fold(&PowerSum::<T, true>(PhantomData), &wide);
            let in_f64 = |x: &Tensor| {
                dims.fold(&PowerSum::<f64, true>(PhantomData), &x.to_dtype(Dtype::F64))
            };
            // Zeros alone need no second look.
            let again =
                (beyond::<T>(&out) && wide.any().item() != 0.0).then(|| in_f64(&wide));
            finish_squares::<T>(&out, again.as_ref(), f64::sqrt, |v| v.sqrt());
            out
        }
        1.0 => dims.fold(&PowerSum::<T, false>(PhantomData), &wide),
        _ => general_norm(&wide, p, dims),
    });
    out.to_dtype(x.dtype())
}

/// Any p, through other ops.
fn general_norm(x: &Tensor, p: f64, dims: &Dims) -> Tensor {
    // The norm of nothing is 0, and nothing has no largest element.
    if dims.count(x) == 0 {
        return Tensor::zeros(dims.shape(x), (x.dtype(), x.device()));
    }
    let (magnitude, reduced) = (x.abs(), dims.reduced_list());
    match p {
        f64::INFINITY => magnitude.amax(&reduced, dims.keepdim),
        f64::NEG_INFINITY => magnitude.amin(&reduced, dims.keepdim),
        0.0 => magnitude.ne(0.0).to_dtype(x.dtype()).sum_dim(&reduced, dims.keepdim),
        p => magnitude.pow(p).sum_dim(&reduced, dims.keepdim).pow(1.0 / p),
    }
}

/// The gradient; `y` and `g` are restored to broadcast to `x`.
fn norm_backward(x: &Tensor, y: &Tensor, g: &Tensor, p: f64, dims: &Dims) -> Tensor {
    let zero = y.detach().eq(0.0);
    match p {
        0.0 => x.zeros_like(),
        1.0 => x.sign() * g,
        // Once more differentiated by x it is NaN where the norm is 0, by g it is 0: PyTorch's.
        2.0 => g * (x / y).masked_fill(&zero, 0.0),
        _ if p.is_infinite() => {
            let equal = x.detach().abs().eq(&y.detach()).to_dtype(x.dtype());
            let share = &equal / equal.sum_dim(&dims.reduced_list(), true);
            x.sign() * (g * share)
        }
        _ => {
            // Differentiated by g it is NaN where the norm is 0, as PyTorch's; the tangent, made of a g of 1, is 0.
            let scale = (g / y.pow(p - 1.0)).masked_fill(&zero, 0.0);
            let power = if p < 2.0 {
                let at_zero = x.detach().eq(0.0);
                x.sign() * x.abs().pow(p - 1.0).masked_fill(&at_zero, 0.0)
            } else {
                x * x.abs().pow(p - 2.0)
            };
            power * scale
        }
    }
}

impl Tensor {
    /// The Euclidean norm of all elements (`torch.norm`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([3f32, 4.]).norm().item(), 5.0);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools.
    #[track_caller]
    pub fn norm(&self) -> Tensor {
        self.norm_dim(2.0, &[], false)
    }

    /// The `p`-norms along `dims`, or of all elements if the list is empty
    /// (`torch.linalg.vector_norm`). `p` may be infinite.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[3f32, -4.], [6., 8.]]);
    /// assert_eq!(x.norm_dim(2, &[1], false).to_vec::<f32>(), [5.0, 10.0]);
    /// assert_eq!(x.norm_dim(f64::INFINITY, &[], false).item(), 8.0);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, and for dimensions that are out of range or named twice.
    #[track_caller]
    pub fn norm_dim(&self, p: impl Into<Scalar>, dims: &[i64], keepdim: bool) -> Tensor {
        cast_op!("norm", [x = self] => x.norm_dim(p, dims, keepdim));
        let p = p.into().to_f64();
        let dims = Dims::new("norm", self, dims, keepdim);
        if !self.dtype().is_floating_point() {
            crate::tensor::dtype::not_floating("norm", self.dtype());
        }
        let out = norm_of(self, p, &dims);
        let of = dims.clone();
        let backward = |saver: &Saver<'_>| {
            let (x, y) = (saver.save(self), saver.save_output(0));
            move |ctx: &BackwardCtx<'_>| {
                let x = ctx.get(&x);
                let y = of.restore(&ctx.get(&y), x.shape());
                let g = of.restore(&ctx.grad(0), x.shape());
                smallvec![Some(norm_backward(&x, &y, &g, p, &of))]
            }
        };
        record_with_tangent("norm", &[self], out, backward, |tangents, out| {
            let y = dims.restore(out, self.shape());
            let slope = norm_backward(self, &y, &y.detach().ones_like(), p, &dims);
            let along = tangents[0].as_ref()?;
            Some((slope * along).sum_dim(&dims.reduced_list(), dims.keepdim))
        })
    }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    let norm = |name: &str, p: f64, dims: &'static [i64], keepdim: bool| {
        OpSample::new(name, [values([3, 4], 3)], move |x| x[0].norm_dim(p, dims, keepdim))
            .slack(2.0)
    };
    vec![
        OpSample::new("norm", [values([3, 4], 7)], |x| x[0].norm()),
        norm("norm(2, dim=1)", 2.0, &[1], false),
        norm("norm(1, dim=0, keepdim)", 1.0, &[0], true),
        norm("norm(inf, dim=1)", f64::INFINITY, &[1], false),
        norm("norm(-inf)", f64::NEG_INFINITY, &[], false),
        norm("norm(3, dim=-1)", 3.0, &[-1], false),
        norm("norm(1.5, dim=[0, 1])", 1.5, &[0, 1], true),
        norm("norm(0, dim=1)", 0.0, &[1], false),
        OpSample::new("norm, zeros", [Tensor::zeros([4], crate::tensor::Dtype::F64)], |x| {
            x[0].norm()
        })
        .order(crate::ops::checks::samples::Order::None),
    ]
}
