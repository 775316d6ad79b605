//! `A = U S V^T`. With `E_ij = s_j^2 - s_i^2` (1 where i is j) and `skew(M) = M - M^T`
//!
//! ```text
//! dA = U (dS + (skew(U^T dU) / E) S + S (skew(V^T dV) / E)) V^T
//!    + (I - U U^T) dU S^-1 V^T      for more rows than columns
//!    + U S^-1 dV^T (I - V V^T)      for more columns than rows
//! ```

use smallvec::smallvec;

use super::batch::each;
use super::checks::{check_matrices, gaps};
use super::cuda;
use crate::amp::cast_op;
use crate::autograd::{is_differentiated, no_grad, record_many};
use crate::cpu::linalg::{self, Vectors};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::ops::gpu;
use crate::tensor::Tensor;

/// U, S and V^T with `A = U diag(S) V^T` of `m x n` matrices: orthonormal columns, singular values in
/// falling order, orthonormal rows (`torch.linalg.svd`). With `full_matrices` U is `m x m` and V^T
/// `n x n`; else U is `m x k` and V^T `k x n`, k being the smaller of m and n.
///
/// The vectors' gradients are finite only where no two singular values are equal and, for matrices
/// that are not square, none is zero. The columns and rows that `full_matrices` adds have no gradient.
///
/// # Panics
/// Throws [`Error::Shape`](crate::Error::Shape) for fewer than two dimensions,
/// [`Error::Dtype`](crate::Error::Dtype) for types other than f32 and f64, and
/// [`Error::Argument`](crate::Error::Argument) for a matrix that holds NaN or infinity.
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let a = Tensor::from([[1f64, 2.], [3., 4.], [5., 6.]]);
/// let (u, s, vt) = linalg::svd(&a, false);
/// assert!((u * s).matmul(&vt).allclose(&a, Default::default()));
/// ```
#[track_caller]
pub fn svd(a: &Tensor, full_matrices: bool) -> (Tensor, Tensor, Tensor) {
    cast_op!("svd", [x = a] => svd(&x, full_matrices));
    let outputs = decompose(a, if full_matrices { Vectors::Full } else { Vectors::Reduced });
    let [u, s, vt]: [Tensor; 3] = outputs.try_into().expect("three outputs");
    (u, s, vt)
}

/// The singular values alone, in falling order (`torch.linalg.svdvals`). Their gradient is finite for
/// equal values too.
///
/// ```
/// use torchrs::{linalg, Tensor};
/// let expected = Tensor::from([4.0, 3.0]);
/// let y = linalg::svdvals(&Tensor::from([[3f64, 0.], [0., -4.]]));
/// assert!(y.allclose(&expected, Default::default()));
/// ```
///
/// # Panics
/// As [`svd`].
#[track_caller]
pub fn svdvals(a: &Tensor) -> Tensor {
    cast_op!("svdvals", [x = a] => svdvals(&x));
    let vectors = if is_differentiated(&[a]) { Vectors::Reduced } else { Vectors::None };
    decompose(a, vectors).swap_remove(1)
}

#[track_caller]
fn decompose(a: &Tensor, vectors: Vectors) -> Vec<Tensor> {
    check_matrices("linalg.svd", a);
    let (m, n) = (a.size(-2), a.size(-1));
    let k = m.min(n);
    let (p, q) = match vectors {
        Vectors::None => (0, 0),
        Vectors::Reduced => (k, k),
        Vectors::Full => (m, n),
    };
    let batch = match gpu::of("linalg.svd", &[a]) {
        Some(gpu) => no_grad(|| cuda::svd(gpu, a, p, q)),
        None => each(&[a], &[&[m, p], &[k], &[q, n]], &|inputs, out| {
            if !inputs[0].iter().all(|x| x.is_finite()) {
                return 1;
            }
            let Some(svd) = linalg::svd(inputs[0], m, n, vectors) else { return 2 };
            out[0].copy_from_slice(&svd.u);
            out[1].copy_from_slice(&svd.s);
            out[2].copy_from_slice(&svd.vt);
            0
        }),
    };
    batch.expect("linalg.svd", |info| match info {
        1 => "holds NaN or infinity".into(),
        _ => "has singular values to which the rotations do not converge".into(),
    });
    let outputs = batch.outputs;
    record_many("svd", &[a], &outputs, |saver| {
        let saved = [0, 1, 2].map(|i| saver.save_output(i));
        move |ctx| {
            let [u, s, vt] = [0, 1, 2].map(|i| ctx.get(&saved[i]));
            let columns = |x: Tensor| x.narrow(-1, 0, k);
            let rows = |x: Tensor| x.narrow(-2, 0, k);
            let grads = (ctx.grad_opt(0).map(columns), ctx.grad_opt(1), ctx.grad_opt(2).map(rows));
            smallvec![Some(backward(&columns(u), &s, &rows(vt), grads))]
        }
    });
    outputs
}

fn skew(x: &Tensor) -> Tensor {
    x - x.mt()
}

fn backward(
    u: &Tensor,
    s: &Tensor,
    vt: &Tensor,
    (du, ds, dvt): (Option<Tensor>, Option<Tensor>, Option<Tensor>),
) -> Tensor {
    let diagonal = ds.unwrap_or_else(|| s.zeros_like());
    if du.is_none() && dvt.is_none() {
        return (u * diagonal.unsqueeze(-2)).matmul(vt);
    }
    let mut inner = diagonal.diag_embed(0, -2, -1);
    let squares = gaps(&s.square());
    if let Some(du) = &du {
        inner = inner + skew(&u.mt().matmul(du)) / &squares * s.unsqueeze(-2);
    }
    if let Some(dvt) = &dvt {
        inner = inner + skew(&vt.matmul(&dvt.mt())) / &squares * s.unsqueeze(-1);
    }
    let mut da = u.matmul(&inner).matmul(vt);
    if let (Some(du), true) = (&du, u.size(-2) > u.size(-1)) {
        let outside = du - u.matmul(&u.mt().matmul(du));
        da = da + (outside / s.unsqueeze(-2)).matmul(vt);
    }
    if let (Some(dvt), true) = (&dvt, vt.size(-1) > vt.size(-2)) {
        let outside = dvt - dvt.matmul(&vt.mt()).matmul(vt);
        da = da + u.matmul(&(outside / s.unsqueeze(-1)));
    }
    da
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::sample;
    /// Does not depend on the vectors' signs.
    fn all(x: &Tensor, full_matrices: bool) -> Tensor {
        let k = x.size(-1).min(x.size(-2));
        let (u, s, vt) = svd(x, full_matrices);
        let (u, vt) = (u.narrow(-1, 0, k).square(), vt.narrow(-2, 0, k).square());
        (u * s.unsqueeze(-2)).sin().sum() + s.cos().sum() + (vt * 1.3).exp().sum()
    }
    vec![
        sample("svd", &[&[2, 3, 3]], |x| all(&x[0], false)).slack(512.0),
        sample("svd, tall", &[&[4, 2]], |x| all(&x[0], true)).slack(512.0),
        sample("svd, wide", &[&[2, 4]], |x| all(&x[0], false)).slack(512.0),
        sample("svdvals", &[&[2, 3, 2]], |x| svdvals(&x[0])),
        sample("svdvals, empty", &[&[0, 2]], |x| svdvals(&x[0])),
    ]
}
