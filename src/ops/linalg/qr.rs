//! `A = Q R`. With square R
//!
//! ```text
//! dA = (dQ + Q (U + U^T)) R^-T,   U the upper triangle of dR R^T - Q^T dQ with half of its diagonal
//! ```
//!
//! and for more columns than rows, `A = [X | Y]` and `R = [S | Q^T Y]`, the rest of R is a product like
//! any other.

use smallvec::smallvec;

use super::batch::each;
use super::checks::{check_matrices, half_diagonal};
use super::options::TriangularOptions;
use super::{cuda, solve_triangular};
use crate::amp::cast_op;
use crate::autograd::{no_grad, record_many};
use crate::cpu::linalg;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::ops::gpu;
use crate::tensor::Tensor;

/// Which factors [`qr`] gives of `m x n` matrices.
///
/// ```
/// use torchrs::{linalg, Dtype, Tensor};
/// use torchrs::linalg::QrMode;
/// let a = Tensor::ones([3, 1], Dtype::F64);
/// let q = |mode| linalg::qr(&a, mode).0;
/// assert_eq!((q(QrMode::Reduced).shape(), q(QrMode::Complete).shape()), (&[3, 1][..], &[3, 3][..]));
/// assert_eq!(q(QrMode::R).numel(), 0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QrMode {
    /// Q is `m x k` and R `k x n`, k being the smaller of m and n.
    #[default]
    Reduced,
    /// Q is `m x m` and R `m x n`. For `m > n` it has no derivative.
    Complete,
    /// R as in `Reduced`, and no Q (a tensor of shape `[0]`).
    R,
}

/// Q and R with `A = Q R`, the columns of Q orthonormal and R upper triangular (`torch.linalg.qr`).
///
/// # Panics
/// Throws [`Error::Shape`] for fewer than two dimensions and [`Error::Dtype`] for types other than f32
/// and f64.
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let a = Tensor::from([[1f64, 2.], [3., 4.], [5., 6.]]);
/// let (q, r) = linalg::qr(&a, linalg::QrMode::Reduced);
/// assert!(q.matmul(&r).allclose(&a, Default::default()));
/// ```
#[track_caller]
pub fn qr(a: &Tensor, mode: QrMode) -> (Tensor, Tensor) {
    cast_op!("qr", [x = a] => qr(&x, mode));
    check_matrices("linalg.qr", a);
    let (m, n) = (a.size(-2), a.size(-1));
    let k = if mode == QrMode::Complete { m } else { m.min(n) };
    let outputs = match gpu::of("linalg.qr", &[a]) {
        Some(gpu) => no_grad(|| cuda::qr(gpu, a, k)),
        None => {
            each(&[a], &[&[m, k], &[k, n]], &|inputs, out| {
                let mut r = inputs[0].to_vec();
                out[0].copy_from_slice(&linalg::qr(&mut r, m, n, k));
                out[1].copy_from_slice(&r[..k * n]);
                0
            })
            .outputs
        }
    };
    record_many("qr", &[a], &outputs, |saver| {
        let (q, r) = (saver.save_output(0), saver.save_output(1));
        move |ctx| {
            if k > n {
                throw(Error::Autograd(format!(
                    "linalg.qr: the complete factors of matrices with more rows ({m}) than columns \
                     ({n}) have no derivative; take QrMode::Reduced"
                )));
            }
            smallvec![Some(backward(&ctx.get(&q), &ctx.get(&r), ctx.grad(0), &ctx.grad(1)))]
        }
    });
    let [q, r]: [Tensor; 2] = outputs.try_into().expect("two outputs");
    match mode {
        QrMode::R => (Tensor::zeros([0], (a.dtype(), a.device())), r),
        _ => (q, r),
    }
}

fn backward(q: &Tensor, r: &Tensor, dq: Tensor, dr: &Tensor) -> Tensor {
    let (k, n) = (r.size(-2), r.size(-1));
    if k == n {
        return backward_square(q, r, &dq, dr);
    }
    let (square, rest) = (r.narrow(-1, 0, k), r.narrow(-1, k, n - k));
    let (dsquare, drest) = (dr.narrow(-1, 0, k), dr.narrow(-1, k, n - k));
    // The rest of R is Q^T Y.
    let dq = dq + q.matmul(&rest).matmul(&drest.mt());
    Tensor::cat(&[backward_square(q, &square, &dq, &dsquare), q.matmul(&drest)], -1)
}

fn backward_square(q: &Tensor, r: &Tensor, dq: &Tensor, dr: &Tensor) -> Tensor {
    let upper = half_diagonal(&(dr.matmul(&r.mt()) - q.mt().matmul(dq)).triu(0));
    let whole = dq + q.matmul(&(&upper + upper.mt()));
    let right = TriangularOptions { left: false, ..Default::default() };
    solve_triangular(&r.mt(), &whole, right)
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::{heavy, sample};
    fn both(x: &Tensor, mode: QrMode) -> Tensor {
        let (q, r) = qr(x, mode);
        q.matmul(&q.mt()).sum() * 0.5 + (q * 0.7).sin().sum_dim(&[-1], false).sum() + r.cos().sum()
    }
    vec![
        sample("qr", &[&[2, 3, 3]], |x| both(&heavy(&x[0]), QrMode::Reduced)),
        sample("qr, tall", &[&[4, 2]], |x| both(&x[0], QrMode::Reduced)),
        sample("qr, wide", &[&[2, 4]], |x| both(&x[0], QrMode::Complete)),
        sample("qr, R", &[&[4, 2]], |x| qr(&x[0], QrMode::R).1),
        sample("qr, empty", &[&[3, 0]], |x| both(&x[0], QrMode::Reduced)),
    ]
}
