//! Every factorisation multiplied out again, over sizes, shapes and matrices that are hard: graded,
//! singular, with equal values, very small and very large.

use torchrs_cpu::linalg::{
    Svd, Vectors, cholesky, eigh, identity, lu, qr, solve_triangular, svd, transpose,
};

/// Reproducible numbers in (-1, 1).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    fn matrix(&mut self, m: usize, n: usize) -> Vec<f64> {
        (0..m * n).map(|_| self.next()).collect()
    }

    fn orthogonal(&mut self, n: usize) -> Vec<f64> {
        qr(&mut self.matrix(n, n), n, n, n)
    }
}

/// `A B` of an `m x k` and a `k x n` matrix.
fn product(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    let at = |i: usize, j: usize| (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum();
    (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| at(i, j)).collect()
}

/// The largest difference.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .fold(0.0, |most, (x, y)| if (x - y).abs() <= most { most } else { (x - y).abs() })
}

/// How far the rows are from orthonormal.
fn skewness(rows: &[f64], count: usize, n: usize) -> f64 {
    distance(&product(rows, &transpose(rows, count, n), count, n, count), &identity(count))
}

fn diagonal(values: &[f64]) -> Vec<f64> {
    let n = values.len();
    (0..n * n).map(|i| if i / n == i % n { values[i / n] } else { 0.0 }).collect()
}

/// Values that make trouble, in falling order, with names.
fn spectra(n: usize) -> Vec<(&'static str, Vec<f64>)> {
    let of = |f: &dyn Fn(usize) -> f64| (0..n).map(f).collect();
    vec![
        ("graded", of(&|i| 10f64.powi(-(2 * i as i32)))),
        ("half zero", of(&|i| if i < n / 2 { (n - i) as f64 } else { 0.0 })),
        ("two values", of(&|i| if i < n / 2 { 3.0 } else { 1.0 })),
        ("cluster", of(&|i| 1.0 - i as f64 * 1e-14)),
        ("tiny", of(&|i| 1e-200 * (n - i) as f64)),
        ("huge", of(&|i| 1e200 * (n - i) as f64)),
        ("zero", of(&|_| 0.0)),
    ]
}

#[test]
fn singular_values_of_hard_matrices() {
    let mut numbers = Numbers(1);
    for n in [1, 2, 5, 20] {
        for (name, values) in spectra(n) {
            for (m, k) in [(n, n), (n + 3, n), (n, n + 4)] {
                let (u, v) = (numbers.orthogonal(m), numbers.orthogonal(k));
                let mut middle = vec![0.0; m * k];
                for (i, value) in values.iter().enumerate() {
                    middle[i * k + i] = *value;
                }
                let a = product(&product(&u, &middle, m, m, k), &v, m, k, k);
                check_svd(name, &a, m, k, Some(&values));
            }
        }
    }
}

/// Both forms, multiplied out.
fn check_svd(name: &str, a: &[f64], m: usize, n: usize, values: Option<&[f64]>) {
    let k = m.min(n);
    let only = svd(a, m, n, Vectors::None).expect("converges").s;
    for (vectors, p, q) in [(Vectors::Reduced, k, k), (Vectors::Full, m, n)] {
        let Svd { u, s, vt } = svd(a, m, n, vectors).expect("converges");
        let size = s.first().map_or(1.0, |&s| if s == 0.0 { 1.0 } else { s });
        let bound = 1e-14 * (m + n) as f64;
        let label = format!("{name}, {m} x {n} by {p}, {q}");
        assert!(s.is_sorted_by(|x, y| x >= y) && s.iter().all(|&s| s >= 0.0), "{label}: {s:?}");
        assert!(distance(&s, &only) <= bound * size, "{label}: {s:?} and {only:?}");
        if let Some(values) = values {
            assert!(distance(&s, values) <= bound * size, "{label}: {s:?} for {values:?}");
        }
        assert!(skewness(&transpose(&u, m, p), p, m) < bound, "{label}: U {u:?}");
        assert!(skewness(&vt, q, n) < bound, "{label}: V {vt:?}");
        let mut middle = vec![0.0; p * q];
        (0..k).for_each(|i| middle[i * q + i] = s[i]);
        let whole = product(&product(&u, &middle, m, p, q), &vt, m, q, n);
        assert!(distance(&whole, a) <= bound * size, "{label}: {whole:?} for {a:?}");
    }
}

/// Small whole numbers make many singular matrices, and matrices of ones the simplest.
#[test]
fn singular_values_of_small_whole_numbers() {
    let mut numbers = Numbers(2);
    for i in 0..500 {
        let (m, n) = (1 + i % 5, 1 + i / 5 % 5);
        let a: Vec<f64> = numbers.matrix(m, n).iter().map(|x| (x * 1.6).round()).collect();
        check_svd("whole", &a, m, n, None);
        check_svd("ones", &vec![1.0; m * n], m, n, None);
    }
}

#[test]
fn values_of_diagonal_matrices_are_exact() {
    let values = [1.0, 1e-3, 1e-20, 0.0];
    assert_eq!(svd(&diagonal(&values), 4, 4, Vectors::None).expect("converges").s, values);
    let (w, _) = eigh(diagonal(&values), 4, false).expect("converges");
    assert_eq!(w, [0.0, 1e-20, 1e-3, 1.0]);
}

