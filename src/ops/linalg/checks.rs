//! What functions of matrices ask of their arguments, and small matrices that several of them need.

use crate::error::{Error, throw};
use crate::tensor::{Dtype, Tensor, broadcast_shapes};

/// Throws unless `x` is at least a matrix, of f32 or f64.
#[track_caller]
pub(super) fn check_matrices(op: &str, x: &Tensor) {
    if x.dim() < 2 {
        let message = format!("takes matrices, got a tensor of shape {:?}", x.shape());
        throw(Error::shape(op, message));
    }
    if !matches!(x.dtype(), Dtype::F32 | Dtype::F64) {
        throw(Error::dtype(op, format!("takes f32 and f64, got {}", x.dtype())));
    }
}

/// [`check_matrices`], and they must be square.
#[track_caller]
pub(super) fn check_square(op: &str, x: &Tensor) {
    check_matrices(op, x);
    if x.size(-1) != x.size(-2) {
        let message = format!("takes square matrices, got a tensor of shape {:?}", x.shape());
        throw(Error::shape(op, message));
    }
}

/// Both stacks of matrices, their batches broadcast.
#[track_caller]
pub(super) fn common_batch(op: &str, a: &Tensor, b: &Tensor) -> (Tensor, Tensor) {
    check_matrices(op, a);
    check_matrices(op, b);
    if a.dtype() != b.dtype() {
        let message = format!("takes one type, got {} and {}", a.dtype(), b.dtype());
        throw(Error::dtype(op, message));
    }
    let (x, y) = (a.shape(), b.shape());
    let Ok(batch) = broadcast_shapes(&x[..x.len() - 2], &y[..y.len() - 2]) else {
        throw(Error::shape(op, format!("the batches of {x:?} and {y:?} do not broadcast")))
    };
    let full = |t: &Tensor| t.expand(&[&batch[..], &t.shape()[t.dim() - 2..]].concat());
    (full(a), full(b))
}

/// Throws unless the matrices of `a` and `b` have equally many rows.
#[track_caller]
pub(super) fn check_rows(op: &str, a: &Tensor, b: &Tensor) {
    if a.size(-2) != b.size(-2) {
        let (x, y) = (a.shape(), b.shape());
        let message = format!("A of shape {x:?} and B of shape {y:?} have differently many rows");
        throw(Error::shape(op, message));
    }
}

/// True where PyTorch takes `b` for vectors: it has one dimension, or the shape of `a` but for the
/// last dimension.
pub(super) fn is_vector(a: &Tensor, b: &Tensor) -> bool {
    b.dim() == 1 || b.dim() + 1 == a.dim() && b.shape() == &a.shape()[..a.dim() - 1]
}

pub(super) fn eye_like(x: &Tensor) -> Tensor {
    Tensor::eye(x.size(-1), (x.dtype(), x.device()))
}

/// `x` with half of its diagonal: of a symmetric matrix, the sum of a triangle and this one's
/// transpose.
pub(super) fn half_diagonal(x: &Tensor) -> Tensor {
    x - x * eye_like(x) * 0.5
}

/// `w_j - w_i`, and 1 where i is j.
pub(super) fn gaps(w: &Tensor) -> Tensor {
    w.unsqueeze(-2) - w.unsqueeze(-1) + eye_like(w)
}
