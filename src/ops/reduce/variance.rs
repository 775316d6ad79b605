//! Variance `y = sum_i (x_i - mean)^2 / (n - correction)` and its square root. The mean is computed
//! first and the squares in a second pass over the data: exact where the one-pass formula cancels.
//! `dx_i = g 2 (x_i - mean) / (n - correction)`. Outputs whose squares leave f32's range are computed again in f64.

use smallvec::smallvec;

use super::cuda::{Finish, reduce};
use super::dims::{Dims, beyond, finish, finish_squares};
use super::sum::wide_sum;
use crate::autograd::record;
use crate::cpu::{folds::fold::Fold, numbers::widen::Real};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::gpu;
use crate::profiler;
use crate::tensor::{Dtype, Scalar, Tensor, dispatch};

/// `sum_i (x_i - mean)^2` with a mean per output.
struct SquaredDeviations<'a, T> {
    means: &'a [T],
}

impl<T: Real> Fold for SquaredDeviations<'_, T> {
    type In = T;
    type Acc = T;
    type Param = T;
    #[inline(always)]
    fn identity(&self) -> T {
        T::ZERO
    }
    #[inline(always)]
    fn param(&self, output: usize) -> T {
        self.means[output]
    }
    #[inline(always)]
    fn map<const FMA: bool>(&self, x: T, mean: T) -> T {
        let d = x - mean;
        d * d
    }
    #[inline(always)]
    fn combine(&self, a: T, b: T) -> T {
        a + b
    }
}

/// Variances (or their square roots) of a floating-point tensor; not recorded.
#[track_caller]
fn variance_of(x: &Tensor, dims: &Dims, divisor: f64, root: bool) -> Tensor {
    let _span = profiler::op("var");
    if let Some(gpu) = gpu::of("var", &[x]) {
        let finish = if root { Finish::DivideThenRoot(divisor) } else { Finish::Divide(divisor) };
        return reduce(gpu, "Var", x, dims, x.dtype(), finish);
    }
    let dtype = x.dtype();
    let x = x.detach().to_dtype(x.dtype().compute());
    let (n, means) = (dims.count(&x) as f64, wide_sum(&x, dims));
    dispatch!(compute x.dtype(), "var", T => {
        finish::<T>(&means, |sum| sum / n as T);
        // SAFETY: contiguous, of type T and not written from here on.
        let out = dims.fold(&SquaredDeviations { means: unsafe { means.as_slice::<T>() } }, &x);
        let wide = beyond::<T>(&out).then(|| squared_deviations_in_f64(&x, dims));
        finish_squares::<T>(&out, wide.as_ref(), |sum| {
            let v = sum / divisor;
            if root { v.sqrt() } else { v }
        }, |sum| {
            let v = sum / divisor as T;
            if root { v.sqrt() } else { v }
        });
        out.to_dtype(dtype)
    })
}

/// The sums of all outputs, in f64.
#[cold]
fn squared_deviations_in_f64(x: &Tensor, dims: &Dims) -> Tensor {
    let x = x.to_dtype(Dtype::F64);
    let (n, means) = (dims.count(&x) as f64, wide_sum(&x, dims));
    finish::<f64>(&means, |sum| sum / n);
    // SAFETY: contiguous, of f64 and not written from here on.
    dims.fold(&SquaredDeviations { means: unsafe { means.as_slice::<f64>() } }, &x)
}

#[track_caller]
fn assert_float(op: &str, x: &Tensor) {
    if !x.dtype().is_floating_point() {
        crate::tensor::dtype::not_floating(op, x.dtype());
    }
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
    /// The unbiased variance of all elements (`torch.var`).
    ///
    /// ```
    /// assert_eq!(torchrs::Tensor::from([1f64, 3.]).var().item(), 2.0);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools.
    #[track_caller]
    pub fn var(&self) -> Tensor {
        self.var_dim(&[], 1, false)
    }

    /// The square root of the unbiased variance of all elements (`torch.std`).
    ///
    /// ```
    /// assert_eq!(torchrs::Tensor::from([1f64, 4., 7.]).std().item(), 3.0);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools.
    #[track_caller]
    pub fn std(&self) -> Tensor {
        self.std_dim(&[], 1, false)
    }

    /// Variances along `dims`, or of all elements if the list is empty, with the divisor
    /// n - `correction` (`torch.var`): 1 gives the unbiased estimate, 0 the mean square.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f64, 3.]);
    /// assert_eq!((x.var_dim(&[], 1, false).item(), x.var_dim(&[], 0, false).item()), (2.0, 1.0));
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, and for dimensions that are out of range or named twice.
    #[track_caller]
    pub fn var_dim(&self, dims: &[i64], correction: impl Into<Scalar>, keepdim: bool) -> Tensor {
        let dims = Dims::new("var", self, dims, keepdim);
        let divisor = divisor(self, &dims, correction.into());
        assert_float("var", self);
        let out = variance_of(self, &dims, divisor, false);
        record("var", &[self], out, |saver| {
            let x = saver.save(self);
            move |ctx| {
                let x = ctx.get(&x);
                let g = dims.restore(&ctx.grad(0), x.shape());
                smallvec![Some(variance_backward(&x, &g, &dims, divisor))]
            }
        })
    }

    /// Standard deviations: the square root of [`var_dim`](Self::var_dim) (`torch.std`). Where it is 0 the
    /// gradient is 0.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1f64, 3.], [4., 10.]]);
    /// assert_eq!(x.std_dim(&[1], 0, false).to_vec::<f64>(), [1.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// As [`var_dim`](Self::var_dim).
    #[track_caller]
    pub fn std_dim(&self, dims: &[i64], correction: impl Into<Scalar>, keepdim: bool) -> Tensor {
        let dims = Dims::new("std", self, dims, keepdim);
        let divisor = divisor(self, &dims, correction.into());
        assert_float("std", self);
        let out = variance_of(self, &dims, divisor, true);
        record("std", &[self], out, |saver| {
            let (x, y) = (saver.save(self), saver.save_output(0));
            move |ctx| {
                let x = ctx.get(&x);
                let y = dims.restore(&ctx.get(&y), x.shape());
                let g = dims.restore(&ctx.grad(0), x.shape());
                let equal = y.detach().eq(0.0);
                // Filled before the division, too: else the derivative by g, which is the tangent, is 0 over 0.
                let g = (g / &(&y * 2.0).masked_fill(&equal, 1.0)).masked_fill(&equal, 0.0);
                smallvec![Some(variance_backward(&x, &g, &dims, divisor))]
            }
        })
    }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    let x = || vec![values([3, 4, 5], 6)];
    vec![
        OpSample::new("var", x(), |x| x[0].var_dim(&[], 1, false)),
        OpSample::new("var(dim=[0, 2], correction=0)", x(), |x| x[0].var_dim(&[0, 2], 0, false)),
        OpSample::new("var(dim=-1, keepdim)", x(), |x| x[0].var_dim(&[-1], 1, true)),
        OpSample::new("std(dim=0)", x(), |x| x[0].std_dim(&[0], 1, false)),
        OpSample::new("std(dim=[1, 2], correction=0.5)", x(), |x| x[0].std_dim(&[1, 2], 0.5, true)),
    ]
}
