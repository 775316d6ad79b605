//! `A = Q R` by Householder's reflections, with LAPACK's signs: a reflection maps a column x to
//! `-sign(x_0) |x|`, and one that has nothing to do is left out.

use super::add_scaled;

/// `I - tau v v^T`, with `v[0] = 1`.
pub struct Reflection {
    pub v: Vec<f64>,
    pub tau: f64,
    /// What `x[0]` becomes; the rest of x becomes 0.
    pub beta: f64,
}

impl Reflection {
    /// The reflection that maps `x` to a multiple of the first unit vector.
    pub fn of(mut x: Vec<f64>) -> Self {
        let alpha = x[0];
        if x[1..].iter().all(|&x| x == 0.0) {
            x[0] = 1.0;
            return Reflection { v: x, tau: 0.0, beta: alpha };
        }
        let scale = x.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        let norm = scale * x.iter().map(|x| (x / scale) * (x / scale)).sum::<f64>().sqrt();
        let beta = -norm.copysign(alpha);
        let below = alpha - beta;
        x[1..].iter_mut().for_each(|x| *x /= below);
        x[0] = 1.0;
        Reflection { v: x, tau: (beta - alpha) / beta, beta }
    }

    /// Applies it to rows `first..` and columns `from..` of a matrix with `n` columns.
    pub fn apply(&self, a: &mut [f64], n: usize, first: usize, from: usize) {
        if self.tau == 0.0 {
            return;
        }
        let mut product = vec![0.0; n - from];
        for (&v, row) in self.v.iter().zip(a[first * n..].chunks_exact(n)) {
            add_scaled(&mut product, v, &row[from..]);
        }
        for (&v, row) in self.v.iter().zip(a[first * n..].chunks_exact_mut(n)) {
            add_scaled(&mut row[from..], -self.tau * v, &product);
        }
    }
}

/// Factors the `m x n` matrix `a`: R is left in its upper trapezoid, zeros below. The result is the
/// first `columns` columns of Q, `m x columns`; at least `min(m, n)` or none.
pub fn qr(a: &mut [f64], m: usize, n: usize, columns: usize) -> Vec<f64> {
    let mut reflections = Vec::new();
    for k in 0..m.min(n) {
        let reflection = Reflection::of((k..m).map(|i| a[i * n + k]).collect());
        reflection.apply(a, n, k, k + 1);
        a[k * n + k] = reflection.beta;
        (k + 1..m).for_each(|i| a[i * n + k] = 0.0);
        reflections.push(reflection);
    }
    let mut q = vec![0.0; m * columns];
    q.iter_mut().step_by(columns + 1).take(columns).for_each(|x| *x = 1.0);
    if columns > 0 {
        for (k, reflection) in reflections.iter().enumerate().rev() {
            reflection.apply(&mut q, columns, k, k);
        }
    }
    q
}

/// Factors the `m x n` matrix `a` and leaves the reflections in it: R in the upper trapezoid, below the diagonal what each
/// vector has behind its leading 1. `taus` are the reflections' factors.
pub fn qr_factors(a: &mut [f64], m: usize, n: usize, taus: &mut [f64]) {
    for (k, tau) in taus.iter_mut().enumerate().take(m.min(n)) {
        let reflection = Reflection::of((k..m).map(|i| a[i * n + k]).collect());
        reflection.apply(a, n, k, k + 1);
        a[k * n + k] = reflection.beta;
        (k + 1..m).for_each(|i| a[i * n + k] = reflection.v[i - k]);
        *tau = reflection.tau;
    }
}