#[test]
fn eigenvalues_of_hard_matrices() {
    let mut numbers = Numbers(4);
    for n in [0, 1, 2, 3, 5, 40] {
        for (name, mut values) in spectra(n) {
            // Both signs.
            values.iter_mut().step_by(3).for_each(|v| *v = -*v);
            let v = numbers.orthogonal(n);
            let a =
                product(&product(&v, &diagonal(&values), n, n, n), &transpose(&v, n, n), n, n, n);
            let a: Vec<f64> =
                a.iter().zip(transpose(&a, n, n)).map(|(x, y)| x / 2.0 + y / 2.0).collect();
            let (w, vectors) = eigh(a.clone(), n, true).expect("converges");
            let (only, none) = eigh(a.clone(), n, false).expect("converges");
            assert!(none.is_empty());
            values.sort_by(f64::total_cmp);
            let size = values.iter().fold(0.0f64, |m, v| m.max(v.abs()));
            let bound = 1e-14 * n as f64;
            assert!(distance(&w, &values) <= bound * size, "{name} {n}: {w:?} for {values:?}");
            assert!(distance(&w, &only) <= bound * size, "{name} {n}: {w:?} and {only:?}");
            assert!(skewness(&vectors, n, n) <= bound, "{name} {n}: {vectors:?}");
            let back = transpose(&vectors, n, n);
            let whole = product(&product(&back, &diagonal(&w), n, n, n), &vectors, n, n, n);
            assert!(distance(&whole, &a) <= bound * size, "{name} {n}: {whole:?} for {a:?}");
        }
    }
}

#[test]
fn orthogonal_times_triangular() {
    let mut numbers = Numbers(5);
    for (m, n) in [(1, 1), (3, 3), (5, 2), (2, 5), (4, 0), (0, 4), (40, 33)] {
        let a = numbers.matrix(m, n);
        for columns in [m.min(n), m] {
            let mut r = a.clone();
            let q = qr(&mut r, m, n, columns);
            r.truncate(columns * n);
            assert!(skewness(&transpose(&q, m, columns), columns, m) < 1e-13);
            assert!(distance(&product(&q, &r, m, columns, n), &a) < 1e-13, "{m} x {n}");
            assert!((0..columns * n).all(|i| i / n <= i % n || r[i] == 0.0));
        }
    }
}

#[test]
fn elimination_and_substitution() {
    let mut numbers = Numbers(6);
    for (m, n) in [(1, 1), (4, 4), (6, 3), (3, 6), (0, 2), (50, 50)] {
        let a = numbers.matrix(m, n);
        let (mut factors, k) = (a.clone(), m.min(n));
        let mut pivots = vec![0; k];
        assert_eq!(lu(&mut factors, m, n, &mut pivots), 0);
        let mut permuted = a.clone();
        for (i, &p) in pivots.iter().enumerate() {
            (0..n).for_each(|j| permuted.swap(i * n + j, p * n + j));
        }
        let lower: Vec<f64> = (0..m * k)
            .map(|i| match (i / k).cmp(&(i % k)) {
                std::cmp::Ordering::Less => 0.0,
                std::cmp::Ordering::Equal => 1.0,
                std::cmp::Ordering::Greater => factors[i / k * n + i % k],
            })
            .collect();
        assert!(lower.iter().all(|x| x.abs() <= 1.0));
        let upper: Vec<f64> =
            (0..k * n).map(|i| if i / n <= i % n { factors[i] } else { 0.0 }).collect();
        assert!(distance(&product(&lower, &upper, m, k, n), &permuted) < 1e-13, "{m} x {n}");
        if m == n {
            for columns in [0, 1, 3] {
                let b = numbers.matrix(n, columns);
                let mut x = b.clone();
                solve_triangular(&factors, n, false, true, &mut x, columns);
                assert!(distance(&product(&lower, &x, n, n, columns), &b) < 1e-12);
                let mut x = b.clone();
                solve_triangular(&factors, n, true, false, &mut x, columns);
                let size = x.iter().fold(1.0f64, |m, x| m.max(x.abs()));
                assert!(distance(&product(&upper, &x, n, n, columns), &b) < 1e-12 * size);
            }
        }
    }
    let mut singular = vec![1.0, 2.0, 2.0, 4.0];
    assert_eq!(lu(&mut singular, 2, 2, &mut [0; 2]), 2);
}

#[test]
fn roots_of_positive_matrices() {
    let mut numbers = Numbers(7);
    for n in [0, 1, 3, 30] {
        let b = numbers.matrix(n, n);
        let mut a = product(&b, &transpose(&b, n, n), n, n, n);
        a.iter_mut().step_by(n + 1).for_each(|x| *x += 1.0);
        let mut l = a.clone();
        assert_eq!(cholesky(&mut l, n), 0);
        assert!(distance(&product(&l, &transpose(&l, n, n), n, n, n), &a) < 1e-12);
    }
    let mut indefinite = vec![4.0, 7.0, 2.0, -1.0];
    assert_eq!(cholesky(&mut indefinite, 2), 2);
    assert_eq!(indefinite[..3], [2.0, 0.0, 1.0]);
    assert_eq!(cholesky(&mut [f64::NAN], 1), 1);
}
