//! Least squares: the X of least length that makes `|A X - B|` smallest, `X = A^+ B`.

use super::RankOptions;
use super::checks::{check_matrices, check_rows, common_batch, is_vector};
use super::pinv::{Parts, parts};
use crate::amp::cast_op;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::tensor::{Dtype, Tensor};

/// Which results [`lstsq`] gives besides the solution: PyTorch's names of LAPACK's routines. The
/// solution is always found by singular values.
///
/// ```
/// use torchrs::{linalg, Tensor};
/// use torchrs::linalg::{LstsqDriver, LstsqOptions};
/// let (a, b) = (Tensor::from([[3f64], [4.]]), Tensor::from([[5f64], [0.]]));
/// let of = |driver| linalg::lstsq(&a, &b, LstsqOptions { driver, ..Default::default() });
/// assert_eq!((of(LstsqDriver::Gels).rank.numel(), of(LstsqDriver::Gelsy).rank.item()), (0, 1.0));
/// let expected = Tensor::from([5.0]);
/// assert!(of(LstsqDriver::Gelsd).singular_values.allclose(&expected, Default::default()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LstsqDriver {
    /// No rank: matrices must have full rank.
    Gels,
    /// The rank.
    #[default]
    Gelsy,
    /// The rank and the singular values.
    Gelsd,
    /// As `Gelsd`.
    Gelss,
}

/// Options of [`lstsq`].
///
/// ```
/// use torchrs::{linalg, Tensor};
/// use torchrs::linalg::LstsqOptions;
/// let (a, b) = (Tensor::from([[2f64, 0.], [0., 1.]]), Tensor::from([[4f64], [3.]]));
/// let fit = linalg::lstsq(&a, &b, LstsqOptions { rcond: Some(0.75), ..Default::default() });
/// assert!(fit.solution.allclose(&Tensor::from([[2.0], [0.0]]), Default::default()));
/// assert_eq!(fit.rank.item(), 1.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LstsqOptions {
    /// Singular values not above this times the largest count as zero. By default the larger side of
    /// the matrices times the type's epsilon.
    pub rcond: Option<f64>,
    /// Which results are wanted.
    pub driver: LstsqDriver,
}

/// What [`lstsq`] gives; a result that the driver does not compute has shape `[0]`.
///
/// ```
/// use torchrs::{linalg, Tensor};
/// use torchrs::linalg::{LstsqDriver, LstsqOptions};
/// let (a, b) = (Tensor::from([[1f64], [1.]]), Tensor::from([[1f64], [3.]]));
/// let options = LstsqOptions { driver: LstsqDriver::Gelsd, ..Default::default() };
/// let fit = linalg::lstsq(&a, &b, options);
/// assert!((fit.solution.item() - 2.0).abs() < 1e-12 && (fit.residuals.item() - 2.0).abs() < 1e-12);
/// ```
pub struct Lstsq {
    /// `[.., n, k]`, or `[.., n]` for vectors.
    pub solution: Tensor,
    /// The sum of squares of each column of `A X - B`, `[.., k]`: for more rows than columns, full rank
    /// and another driver than `Gelsy`.
    pub residuals: Tensor,
    /// `[..]`, i64.
    pub rank: Tensor,
    /// `[.., min(m, n)]`.
    pub singular_values: Tensor,
}

/// Solutions of `A X = B` in the sense of least squares, for matrices `A` `[.., m, n]` and `B`
/// `[.., m, k]`, or vectors as [`solve`](super::solve) takes them (`torch.linalg.lstsq`).
///
/// # Panics
/// Throws [`Error::Shape`] when shapes do not fit, [`Error::Dtype`] for types other than f32 and f64, or
/// two types, and [`Error::Argument`] for a matrix that holds NaN or infinity, or with
/// [`LstsqDriver::Gels`] has less than full rank.
///
/// ```
/// use torchrs::{Tensor, linalg};
/// // A line through three points.
/// let a = Tensor::from([[1f64, 0.], [1., 1.], [1., 2.]]);
/// let fit = linalg::lstsq(&a, &Tensor::from([[1f64], [3.], [5.]]), Default::default());
/// assert!(fit.solution.allclose(&Tensor::from([[1f64], [2.]]), Default::default()));
/// ```
#[track_caller]
pub fn lstsq(a: &Tensor, b: &Tensor, options: LstsqOptions) -> Lstsq {
    cast_op!("lstsq", [x = a, y = b] => lstsq(&x, &y, options));
    let op = "linalg.lstsq";
    check_matrices(op, a);
    if is_vector(a, b) {
        let found = lstsq(a, &b.unsqueeze(-1), options);
        return Lstsq { solution: found.solution.squeeze_dim(-1), ..found };
    }
    check_matrices(op, b);
    check_rows(op, a, b);
    let (a, b) = common_batch(op, a, b);
    let rtol = options.rcond.map(Into::into);
    let Parts { pinv, values, rank } = parts(op, &a, RankOptions { rtol, ..Default::default() });
    let (m, n) = (a.size(-2), a.size(-1));
    let full = rank.eq(m.min(n)).all().is_true_or(true);
    if options.driver == LstsqDriver::Gels && !full {
        let message = "a matrix has less than full rank; the other drivers take it";
        throw(Error::argument(op, "A", message));
    }
    let solution = pinv.matmul(&b);
    let residuals = match m > n && full && options.driver != LstsqDriver::Gelsy {
        true => (a.matmul(&solution) - &b).square().sum_dim(&[-2], false),
        false => Tensor::zeros([0], (a.dtype(), a.device())),
    };
    let none = |dtype| Tensor::zeros([0], (dtype, a.device()));
    let (rank, singular_values) = match options.driver {
        LstsqDriver::Gels => (none(Dtype::I64), none(a.dtype())),
        LstsqDriver::Gelsy => (rank, none(a.dtype())),
        LstsqDriver::Gelsd | LstsqDriver::Gelss => (rank, values),
    };
    Lstsq { solution, residuals, rank, singular_values }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::sample;
    vec![
        sample("lstsq", &[&[2, 4, 2], &[2, 4, 3]], |x| {
            lstsq(&x[0], &x[1], Default::default()).solution
        }),
        sample("lstsq, residuals", &[&[4, 2], &[4]], |x| {
            let options = LstsqOptions { driver: LstsqDriver::Gels, ..Default::default() };
            lstsq(&x[0], &x[1], options).residuals
        }),
    ]
}
