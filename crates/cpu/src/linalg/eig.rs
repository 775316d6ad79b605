//! Eigenvalues and eigenvectors of matrices that need not be symmetric: Hessenberg's form by reflections, its real Schur
//! form by steps of two shifts (Francis), and vectors by substitution (Golub and Van Loan, chapter 7).

use super::qr::Reflection;

/// Eigenvalues, and as columns of an `n x n` matrix, or of none, the eigenvectors, all as real and imaginary parts.
pub struct Eig {
    /// In no order, but that conjugates are neighbours, the one with the positive imaginary part first.
    pub values: [Vec<f64>; 2],
    /// Row-major matrices; empty where none were asked for.
    pub vectors: [Vec<f64>; 2],
}

/// Steps for an eigenvalue before giving up.
const MOST_STEPS: usize = 120;

/// The eigenvalues of the finite `n x n` matrix `a`, and the vectors, of length 1, with a real largest component; nothing
/// if the steps do not converge.
pub fn eig(a: Vec<f64>, n: usize, vectors: bool) -> Option<Eig> {
    let mut schur = Schur::new(a, n);
    schur.make_hessenberg();
    schur.make_triangle()?;
    let vectors = if vectors { schur.vectors() } else { [Vec::new(), Vec::new()] };
    Some(Eig { values: [schur.real, schur.imag], vectors })
}

/// `(a + ib) / (c + id)`.
fn quotient(a: f64, b: f64, c: f64, d: f64) -> (f64, f64) {
    if c.abs() > d.abs() {
        let (r, s) = (d / c, c + d * (d / c));
        ((a + r * b) / s, (b - r * a) / s)
    } else {
        let (r, s) = (c / d, d + c * (c / d));
        ((r * a + b) / s, (r * b - a) / s)
    }
}

struct Schur {
    n: usize,
    /// The matrix on its way to a triangle with blocks of two.
    h: Vec<f64>,
    /// What it was turned by: `a = v h v^T`.
    v: Vec<f64>,
    norm: f64,
    real: Vec<f64>,
    imag: Vec<f64>,
}

impl Schur {
    fn new(h: Vec<f64>, n: usize) -> Self {
        let mut v = vec![0.0; n * n];
        v.iter_mut().step_by(n + 1).for_each(|x| *x = 1.0);
        Schur { n, h, v, norm: 0.0, real: vec![0.0; n], imag: vec![0.0; n] }
    }

    fn at(&self, i: usize, j: usize) -> f64 {
        self.h[i * self.n + j]
    }

    fn set(&mut self, i: usize, j: usize, value: f64) {
        self.h[i * self.n + j] = value;
    }

    fn make_hessenberg(&mut self) {
        let n = self.n;
        for k in 0..n.saturating_sub(2) {
            let reflection = Reflection::of((k + 1..n).map(|i| self.at(i, k)).collect());
            if reflection.tau == 0.0 {
                continue;
            }
            reflection.apply(&mut self.h, n, k + 1, k);
            for matrix in [&mut self.h, &mut self.v] {
                for row in matrix.chunks_exact_mut(n) {
                    let row = &mut row[k + 1..];
                    let sum: f64 = row.iter().zip(&reflection.v).map(|(x, v)| x * v).sum();
                    row.iter_mut()
                        .zip(&reflection.v)
                        .for_each(|(x, v)| *x -= reflection.tau * sum * v);
                }
            }
            (k + 2..n).for_each(|i| self.set(i, k, 0.0));
        }
        for i in 0..n {
            for j in i.saturating_sub(1)..n {
                self.norm += self.at(i, j).abs();
            }
        }
    }

    /// The first row of the block that ends at `end` and is apart from what is above it.
    fn start_of_block(&self, end: usize) -> usize {
        let mut l = end;
        while l > 0 {
            let size = self.at(l - 1, l - 1).abs() + self.at(l, l).abs();
            let size = if size == 0.0 { self.norm } else { size };
            // Also where all is 0.
            if self.at(l, l - 1).abs() <= f64::EPSILON * size {
                break;
            }
            l -= 1;
        }
        l
    }

