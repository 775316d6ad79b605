//! Methods of `Tensor` by the names that `torch.linalg` has for them.

use std::borrow::Borrow;

use crate::Tensor;
use crate::amp::cast_op;

/// [`Tensor::matmul`] (`torch.linalg.matmul`).
///
/// # Panics
/// As [`Tensor::matmul`].
#[track_caller]
pub fn matmul(a: &Tensor, b: &Tensor) -> Tensor {
    a.matmul(b)
}

/// [`Tensor::multi_dot`] (`torch.linalg.multi_dot`).
///
/// # Panics
/// As [`Tensor::multi_dot`].
#[track_caller]
pub fn multi_dot(tensors: &[impl Borrow<Tensor>]) -> Tensor {
    Tensor::multi_dot(tensors)
}

/// [`Tensor::matrix_power`] (`torch.linalg.matrix_power`).
///
/// # Panics
/// As [`Tensor::matrix_power`].
#[track_caller]
pub fn matrix_power(a: &Tensor, n: i64) -> Tensor {
    a.matrix_power(n)
}

/// [`Tensor::cross`] (`torch.linalg.cross`).
///
/// # Panics
/// As [`Tensor::cross`].
#[track_caller]
pub fn cross(a: &Tensor, b: &Tensor, dim: i64) -> Tensor {
    a.cross(b, dim)
}

/// The dot products of vectors along `dim`; the other dimensions broadcast (`torch.linalg.vecdot`).
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
/// # Panics
/// As [`Tensor::diagonal`].
#[track_caller]
pub fn diagonal(a: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Tensor {
    a.diagonal(offset, dim1, dim2)
}

/// [`Tensor::vander`] (`torch.linalg.vander`).
///
/// # Panics
/// As [`Tensor::vander`].
#[track_caller]
pub fn vander(x: &Tensor, n: usize) -> Tensor {
    x.vander(n)
}
