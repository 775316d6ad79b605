//! Tests of products of bf16 against the definition.

use half::bf16;
use torchrs_cpu::products::gemm::{HalfGemm, Matrix, reference};
use torchrs_cpu::products::pairs::Finish;
use torchrs_cpu::threads::{get_num_threads, set_num_threads};

fn numbers(n: usize, seed: usize) -> Vec<bf16> {
    (0..n).map(|i| bf16::from_f64(((i * 37 + seed * 11) % 230) as f64 / 80.0 - 1.3)).collect()
}

fn wide(v: &[bf16]) -> Vec<f64> {
    v.iter().map(|x| x.to_f64()).collect()
}

/// A row-major matrix at other places of memory, whose gaps are NaN.
struct Placed {
    data: Vec<bf16>,
    row: usize,
    column: usize,
}

impl Placed {
    fn new(rows: usize, columns: usize, numbers: &[bf16], (row, column): (usize, usize)) -> Self {
        let len = rows.saturating_sub(1) * row + columns.saturating_sub(1) * column + 1;
        let mut data = vec![bf16::NAN; len];
        for i in 0..rows {
            for j in 0..columns {
                data[i * row + j * column] = numbers[i * columns + j];
            }
        }
        Placed { data, row, column }
    }

    fn matrix(&self) -> Matrix<*const bf16> {
        Matrix { ptr: self.data.as_ptr(), row: self.row as isize, column: self.column as isize }
    }
}

/// The product with rows of C `n + 2` apart, whose gaps have to stay as they were.
fn product(
    size: (usize, usize, usize),
    a: Matrix<*const bf16>,
    b: Matrix<*const bf16>,
    finish: Option<Finish>,
) -> Vec<f64> {
    let (m, n, _) = size;
    let mut c = vec![bf16::from_f32(77.0); m * (n + 2) + 1];
    let to = Matrix { ptr: c.as_mut_ptr(), row: n as isize + 2, column: 1 };
    // SAFETY: the matrices have the sizes that the strides reach.
    unsafe { HalfGemm { size, a, b, c: to, finish }.run() };
    let mut out = Vec::new();
    for (at, c) in c.iter().enumerate() {
        if at < m * (n + 2) && at % (n + 2) < n {
            out.push(c.to_f64());
        } else {
            assert_eq!(c.to_f32(), 77.0, "a gap was written: {size:?}");
        }
    }
    out
}

fn check(got: &[f64], want: &[f64], k: usize, what: &str) {
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        // Half a unit of the last place, and the sums' rounding in f32.
        let most = want.abs() / 256.0 + 1e-6 * (k + 1) as f64;
        assert!((got - want).abs() <= most, "{what}: [{i}] is {got}, not {want}");
    }
}

#[test]
fn products_equal_the_definition_for_all_strides() {
    if !HalfGemm::is_there() {
        return;
    }
    for (m, n, k) in [
        (1, 1, 1),
        (3, 5, 4),
        (17, 1, 9),
        (1, 33, 8),
        (40, 50, 60),
        (5, 4, 0),
        (0, 4, 5),
        (4, 0, 5),
        (260, 130, 70),
        (20, 90, 400),
        (100, 1100, 3),
        (13, 17, 2801),
        (1100, 40, 2050),
    ] {
        let (a, b, start) = (numbers(m * k, 1), numbers(k * n, 2), numbers(m * n, 3));
        let want = reference((m, n, k), &wide(&a), &wide(&b));
        for of_a in [(k, 1), (1, m), (k + 3, 1), (1, m + 5), (2 * k, 2)] {
            for of_b in [(n, 1), (1, k), (n + 7, 1), (1, k + 1), (3 * n, 3)] {
                let a = Placed::new(m, k, &a, of_a);
                let b = Placed::new(k, n, &b, of_b);
                let what = format!("{m}x{n}x{k}, A {of_a:?}, B {of_b:?}");
                check(&product((m, n, k), a.matrix(), b.matrix(), None), &want, k, &what);
                for (row, column) in [(n, 1), (0, 1), (1, m)] {
                    let all =
                        Matrix { ptr: start.as_ptr(), row: row as isize, column: column as isize };
                    for start in [None, Some(all)] {
                        let finish = Finish { alpha: 0.5, beta: 2.0, start };
                        let more = |i: usize| {
                            let at = i / n * row + i % n * column;
                            start.map_or(0.0, |_| 2.0 * numbers(m * n, 3)[at].to_f64())
                        };
                        if m * n > 1000 && start.is_some() {
                            continue;
                        }
                        let want: Vec<f64> =
                            want.iter().enumerate().map(|(i, w)| 0.5 * w + more(i)).collect();
                        let got = product((m, n, k), a.matrix(), b.matrix(), Some(finish));
                        check(&got, &want, k, &format!("{what} and {row}, {column}"));
                    }
                }
            }
        }
    }
}