    fn make_triangle(&mut self) -> Option<()> {
        let mut shifted = 0.0;
        let (mut left, mut steps) = (self.n, 0);
        while left > 0 {
            let end = left - 1;
            let l = self.start_of_block(end);
            if l == end {
                self.real[end] = self.at(end, end) + shifted;
                self.set(end, end, self.real[end]);
                (left, steps) = (left - 1, 0);
            } else if l + 1 == end {
                self.pair(end, shifted);
                (left, steps) = (left - 2, 0);
            } else {
                if steps == MOST_STEPS {
                    return None;
                }
                let shift = self.shift(l, end, steps, &mut shifted);
                self.step(l, end, shift);
                steps += 1;
            }
        }
        Some(())
    }

    /// The two values of the block that ends at `end`; real ones are made a triangle.
    fn pair(&mut self, end: usize, shifted: f64) {
        let (n, first) = (self.n, end - 1);
        let w = self.at(end, first) * self.at(first, end);
        let p = (self.at(first, first) - self.at(end, end)) / 2.0;
        let q = p * p + w;
        let mut z = q.abs().sqrt();
        self.set(end, end, self.at(end, end) + shifted);
        self.set(first, first, self.at(first, first) + shifted);
        let x = self.at(end, end);
        if q < 0.0 {
            (self.real[first], self.real[end]) = (x + p, x + p);
            (self.imag[first], self.imag[end]) = (z, -z);
            return;
        }
        z = if p >= 0.0 { p + z } else { p - z };
        self.real[first] = x + z;
        self.real[end] = if z == 0.0 { x + z } else { x - w / z };
        let x = self.at(end, first);
        let size = x.abs() + z.abs();
        let (p, q) = (x / size, z / size);
        let r = (p * p + q * q).sqrt();
        let (p, q) = (p / r, q / r);
        for j in first..n {
            let (a, b) = (self.at(first, j), self.at(end, j));
            self.set(first, j, q * a + p * b);
            self.set(end, j, q * b - p * a);
        }
        let turn = |row: &mut [f64]| {
            let (a, b) = (row[first], row[end]);
            (row[first], row[end]) = (q * a + p * b, q * b - p * a);
        };
        self.h[..(end + 1) * n].chunks_exact_mut(n).for_each(turn);
        self.v.chunks_exact_mut(n).for_each(turn);
    }

    /// The block's shifts, as `x`, `y` and `w`; unusual ones where the usual ones lead nowhere.
    fn shift(&mut self, l: usize, end: usize, steps: usize, shifted: &mut f64) -> [f64; 3] {
        let mut x = self.at(end, end);
        let mut y = self.at(end - 1, end - 1);
        let mut w = self.at(end, end - 1) * self.at(end - 1, end);
        debug_assert!(l + 1 < end);
        if steps % 20 == 10 {
            *shifted += x;
            (0..=end).for_each(|i| self.set(i, i, self.at(i, i) - x));
            let s = self.at(end, end - 1).abs() + self.at(end - 1, end - 2).abs();
            (x, y, w) = (0.75 * s, 0.75 * s, -0.4375 * s * s);
        }
        if steps % 40 == 30 {
            let s = (y - x) / 2.0;
            let root = s * s + w;
            if root > 0.0 {
                let root = if y < x { -root.sqrt() } else { root.sqrt() };
                let s = x - w / ((y - x) / 2.0 + root);
                (0..=end).for_each(|i| self.set(i, i, self.at(i, i) - s));
                *shifted += s;
                (x, y, w) = (0.964, 0.964, 0.964);
            }
        }
        [x, y, w]
    }

