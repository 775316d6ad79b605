//! Substitution.

use super::{add_scaled, dot};

/// Solves `T X = B` in place: `x` holds the `n x columns` matrix B and then X. Only the named triangle
/// of the `n x n` matrix `t` is read, and with `unit` ones in place of its diagonal. A zero on the
/// diagonal gives infinities.
pub fn solve_triangular(
    t: &[f64],
    n: usize,
    upper: bool,
    unit: bool,
    x: &mut [f64],
    columns: usize,
) {
    if columns == 0 {
        return;
    }
    for step in 0..n {
        let i = if upper { n - 1 - step } else { step };
        let row = &t[i * n..][..n];
        // The rows of X that are done, beside row i.
        let (head, tail) = x.split_at_mut((i + usize::from(upper)) * columns);
        let (done, own, known) = if upper {
            (&*tail, &mut head[i * columns..], &row[i + 1..])
        } else {
            (&*head, &mut tail[..columns], &row[..i])
        };
        if columns == 1 {
            own[0] -= dot(known, done);
        } else {
            for (&factor, done) in known.iter().zip(done.chunks_exact(columns)) {
                add_scaled(own, -factor, done);
            }
        }
        if !unit {
            own.iter_mut().for_each(|x| *x /= row[i]);
        }
    }
}