#[test]
fn a_product_does_not_depend_on_the_number_of_threads() {
    if !HalfGemm::is_there() {
        return;
    }
    let before = get_num_threads();
    for (m, n, k) in [(49, 30, 2000), (30, 700, 500), (2000, 2, 1000), (130, 190, 1301)] {
        let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
        for of_b in [(n, 1), (1, k)] {
            let a = Placed::new(m, k, &a, (k, 1));
            let b = Placed::new(k, n, &b, of_b);
            let results = [1, 2, 3, 5].map(|threads| {
                set_num_threads(threads);
                let mut c = vec![bf16::ZERO; 2 * m * n];
                let to = Matrix { ptr: c.as_mut_ptr(), row: n as isize, column: 1 };
                let (size, a, b) = ((m, n, k), a.matrix(), b.matrix());
                let one = HalfGemm { size, a, b, c: to, finish: None };
                // SAFETY: the matrices have the sizes that the strides reach.
                unsafe {
                    one.run();
                    one.run_batched(&[[0, 0, (m * n) as isize]]);
                }
                c
            });
            assert!(results.iter().all(|r| *r == results[0]), "{m}x{n}x{k}, B {of_b:?}");
            assert_eq!(results[0][..m * n], results[0][m * n..], "{m}x{n}x{k}: batched");
        }
    }
    set_num_threads(before);
}

#[test]
fn special_numbers_stay_in_their_rows_and_columns_and_subnormal_ones_are_zero() {
    if !HalfGemm::is_there() {
        return;
    }
    let (m, n, k) = (11, 37, 7);
    let (mut a, mut b) = (vec![bf16::ONE; m * k], vec![bf16::ONE; k * n]);
    (a[2 * k + 6], a[5 * k], b[3 * n + 36]) = (bf16::INFINITY, bf16::NAN, bf16::NEG_INFINITY);
    // Subnormal, and so large that their product would not be.
    (a[9 * k + 1], b[n + 1]) = (bf16::from_bits(0x40), bf16::MAX);
    let place =
        |data: &[bf16], row: usize| Matrix { ptr: data.as_ptr(), row: row as isize, column: 1 };
    let c = product((m, n, k), place(&a, k), place(&b, n), None);
    for (i, c) in c.iter().enumerate() {
        match (i / n, i % n) {
            (5, _) | (2, 36) => assert!(c.is_nan(), "[{i}] is {c}"),
            (2, _) => assert_eq!(*c, f64::INFINITY),
            (_, 36) => assert_eq!(*c, f64::NEG_INFINITY),
            (9, _) => assert_eq!(*c, 6.0),
            (_, 1) => assert_eq!(*c, bf16::MAX.to_f64()),
            _ => assert_eq!(*c, 7.0),
        }
    }
    let tiny = [bf16::from_bits(0x0100), bf16::from_f32(0.25)];
    let c = product((1, 1, 1), place(&tiny, 1), place(&tiny[1..], 1), None);
    assert_eq!(c, [0.0], "a subnormal result");
}
