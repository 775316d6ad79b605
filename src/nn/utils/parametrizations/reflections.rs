//! Householder reflections: the decomposition of a matrix by them, and their product.

use crate::tensor::Tensor;

/// The first columns of H_1 H_2 .. H_k, reflections `I - tau_i v_i v_i^T`; `below`, `[.., n, k]`, has
/// the vectors v_i under their leading 1 (`torch.linalg.householder_product`).
pub(super) fn householder_product(below: &Tensor, tau: &Tensor) -> Tensor {
    let (n, k) = (below.size(-2), below.size(-1));
    let unit = Tensor::eye(n, (below.dtype(), below.device())).narrow(1, 0, k);
    let vectors = below + &unit;
    let start = unit.expand(below.shape());
    (0..k).rev().fold(start, |q, i| {
        let v = vectors.narrow(-1, i, 1);
        let scaled = &v * tau.narrow(-1, i, 1).unsqueeze(-1);
        &q - scaled.matmul(&v.mt().matmul(&q))
    })
}

/// Reflections that make a tall matrix triangular, as LAPACK's `geqrf` gives them: below the diagonal
/// the vectors, on and above it the triangular factor; and tau (`torch.geqrf`). Without history.
pub(super) fn geqrf(matrix: &Tensor) -> (Tensor, Tensor) {
    let (n, k) = (matrix.size(-2), matrix.size(-1));
    let mut all = matrix.detach().to_vec::<f64>();
    let mut tau = Vec::new();
    if n * k > 0 {
        all.chunks_mut(n * k).for_each(|a| tau.extend(decompose(a, n, k)));
    }
    let shape = matrix.shape();
    let mut few = shape.to_vec();
    few.remove(shape.len() - 2);
    let give = |v: &[f64], shape: &[usize]| Tensor::from_slice(v, shape).to_dtype(matrix.dtype());
    (give(&all, shape), give(&tau, &few))
}

/// One matrix, by rows, in place.
fn decompose(a: &mut [f64], n: usize, k: usize) -> Vec<f64> {
    (0..k)
        .map(|i| {
            let alpha = a[i * k + i];
            let below: f64 = (i + 1..n).map(|r| a[r * k + i].powi(2)).sum();
            if below == 0.0 {
                return 0.0;
            }
            let beta = -(alpha.powi(2) + below).sqrt().copysign(alpha);
            let tau = (beta - alpha) / beta;
            (i + 1..n).for_each(|r| a[r * k + i] /= alpha - beta);
            a[i * k + i] = beta;
            for c in i + 1..k {
                let dot: f64 = (i + 1..n).map(|r| a[r * k + i] * a[r * k + c]).sum();
                let pull = tau * (a[i * k + c] + dot);
                a[i * k + c] -= pull;
                (i + 1..n).for_each(|r| a[r * k + c] -= pull * a[r * k + i]);
            }
            tau
        })
        .collect()
}
