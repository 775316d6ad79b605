//! Norms of vectors and matrices by PyTorch's names; those of vectors are in `ops/reduce`.

use super::svdvals;
use crate::amp::cast_op;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::tensor::Tensor;

/// The order of a norm.
///
/// ```
/// use torchrs::{linalg, Tensor};
/// use torchrs::linalg::NormOrder;
/// let a = Tensor::from([[3f64, 0.], [0., -4.]]);
/// let of = |order: NormOrder| linalg::matrix_norm(&a, order, [0, 1], false).item();
/// assert!((of(NormOrder::Nuc) - 7.0).abs() < 1e-12 && (of(NormOrder::Fro) - 5.0).abs() < 1e-12);
/// assert!((of(2.into()) - 4.0).abs() < 1e-12 && (of(NormOrder::P(-1.0)) - 3.0).abs() < 1e-12);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum NormOrder {
    /// The root of the sum of squares of a matrix's elements (`'fro'`).
    #[default]
    Fro,
    /// The sum of a matrix's singular values (`'nuc'`).
    Nuc,
    /// A number. Of vectors: the p-norm. Of matrices: 1 and -1, the largest and smallest sum of
    /// magnitudes of a column; infinity and minus infinity, of a row; 2 and -2, the largest and
    /// smallest singular value.
    P(f64),
}

impl From<f64> for NormOrder {
    fn from(order: f64) -> Self {
        NormOrder::P(order)
    }
}

impl From<i32> for NormOrder {
    fn from(order: i32) -> Self {
        NormOrder::P(f64::from(order))
    }
}

/// [`Tensor::norm_dim`] (`torch.linalg.vector_norm`).
///
/// ```
/// use torchrs::{linalg, Tensor};
/// let x = Tensor::from([[3f64, 4.], [6., 8.]]);
/// assert_eq!(linalg::vector_norm(&x, 2.0, &[1], false).to_vec::<f64>(), [5.0, 10.0]);
/// ```
///
/// # Panics
/// As [`Tensor::norm_dim`].
#[track_caller]
pub fn vector_norm(x: &Tensor, ord: f64, dims: &[i64], keepdim: bool) -> Tensor {
    x.norm_dim(ord, dims, keepdim)
}

/// Norms of matrices, whose rows and columns are dimensions `dims` (`torch.linalg.matrix_norm`).
///
/// # Panics
/// Throws [`Error::Dtype`] for integers and bools, and for norms by singular values for all but f32 and
/// f64; [`Error::Argument`] for other orders than [`NormOrder`] names, and when the dimensions are the
/// same or out of range.
///
/// ```
/// use torchrs::{Tensor, linalg::{self, NormOrder}};
/// let a = Tensor::from([[3f64, 0.], [0., -4.]]);
/// assert_eq!(linalg::matrix_norm(&a, NormOrder::Fro, [-2, -1], false).item(), 5.0);
/// assert_eq!(linalg::matrix_norm(&a, 2, [-2, -1], false).item(), 4.0);
/// ```
#[track_caller]
pub fn matrix_norm(x: &Tensor, ord: impl Into<NormOrder>, dims: [i64; 2], keepdim: bool) -> Tensor {
    let ord = ord.into();
    cast_op!("matrix_norm", [x = x] => matrix_norm(&x, ord, dims, keepdim));
    let op = "linalg.matrix_norm";
    if !x.dtype().is_floating_point() {
        crate::tensor::dtype::not_floating(op, x.dtype());
    }
    if x.dim() < 2 {
        throw(Error::shape(op, format!("takes matrices, got shape {:?}", x.shape())));
    }
    let [rows, columns] = dims.map(|dim| x.normalize_dim(op, dim) as i64);
    if rows == columns {
        let message = format!("{dims:?} is one dimension; two are needed");
        throw(Error::argument(op, "dim", message));
    }
    let sums = |along: i64, over: i64, largest: bool| {
        extreme(&x.abs().sum_dim(&[along], true), over, largest)
    };
    let values = || svdvals(&x.movedims(&[rows, columns], &[-2, -1]));
    // As columns of one element, back where the matrices were.
    let placed = |x: Tensor| x.unsqueeze(-1).movedims(&[-2, -1], &[rows, columns]);
    let out = match ord {
        NormOrder::Fro => x.norm_dim(2.0, &[rows, columns], true),
        NormOrder::Nuc => placed(values().sum_dim(&[-1], true)),
        NormOrder::P(1.0) => sums(rows, columns, true),
        NormOrder::P(-1.0) => sums(rows, columns, false),
        NormOrder::P(f64::INFINITY) => sums(columns, rows, true),
        NormOrder::P(f64::NEG_INFINITY) => sums(columns, rows, false),
        NormOrder::P(2.0) => placed(extreme(&values(), -1, true)),
        NormOrder::P(-2.0) => placed(extreme(&values(), -1, false)),
        NormOrder::P(order) => {
            let message =
                format!("{order}; matrices have norms 1, 2, infinity and their negatives");
            throw(Error::argument(op, "ord", message));
        }
    };
    if keepdim { out } else { out.squeeze_dims(&[rows, columns]) }
}

