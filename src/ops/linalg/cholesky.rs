//! `A = L L^T` of symmetric positive definite matrices, and what is solved with L.
//!
//! ```text
//! dA = (M + M^T) / 2,  M = L^-T P L^-1,  P the lower triangle of L^T dL with half of its diagonal
//! X = (L L^T)^-1 B:   dB = (L L^T)^-1 dX,   dL = -(dB X^T + X dB^T) L
//! ```

use smallvec::smallvec;

use super::batch::{Batch, each};
use super::checks::{
    check_matrices, check_rows, check_square, common_batch, eye_like, half_diagonal,
};
use super::options::TriangularOptions;
use super::{cuda, solve_triangular};
use crate::amp::cast_op;
use crate::autograd::{no_grad, record};
use crate::cpu::linalg;
#[cfg(test)]
use crate::ops::checks::samples::OpSample;
use crate::ops::gpu;
use crate::tensor::Tensor;

/// The lower triangular L with `A = L L^T`, or with `upper` its transpose
/// (`torch.linalg.cholesky`), for symmetric positive definite matrices, of which only the lower
/// triangle is read. The gradient is symmetric.
///
/// # Panics
/// Throws [`Error::Shape`](crate::Error::Shape) unless the matrices are square,
/// [`Error::Dtype`](crate::Error::Dtype) for types other than f32 and f64, and
/// [`Error::Argument`](crate::Error::Argument) that names the first matrix that is not positive
/// definite.
///
/// ```
/// use torchrs::{Tensor, linalg};
/// let a = Tensor::from([[4f64, 2.], [2., 5.]]);
/// assert_eq!(linalg::cholesky(&a, false).to_vec::<f64>(), [2., 0., 1., 2.]);
/// ```
#[track_caller]
pub fn cholesky(a: &Tensor, upper: bool) -> Tensor {
    cast_op!("cholesky", [x = a] => cholesky(&x, upper));
    let batch = factors("linalg.cholesky", a);
    batch.expect("linalg.cholesky", |order| {
        format!("is not positive definite: its leading minor of order {order} is not")
    });
    recorded(a, batch.single(), upper)
}

/// [`cholesky`] of matrices that may not be positive definite: `info` has the order of the leading
/// minor that is not, and the factor means nothing then (`torch.linalg.cholesky_ex`).
///
/// ```
/// use torchrs::{linalg, Tensor};
/// let (l, info) = linalg::cholesky_ex(&Tensor::from([[4f64, 2.], [2., 5.]]), false);
/// assert_eq!((l.to_vec::<f64>(), info.item()), (vec![2.0, 0.0, 1.0, 2.0], 0.0));
/// assert_eq!(linalg::cholesky_ex(&Tensor::from([[1f64, 2.], [2., 1.]]), false).1.item(), 2.0);
/// ```
///
/// # Panics
/// As [`cholesky`] for shapes and types.
#[track_caller]
pub fn cholesky_ex(a: &Tensor, upper: bool) -> (Tensor, Tensor) {
    cast_op!("cholesky", [x = a] => cholesky_ex(&x, upper));
    let batch = factors("linalg.cholesky_ex", a);
    let info = batch.info.clone();
    (recorded(a, batch.single(), upper), info)
}

#[track_caller]
fn factors(op: &str, a: &Tensor) -> Batch {
    check_square(op, a);
    if let Some(gpu) = gpu::of(op, &[a]) {
        return cuda::cholesky(gpu, a);
    }
    let n = a.size(-1);
    each(&[a], &[&[n, n]], &|inputs, out| {
        out[0].copy_from_slice(inputs[0]);
        linalg::cholesky(out[0], n)
    })
}

fn recorded(a: &Tensor, l: Tensor, upper: bool) -> Tensor {
    let l = record("cholesky", &[a], l, |saver| {
        let l = saver.save_output(0);
        move |ctx| {
            let l = ctx.get(&l);
            let inner = half_diagonal(&l.mt().matmul(&ctx.grad(0)).tril(0));
            let inner = (&inner + inner.mt()) * 0.5;
            let upper = TriangularOptions { upper: true, ..Default::default() };
            let left = solve_triangular(&l.mt(), &inner, upper);
            let right = TriangularOptions { left: false, ..Default::default() };
            smallvec![Some(solve_triangular(&l, &left, right))]
        }
    });
    if upper { l.mt() } else { l }
}