    /// A step of two shifts on rows `l..=end`.
    fn step(&mut self, l: usize, end: usize, [x, y, w]: [f64; 3]) {
        let n = self.n;
        // Two small elements below the diagonal in a row let the step begin there.
        let mut m = end - 2;
        let mut first;
        loop {
            let z = self.at(m, m);
            let (r, s) = (x - z, y - z);
            let p = (r * s - w) / self.at(m + 1, m) + self.at(m, m + 1);
            let q = self.at(m + 1, m + 1) - z - r - s;
            let r = self.at(m + 2, m + 1);
            let size = p.abs() + q.abs() + r.abs();
            first = [p / size, q / size, r / size];
            if m == l {
                break;
            }
            let [p, q, r] = first;
            let around = self.at(m - 1, m - 1).abs() + z.abs() + self.at(m + 1, m + 1).abs();
            if self.at(m, m - 1).abs() * (q.abs() + r.abs()) < f64::EPSILON * p.abs() * around {
                break;
            }
            m -= 1;
        }
        for i in m + 2..=end {
            self.set(i, i - 2, 0.0);
            if i > m + 2 {
                self.set(i, i - 3, 0.0);
            }
        }
        for k in m..end {
            let wide = k + 1 != end;
            let [mut p, mut q, mut r] = first;
            let mut size = 0.0;
            if k != m {
                (p, q) = (self.at(k, k - 1), self.at(k + 1, k - 1));
                r = if wide { self.at(k + 2, k - 1) } else { 0.0 };
                size = p.abs() + q.abs() + r.abs();
                if size == 0.0 {
                    continue;
                }
                (p, q, r) = (p / size, q / size, r / size);
            } else if !wide {
                r = 0.0;
            }
            let length = (p * p + q * q + r * r).sqrt();
            let s = if p < 0.0 { -length } else { length };
            if s == 0.0 {
                continue;
            }
            if k != m {
                self.set(k, k - 1, -s * size);
            } else if l != m {
                self.set(k, k - 1, -self.at(k, k - 1));
            }
            p += s;
            let (x, y, z) = (p / s, q / s, r / s);
            (q, r) = (q / p, r / p);
            for j in k..n {
                let mut sum = self.at(k, j) + q * self.at(k + 1, j);
                if wide {
                    sum += r * self.at(k + 2, j);
                    self.set(k + 2, j, self.at(k + 2, j) - sum * z);
                }
                self.set(k, j, self.at(k, j) - sum * x);
                self.set(k + 1, j, self.at(k + 1, j) - sum * y);
            }
            let turn = |row: &mut [f64]| {
                let mut sum = x * row[k] + y * row[k + 1];
                if wide {
                    sum += z * row[k + 2];
                    row[k + 2] -= sum * r;
                }
                row[k] -= sum;
                row[k + 1] -= sum * q;
            };
            let rows = end.min(k + 3) + 1;
            self.h[..rows * n].chunks_exact_mut(n).for_each(turn);
            self.v.chunks_exact_mut(n).for_each(turn);
        }
    }

    /// The vectors of the triangle by substitution, turned back, of length 1.
    fn vectors(&mut self) -> [Vec<f64>; 2] {
        let n = self.n;
        if self.norm != 0.0 {
            for end in (0..n).rev() {
                if self.imag[end] == 0.0 {
                    self.real_vector(end);
                } else if self.imag[end] < 0.0 {
                    self.complex_vector(end);
                }
            }
        } else {
            self.h.iter_mut().for_each(|x| *x = 0.0);
            self.h.iter_mut().step_by(n + 1).for_each(|x| *x = 1.0);
        }
        let (mut re, mut im) = (vec![0.0; n * n], vec![0.0; n * n]);
        for i in 0..n {
            for j in 0..n {
                re[i * n + j] = (0..=j).map(|k| self.v[i * n + k] * self.at(k, j)).sum();
            }
        }
        for j in 0..n {
            if self.imag[j] > 0.0 {
                // Of a pair the first column is the real part, the second one the imaginary part.
                for i in 0..n {
                    let part = re[i * n + j + 1];
                    (im[i * n + j], im[i * n + j + 1]) = (part, -part);
                    re[i * n + j + 1] = re[i * n + j];
                }
            }
        }
        (0..n).for_each(|j| normalise(&mut re, &mut im, n, j));
        [re, im]
    }

    fn real_vector(&mut self, end: usize) {
        let (p, mut l, mut z, mut s) = (self.real[end], end, 0.0, 0.0);
        self.set(end, end, 1.0);
        for i in (0..end).rev() {
            let w = self.at(i, i) - p;
            let r: f64 = (l..=end).map(|j| self.at(i, j) * self.at(j, end)).sum();
            if self.imag[i] < 0.0 {
                (z, s) = (w, r);
                continue;
            }
            l = i;
            if self.imag[i] == 0.0 {
                let below = if w == 0.0 { f64::EPSILON * self.norm } else { w };
                self.set(i, end, -r / below);
            } else {
                let (x, y) = (self.at(i, i + 1), self.at(i + 1, i));
                let q = (self.real[i] - p).powi(2) + self.imag[i] * self.imag[i];
                let t = (x * s - z * r) / q;
                self.set(i, end, t);
                let next = if x.abs() > z.abs() { (-r - w * t) / x } else { (-s - y * t) / z };
                self.set(i + 1, end, next);
            }
            self.keep_in_range(self.at(i, end).abs(), i, &[end], end);
        }
    }

