//! The loops of layer normalisation over dense rows. A row is read from memory once; its other passes find it
//! in the cache.

use crate::cpu::folds::moments::{BLOCK, Moments, is_beyond, lane_sums};
use crate::cpu::numbers::float::{Float, simd_fn};

simd_fn! {
    /// Normalises rows of `x`; `w` and `b` may be empty.
    pub fn forward<T, FMA>(x: &[T], w: &[T], b: &[T], eps: T, centered: bool, y: &mut [T], mean: &mut [T], scale: &mut [T]) {
        let n = x.len() / mean.len().max(1);
        for row in 0..mean.len() {
            let (x, y) = (&x[row * n..][..n], &mut y[row * n..][..n]);
            let (m, var) = if centered {
                let moments = Moments::of::<T, FMA>(x);
                (T::of(moments.mean), moments.variance())
            } else {
                (T::ZERO, mean_square::<T, FMA>(x))
            };
            let r = T::of(1.0 / (var + eps.as_f64()).sqrt());
            (mean[row], scale[row]) = (m, r);
            match (w.is_empty(), b.is_empty()) {
                (true, true) => for i in 0..n {
                    y[i] = (x[i] - m) * r;
                },
                (true, false) => {
                    let b = &b[..n];
                    for i in 0..n {
                        y[i] = (x[i] - m).fma::<FMA>(r, b[i]);
                    }
                }
                (false, true) => {
                    let w = &w[..n];
                    for i in 0..n {
                        y[i] = (x[i] - m) * r * w[i];
                    }
                }
                (false, false) => {
                    let (w, b) = (&w[..n], &b[..n]);
                    for i in 0..n {
                        y[i] = ((x[i] - m) * r).fma::<FMA>(w[i], b[i]);
                    }
                }
            }
        }
    }

    /// dx of rows, and what they add to dw and db. `w`, `dw` and `db` are empty where there is neither weight
    /// nor bias.
    pub fn backward<T, FMA>(dy: &[T], x: &[T], w: &[T], mean: &[T], scale: &[T], centered: bool, dx: &mut [T], dw: &mut [T], db: &mut [T]) {
        let n = x.len() / mean.len().max(1);
        for row in 0..mean.len() {
            let (dy, x, dx) = (&dy[row * n..][..n], &x[row * n..][..n], &mut dx[row * n..][..n]);
            let (m, r) = (mean[row], scale[row]);
            let (sum, along) = if w.is_empty() {
                sums::<T, FMA, false>(dy, x, x, m)
            } else {
                sums::<T, FMA, true>(dy, x, w, m)
            };
            let of_n = 1.0 / n as f64;
            let sum = if centered { T::of(sum * of_n) } else { T::ZERO };
            let along = T::of(along * r.as_f64() * of_n);
            if w.is_empty() {
                for i in 0..n {
                    dx[i] = (dy[i] - sum - (x[i] - m) * r * along) * r;
                }
                continue;
            }
            let (w, dw, db) = (&w[..n], &mut dw[..n], &mut db[..n]);
            for i in 0..n {
                let xh = (x[i] - m) * r;
                dx[i] = (dy[i] * w[i] - sum - xh * along) * r;
                dw[i] = dy[i].fma::<FMA>(xh, dw[i]);
                db[i] += dy[i];
            }
        }
    }
}

/// The mean of x^2.
#[inline(always)]
fn mean_square<T: Float, const FMA: bool>(x: &[T]) -> f64 {
    let mut total = 0.0;
    for start in (0..x.len()).step_by(BLOCK) {
        let n = BLOCK.min(x.len() - start);
        total += lane_sums!(T, n; s = x.fma::<FMA>(x, s); x in x[start..]);
    }
    if size_of::<T>() == 4 && is_beyond(total) {
        total = squares_in_f64(x);
    }
    total / x.len() as f64
}

/// The sum of x^2 where f32 does not hold it.
#[cold]
#[inline(never)]
fn squares_in_f64<T: Float>(x: &[T]) -> f64 {
    x.iter().map(|v| v.as_f64() * v.as_f64()).sum()
}

/// The sums of g and of g (x - m), with g = dy w, or dy without `WEIGHT`.
#[inline(always)]
fn sums<T: Float, const FMA: bool, const WEIGHT: bool>(
    dy: &[T],
    x: &[T],
    w: &[T],
    m: T,
) -> (f64, f64) {
    let (mut plain, mut along) = (0.0, 0.0);
    for start in (0..x.len()).step_by(BLOCK) {
        let n = BLOCK.min(x.len() - start);
        let (a, b) = if WEIGHT {
            lane_sums!(
                T, n;
                a = a + dy * w, b = (dy * w).fma::<FMA>(x - m, b);
                dy in dy[start..], x in x[start..], w in w[start..]
            )
        } else {
            lane_sums!(
                T, n; a = a + dy, b = dy.fma::<FMA>(x - m, b); dy in dy[start..], x in x[start..]
            )
        };
        plain += a;
        along += b;
    }
    (plain, along)
}
