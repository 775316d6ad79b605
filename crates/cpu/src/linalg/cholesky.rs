//! `A = L L^T`, row by row.

use super::dot;

/// Factors the symmetric `n x n` matrix `a` in place, of which only the lower triangle is read; above
/// L is zero. The result is 0, or the order of the first leading minor that is not positive definite:
/// then only the rows before are factored.
pub fn cholesky(a: &mut [f64], n: usize) -> usize {
    let mut info = 0;
    for i in 0..n {
        let (done, rest) = a.split_at_mut(i * n);
        let row = &mut rest[..n];
        row[i + 1..].fill(0.0);
        if info > 0 {
            continue;
        }
        for (j, above) in done.chunks_exact(n).enumerate() {
            row[j] = (row[j] - dot(&row[..j], &above[..j])) / above[j];
        }
        let square = row[i] - dot(&row[..i], &row[..i]);
        // False for NaN too.
        if square > 0.0 {
            row[i] = square.sqrt();
        } else {
            info = i + 1;
        }
    }
    info
}
