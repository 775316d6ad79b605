//! Factorisations of dense matrices in f64: what the ops of `ops/linalg` run on one matrix of a
//! batch. A matrix is a row-major slice; the loops go along rows.
//!
//! They are ours because no crate fits: `faer` is quick and right, but adds more than two minutes of
//! processor time to a build, and the smaller `nalgebra` gives wrong factors for some singular
//! matrices. What is here is the textbook's: Golub and Van Loan, "Matrix Computations", chapters 3, 4,
//! 5, 7 and 8.

mod cholesky;
mod eig;
mod eigh;
mod ldl;
mod lu;
mod qr;
mod svd;
mod triangular;

pub use cholesky::cholesky;
pub use eig::{Eig, eig};
pub use eigh::eigh;
pub use ldl::{ldl, solve_ldl};
pub use lu::lu;
pub use qr::{qr, qr_factors};
pub use svd::{Svd, Vectors, svd};
pub use triangular::solve_triangular;

use crate::numbers::float::simd_fn;

simd_fn! {
    /// `sum_i x_i y_i`.
    fn dot<T, FMA>(x: &[T], y: &[T]) -> T {
        let mut sums = [T::ZERO; 16];
        let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<16>(), y.as_chunks::<16>());
        for (x, y) in xs.iter().zip(ys) {
            for i in 0..16 {
                sums[i] = x[i].fma::<FMA>(y[i], sums[i]);
            }
        }
        let mut total = T::ZERO;
        for (&x, &y) in x_rest.iter().zip(y_rest) {
            total = x.fma::<FMA>(y, total);
        }
        for sum in sums {
            total += sum;
        }
        total
    }

    /// `y += a x`.
    fn add_scaled<T, FMA>(y: &mut [T], a: T, x: &[T]) {
        for (y, &x) in y.iter_mut().zip(x) {
            *y = a.fma::<FMA>(x, *y);
        }
    }

    /// `(x, y) = (c x + s y, c y - s x)`.
    fn rotate<T, FMA>(x: &mut [T], y: &mut [T], c: T, s: T) {
        for (x, y) in x.iter_mut().zip(y) {
            (*x, *y) = (c.fma::<FMA>(*x, s * *y), c.fma::<FMA>(*y, -(s * *x)));
        }
    }
}

/// Two rows of a matrix with `n` columns; `i` is below `j`.
fn two_rows(a: &mut [f64], n: usize, i: usize, j: usize) -> (&mut [f64], &mut [f64]) {
    let (head, tail) = a.split_at_mut(j * n);
    (&mut head[i * n..][..n], &mut tail[..n])
}

/// A row-major `m x n` matrix as an `n x m` one.
pub fn transpose(a: &[f64], m: usize, n: usize) -> Vec<f64> {
    (0..n).flat_map(|j| (0..m).map(move |i| a[i * n + j])).collect()
}

/// Ones on the diagonal of zeros.
pub fn identity(n: usize) -> Vec<f64> {
    let mut eye = vec![0.0; n * n];
    eye.iter_mut().step_by(n + 1).for_each(|x| *x = 1.0);
    eye
}

/// The largest magnitude, by which matrices are divided so that squares neither overflow nor vanish;
/// 1 for a matrix of zeros.
fn scale_of(a: &[f64]) -> f64 {
    match a.iter().fold(0.0f64, |largest, x| largest.max(x.abs())) {
        0.0 => 1.0,
        largest => largest,
    }
}
