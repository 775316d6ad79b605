//! `any` and `all`: whether some or every element is not zero. bool results, u8 for u8 as PyTorch.

use super::cuda::{Finish, reduce};
use super::dims::{Dims, simple_fold};
use crate::cpu::folds::fold::Fold;
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, Order};
use crate::ops::gpu;
use crate::tensor::{Dtype, Tensor};

simple_fold! { Any<bool> -> bool, identity false, map |x| x, combine |a, b| a | b }
simple_fold! { All<bool> -> bool, identity true, map |x| x, combine |a, b| a & b }

/// Folds the elements as truth values; on a GPU by the kernel of that name.
#[track_caller]
fn truth(
    x: &Tensor,
    dims: &Dims,
    f: &impl Fold<In = bool, Acc = bool>,
    kernel: &'static str,
) -> Tensor {
    if let Some(gpu) = gpu::of("any", &[x]) {
        let to = if x.dtype() == Dtype::U8 { Dtype::U8 } else { Dtype::Bool };
        let x = if x.dtype().is_complex() { x.ne(0.0) } else { x.detach() };
        return reduce(gpu, kernel, &x, dims, to, Finish::Nothing);
    }
    let out = dims.fold(f, &x.detach().to_dtype(Dtype::Bool));
    if x.dtype() == Dtype::U8 { out.to_dtype(Dtype::U8) } else { out }
}

impl Tensor {
    /// True when some element is not zero (`torch.any`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([0i64, 3]).any().to_vec::<bool>(), [true]);
    /// assert_eq!(Tensor::from([0i64, 0]).any().to_vec::<bool>(), [false]);
    /// ```
    pub fn any(&self) -> Tensor {
        self.any_dim(&[], false)
    }

    /// Per slice along `dims` (all dimensions if the list is empty), whether some element is not
    /// zero (`torch.any(dim, keepdim)`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([[0i64, 3], [0, 0]]).any_dim(&[1], false);
    /// assert_eq!(y.to_vec::<bool>(), [true, false]);
    /// ```
    ///
    /// # Panics
    /// Throws when a dimension is out of range or named twice.
    #[track_caller]
    pub fn any_dim(&self, dims: &[i64], keepdim: bool) -> Tensor {
        let dims = Dims::new("any", self, dims, keepdim);
        truth(self, &dims, &Any, "Any")
    }

    /// True when every element is not zero (`torch.all`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([1i64, 3]).all().to_vec::<bool>(), [true]);
    /// assert_eq!(Tensor::from([0i64, 3]).all().to_vec::<bool>(), [false]);
    /// ```
    pub fn all(&self) -> Tensor {
        self.all_dim(&[], false)
    }

    /// Per slice along `dims` (all dimensions if the list is empty), whether every element is not
    /// zero (`torch.all(dim, keepdim)`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([[1i64, 3], [0, 3]]).all_dim(&[1], false);
    /// assert_eq!(y.to_vec::<bool>(), [true, false]);
    /// ```
    ///
    /// # Panics
    /// Throws when a dimension is out of range or named twice.
    #[track_caller]
    pub fn all_dim(&self, dims: &[i64], keepdim: bool) -> Tensor {
        let dims = Dims::new("all", self, dims, keepdim);
        truth(self, &dims, &All, "All")
    }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    let x = || vec![Tensor::from([[0f64, 0.5, 0.], [0., 0., 0.], [1., f64::NAN, -2.]])];
    vec![
        OpSample::new("any", x(), |x| x[0].any()).order(Order::None),
        OpSample::new("any(dim=1)", x(), |x| x[0].any_dim(&[1], false)).order(Order::None),
        OpSample::new("all(dim=0, keepdim)", x(), |x| x[0].all_dim(&[0], true)).order(Order::None),
        OpSample::new("all(dim=1), u8", [Tensor::from([[1u8, 2], [0, 1]])], |x| {
            x[0].all_dim(&[1], false)
        }),
        OpSample::new("all, empty", [Tensor::zeros([0], Dtype::Bool)], |x| x[0].all()),
    ]
}
