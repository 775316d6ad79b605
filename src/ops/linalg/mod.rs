//! Linear algebra (`torch.linalg`): inverses, solutions, factorisations, eigenvalues, norms. The last
//! two dimensions are the matrices, all before are batches, and every size may be 0.
//!
//! f32 and f64 are taken. On the CPU factors are computed in f64 and rounded, for f32 too, by the loops of
//! `cpu/linalg`, the matrices of a batch on several threads; on a GPU in the matrices' own type. `eig`, `eigvals`, `geqrf` and
//! `ldl_*` of a GPU's matrices copy them to the CPU and the results back. Derivatives are tensor operations, so
//! gradients have gradients. Where a derivative depends on choices that the factors leave open (signs
//! of vectors, bases of equal values), it is right for functions that do not.
//!
//! Forms whose name ends in `_ex` never fail: they give a tensor `info`, 0 for each matrix that was
//! fine. `eig` and `eigvals` give complex numbers, of real matrices.
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
mod checks;
mod cholesky;
mod complex;
mod composed;
mod cond;
pub(in crate::ops) mod cuda;
mod det;
mod eig;
mod eigh;
mod inverse;
mod ldl;
mod lstsq;
mod lu;
mod matrix_exp;
mod norm;
mod on_host;
mod options;
mod pinv;
mod qr;
mod reflections;
#[cfg(test)]
mod samples;
mod solve;
mod svd;
mod synonyms;
mod tensor_equations;
#[cfg(test)]
mod tests;
mod triangular;

pub use cholesky::{cholesky, cholesky_ex};
pub use composed::{lu_unpack, matrix_sqrth, polar};
pub use cond::cond;
pub use det::{det, slogdet};
pub use eig::{eig, eigvals};
pub use eigh::{eigh, eigvalsh};
pub use inverse::{inv, inv_ex};
pub use ldl::{ldl_factor, ldl_factor_ex, ldl_solve};
pub use lstsq::{Lstsq, LstsqDriver, LstsqOptions, lstsq};
pub use lu::{LuSolveOptions, lu, lu_factor, lu_factor_ex, lu_solve};
pub use matrix_exp::matrix_exp;
pub use norm::{NormOrder, matrix_norm, norm, vector_norm};
pub use options::{TriangularOptions, Uplo};
pub use pinv::{RankOptions, matrix_rank, pinv};
pub use qr::{QrMode, qr};
pub use reflections::{geqrf, householder_product, ormqr};
pub use solve::{solve, solve_ex, solve_right};
pub use svd::{svd, svdvals};
pub use synonyms::{cross, diagonal, matmul, matrix_power, multi_dot, vander, vecdot};
pub use tensor_equations::{tensorinv, tensorsolve};
pub use triangular::solve_triangular;

crate::ops::table::ops! {
    cholesky { samples }
    composed { samples }
    cond { samples }
    cuda { kernels: [factors::FACTORS, jacobi::JACOBI, qr::QR] }
    det { samples }
    eig { samples }
    eigh { samples }
    inverse { samples }
    ldl { samples }
    lstsq { samples }
    lu { samples }
    matrix_exp { samples }
    norm { samples }
    pinv { samples }
    qr { samples }
    reflections { samples }
    solve { samples }
    svd { samples }
    synonyms { samples }
    tensor_equations { samples }
    triangular { samples }
}
