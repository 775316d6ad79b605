//! `P A = L U` by elimination with partial pivoting.

use super::{add_scaled, two_rows};

/// Factors the `m x n` matrix `a` in place: L without its diagonal of ones below, U above. Step k
/// exchanged rows k and `pivots[k]`. The result is the number, counted from 1, of the first step whose
/// pivot was zero, or 0.
pub fn lu(a: &mut [f64], m: usize, n: usize, pivots: &mut [usize]) -> usize {
    let mut info = 0;
    for (k, pivot) in pivots.iter_mut().enumerate() {
        let mut best = k;
        for i in k + 1..m {
            if a[i * n + k].abs() > a[best * n + k].abs() {
                best = i;
            }
        }
        *pivot = best;
        if best != k {
            let (x, y) = two_rows(a, n, k, best);
            x.swap_with_slice(y);
        }
        if a[k * n + k] == 0.0 {
            info = if info == 0 { k + 1 } else { info };
            continue;
        }
        for i in k + 1..m {
            let (first, row) = two_rows(a, n, k, i);
            let factor = row[k] / first[k];
            row[k] = factor;
            if factor != 0.0 {
                add_scaled(&mut row[k + 1..], -factor, &first[k + 1..]);
            }
        }
    }
    info
}
