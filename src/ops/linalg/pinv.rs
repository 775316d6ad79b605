//! Pseudoinverses `P = A^+`, and ranks: both by singular values above a cutoff.
//!
//! ```text
//! dA = -P^T dP P^T + (I - A P) dP^T P P^T + P^T P dP^T (I - P A)
//! ```

use smallvec::smallvec;

use super::checks::{check_matrices, check_square};
use super::options::Uplo;
use super::{eigh, svd};
use crate::amp::cast_op;
use crate::autograd::{no_grad, record};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::tensor::{Dtype, Operand, Tensor};

/// Which singular values [`pinv`] and [`matrix_rank`] take for zero: those not above the larger of
/// `atol` and `rtol` times the largest.
///
/// ```
/// use torchrs::{linalg, Tensor};
/// use torchrs::linalg::RankOptions;
/// let a = Tensor::from([[1f64, 0.], [0., 1e-3]]);
/// let options = RankOptions { atol: Some(0.01.into()), ..Default::default() };
/// assert_eq!(linalg::matrix_rank(&a, options).item(), 1.0);
/// assert_eq!(linalg::matrix_rank(&a, Default::default()).item(), 2.0);
/// ```
#[derive(Clone, Copy, Default)]
pub struct RankOptions<'a> {
    /// A number, or a tensor that broadcasts to the batch. By default 0.
    pub atol: Option<Operand<'a>>,
    /// A number, or a tensor that broadcasts to the batch. By default the larger side of a matrix times
    /// the type's epsilon; 0 where `atol` is positive.
    pub rtol: Option<Operand<'a>>,
    /// The matrices are symmetric, and only their lower triangles are read; the singular values are the
    /// magnitudes of eigenvalues, which is quicker.
    pub hermitian: bool,
}

/// What one decomposition gives.
pub(super) struct Parts {
    /// `[.., n, m]`.
    pub pinv: Tensor,
    /// Singular values, `[.., min(m, n)]`; in falling order unless hermitian.
    pub values: Tensor,
    /// How many are above the cutoff, i64.
    pub rank: Tensor,
}

/// The pseudoinverse of each matrix, `[.., n, m]` (`torch.linalg.pinv`).
///
/// # Panics
/// Throws [`Error::Shape`](crate::Error::Shape) for fewer than two dimensions, or with `hermitian`
/// unless the matrices are square, [`Error::Dtype`](crate::Error::Dtype) for types other than f32 and
/// f64, and [`Error::Argument`](crate::Error::Argument) for a matrix that holds NaN or infinity.
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let a = Tensor::from([[2f64, 0.], [0., 0.], [0., 0.]]);
/// assert_eq!(linalg::pinv(&a, Default::default()).to_vec::<f64>(), [0.5, 0., 0., 0., 0., 0.]);
/// ```
#[track_caller]
pub fn pinv(a: &Tensor, options: RankOptions) -> Tensor {
    cast_op!("pinv", [x = a] => pinv(&x, options));
    parts("linalg.pinv", a, options).pinv
}

/// The number of singular values above the cutoff, `[..]` of i64 (`torch.linalg.matrix_rank`).
///
/// # Panics
/// As [`pinv`].
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let a = Tensor::from([[1f64, 2.], [2., 4.]]);
/// assert_eq!(linalg::matrix_rank(&a, Default::default()).item(), 1.0);
/// ```
#[track_caller]
pub fn matrix_rank(a: &Tensor, options: RankOptions) -> Tensor {
    cast_op!("matrix_rank", [x = a] => matrix_rank(&x, options));
    check("linalg.matrix_rank", a, options);
    no_grad(|| {
        let a = a.detach();
        let values = match options.hermitian {
            true => super::eigvalsh(&a, Uplo::L).abs(),
            false => super::svdvals(&a),
        };
        above(a.shape(), &values, options).sum_dim(&[-1], false)
    })
}

#[track_caller]
fn check(op: &str, a: &Tensor, options: RankOptions) {
    if options.hermitian {
        check_square(op, a);
    } else {
        check_matrices(op, a);
    }
}