/// The largest or smallest along `dim`, which is kept; nothing has no smallest, and its largest is 0.
#[track_caller]
fn extreme(x: &Tensor, dim: i64, largest: bool) -> Tensor {
    match largest {
        true if x.size(dim) == 0 => x.sum_dim(&[dim], true),
        true => x.amax(&[dim], true),
        false => x.amin(&[dim], true),
    }
}

/// A norm of vectors or of matrices (`torch.linalg.norm`): without an order, the root of the sum of
/// squares along `dims`, or of all elements; with one, vectors if `dims` (or without them the tensor)
/// has one dimension, matrices if two.
///
/// # Panics
/// Throws [`Error::Argument`] for an order with other than one or two dimensions, or with one dimension
/// for an order that only matrices have; and as [`vector_norm`] and [`matrix_norm`].
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let x = Tensor::from([[3f64, 0.], [0., -4.]]);
/// assert_eq!(linalg::norm(&x, None, None, false).item(), 5.0);
/// assert_eq!(linalg::norm(&x, Some(1.into()), Some(&[0, 1]), false).item(), 4.0);
/// assert_eq!(linalg::norm(&x, Some(1.into()), Some(&[0]), false).to_vec::<f64>(), [3., 4.]);
/// ```
#[track_caller]
pub fn norm(x: &Tensor, ord: Option<NormOrder>, dims: Option<&[i64]>, keepdim: bool) -> Tensor {
    let op = "linalg.norm";
    let Some(ord) = ord else { return x.norm_dim(2.0, dims.unwrap_or(&[]), keepdim) };
    match (dims, x.dim()) {
        (Some(&[a, b]), _) => matrix_norm(x, ord, [a, b], keepdim),
        (None, 2) => matrix_norm(x, ord, [-2, -1], keepdim),
        (Some([_]), _) | (None, 1) => match ord {
            NormOrder::P(p) => x.norm_dim(p, dims.unwrap_or(&[]), keepdim),
            _ => {
                let message = format!("{ord:?} is a norm of matrices; name two dimensions");
                throw(Error::argument(op, "ord", message));
            }
        },
        (Some(dims), _) => {
            let message = format!("{dims:?}; with an order, one or two dimensions are needed");
            throw(Error::argument(op, "dim", message));
        }
        (None, n) => {
            let message = format!("none for a tensor of {n} dimensions; with an order, name them");
            throw(Error::argument(op, "dim", message));
        }
    }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::sample;
    vec![
        sample("matrix_norm", &[&[2, 3, 2]], |x| matrix_norm(&x[0], NormOrder::Fro, [0, -1], true)),
        sample("matrix_norm(1)", &[&[2, 3, 2]], |x| matrix_norm(&x[0], 1, [-2, -1], false)),
        sample("matrix_norm(-inf)", &[&[2, 3]], |x| {
            matrix_norm(&x[0], f64::NEG_INFINITY, [0, 1], false)
        }),
        sample("matrix_norm(2)", &[&[2, 3, 2]], |x| matrix_norm(&x[0], 2, [-1, 0], true)),
        sample("matrix_norm(-2)", &[&[2, 3, 2]], |x| matrix_norm(&x[0], -2, [1, 2], false)),
        sample("matrix_norm(nuc)", &[&[3, 2]], |x| {
            matrix_norm(&x[0], NormOrder::Nuc, [0, 1], true)
        }),
    ]
}
