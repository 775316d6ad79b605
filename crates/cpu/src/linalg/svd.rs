//! Singular values. A tall matrix is first made square, `A = Q R`; then `A = U B V^T` with B bidiagonal
//! by reflections from both sides, and implicit QR steps on `B^T B`, with Wilkinson's shift, make B
//! diagonal.

use super::qr::{Reflection, qr};
use super::{add_scaled, dot, identity, rotate, scale_of, transpose, two_rows};

/// Steps per singular value; two or three are usual.
const MOST_STEPS: usize = 60;

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
    /// Nothing.
    None,
    /// As many as there are singular values.
    Reduced,
    /// Square matrices.
    Full,
}

/// The decomposition of the `m x n` matrix `a`, all of whose elements are finite. `None` if the steps
/// do not converge.
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
    let q = (m > n).then(|| qr(&mut a, m, n, columns));
    a.truncate(n * n);
    let mut b = Bidiagonal::of(a, n, vectors != Vectors::None);
    b.diagonalise()?;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| b.d[j].abs().total_cmp(&b.d[i].abs()));
    let s = order.iter().map(|&i| b.d[i].abs() * scale).collect();
    if vectors == Vectors::None {
        return Some(Svd { u: Vec::new(), s, vt: Vec::new() });
    }
    let row = |x: &[f64], i: usize, sign: f64| -> Vec<f64> {
        x[i * n..(i + 1) * n].iter().map(|x| x * sign).collect()
    };
    let vt = order.iter().flat_map(|&i| row(&b.vt, i, 1f64.copysign(b.d[i]))).collect();
    let ut: Vec<f64> = order.iter().flat_map(|&i| row(&b.ut, i, 1.0)).collect();
    let Some(q) = q else { return Some(Svd { u: transpose(&ut, n, n), s, vt }) };
    let mut u = Vec::with_capacity(m * columns);
    for row in q.chunks_exact(columns.max(1)) {
        u.extend(ut.chunks_exact(n.max(1)).map(|column| dot(&row[..n], column)));
        u.extend(&row[n..]);
    }
    Some(Svd { u, s, vt })
}

/// `U B V^T` with the upper bidiagonal B.
struct Bidiagonal {
    n: usize,
    d: Vec<f64>,
    /// Above the diagonal.
    e: Vec<f64>,
    /// U^T and V^T, if wanted; else empty.
    ut: Vec<f64>,
    vt: Vec<f64>,
}

impl Bidiagonal {
    fn of(mut a: Vec<f64>, n: usize, vectors: bool) -> Self {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        let (mut d, mut e) = (Vec::new(), Vec::new());
        for k in 0..n {
            let reflection = Reflection::of((k..n).map(|i| a[i * n + k]).collect());
            reflection.apply(&mut a, n, k, k + 1);
            d.push(reflection.beta);
            left.push(reflection);
            if k + 1 == n {
                break;
            }
            let reflection = Reflection::of(a[k * n + k + 1..(k + 1) * n].to_vec());
            for row in a[(k + 1) * n..].chunks_exact_mut(n) {
                let along = -reflection.tau * dot(&row[k + 1..], &reflection.v);
                add_scaled(&mut row[k + 1..], along, &reflection.v);
            }
            e.push(reflection.beta);
            right.push(reflection);
        }
        let product = |reflections: &[Reflection], first: usize| {
            let mut q = identity(if vectors { n } else { 0 });
            if vectors {
                for (k, reflection) in reflections.iter().enumerate().rev() {
                    reflection.apply(&mut q, n, k + first, k + first);
                }
                q = transpose(&q, n, n);
            }
            q
        };
        Bidiagonal { n, d, e, ut: product(&left, 0), vt: product(&right, 1) }
    }

