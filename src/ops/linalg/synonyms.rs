//! Methods of `Tensor` by the names that `torch.linalg` has for them.

use std::borrow::Borrow;

use crate::amp::cast_op;
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::tensor::Tensor;

/// [`Tensor::matmul`] (`torch.linalg.matmul`).
///
/// ```
/// use torchrs::{linalg, Tensor};
/// let y = linalg::matmul(&Tensor::from([[1i64, 2], [3, 4]]), &Tensor::from([1i64, 10]));
/// assert_eq!(y.to_vec::<i64>(), [21, 43]);
/// ```
///
/// # Panics
/// As [`Tensor::matmul`].
#[track_caller]
pub fn matmul(a: &Tensor, b: &Tensor) -> Tensor {
    a.matmul(b)
}

/// [`Tensor::multi_dot`] (`torch.linalg.multi_dot`).
///
/// ```
/// use torchrs::{linalg, Tensor};
/// let (a, b) = (Tensor::from([[1f32, 2.], [3., 4.]]), Tensor::from([1f32, 10.]));
/// assert_eq!(linalg::multi_dot(&[&b, &a, &a]).to_vec::<f32>(), [157.0, 230.0]);
/// ```
///
/// # Panics
/// As [`Tensor::multi_dot`].
#[track_caller]
pub fn multi_dot(tensors: &[impl Borrow<Tensor>]) -> Tensor {
    Tensor::multi_dot(tensors)
}

/// [`Tensor::matrix_power`] (`torch.linalg.matrix_power`).
///
/// ```
/// use torchrs::{linalg, Tensor};
/// let y = linalg::matrix_power(&Tensor::from([[1f64, 1.], [0., 1.]]), 5);
/// assert_eq!(y.to_vec::<f64>(), [1.0, 5.0, 0.0, 1.0]);
/// ```
///
/// # Panics
/// As [`Tensor::matrix_power`].
#[track_caller]
pub fn matrix_power(a: &Tensor, n: i64) -> Tensor {
    a.matrix_power(n)
}

/// [`Tensor::cross`] (`torch.linalg.cross`).
///
/// ```
/// use torchrs::{linalg, Tensor};
/// let (x, y) = (Tensor::from([[1i64, 0, 0]]), Tensor::from([[0i64, 1, 0]]));
/// assert_eq!(linalg::cross(&y, &x, -1).to_vec::<i64>(), [0, 0, -1]);
/// ```
///
/// # Panics
/// As [`Tensor::cross`].
#[track_caller]
pub fn cross(a: &Tensor, b: &Tensor, dim: i64) -> Tensor {
    a.cross(b, dim)
}

/// The dot products of vectors along `dim`; the other dimensions broadcast (`torch.linalg.vecdot`).
///
/// ```
/// use torchrs::{linalg, Tensor};
/// let x = Tensor::from([[1i64, 2], [3, 4]]);
/// assert_eq!(linalg::vecdot(&x, &Tensor::from([1i64, 10]), -1).to_vec::<i64>(), [21, 43]);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`](crate::Error::Shape) when the shapes do not broadcast.
#[track_caller]
pub fn vecdot(x: &Tensor, y: &Tensor, dim: i64) -> Tensor {
    cast_op!("vecdot", [a = x, b = y] => vecdot(&a, &b, dim));
    (x * y).sum_dim(&[dim], false)
}

/// [`Tensor::diagonal`] of matrices: PyTorch's `torch.linalg.diagonal` takes the last two dimensions by
/// default.
///
/// ```
/// use torchrs::{linalg, Tensor};
/// let y = linalg::diagonal(&Tensor::from([[1i64, 2], [3, 4]]), 0, -2, -1);
/// assert_eq!(y.to_vec::<i64>(), [1, 4]);
/// ```
///
/// # Panics
/// As [`Tensor::diagonal`].
#[track_caller]
pub fn diagonal(a: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Tensor {
    a.diagonal(offset, dim1, dim2)
}

/// [`Tensor::vander`] (`torch.linalg.vander`): the powers rise; those of `torch.vander` fall.
///
/// ```
/// use torchrs::{linalg, Tensor};
/// assert_eq!(linalg::vander(&Tensor::from([2i64, 3]), 3).to_vec::<i64>(), [1, 2, 4, 1, 3, 9]);
/// ```
///
/// # Panics
/// As [`Tensor::vander`].
#[track_caller]
pub fn vander(x: &Tensor, n: impl Into<Option<usize>>) -> Tensor {
    x.vander(n)
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::sample;
    vec![
        sample("linalg.vecdot", &[&[2, 3, 4], &[3, 1]], |x| vecdot(&x[0], &x[1], -2)),
        sample("linalg.diagonal", &[&[2, 3, 4]], |x| diagonal(&x[0], 1, -2, -1)),
        sample("linalg.vander", &[&[2, 3]], |x| vander(&x[0], 4)),
        sample("linalg.cross", &[&[2, 3], &[1, 3]], |x| cross(&x[0], &x[1], -1)),
    ]
}
