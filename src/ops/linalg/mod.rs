//! Linear algebra (`torch.linalg`): inverses, solutions, factorisations, eigenvalues, norms. The last
//! two dimensions are the matrices, all before are batches, and every size may be 0.
//!
//! f32 and f64 are taken. On the CPU factors are computed in f64 and rounded, for f32 too, by the loops of
//! `cpu/linalg`, the matrices of a batch on several threads; on a GPU in the matrices' own type. Derivatives are tensor operations, so
//! gradients have gradients. Where a derivative depends on choices that the factors leave open (signs
//! of vectors, bases of equal values), it is right for functions that do not.
//!
//! Forms whose name ends in `_ex` never fail: they give a tensor `info`, 0 for each matrix that was
//! fine. Functions that need complex numbers (`eig`, `eigvals`) are not here.
//!
//! ```
//! use torchrs::{Tensor, linalg};
//! let a = Tensor::from([[4f64, 1.], [1., 3.]]);
//! let x = linalg::solve(&a, &Tensor::from([1f64, 2.]));
//! assert!(a.matmul(&x).allclose(&Tensor::from([1f64, 2.]), Default::default()));
//! let (w, v) = linalg::eigh(&a, linalg::Uplo::L);
//! assert!((&v * &w).matmul(&v.mt()).allclose(&a, Default::default()));
//! ```

mod batch;
mod cholesky;
mod cond;
pub(in crate::ops) mod cuda;
mod det;
mod eigh;
mod inverse;
mod lstsq;
mod lu;
mod matrix_exp;
mod norm;
mod pinv;
mod products;
mod qr;
mod solve;
mod svd;
mod tensor_equations;
#[cfg(test)]
mod tests;
mod triangular;

pub use cholesky::{cholesky, cholesky_ex};
pub use cond::cond;
pub use det::{det, slogdet};
pub use eigh::{Uplo, eigh, eigvalsh};
pub use inverse::{inv, inv_ex};
pub use lstsq::{Lstsq, LstsqDriver, LstsqOptions, lstsq};
pub use lu::{LuSolveOptions, lu, lu_factor, lu_factor_ex, lu_solve};
pub use matrix_exp::matrix_exp;
pub use norm::{NormOrder, matrix_norm, norm, vector_norm};
pub use pinv::{RankOptions, matrix_rank, pinv};
pub use products::{cross, diagonal, matmul, matrix_power, multi_dot, vander, vecdot};
pub use qr::{QrMode, qr};
pub use solve::{solve, solve_ex, solve_right};
pub use svd::{svd, svdvals};
pub use tensor_equations::{tensorinv, tensorsolve};
pub use triangular::{TriangularOptions, solve_triangular};

use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::tensor::broadcast_shapes;
use crate::{Dtype, Tensor};

/// Throws unless `x` is at least a matrix, of f32 or f64.
#[track_caller]
fn check_matrices(op: &str, x: &Tensor) {
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
fn check_square(op: &str, x: &Tensor) {
    check_matrices(op, x);
    if x.size(-1) != x.size(-2) {
        let message = format!("takes square matrices, got a tensor of shape {:?}", x.shape());
        throw(Error::shape(op, message));
    }
}

/// Both stacks of matrices, their batches broadcast.
#[track_caller]
fn common_batch(op: &str, a: &Tensor, b: &Tensor) -> (Tensor, Tensor) {
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
fn check_rows(op: &str, a: &Tensor, b: &Tensor) {
    if a.size(-2) != b.size(-2) {
        let (x, y) = (a.shape(), b.shape());
        let message = format!("A of shape {x:?} and B of shape {y:?} have differently many rows");
        throw(Error::shape(op, message));
    }
}

/// True where PyTorch takes `b` for vectors: it has one dimension, or the shape of `a` but for the
/// last dimension.
fn is_vector(a: &Tensor, b: &Tensor) -> bool {
    b.dim() == 1 || b.dim() + 1 == a.dim() && b.shape() == &a.shape()[..a.dim() - 1]
}

fn eye_like(x: &Tensor) -> Tensor {
    Tensor::eye(x.size(-1), (x.dtype(), x.device()))
}

/// `x` with half of its diagonal: of a symmetric matrix, the sum of a triangle and this one's
/// transpose.
fn half_diagonal(x: &Tensor) -> Tensor {
    x - x * eye_like(x) * 0.5
}

/// `w_j - w_i`, and 1 where i is j.
fn gaps(w: &Tensor) -> Tensor {
    w.unsqueeze(-2) - w.unsqueeze(-1) + eye_like(w)
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    let files: [fn() -> _; _] = [
        cholesky::samples,
        cond::samples,
        det::samples,
        eigh::samples,
        inverse::samples,
        lstsq::samples,
        lu::samples,
        matrix_exp::samples,
        norm::samples,
        pinv::samples,
        qr::samples,
        solve::samples,
        svd::samples,
        tensor_equations::samples,
        triangular::samples,
    ];
    files.iter().flat_map(|samples| samples()).collect()
}

/// A sample that is called with changed inputs: matrices with what the op asks for.
#[cfg(test)]
fn sample(name: &str, shapes: &[&[usize]], f: fn(&[Tensor]) -> Tensor) -> OpSample {
    let shapes = shapes.iter().enumerate();
    let inputs: Vec<Tensor> =
        shapes.map(|(i, s)| crate::ops::checks::samples::values(s, i as u64 + 1)).collect();
    OpSample::new(name, inputs, f).no_half().slack(64.0)
}

/// Far from singular.
#[cfg(test)]
fn heavy(x: &Tensor) -> Tensor {
    x + eye_like(x) * 6.0
}

/// Symmetric and positive definite.
#[cfg(test)]
fn positive(x: &Tensor) -> Tensor {
    x.matmul(&x.mt()) + eye_like(x)
}