    fn diagonalise(&mut self) -> Option<()> {
        let largest = self.d.iter().chain(&self.e).fold(0.0f64, |m, x| m.max(x.abs()));
        let nothing = f64::EPSILON * largest;
        let mut steps = 0;
        let mut high = self.n.saturating_sub(1);
        while high > 0 {
            if self.splits(high - 1) {
                self.e[high - 1] = 0.0;
                high -= 1;
                continue;
            }
            let low = (0..high - 1).rev().find(|&i| self.splits(i)).map_or(0, |i| i + 1);
            if self.d[high].abs() <= nothing {
                self.d[high] = 0.0;
                self.clear_column(low, high);
            } else if let Some(i) = (low..high).find(|&i| self.d[i].abs() <= nothing) {
                self.d[i] = 0.0;
                self.clear_row(i, high);
            } else {
                steps += 1;
                if steps > MOST_STEPS * self.n {
                    return None;
                }
                self.step(low, high);
            }
        }
        Some(())
    }

    /// True where the element above the diagonal is as good as zero.
    fn splits(&self, i: usize) -> bool {
        let beside = self.d[i].abs() + self.d[i + 1].abs();
        self.e[i].abs() <= f64::EPSILON * beside + f64::MIN_POSITIVE
    }

    /// `(x_i, x_j) = (c x_i + s x_j, c x_j - s x_i)` on rows of U^T or V^T.
    fn turn(x: &mut [f64], n: usize, i: usize, j: usize, (c, s): (f64, f64)) {
        if x.is_empty() {
            return;
        }
        if i < j {
            let (first, second) = two_rows(x, n, i, j);
            rotate(first, second, c, s);
        } else {
            let (first, second) = two_rows(x, n, j, i);
            rotate(second, first, c, s);
        }
    }

    /// With `d[i]` 0, row i is made zero: its element is chased to the right.
    fn clear_row(&mut self, i: usize, high: usize) {
        let mut out = std::mem::take(&mut self.e[i]);
        for k in i + 1..=high {
            let (r, c, s) = rotation(self.d[k], out);
            self.d[k] = r;
            Self::turn(&mut self.ut, self.n, k, i, (c, s));
            if k < high {
                out = -s * self.e[k];
                self.e[k] *= c;
            }
        }
    }

    /// With `d[high]` 0, its column is made zero: its element is chased up.
    fn clear_column(&mut self, low: usize, high: usize) {
        let mut out = std::mem::take(&mut self.e[high - 1]);
        for k in (low..high).rev() {
            let (r, c, s) = rotation(self.d[k], out);
            self.d[k] = r;
            Self::turn(&mut self.vt, self.n, k, high, (c, s));
            if k > low {
                out = -s * self.e[k - 1];
                self.e[k - 1] *= c;
            }
        }
    }

    /// One step on rows `low..=high`: the first rotation of columns is that of the shifted `B^T B`; the
    /// element that it leaves below the diagonal is chased out, by rows and columns in turn.
    fn step(&mut self, low: usize, high: usize) {
        let (d, e) = (&mut self.d, &mut self.e);
        let above = if high - 1 > low { e[high - 2] } else { 0.0 };
        let last = d[high] * d[high] + e[high - 1] * e[high - 1];
        let beside = d[high - 1] * e[high - 1];
        let half = (d[high - 1] * d[high - 1] + above * above - last) / 2.0;
        let shift = last - beside * beside / (half + half.hypot(beside).copysign(half));
        let (mut y, mut z) = (d[low] * d[low] - shift, d[low] * e[low]);
        for k in low..high {
            let (r, c, s) = rotation(y, z);
            if k > low {
                e[k - 1] = r;
            }
            (d[k], e[k]) = (c * d[k] + s * e[k], c * e[k] - s * d[k]);
            let below = s * d[k + 1];
            d[k + 1] *= c;
            Self::turn(&mut self.vt, self.n, k, k + 1, (c, s));
            let (r, c, s) = rotation(d[k], below);
            d[k] = r;
            (e[k], d[k + 1]) = (c * e[k] + s * d[k + 1], c * d[k + 1] - s * e[k]);
            Self::turn(&mut self.ut, self.n, k, k + 1, (c, s));
            if k + 1 < high {
                (y, z) = (e[k], s * e[k + 1]);
                e[k + 1] *= c;
            }
        }
    }
}

/// The length r of `(x, y)` and the rotation with `c x + s y = r`.
fn rotation(x: f64, y: f64) -> (f64, f64, f64) {
    let r = x.hypot(y);
    if r == 0.0 { (0.0, 1.0, 0.0) } else { (r, x / r, y / r) }
}
