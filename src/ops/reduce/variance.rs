//! Variance `y = sum_i (x_i - mean)^2 / (n - correction)` and its square root. The mean is computed
//! first and the squares in a second pass over the data: exact where the one-pass formula cancels.
//! `dx_i = g 2 (x_i - mean) / (n - correction)`.

use std::marker::PhantomData;

use smallvec::smallvec;

use super::Dims;
use super::sum::FloatSum;
use crate::Tensor;
use crate::autograd::record;
use crate::cpu::fold::Fold;
use crate::cpu::widen::{Real, Widen};
use crate::ops::samples::{OpSample, values};
use crate::tensor::{Element, Scalar, dispatch};

/// `sum_i (x_i - mean)^2` with a mean per output.
struct SquaredDeviations<'a, T: Widen> {
    means: &'a [T::Wide],
}

impl<T: Widen<Wide: Real>> Fold for SquaredDeviations<'_, T> {
    type In = T;
    type Acc = T::Wide;
    type Param = T::Wide;
    #[inline(always)]
    fn identity(&self) -> T::Wide {
        T::Wide::ZERO
    }
    #[inline(always)]
    fn param(&self, output: usize) -> T::Wide {
        self.means[output]
    }
    #[inline(always)]
    fn map<const FMA: bool>(&self, x: T, mean: T::Wide) -> T::Wide {
        let d = x.widen() - mean;
        d * d
    }
    #[inline(always)]
    fn combine(&self, a: T::Wide, b: T::Wide) -> T::Wide {
        a + b
    }
}

/// Variances, each passed through `finish` in the wide type; not recorded.
fn variance_of<T: Widen<Wide: Real + Element> + Element>(
    x: &Tensor,
    dims: &Dims,
    divisor: f64,
    finish: impl Fn(T::Wide) -> T::Wide + Sync,
) -> Tensor {
    let means = Tensor::empty(dims.shape(x), T::Wide::DTYPE);
    let n = T::Wide::of(dims.count(x) as f64);
    dims.fold(&FloatSum::<T>(PhantomData), x, &means, |sum| sum / n);
    // SAFETY: fresh, contiguous and of that type; not written from here on.
    let means = unsafe { means.as_slice::<T::Wide>() };
    let out = Tensor::empty(dims.shape(x), T::DTYPE);
    let divisor = T::Wide::of(divisor);
    dims.fold(&SquaredDeviations::<T> { means }, x, &out, |sum| T::narrow(finish(sum / divisor)));
    out
}

/// Degrees of freedom: never negative.
fn divisor(x: &Tensor, dims: &Dims, correction: Scalar) -> f64 {
    (dims.count(x) as f64 - correction.to_f64()).max(0.0)
}

/// The gradient of the variance for its own gradient `g`, restored to broadcast.
fn variance_backward(x: &Tensor, g: &Tensor, dims: &Dims, divisor: f64) -> Tensor {
    (x - x.mean_dim(&dims.reduced_list(), true)) * (g * (2.0 / divisor))
}

impl Tensor {
    /// Variances along `dims`, or of all elements if the list is empty, with the divisor
    /// n - `correction` (`torch.var`): 1 gives the unbiased estimate, 0 the mean square.
    ///
    /// # Panics
    /// Throws for integers and bools, and for dimensions that are out of range or named twice.
    #[track_caller]
    pub fn var(&self, dims: &[i64], correction: impl Into<Scalar>, keepdim: bool) -> Tensor {
        let dims = Dims::new("var", self, dims, keepdim);
        let divisor = divisor(self, &dims, correction.into());
        let out = dispatch!(float self.dtype(), "var", T => variance_of::<T>(self, &dims, divisor, |v| v));
        record("var", &[self], out, |saver| {
            let x = saver.save(self);
            move |ctx| {
                let x = ctx.get(&x);
                let g = dims.restore(&ctx.grad(0), x.shape());
                smallvec![Some(variance_backward(&x, &g, &dims, divisor))]
            }
        })
    }

    /// Standard deviations: the square root of [`var`](Self::var) (`torch.std`). Where it is 0 the
    /// gradient is 0.
    ///
    /// # Panics
    /// As [`var`](Self::var).
    #[track_caller]
    pub fn std(&self, dims: &[i64], correction: impl Into<Scalar>, keepdim: bool) -> Tensor {
        let dims = Dims::new("std", self, dims, keepdim);
        let divisor = divisor(self, &dims, correction.into());
        let out = dispatch!(float self.dtype(), "std", T => variance_of::<T>(self, &dims, divisor, |v| v.root()));
        record("std", &[self], out, |saver| {
            let (x, y) = (saver.save(self), saver.save_output(0));
            move |ctx| {
                let x = ctx.get(&x);
                let y = dims.restore(&ctx.get(&y), x.shape());
                let g = dims.restore(&ctx.grad(0), x.shape());
                let g = (g / &(&y * 2.0)).masked_fill(&y.detach().eq(0.0), 0.0);
                smallvec![Some(variance_backward(&x, &g, &dims, divisor))]
            }
        })
    }
}

pub(super) fn samples() -> Vec<OpSample> {
    let x = || vec![values([3, 4, 5], 6)];
    vec![
        OpSample::new("var", x(), |x| x[0].var(&[], 1, false)),
        OpSample::new("var(dim=[0, 2], correction=0)", x(), |x| x[0].var(&[0, 2], 0, false)),
        OpSample::new("var(dim=-1, keepdim)", x(), |x| x[0].var(&[-1], 1, true)),
        OpSample::new("std(dim=0)", x(), |x| x[0].std(&[0], 1, false)),
        OpSample::new("std(dim=[1, 2], correction=0.5)", x(), |x| x[0].std(&[1, 2], 0.5, true)),
    ]
}
