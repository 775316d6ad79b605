//! Forms of reductions, scans and softmax with PyTorch's argument `dtype`: the input is converted
//! first, so that nothing is lost on the way, and the result is of that type too.

use crate::tensor::{Dtype, Tensor};

impl Tensor {
    /// [`sum_dim`](Self::sum_dim) of the elements as `dtype` (`torch.sum(dtype=..)`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let sum = Tensor::from([200u8, 100]).sum_as(&[], false, Dtype::F64);
    /// assert_eq!((sum.dtype(), sum.item()), (Dtype::F64, 300.0));
    /// ```
    #[track_caller]
    pub fn sum_as(&self, dims: &[i64], keepdim: bool, dtype: Dtype) -> Tensor {
        self.to_dtype(dtype).sum_dim(dims, keepdim).to_dtype(dtype)
    }

    /// [`nansum_dim`](Self::nansum_dim) of the elements as `dtype` (`torch.nansum(dtype=..)`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let sum = Tensor::from([1f32, f32::NAN, 2.]).nansum_as(&[], false, Dtype::F64);
    /// assert_eq!((sum.dtype(), sum.item()), (Dtype::F64, 3.0));
    /// ```
    #[track_caller]
    pub fn nansum_as(&self, dims: &[i64], keepdim: bool, dtype: Dtype) -> Tensor {
        self.to_dtype(dtype).nansum_dim(dims, keepdim).to_dtype(dtype)
    }

    /// [`mean_dim`](Self::mean_dim) of the elements as `dtype` (`torch.mean(dtype=..)`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// assert_eq!(Tensor::from([1i64, 2]).mean_as(&[], false, Dtype::F32).item(), 1.5);
    /// ```
    ///
    /// # Panics
    /// Throws for types other than floating-point ones.
    #[track_caller]
    pub fn mean_as(&self, dims: &[i64], keepdim: bool, dtype: Dtype) -> Tensor {
        self.to_dtype(dtype).mean_dim(dims, keepdim)
    }

    /// [`prod_dim`](Self::prod_dim), or without a dimension [`prod`](Self::prod), of the elements as
    /// `dtype` (`torch.prod(dtype=..)`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let x = Tensor::from([[2i64, 3], [4, 5]]);
    /// let product = x.prod_as(None, false, Dtype::F32);
    /// assert_eq!((product.dtype(), product.item()), (Dtype::F32, 120.0));
    /// assert_eq!(x.prod_as(1, false, Dtype::F32).to_vec::<f32>(), [6.0, 20.0]);
    /// ```
    #[track_caller]
    pub fn prod_as(&self, dim: impl Into<Option<i64>>, keepdim: bool, dtype: Dtype) -> Tensor {
        let x = self.to_dtype(dtype);
        match dim.into() {
            Some(dim) => x.prod_dim(dim, keepdim),
            None => x.prod(),
        }
        .to_dtype(dtype)
    }

    /// [`norm_dim`](Self::norm_dim) of the elements as `dtype` (`torch.norm(dtype=..)`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// assert_eq!(Tensor::from([3i64, 4]).norm_as(2.0, &[], false, Dtype::F64).item(), 5.0);
    /// ```
    ///
    /// # Panics
    /// Throws for types other than floating-point ones.
    #[track_caller]
    pub fn norm_as(&self, p: f64, dims: &[i64], keepdim: bool, dtype: Dtype) -> Tensor {
        self.to_dtype(dtype).norm_dim(p, dims, keepdim)
    }

    /// [`cumsum`](Self::cumsum) of the elements as `dtype` (`torch.cumsum(dtype=..)`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let sums = Tensor::from([0.5f32, 1.5]).cumsum_as(0, Dtype::F64);
    /// assert_eq!((sums.dtype(), sums.to_vec::<f64>()), (Dtype::F64, vec![0.5, 2.0]));
    /// ```
    #[track_caller]
    pub fn cumsum_as(&self, dim: i64, dtype: Dtype) -> Tensor {
        self.to_dtype(dtype).cumsum(dim).to_dtype(dtype)
    }

    /// [`cumprod`](Self::cumprod) of the elements as `dtype` (`torch.cumprod(dtype=..)`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let products = Tensor::from([2i64, 3]).cumprod_as(0, Dtype::F32);
    /// assert_eq!((products.dtype(), products.to_vec::<f32>()), (Dtype::F32, vec![2.0, 6.0]));
    /// ```
    #[track_caller]
    pub fn cumprod_as(&self, dim: i64, dtype: Dtype) -> Tensor {
        self.to_dtype(dtype).cumprod(dim).to_dtype(dtype)
    }

    /// [`softmax`](Self::softmax) of the elements as `dtype` (`torch.softmax(dtype=..)`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let expected = Tensor::from([0.5, 0.5]);
    /// let y = Tensor::from([7i64, 7]).softmax_as(0, Dtype::F64);
    /// assert!(y.allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// Throws for types other than floating-point ones.
    #[track_caller]
    pub fn softmax_as(&self, dim: i64, dtype: Dtype) -> Tensor {
        self.to_dtype(dtype).softmax(dim)
    }

    /// [`log_softmax`](Self::log_softmax) of the elements as `dtype` (`torch.log_softmax(dtype=..)`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let expected = Tensor::from([0.5f64.ln(), 0.5f64.ln()]);
    /// let y = Tensor::from([7i64, 7]).log_softmax_as(0, Dtype::F64);
    /// assert!(y.allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// Throws for types other than floating-point ones.
    #[track_caller]
    pub fn log_softmax_as(&self, dim: i64, dtype: Dtype) -> Tensor {
        self.to_dtype(dtype).log_softmax(dim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_of_the_type_asked_for() {
        let x = Tensor::from([[3i32, 4], [5, 6]]);
        let sums = x.sum_as(&[0], false, Dtype::F64);
        assert_eq!((sums.dtype(), sums.to_vec::<f64>()), (Dtype::F64, vec![8.0, 10.0]));
        assert_eq!(x.cumsum_as(1, Dtype::I32).dtype(), Dtype::I32);
        assert_eq!(x.prod_as(None, false, Dtype::F32).item(), 360.0);
        assert_eq!(x.mean_as(&[], true, Dtype::F32).item(), 4.5);
    }

    #[test]
    fn halves_are_converted_before_they_are_added() {
        let x = Tensor::full([4096], 1.0, Dtype::F16);
        assert_eq!(x.cumsum_as(0, Dtype::F32).select(0, -1).item(), 4096.0);
    }
}
