//! Eigenvalues and eigenvectors of symmetric matrices: `A = Q T Q^T` with T tridiagonal by
//! reflections, then implicit QR steps with Wilkinson's shift, which make T diagonal.

use super::qr::Reflection;
use super::{add_scaled, dot, identity, rotate, scale_of, transpose, two_rows};

/// Steps per eigenvalue; two or three are usual.
const MOST_STEPS: usize = 60;

/// Eigenvalues in rising order and, if `vectors`, the eigenvectors as rows (else nothing) of the
/// symmetric `n x n` matrix `a`, whose two triangles must agree. `None` if the steps do not converge.
/// A matrix that holds NaN or infinity has eigenvalues and vectors of NaN.
pub fn eigh(mut a: Vec<f64>, n: usize, vectors: bool) -> Option<(Vec<f64>, Vec<f64>)> {
    let rows = if vectors { n } else { 0 };
    if !a.iter().all(|x| x.is_finite()) {
        return Some((vec![f64::NAN; n], vec![f64::NAN; rows * n]));
    }
    let scale = scale_of(&a);
    a.iter_mut().for_each(|x| *x /= scale);
    let (mut d, mut e, reflections) = tridiagonal(&mut a, n);
    let mut q = identity(rows);
    if vectors {
        for (k, reflection) in reflections.iter().enumerate().rev() {
            reflection.apply(&mut q, n, k + 1, k + 1);
        }
        // Its rows are what the steps rotate.
        q = transpose(&q, n, n);
    }
    diagonalise(&mut d, &mut e, &mut q, n)?;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| d[i].total_cmp(&d[j]));
    let values = order.iter().map(|&i| d[i] * scale).collect();
    let sorted = order.iter().flat_map(|&i| q.get(i * n..(i + 1) * n).unwrap_or(&[]));
    Some((values, sorted.copied().collect()))
}

/// The diagonal and the one beside it, and the reflections: number k acts on rows from k + 1 on.
fn tridiagonal(a: &mut [f64], n: usize) -> (Vec<f64>, Vec<f64>, Vec<Reflection>) {
    let mut reflections = Vec::new();
    let mut e = Vec::new();
    for k in 0..n.saturating_sub(1) {
        // The matrix is symmetric: a row for a column.
        let reflection = Reflection::of(a[k * n + k + 1..(k + 1) * n].to_vec());
        e.push(reflection.beta);
        let (v, tau) = (&reflection.v, reflection.tau);
        if tau != 0.0 {
            let rows = a[(k + 1) * n..].chunks_exact(n);
            let mut w: Vec<f64> = rows.map(|row| tau * dot(&row[k + 1..], v)).collect();
            let half = -0.5 * tau * dot(&w, v);
            add_scaled(&mut w, half, v);
            for (i, row) in a[(k + 1) * n..].chunks_exact_mut(n).enumerate() {
                add_scaled(&mut row[k + 1..], -v[i], &w);
                add_scaled(&mut row[k + 1..], -w[i], v);
            }
        }
        reflections.push(reflection);
    }
    ((0..n).map(|i| a[i * n + i]).collect(), e, reflections)
}

/// Makes the tridiagonal matrix diagonal; what is done to its rows is done to those of `q`, if that
/// has any.
fn diagonalise(d: &mut [f64], e: &mut [f64], q: &mut [f64], n: usize) -> Option<()> {
    let small = |d: &[f64], e: &[f64], i: usize| {
        e[i].abs() <= f64::EPSILON * (d[i].abs() + d[i + 1].abs()) + f64::MIN_POSITIVE
    };
    let mut steps = 0;
    let mut high = n.saturating_sub(1);
    while high > 0 {
        if small(d, e, high - 1) {
            high -= 1;
            continue;
        }
        let low = (0..high - 1).rev().find(|&i| small(d, e, i)).map_or(0, |i| i + 1);
        steps += 1;
        if steps > MOST_STEPS * n {
            return None;
        }
        step(d, e, q, n, low, high);
    }
    Some(())
}

/// One step on rows `low..=high`: the first rotation is that of the shifted matrix, the others chase
/// the element that it leaves outside of the three diagonals.
fn step(d: &mut [f64], e: &mut [f64], q: &mut [f64], n: usize, low: usize, high: usize) {
    let (last, beside) = (d[high], e[high - 1]);
    let half = (d[high - 1] - last) / 2.0;
    let shift = last - beside * beside / (half + half.hypot(beside).copysign(half));
    let (mut x, mut z) = (d[low] - shift, e[low]);
    for k in low..high {
        let r = x.hypot(z);
        let (c, s) = if r == 0.0 { (1.0, 0.0) } else { (x / r, z / r) };
        if k > low {
            e[k - 1] = r;
        }
        let (a, b, g) = (d[k], e[k], d[k + 1]);
        d[k] = c * c * a + 2.0 * c * s * b + s * s * g;
        d[k + 1] = s * s * a - 2.0 * c * s * b + c * c * g;
        e[k] = c * s * (g - a) + (c * c - s * s) * b;
        if k + 1 < high {
            x = e[k];
            z = s * e[k + 1];
            e[k + 1] *= c;
        }
        if !q.is_empty() {
            let (first, second) = two_rows(q, n, k, k + 1);
            rotate(first, second, c, s);
        }
    }
}