/// The pseudoinverse, recorded, and what else the decomposition tells.
#[track_caller]
pub(super) fn parts(op: &str, a: &Tensor, options: RankOptions) -> Parts {
    check(op, a, options);
    let Parts { pinv, values, rank } = no_grad(|| {
        let a = a.detach();
        let (left, inverse, right, values, kept) = if options.hermitian {
            let (w, v) = eigh(&a, Uplo::L);
            let kept = above(a.shape(), &w.abs(), options);
            (v.mt(), 1.0 / &w, v, w.abs(), kept)
        } else {
            let (u, s, vt) = svd(&a, false);
            let kept = above(a.shape(), &s, options);
            (u.mt(), 1.0 / &s, vt.mt(), s, kept)
        };
        let inverse = inverse.masked_fill(&kept.logical_not(), 0.0);
        let rank = kept.sum_dim(&[-1], false);
        Parts { pinv: (right * inverse.unsqueeze(-2)).matmul(&left), values, rank }
    });
    let pinv = record("pinv", &[a], pinv, |saver| {
        let (a, p) = (saver.save(a), saver.save_output(0));
        move |ctx| {
            let (a, p, g) = (ctx.get(&a), ctx.get(&p), ctx.grad(0).mt());
            let pt = p.mt();
            let inside = pt.matmul(&g.mt()).matmul(&pt);
            let rows = (&g - a.matmul(&p.matmul(&g))).matmul(&p).matmul(&pt);
            let columns = pt.matmul(&p).matmul(&(&g - g.matmul(&p).matmul(&a)));
            smallvec![Some(rows + columns - inside)]
        }
    });
    Parts { pinv, values, rank }
}

/// Which of the singular values count.
fn above(shape: &[usize], values: &Tensor, options: RankOptions) -> Tensor {
    let (dtype, device) = (values.dtype(), values.device());
    let tensor = |operand: Operand| match operand {
        Operand::Tensor(t) => t.detach().to_dtype(dtype),
        Operand::Scalar(s) => Tensor::full([], s, (dtype, device)),
    };
    let [.., m, n] = *shape else { unreachable!("checked: at least two dimensions") };
    let epsilon = if dtype == Dtype::F32 { f64::from(f32::EPSILON) } else { f64::EPSILON };
    let usual = Tensor::full([], epsilon * m.max(n) as f64, (dtype, device));
    let atol = options.atol.map(tensor);
    let rtol = options.rtol.map(tensor).unwrap_or_else(|| match &atol {
        None => usual,
        Some(atol) => usual.expand(atol.shape()).masked_fill(&atol.gt(0.0), 0.0),
    });
    // Of no values the largest is 0.
    let largest = match values.size(-1) {
        0 => values.sum_dim(&[-1], false),
        _ => values.amax(&[-1], false),
    };
    let mut cutoff = rtol * largest;
    if let Some(atol) = atol {
        cutoff = cutoff.maximum(&atol);
    }
    values.gt(&cutoff.unsqueeze(-1))
}

impl Tensor {
    /// [`linalg::pinv`](pinv) with `rtol` (`torch.pinverse`, where it is 1e-15 by default).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let expected = Tensor::from([[0.5, 0.0], [0.0, 0.0]]);
    /// let y = Tensor::from([[2f64, 0.], [0., 0.]]).pinverse(1e-15);
    /// assert!(y.allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// As [`linalg::pinv`](pinv).
    #[track_caller]
    pub fn pinverse(&self, rcond: f64) -> Tensor {
        cast_op!("pinverse", [x = self] => x.pinverse(rcond));
        pinv(self, RankOptions { rtol: Some(rcond.into()), ..Default::default() })
    }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::{positive, sample};
    vec![
        sample("pinv, tall", &[&[2, 4, 2]], |x| pinv(&x[0], Default::default())),
        sample("pinv, wide", &[&[2, 4]], |x| pinv(&x[0], Default::default())),
        sample("pinv, hermitian", &[&[3, 3]], |x| {
            pinv(&positive(&x[0]), RankOptions { hermitian: true, ..Default::default() })
        }),
        // Stays singular while x moves.
        sample("pinv, rank 1", &[&[3, 1], &[1, 3]], |x| {
            let rtol = Some(1e-3.into());
            pinv(&x[0].matmul(&x[1]), RankOptions { rtol, ..Default::default() })
        })
        .order(crate::ops::checks::samples::Order::First),
        sample("pinv, empty", &[&[0, 3]], |x| pinv(&x[0], Default::default())),
    ]
}
