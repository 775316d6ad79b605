//! Singular values by one-sided Jacobi rotations, which find small ones with high relative accuracy
//! and need no care for singular matrices. The matrix is first made square: `A = Q R`; then rotations
//! J make the rows of R orthogonal: `J R = S V^T`, so `A = (Q J^T) S V^T`.

use super::qr::qr;
use super::{dot, identity, rotate, scale_of, transpose, two_rows};
use crate::cpu::float::simd_fn;

/// Sweeps over all pairs of rows; fewer than ten are usual.
const MOST_SWEEPS: usize = 60;
/// Squared lengths of rows (of a matrix whose largest element is about 1) that count as zero: their
/// directions are lost.
const NOTHING: f64 = 1e-280;

/// U, S and V^T of a matrix.
pub struct Svd {
    /// `m x m` if full, else `m x min(m, n)`; nothing if only values were asked for.
    pub u: Vec<f64>,
    /// In falling order.
    pub s: Vec<f64>,
    /// `n x n` if full, else `min(m, n) x n`; nothing if only values were asked for.
    pub vt: Vec<f64>,
}

/// What to compute besides the values.
#[derive(Clone, Copy, PartialEq)]
pub enum Vectors {
    None,
    /// As many as there are singular values.
    Reduced,
    /// Square matrices.
    Full,
}

/// The decomposition of the `m x n` matrix `a`, all of whose elements are finite. `None` if the
/// sweeps do not converge.
pub fn svd(a: &[f64], m: usize, n: usize, vectors: Vectors) -> Option<Svd> {
    if m >= n {
        return tall(a.to_vec(), m, n, vectors);
    }
    let Svd { u, s, vt } = tall(transpose(a, m, n), n, m, vectors)?;
    let columns = if vectors == Vectors::Full { n } else { m };
    let transposed = |x: Vec<f64>, rows, columns| match vectors {
        Vectors::None => x,
        _ => transpose(&x, rows, columns),
    };
    Some(Svd { u: transposed(vt, m, m), s, vt: transposed(u, n, columns) })
}

fn tall(mut a: Vec<f64>, m: usize, n: usize, vectors: Vectors) -> Option<Svd> {
    let scale = scale_of(&a);
    a.iter_mut().for_each(|x| *x /= scale);
    let columns = match vectors {
        Vectors::None => 0,
        Vectors::Reduced => n,
        Vectors::Full => m,
    };
    let q = qr(&mut a, m, n, columns);
    a.truncate(n * n);
    let mut j = identity(if vectors == Vectors::None { 0 } else { n });
    orthogonalise(&mut a, &mut j, n)?;
    let squares: Vec<f64> = a.chunks_exact(n.max(1)).map(|row| dot(row, row)).collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&x, &y| squares[y].total_cmp(&squares[x]));
    let s = order.iter().map(|&i| squares[i].sqrt() * scale).collect();
    if vectors == Vectors::None {
        return Some(Svd { u: Vec::new(), s, vt: Vec::new() });
    }
    let rank = order.iter().take_while(|&&i| squares[i] > NOTHING).count();
    let mut vt = Vec::with_capacity(n * n);
    for &i in &order[..rank] {
        let length = squares[i].sqrt();
        vt.extend(a[i * n..(i + 1) * n].iter().map(|x| x / length));
    }
    complete(&mut vt, n, rank);
    let mut u = Vec::with_capacity(m * columns);
    for row in q.chunks_exact(columns.max(1)) {
        u.extend(order.iter().map(|&i| dot(&row[..n], &j[i * n..(i + 1) * n])));
        u.extend(&row[n..]);
    }
    Some(Svd { u, s, vt })
}

/// Extends `rank` orthonormal rows of length `n` to `n` of them.
fn complete(rows: &mut Vec<f64>, n: usize, rank: usize) {
    if rank == n {
        return;
    }
    let q = qr(&mut transpose(rows, rank, n), n, rank, n);
    rows.extend((rank..n).flat_map(|j| (0..n).map(move |i| (i, j))).map(|(i, j)| q[i * n + j]));
}

/// Rotates pairs of rows of the `n x n` matrix `a`, and those of `j` likewise, until all are
/// orthogonal to each other.
fn orthogonalise(a: &mut [f64], j: &mut [f64], n: usize) -> Option<()> {
    let tolerance = f64::EPSILON * (n as f64).sqrt();
    for _ in 0..MOST_SWEEPS {
        let mut rotated = false;
        for p in 0..n {
            for q in p + 1..n {
                let (x, y) = two_rows(a, n, p, q);
                let [xx, yy, xy] = products(x, y);
                if xy.abs() <= tolerance * (xx * yy).sqrt() || xx < NOTHING || yy < NOTHING {
                    continue;
                }
                rotated = true;
                // The smaller root of t^2 + 2 zeta t - 1.
                let zeta = (xx - yy) / (2.0 * xy);
                let t = zeta.signum() / (zeta.abs() + zeta.hypot(1.0));
                let c = 1.0 / t.hypot(1.0);
                rotate(x, y, c, c * t);
                if !j.is_empty() {
                    let (x, y) = two_rows(j, n, p, q);
                    rotate(x, y, c, c * t);
                }
            }
        }
        if !rotated {
            return Some(());
        }
    }
    None
}

simd_fn! {
    /// `x . x`, `y . y` and `x . y`.
    fn products<T, FMA>(x: &[T], y: &[T]) -> [T; 3] {
        let mut sums = [[T::ZERO; 8]; 3];
        let ((xs, x_rest), (ys, y_rest)) = (x.as_chunks::<8>(), y.as_chunks::<8>());
        for (x, y) in xs.iter().zip(ys) {
            for i in 0..8 {
                sums[0][i] = x[i].fma::<FMA>(x[i], sums[0][i]);
                sums[1][i] = y[i].fma::<FMA>(y[i], sums[1][i]);
                sums[2][i] = x[i].fma::<FMA>(y[i], sums[2][i]);
            }
        }
        for (&x, &y) in x_rest.iter().zip(y_rest) {
            sums[0][0] = x.fma::<FMA>(x, sums[0][0]);
            sums[1][0] = y.fma::<FMA>(y, sums[1][0]);
            sums[2][0] = x.fma::<FMA>(y, sums[2][0]);
        }
        let mut totals = [T::ZERO; 3];
        for (total, sums) in totals.iter_mut().zip(sums) {
            for sum in sums {
                *total += sum;
            }
        }
        totals
    }
}
