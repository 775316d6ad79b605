//! Linear algebra on a GPU, in the type of the matrices. A batch becomes a stack `[count, rows, columns]` that is
//! factored in place: blocks by kernels (`kernels/linalg*.cu`), a block of threads for each matrix of the stack, and what
//! is around them by products.

pub(in crate::ops) mod factors;
pub(in crate::ops) mod jacobi;
mod matrices;
pub(in crate::ops) mod qr;

pub(super) use factors::{cholesky, inverse, lu, permutation, solve, solve_triangular};
pub(super) use jacobi::{eigh, svd};
pub(super) use qr::qr;
