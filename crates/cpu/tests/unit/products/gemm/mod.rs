//! Tests of matrix products against the definition.

mod bf16;
mod blocked;

use torchrs_cpu::arch::isa;
use torchrs_cpu::products::gemm::{Gemm, Matrix, reference};
use torchrs_cpu::products::tiled::Tiled;
use torchrs_cpu::products::{micro, pack};
use torchrs_cpu::threads::{get_num_threads, set_num_threads};

fn numbers<T: Tiled>(n: usize, seed: usize) -> Vec<T> {
    (0..n).map(|i| T::of(((i * 37 + seed * 11) % 23) as f64 / 8.0 - 1.3)).collect()
}

/// A row-major matrix at other places of memory, whose gaps are NaN.
struct Placed<T> {
    data: Vec<T>,
    row: usize,
    column: usize,
}

impl<T: Tiled> Placed<T> {
    fn new(rows: usize, columns: usize, numbers: &[T], (row, column): (usize, usize)) -> Self {
        let len = rows.saturating_sub(1) * row + columns.saturating_sub(1) * column + 1;
        let mut data = vec![T::of(f64::NAN); len];
        for i in 0..rows {
            for j in 0..columns {
                data[i * row + j * column] = numbers[i * columns + j];
            }
        }
        Placed { data, row, column }
    }

    fn matrix(&self) -> Matrix<*const T> {
        Matrix { ptr: self.data.as_ptr(), row: self.row as isize, column: self.column as isize }
    }

    fn matrix_mut(&mut self) -> Matrix<*mut T> {
        let (row, column) = (self.row as isize, self.column as isize);
        Matrix { ptr: self.data.as_mut_ptr(), row, column }
    }
}

/// Shapes for every way of computing, with rests of tiles and of blocks.
const SHAPES: [(usize, usize, usize); 22] = [
    (1, 1, 1),
    (3, 5, 4),
    (17, 1, 9),
    (1, 33, 7),
    (40, 50, 60),
    (33, 20, 30),
    (5, 4, 0),
    (0, 4, 5),
    (260, 130, 70),
    (2, 70, 40),
    (70, 3, 33),
    (20, 90, 400),
    (100, 2100, 3),
    (13, 17, 800),
    (1, 1100, 90),
    (1030, 1, 90),
    // Operands that are read where they are, and some that are just too large or lie badly for that.
    (64, 64, 64),
    (32, 32, 32),
    (9, 320, 300),
    (600, 50, 33),
    (1100, 40, 70),
    (30, 1024, 20),
];