impl Tensor {
    /// [`linalg::cholesky`](cholesky) (`torch.Tensor.cholesky`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([[4f64, 2.], [2., 5.]]).cholesky(true);
    /// assert_eq!(y.to_vec::<f64>(), [2.0, 1.0, 0.0, 2.0]);
    /// ```
    ///
    /// # Panics
    /// As [`linalg::cholesky`](cholesky).
    #[track_caller]
    pub fn cholesky(&self, upper: bool) -> Tensor {
        cholesky(self, upper)
    }

    /// X with `L L^T X = B`, this tensor being `B`, `[.., n, k]` (`torch.cholesky_solve`). The factor
    /// is L, or its transpose if `upper`, `[.., n, n]`; batches broadcast.
    ///
    /// As in PyTorch the factor's gradient is that of the product, not restricted to a triangle.
    ///
    /// # Panics
    /// Throws [`Error::Shape`](crate::Error::Shape) when shapes do not fit and
    /// [`Error::Dtype`](crate::Error::Dtype) for types other than f32 and f64, or two types.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let a = Tensor::from([[4f64, 2.], [2., 5.]]);
    /// let x = Tensor::from([[8f64], [12.]]).cholesky_solve(&a.cholesky(false), false);
    /// assert_eq!(x.to_vec::<f64>(), [1., 2.]);
    /// ```
    #[track_caller]
    pub fn cholesky_solve(&self, factor: &Tensor, upper: bool) -> Tensor {
        cast_op!("cholesky_solve", [b = self, l = factor] => b.cholesky_solve(&l, upper));
        let op = "cholesky_solve";
        check_square(op, factor);
        check_matrices(op, self);
        check_rows(op, factor, self);
        let (factor, b) = common_batch(op, factor, self);
        let x = no_grad(|| {
            let l = if upper { factor.mt() } else { factor.clone() };
            let half = solve_triangular(&l, &b, Default::default());
            let upper = TriangularOptions { upper: true, ..Default::default() };
            solve_triangular(&l.mt(), &half, upper)
        });
        record("cholesky_solve", &[&b, &factor], x, |saver| {
            let (factor, x) = (saver.save(&factor), saver.save_output(0));
            move |ctx| {
                let (factor, x) = (ctx.get(&factor), ctx.get(&x));
                let db = ctx.grad(0).cholesky_solve(&factor, upper);
                let df = ctx.needs(1).then(|| {
                    let product = db.matmul(&x.mt());
                    let both = &product + product.mt();
                    -if upper { factor.matmul(&both) } else { both.matmul(&factor) }
                });
                smallvec![Some(db), df]
            }
        })
    }

    /// The inverse of `L L^T`, this tensor being L, or its transpose if `upper`
    /// (`torch.cholesky_inverse`). The gradient is as that of
    /// [`cholesky_solve`](Tensor::cholesky_solve).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let l = Tensor::from([[2f64, 0.], [0., 4.]]);
    /// let expected = Tensor::from([[0.25, 0.0], [0.0, 0.0625]]);
    /// assert!(l.cholesky_inverse(false).allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// Throws as [`cholesky_solve`](Tensor::cholesky_solve).
    #[track_caller]
    pub fn cholesky_inverse(&self, upper: bool) -> Tensor {
        cast_op!("cholesky_inverse", [l = self] => l.cholesky_inverse(upper));
        check_square("cholesky_inverse", self);
        eye_like(self).cholesky_solve(self, upper)
    }
}

#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    use super::samples::{positive, sample};
    vec![
        sample("cholesky", &[&[2, 3, 3]], |x| cholesky(&positive(&x[0]), false)),
        sample("cholesky, upper", &[&[3, 3]], |x| cholesky(&positive(&x[0]), true)),
        sample("cholesky, empty", &[&[0, 0]], |x| cholesky(&x[0], false)),
        sample("cholesky_solve", &[&[3, 3], &[2, 3, 2]], |x| {
            x[1].cholesky_solve(&cholesky(&positive(&x[0]), false), false)
        }),
        sample("cholesky_solve, upper", &[&[3, 3], &[3, 2]], |x| {
            x[1].cholesky_solve(&cholesky(&positive(&x[0]), true), true)
        }),
        sample("cholesky_inverse", &[&[3, 3]], |x| {
            cholesky(&positive(&x[0]), false).cholesky_inverse(false)
        }),
    ]
}