    fn complex_vector(&mut self, end: usize) {
        let (p, q, first) = (self.real[end], self.imag[end], end - 1);
        let (mut l, mut z, mut r, mut s) = (first, 0.0, 0.0, 0.0);
        let (re, im) = if self.at(end, first).abs() > self.at(first, end).abs() {
            let below = self.at(end, first);
            (q / below, -(self.at(end, end) - p) / below)
        } else {
            quotient(0.0, -self.at(first, end), self.at(first, first) - p, q)
        };
        self.set(first, first, re);
        self.set(first, end, im);
        self.set(end, first, 0.0);
        self.set(end, end, 1.0);
        for i in (0..first).rev() {
            let sum = |column: usize| -> f64 {
                (l..=end).map(|j| self.at(i, j) * self.at(j, column)).sum()
            };
            let (ra, sa) = (sum(first), sum(end));
            let w = self.at(i, i) - p;
            if self.imag[i] < 0.0 {
                (z, r, s) = (w, ra, sa);
                continue;
            }
            l = i;
            if self.imag[i] == 0.0 {
                let (re, im) = quotient(-ra, -sa, w, q);
                self.set(i, first, re);
                self.set(i, end, im);
            } else {
                let (x, y) = (self.at(i, i + 1), self.at(i + 1, i));
                let apart = self.real[i] - p;
                let mut vr = apart * apart + self.imag[i] * self.imag[i] - q * q;
                let vi = apart * 2.0 * q;
                if vr == 0.0 && vi == 0.0 {
                    let size = w.abs() + q.abs() + x.abs() + y.abs() + z.abs();
                    vr = f64::EPSILON * self.norm * size;
                }
                let (re, im) = quotient(x * r - z * ra + q * sa, x * s - z * sa - q * ra, vr, vi);
                self.set(i, first, re);
                self.set(i, end, im);
                let (re, im) = if x.abs() > z.abs() + q.abs() {
                    ((-ra - w * re + q * im) / x, (-sa - w * im - q * re) / x)
                } else {
                    quotient(-r - y * re, -s - y * im, z, q)
                };
                self.set(i + 1, first, re);
                self.set(i + 1, end, im);
            }
            let size = self.at(i, first).abs().max(self.at(i, end).abs());
            self.keep_in_range(size, i, &[first, end], end);
        }
    }

    /// Divides columns from row `from` on by `size` where its square is near the largest number.
    fn keep_in_range(&mut self, size: f64, from: usize, columns: &[usize], end: usize) {
        if f64::EPSILON * size * size > 1.0 {
            for i in from..=end {
                for &j in columns {
                    self.set(i, j, self.at(i, j) / size);
                }
            }
        }
    }
}

/// Gives column `j` length 1, and turns it so that its largest component is real.
fn normalise(re: &mut [f64], im: &mut [f64], n: usize, j: usize) {
    let at = |i: usize| i * n + j;
    let most = (0..n).fold(0.0f64, |m, i| m.max(re[at(i)].abs()).max(im[at(i)].abs()));
    if most == 0.0 {
        return;
    }
    for i in 0..n {
        re[at(i)] /= most;
        im[at(i)] /= most;
    }
    let size = |re: &[f64], im: &[f64], i: usize| re[at(i)].powi(2) + im[at(i)].powi(2);
    let length = (0..n).map(|i| size(re, im, i)).sum::<f64>().sqrt();
    let complex = (0..n).any(|i| im[at(i)] != 0.0);
    let (mut c, mut s) = (1.0, 0.0);
    let mut largest = 0;
    if complex {
        for i in 1..n {
            if size(re, im, i) > size(re, im, largest) {
                largest = i;
            }
        }
        let own = size(re, im, largest).sqrt();
        (c, s) = (re[at(largest)] / own, -im[at(largest)] / own);
    }
    for i in 0..n {
        let (a, b) = (re[at(i)], im[at(i)]);
        re[at(i)] = (a * c - b * s) / length;
        im[at(i)] = if complex && i == largest { 0.0 } else { (a * s + b * c) / length };
    }
}
