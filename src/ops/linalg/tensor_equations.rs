//! Equations between tensors: `tensordot(A, X) = B`, solved by folding dimensions into matrices.

use super::{inv, solve};
use crate::amp::cast_op;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::tensor::Tensor;

/// X with `tensordot(A, X, X.dim()) = B` (`torch.linalg.tensorsolve`). The first dimensions of `a` are
/// those of `b`, the others those of X, and both have equally many elements. `dims` are first moved to
/// the end of `a`.
///
/// ```
/// use torchrs::{linalg, Dtype, Tensor};
/// let a = Tensor::eye(4, Dtype::F64).reshape([2, 2, 4]) * 2.0;
/// let x = linalg::tensorsolve(&a, &Tensor::from([[2f64, 4.], [6., 8.]]), &[]);
/// assert_eq!((x.shape(), x.to_vec::<f64>()), (&[4][..], vec![1.0, 2.0, 3.0, 4.0]));
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] when sizes do not fit, and as [`solve`].
#[track_caller]
pub fn tensorsolve(a: &Tensor, b: &Tensor, dims: &[i64]) -> Tensor {
    cast_op!("tensorsolve", [x = a, y = b] => tensorsolve(&x, &y, dims));
    let to: Vec<i64> = (0..dims.len() as i64).map(|i| i - dims.len() as i64).collect();
    let a = a.movedims(dims, &to);
    let shape = a.shape().get(b.dim()..).unwrap_or(&[]).to_vec();
    let n = b.numel();
    if shape.iter().product::<usize>() != n || a.numel() != n * n {
        throw(Error::shape(
            "linalg.tensorsolve",
            format!(
                "A of shape {:?} for B of shape {:?}: the dimensions of A up to {} and those from there \
                 on must have {n} elements each, as B has",
                a.shape(),
                b.shape(),
                b.dim()
            ),
        ));
    }
    let x = solve(&a.reshape([n as i64, n as i64]), &b.reshape([n as i64]));
    x.reshape_to(&shape)
}

/// The inverse of `tensordot` with `a`, whose first `ind` dimensions have as many elements as the
/// others (`torch.linalg.tensorinv`); those come first in the result.
///
/// ```
/// use torchrs::{linalg, Dtype, Tensor};
/// let a = Tensor::eye(4, Dtype::F64).reshape([2, 2, 4]) * 2.0;
/// let x = linalg::tensorinv(&a, 2);
/// assert_eq!((x.shape(), x.i((3, 1, 1)).item(), x.sum().item()), (&[4, 2, 2][..], 0.5, 2.0));
/// ```
///
/// # Panics
/// Throws [`Error::Argument`] for `ind` 0, [`Error::Shape`] when sizes do not fit, and as [`inv`].
#[track_caller]
pub fn tensorinv(a: &Tensor, ind: usize) -> Tensor {
    cast_op!("tensorinv", [x = a] => tensorinv(&x, ind));
    let op = "linalg.tensorinv";
    if ind == 0 {
        throw(Error::argument(op, "ind", "0; must be at least 1"));
    }
    let (first, last) = a.shape().split_at(ind.min(a.dim()));
    let [n, columns] = [first, last].map(|sizes| sizes.iter().product::<usize>());
    if n != columns {
        let message = format!(
            "shape {:?}: the dimensions up to {ind} have {n} elements, the others {columns}; these must \
             be equally many",
            a.shape()
        );
        throw(Error::shape(op, message));
    }
    inv(&a.reshape([n as i64, n as i64])).reshape_to(&[last, first].concat())
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::{heavy, sample};
    vec![
        sample("tensorsolve", &[&[6, 6], &[2, 3]], |x| {
            tensorsolve(&heavy(&x[0]).reshape([2, 3, 6]), &x[1], &[])
        }),
        sample("tensorsolve(dims)", &[&[4, 4], &[2, 2]], |x| {
            tensorsolve(&heavy(&x[0]).reshape([2, 4, 2]).transpose(0, 1), &x[1], &[0])
        }),
        sample("tensorinv", &[&[6, 6]], |x| tensorinv(&heavy(&x[0]).reshape([6, 3, 2]), 1)),
    ]
}
