//! Matrix products over strided f32 and f64 buffers. A transpose is only another pair of strides.

mod bf16;
mod blocked;
mod gemv;
mod operands;
mod product;
mod share;

pub use bf16::HalfGemm;
pub use blocked::sharing;
pub use operands::{Gemm, Matrix};

/// The product by its definition, which the fast one is tested against: A is `m x k`, B is `k x n`,
/// both row-major.
pub fn reference((m, n, k): (usize, usize, usize), a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            c[i * n + j] = (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum();
        }
    }
    c
}
