//! Transforms to triangular and to positive definite matrices.

use super::numbers::softplus;
use super::vectors::{assert_dims, but_last, with_one};
use super::{Transform, named, without_parameters};
use crate::distributions::constraints::{self, Constraint};
use crate::distributions::params::{concat, diagonal, eps, options};
use crate::error::{Error, throw};
use crate::ops::linalg;
use crate::tensor::Tensor;

/// Where the elements of a lower triangle stand in a flattened square of `n` rows, row by row.
fn places(n: usize, offset: i64, like: &Tensor) -> Tensor {
    let at = Tensor::tril_indices(n, n, offset);
    let flat = at.i(0) * n as i64 + at.i(1);
    flat.to_device(like.device())
}

/// The lower triangle of square matrices as vectors.
fn triangle(x: &Tensor, offset: i64) -> Tensor {
    let n = x.size(-1);
    x.flatten(-2, -1).index_select(-1, &places(n, offset, x))
}

/// Matrices whose triangle below the diagonal is a vector, with zeros elsewhere.
fn below_diagonal(x: &Tensor, n: usize) -> Tensor {
    let batch = &x.shape()[..x.dim() - 1];
    let flat = x.new_zeros(concat(&[batch, &[n * n]]));
    let at = places(n, -1, x).expand(x.shape());
    flat.scatter(-1, &at, x).unflatten(-1, &[n as i64, n as i64])
}

/// How many rows a matrix has that has so many elements below its diagonal.
#[track_caller]
fn rows_of(shape: &[usize]) -> usize {
    assert_dims("CorrCholeskyTransform", shape, 1);
    let n = shape[shape.len() - 1];
    let rows = ((0.25 + 2.0 * n as f64).sqrt() + 0.5).round() as usize;
    if rows * (rows - 1) / 2 != n {
        throw(Error::shape(
            "CorrCholeskyTransform",
            format!("{n} numbers are no triangle below a diagonal; of D rows it has D (D - 1) / 2"),
        ));
    }
    rows
}

/// From numbers to the Cholesky factor of a correlation matrix: their tanh are partial correlations, row by row.
#[derive(Clone, Copy, Debug)]
pub struct CorrCholeskyTransform;

impl Transform for CorrCholeskyTransform {
    without_parameters!(CorrCholeskyTransform);
    fn domain(&self) -> Constraint {
        constraints::real_vector()
    }
    fn codomain(&self) -> Constraint {
        constraints::corr_cholesky()
    }
    fn is_bijective(&self) -> bool {
        true
    }
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let n = rows_of(x.shape());
        let eps = eps(x.dtype());
        let r = below_diagonal(&x.tanh().clamp(-1.0 + eps, 1.0 - eps), n);
        let rest = (1.0 - r.square()).sqrt().cumprod(-1);
        (r + Tensor::eye(n, options(x))) * with_one(&but_last(&rest), true)
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        // Throws unless these are square matrices.
        self.inverse_shape(y.shape());
        let rest = 1.0 - y.square().cumsum(-1);
        let rest = with_one(&but_last(&rest), true);
        let t = triangle(y, -1) / triangle(&rest, -1).sqrt();
        (t.log1p() - (-&t).log1p()) / 2.0
    }
    #[track_caller]
    fn log_abs_det_jacobian(&self, x: &Tensor, y: &Tensor) -> Tensor {
        // Of the last column below the diagonal nothing is left to be broken.
        let rest = triangle(&(1.0 - y.square().cumsum(-1)), -2);
        let sticks = rest.log().sum_dim(&[-1], false) * 0.5;
        let tanh = (x + softplus(&(x * -2.0)) - std::f64::consts::LN_2).sum_dim(&[-1], false);
        sticks - tanh * 2.0
    }
    #[track_caller]
    fn forward_shape(&self, shape: &[usize]) -> Vec<usize> {
        let n = rows_of(shape);
        concat(&[&shape[..shape.len() - 1], &[n, n]])
    }
    #[track_caller]
    fn inverse_shape(&self, shape: &[usize]) -> Vec<usize> {
        assert_dims(self.name(), shape, 2);
        let (batch, matrix) = shape.split_at(shape.len() - 2);
        if matrix[0] != matrix[1] {
            throw(Error::shape(self.name(), format!("shape {shape:?} is of no square matrices")));
        }
        concat(&[batch, &[matrix[0] * matrix[0].saturating_sub(1) / 2]])
    }
}

/// From matrices to lower triangular ones with a positive diagonal: e to that of the diagonal.
#[derive(Clone, Copy, Debug)]
pub struct LowerCholeskyTransform;

impl Transform for LowerCholeskyTransform {
    without_parameters!(LowerCholeskyTransform);
    fn domain(&self) -> Constraint {
        constraints::independent(constraints::real(), 2)
    }
    fn codomain(&self) -> Constraint {
        constraints::lower_cholesky()
    }
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        x.tril(-1) + diagonal(x).exp().diag_embed(0, -2, -1)
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        y.tril(-1) + diagonal(y).log().diag_embed(0, -2, -1)
    }
}

/// From matrices to positive definite ones: the product of a [`LowerCholeskyTransform`]'s result with itself.
#[derive(Clone, Copy, Debug)]
pub struct PositiveDefiniteTransform;

impl Transform for PositiveDefiniteTransform {
    without_parameters!(PositiveDefiniteTransform);
    fn domain(&self) -> Constraint {
        constraints::independent(constraints::real(), 2)
    }
    fn codomain(&self) -> Constraint {
        constraints::positive_definite()
    }
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let factor = LowerCholeskyTransform.forward(x);
        factor.matmul(&factor.mt())
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        LowerCholeskyTransform.inverse(&linalg::cholesky(y, false))
    }
}
