//! Mean: `y = sum_i x_i / n`; the gradient of every element is the mean's over n. The division is
//! done in the wide type, before rounding to a half type.

use smallvec::smallvec;

use super::cuda::{Finish, reduce};
use super::dims::{Dims, finish};
use super::sum::wide_sum;
use crate::autograd::record;
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::gpu;
use crate::profiler;
use crate::tensor::{Tensor, dispatch};

impl Tensor {
    /// Mean of all elements (`torch.mean`); NaN if there are none.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([1f32, 2., 6.]).mean().item(), 3.0);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`](crate::Error::Dtype) for integers and bools.
    #[track_caller]
    pub fn mean(&self) -> Tensor {
        self.mean_dim(&[], false)
    }

    /// Means along `dims`, or over all elements if the list is empty (`torch.mean(dim, keepdim)`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([[1f32, 2.], [3., 6.]]);
    /// assert_eq!(x.mean_dim(&[0], false).to_vec::<f32>(), [2.0, 4.0]);
    /// assert_eq!(x.mean_dim(&[0], true).shape(), &[1, 2]);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and bools, and for dimensions that are out of range or named twice.
    #[track_caller]
    pub fn mean_dim(&self, dims: &[i64], keepdim: bool) -> Tensor {
        let dims = Dims::new("mean", self, dims, keepdim);
        if self.dtype().is_complex() {
            return self.sum_dim(&dims.reduced_list(), keepdim) / dims.count(self) as f64;
        }
        if !self.dtype().is_floating_point() {
            crate::tensor::dtype::not_floating("mean", self.dtype());
        }
        let _span = profiler::op("mean");
        let n = dims.count(self) as f64;
        let out = match gpu::of("mean", &[self]) {
            Some(gpu) => reduce(gpu, "Sum", self, &dims, self.dtype(), Finish::Divide(n)),
            None => {
                let out = wide_sum(self, &dims);
                dispatch!(compute out.dtype(), "mean", T => finish::<T>(&out, |sum| sum / n as T));
                out.to_dtype(self.dtype())
            }
        };
        let shape = self.layout().shape.clone();
        record("mean", &[self], out, |_| {
            move |ctx| smallvec![Some(dims.restore(&(ctx.grad(0) / n), &shape).expand(&shape))]
        })
    }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    let x = || vec![values([2, 3, 4], 3)];
    vec![
        OpSample::new("mean", x(), |x| x[0].mean()),
        OpSample::new("mean(dim=[1])", x(), |x| x[0].mean_dim(&[1], false)),
        OpSample::new("mean(dim=[-1, 0], keepdim)", x(), |x| x[0].mean_dim(&[-1, 0], true)),
        OpSample::new("mean, 0-dim", [values([], 1)], |x| x[0].mean_dim(&[-1], true)),
    ]
}