fn check<T: Tiled>(tolerance: f64) {
    for (m, n, k) in SHAPES {
        let (a, b) = (numbers::<T>(m * k, 1), numbers::<T>(k * n, 2));
        let wide = |v: &[T]| v.iter().map(|x| x.as_f64()).collect::<Vec<f64>>();
        let want = reference((m, n, k), &wide(&a), &wide(&b));
        for of_a in [(k, 1), (1, m), (k + 3, 1), (1, m + 5), (2 * k, 2)] {
            for of_b in [(n, 1), (1, k), (n + 7, 1), (1, k + 1), (3 * n, 3)] {
                let a = Placed::new(m, k, &a, of_a);
                let b = Placed::new(k, n, &b, of_b);
                for (alpha, beta) in [(1.0, 0.0), (1.0, 1.0), (3.0, 0.5)] {
                    let old = if beta == 0.0 { f64::NAN } else { 2.0 };
                    let old = vec![T::of(old); m * n];
                    let mut c = Placed::new(m, n, &old, (n + 2, 1));
                    // SAFETY: the matrices have the sizes that the strides reach.
                    unsafe {
                        let (size, alpha, beta) = ((m, n, k), T::of(alpha), T::of(beta));
                        let (a, b, c) = (a.matrix(), b.matrix(), c.matrix_mut());
                        Gemm { size, alpha, a, b, beta, c }.run();
                    }
                    for (at, c) in c.data.iter().enumerate().take(m * (n + 2)) {
                        let (i, j) = (at / (n + 2), at % (n + 2));
                        if j >= n {
                            assert!(c.as_f64().is_nan(), "a gap was written: {m}x{n}x{k}");
                            continue;
                        }
                        let start = if beta == 0.0 { 0.0 } else { 2.0 * beta };
                        let want = start + alpha * want[i * n + j];
                        let error = (c.as_f64() - want).abs();
                        let what = format!("{m}x{n}x{k}, A {of_a:?}, B {of_b:?}, beta {beta}");
                        assert!(
                            error <= tolerance * (k + 1) as f64,
                            "{what}: {c:?} {want}",
                            c = c.as_f64()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn products_equal_the_definition_for_all_strides() {
    check::<f64>(1e-13);
    check::<f32>(2e-6);
}

#[test]
fn a_row_is_added_in_one_go_or_not_at_all() {
    for ((m, n, k), fits) in
        [((20, 90, 400), true), ((13, 17, 800), true), ((100, 30, 5), false), ((2, 70, 40), false)]
    {
        let (a, b, row) = (numbers::<f32>(m * k, 1), numbers(k * n, 2), numbers(n, 3));
        let (a, b) = (Placed::new(m, k, &a, (k, 1)), Placed::new(k, n, &b, (1, k)));
        let product = |c: &mut Placed<f32>, beta: f32| {
            let (a, b, c) = (a.matrix(), b.matrix(), c.matrix_mut());
            Gemm { size: (m, n, k), alpha: 0.5, a, b, beta, c }
        };
        let mut want = Placed::new(m, n, &row.repeat(m), (n + 2, 1));
        let mut c = Placed::new(m, n, &vec![7.0; m * n], (n + 2, 1));
        // SAFETY: the matrices have the sizes that the strides reach, the row n numbers.
        let did = unsafe {
            product(&mut want, 1.0).run();
            product(&mut c, 1.0).run_plus_row(row.as_ptr())
        };
        assert_eq!(did, fits, "{m}x{n}x{k}");
        for (i, (c, want)) in c.data.iter().zip(&want.data).enumerate() {
            match (i % (n + 2) < n, fits) {
                (false, _) => assert!(c.is_nan(), "a gap was written: {m}x{n}x{k}"),
                (true, false) => assert_eq!(*c, 7.0, "{m}x{n}x{k}"),
                (true, true) => assert!((c - want).abs() < 1e-3, "{m}x{n}x{k}: {c} {want}"),
            }
        }
    }
}

#[test]
fn a_product_does_not_depend_on_the_number_of_threads() {
    let before = get_num_threads();
    for (m, n, k) in
        [(49, 30, 2000), (30, 700, 500), (3, 1000, 2000), (2000, 2, 1000), (130, 90, 300)]
    {
        let (a, b) = (numbers::<f32>(m * k, 1), numbers::<f32>(k * n, 2));
        for of_b in [(n, 1), (1, k)] {
            let a = Placed::new(m, k, &a, (k, 1));
            let b = Placed::new(k, n, &b, of_b);
            let results = [1, 2, 3, 5].map(|threads| {
                set_num_threads(threads);
                let mut c = vec![0.0; 2 * m * n];
                let product = Gemm {
                    size: (m, n, k),
                    alpha: 1.0,
                    a: a.matrix(),
                    b: b.matrix(),
                    beta: 0.0,
                    c: Matrix { ptr: c.as_mut_ptr(), row: n as isize, column: 1 },
                };
                // SAFETY: the matrices have the sizes that the strides reach.
                unsafe {
                    product.run();
                    product.run_batched(&[[0, 0, (m * n) as isize]]);
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
fn register_tiles_equal_the_definition() {
    fn check<T: Tiled>() {
        for level in isa::Isa::ALL.into_iter().filter(|&l| l <= isa::available()) {
            let tile = T::tile(level);
            for (m, n, k) in [(1, 1, 1), (7, 20, 5), (13, 70, 31)] {
                let (a, b) = (numbers::<T>(m * k, 3), numbers::<T>(k * n, 4));
                let wide = |v: &[T]| v.iter().map(|x| x.as_f64()).collect::<Vec<f64>>();
                let want = reference((m, n, k), &wide(&a), &wide(&b));
                let mut packed = vec![T::ZERO; pack::packed_len(tile, k, n)];
                pack::pack(k, n, &b, n, 1, tile.columns, &mut packed);
                let mut c = vec![T::of(0.5); m * n];
                for add in [true, false] {
                    let start = if add { 0.5 } else { 0.0 };
                    // SAFETY: the buffers have the sizes given.
                    unsafe {
                        let (a, c) = ((a.as_ptr(), k, 1), (c.as_mut_ptr(), n));
                        micro::multiply(tile, (m, n, k), a, packed.as_ptr(), c, add);
                    }
                    for (c, w) in c.iter().zip(&want) {
                        let error = (c.as_f64() - w - start).abs();
                        assert!(error < 1e-4, "{level:?} {m}x{n}x{k}: off by {error}");
                    }
                }
            }
        }
    }
    check::<f32>();
    check::<f64>();
}
