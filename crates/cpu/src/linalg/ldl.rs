//! `A = L D L^T` of symmetric matrices by Bunch and Kaufman's pivots: D has blocks of one and of two rows (Golub and Van
//! Loan, chapter 4).

/// What the largest element of a column may be beyond the diagonal's before rows are exchanged.
const ALPHA: f64 = 0.640_388_203_202_208;

/// The place of the largest of `places` by magnitude, and its magnitude.
fn largest(places: impl Iterator<Item = usize>, at: impl Fn(usize) -> f64) -> (usize, f64) {
    places.fold(
        (0, -1.0),
        |(i, most), j| if at(j).abs() > most { (j, at(j).abs()) } else { (i, most) },
    )
}

/// Factors the lower triangle of the `n x n` matrix `a` in place. `pivots` are LAPACK's, counted from 1: of a block of one
/// row the row it was exchanged with, of a block of two both times minus the row that its second was exchanged with. The
/// result is the number, counted from 1, of the first block of D that is zero, or 0.
pub fn ldl(a: &mut [f64], n: usize, pivots: &mut [i64]) -> usize {
    let (mut k, mut info) = (0, 0);
    while k < n {
        let own = a[k * n + k].abs();
        let (row, most) = largest(k + 1..n, |i| a[i * n + k]);
        let (mut pivot, mut both) = (k, false);
        if own.max(most) == 0.0 || own.is_nan() {
            if info == 0 {
                info = k + 1;
            }
            pivots[k] = k as i64 + 1;
            k += 1;
            continue;
        }
        if own < ALPHA * most {
            let beside = largest(k..row, |j| a[row * n + j]).1;
            let beside = beside.max(largest(row + 1..n, |i| a[i * n + row]).1);
            if own < ALPHA * most * (most / beside) {
                pivot = row;
                both = a[row * n + row].abs() < ALPHA * beside;
            }
        }
        let second = k + usize::from(both);
        if pivot != second {
            exchange(a, n, second, pivot);
            if both {
                a.swap((k + 1) * n + k, pivot * n + k);
            }
        }
        if both {
            eliminate_two(a, n, k);
            (pivots[k], pivots[k + 1]) = (-(pivot as i64) - 1, -(pivot as i64) - 1);
            k += 2;
        } else {
            eliminate_one(a, n, k);
            pivots[k] = pivot as i64 + 1;
            k += 1;
        }
    }
    info
}

/// Exchanges rows and columns `k` and `pivot`, from column `k` on, of a lower triangle.
fn exchange(a: &mut [f64], n: usize, k: usize, pivot: usize) {
    (pivot + 1..n).for_each(|i| a.swap(i * n + k, i * n + pivot));
    (k + 1..pivot).for_each(|i| a.swap(i * n + k, pivot * n + i));
    a.swap(k * n + k, pivot * n + pivot);
}

fn eliminate_one(a: &mut [f64], n: usize, k: usize) {
    let diagonal = a[k * n + k];
    for j in k + 1..n {
        let factor = a[j * n + k] / diagonal;
        for i in j..n {
            a[i * n + j] -= a[i * n + k] * factor;
        }
    }
    (k + 1..n).for_each(|i| a[i * n + k] /= diagonal);
}

fn eliminate_two(a: &mut [f64], n: usize, k: usize) {
    let off = a[(k + 1) * n + k];
    let (d1, d2) = (a[(k + 1) * n + k + 1] / off, a[k * n + k] / off);
    let scale = 1.0 / ((d1 * d2 - 1.0) * off);
    for j in k + 2..n {
        let (x, y) = (a[j * n + k], a[j * n + k + 1]);
        let (first, second) = (scale * (d1 * x - y), scale * (d2 * y - x));
        for i in j..n {
            a[i * n + j] -= a[i * n + k] * first + a[i * n + k + 1] * second;
        }
        (a[j * n + k], a[j * n + k + 1]) = (first, second);
    }
}

/// Solves for the `n x columns` matrix `x` in place, with the factors and pivots that [`ldl`] gave. A pivot that is no row
/// gives `false`.
pub fn solve_ldl(a: &[f64], n: usize, pivots: &[i64], x: &mut [f64], columns: usize) -> bool {
    let row = |k: usize| pivots[k].unsigned_abs() as usize;
    if (0..n).any(|k| row(k) == 0 || row(k) > n) {
        return false;
    }
    let mut k = 0;
    while k < n {
        let both = pivots[k] < 0;
        let second = k + usize::from(both);
        if second >= n {
            return false;
        }
        swap_rows(x, columns, second, row(k) - 1);
        for j in k..=second {
            (second + 1..n).for_each(|i| subtract(x, columns, i, j, a[i * n + j]));
        }
        if both {
            let off = a[(k + 1) * n + k];
            let (d1, d2) = (a[k * n + k] / off, a[(k + 1) * n + k + 1] / off);
            let below = d1 * d2 - 1.0;
            for c in 0..columns {
                let (p, q) = (x[k * columns + c] / off, x[(k + 1) * columns + c] / off);
                x[k * columns + c] = (d2 * p - q) / below;
                x[(k + 1) * columns + c] = (d1 * q - p) / below;
            }
        } else {
            x[k * columns..(k + 1) * columns].iter_mut().for_each(|x| *x /= a[k * n + k]);
        }
        k = second + 1;
    }
    let mut left = n;
    while left > 0 {
        let second = left - 1;
        let first = if pivots[second] < 0 { second.saturating_sub(1) } else { second };
        for j in first..=second {
            (second + 1..n).for_each(|i| subtract(x, columns, j, i, a[i * n + j]));
        }
        swap_rows(x, columns, second, row(second) - 1);
        left = first;
    }
    true
}

/// Row `i` less `factor` times row `j`.
fn subtract(x: &mut [f64], columns: usize, i: usize, j: usize, factor: f64) {
    for c in 0..columns {
        x[i * columns + c] -= factor * x[j * columns + c];
    }
}

fn swap_rows(x: &mut [f64], columns: usize, i: usize, j: usize) {
    (0..columns).for_each(|c| x.swap(i * columns + c, j * columns + c));
}
