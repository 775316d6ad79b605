//! Matrix products over strided f32 and f64 buffers: the `gemm` crates' kernels, with the splitting
//! over threads done here. A transpose is only another pair of strides.

use super::float::Float;
use super::parts::Shared;
use super::threads::{get_num_threads, parallel_for};

/// Floating-point operations that are worth a second thread: forking and joining costs about 10 us.
const WORTH_A_THREAD: usize = 2_000_000;

/// Where a matrix is: element (i, j) at `ptr + i * row + j * column`.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<P> {
    /// The first element.
    pub ptr: P,
    /// Distance between rows, in elements.
    pub row: isize,
    /// Distance between columns, in elements.
    pub column: isize,
}

impl<P> Matrix<P> {
    fn parts(self) -> (P, isize, isize) {
        (self.ptr, self.row, self.column)
    }
}

impl<T> Matrix<*const T> {
    fn at(self, i: usize, j: usize) -> Self {
        let ptr = self.ptr.wrapping_offset(i as isize * self.row + j as isize * self.column);
        Matrix { ptr, ..self }
    }
}

impl<T> Matrix<*mut T> {
    fn at(self, i: usize, j: usize) -> Self {
        let ptr = self.ptr.wrapping_offset(i as isize * self.row + j as isize * self.column);
        Matrix { ptr, ..self }
    }
}

/// `C = beta C + alpha A B` for an `m x k` matrix A and a `k x n` matrix B. With `beta` 0 what C
/// holds is not read (it may be NaN). `T` is f32 or f64.
///
/// # Safety
/// A and B are readable and C is writable wherever their strides lead, C does not overlap them nor
/// itself, and nobody else uses C.
pub unsafe fn gemm<T: Float>(
    (m, n, k): (usize, usize, usize),
    alpha: T,
    a: Matrix<*const T>,
    b: Matrix<*const T>,
    beta: T,
    c: Matrix<*mut T>,
) {
    let flops = 2 * m * n * k;
    if flops < 2 * WORTH_A_THREAD || get_num_threads() == 1 {
        // SAFETY: the caller's promise.
        return unsafe { serial((m, n, k), alpha, a, b, beta, c) };
    }
    // Along the longer side, in pieces that whole register tiles fill.
    let (long, piece) = if n >= m { (n, 16) } else { (m, 12) };
    let pieces = long.div_ceil(piece);
    let grain = (pieces * WORTH_A_THREAD).div_ceil(flops);
    let shared = Shared::new((a, b, c));
    parallel_for(pieces, grain, |range| {
        let (a, b, c) = shared.get();
        let (from, to) = (range.start * piece, (range.end * piece).min(long));
        // SAFETY: the caller's promise; the threads' parts of C are disjoint.
        unsafe {
            if n >= m {
                serial((m, to - from, k), alpha, a, b.at(0, from), beta, c.at(0, from));
            } else {
                serial((to - from, n, k), alpha, a.at(from, 0), b, beta, c.at(from, 0));
            }
        }
    });
}

/// One product per pair of `offsets` (of A and of B, in elements); the results follow one another
/// in C, `m n` elements apart.
///
/// # Safety
/// As [`gemm`], for every product.
pub unsafe fn gemm_batched<T: Float>(
    (m, n, k): (usize, usize, usize),
    a: Matrix<*const T>,
    b: Matrix<*const T>,
    offsets: &[(isize, isize)],
    c: *mut T,
) {
    let one = |i: usize, a: Matrix<*const T>, b: Matrix<*const T>, c: *mut T| {
        let (of_a, of_b) = offsets[i];
        (
            Matrix { ptr: a.ptr.wrapping_offset(of_a), ..a },
            Matrix { ptr: b.ptr.wrapping_offset(of_b), ..b },
            Matrix { ptr: c.wrapping_add(i * m * n), row: n as isize, column: 1 },
        )
    };
    let (unit, zero) = (T::of(1.0), T::ZERO);
    if offsets.len() < get_num_threads() {
        for i in 0..offsets.len() {
            let (a, b, c) = one(i, a, b, c);
            // SAFETY: the caller's promise.
            unsafe { gemm((m, n, k), unit, a, b, zero, c) };
        }
        return;
    }
    let grain = WORTH_A_THREAD.div_ceil((2 * m * n * k).max(1));
    let shared = Shared::new((a, b, c));
    parallel_for(offsets.len(), grain, |range| {
        let (a, b, c) = shared.get();
        for i in range {
            let (a, b, c) = one(i, a, b, c);
            // SAFETY: the caller's promise; the results are disjoint.
            unsafe { serial((m, n, k), unit, a, b, zero, c) };
        }
    });
}

/// # Safety
/// As [`gemm`].
unsafe fn serial<T: Float>(
    (m, n, k): (usize, usize, usize),
    alpha: T,
    a: Matrix<*const T>,
    b: Matrix<*const T>,
    beta: T,
    c: Matrix<*mut T>,
) {
    if m == 0 || n == 0 {
        return;
    }
    let beta = (beta != T::ZERO).then_some(beta);
    // SAFETY: the caller's promise.
    unsafe { T::gemm((m, n, k), alpha, a.parts(), b.parts(), beta, c.parts()) };
}

/// The product by its definition, which the fast one is tested against: A is `m x k`, B is `k x n`,
/// both row-major.
#[cfg(test)]
pub fn reference((m, n, k): (usize, usize, usize), a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            c[i * n + j] = (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum();
        }
    }
    c
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::isa;
    use crate::cpu::micro;

    fn numbers(n: usize, seed: usize) -> Vec<f64> {
        (0..n).map(|i| ((i * 37 + seed * 11) % 23) as f64 / 8.0 - 1.3).collect()
    }

    #[test]
    fn products_equal_the_definition_for_all_strides() {
        for (m, n, k) in
            [(1, 1, 1), (3, 5, 4), (17, 1, 9), (1, 33, 7), (40, 50, 60), (5, 4, 0), (260, 130, 70)]
        {
            let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
            let want = reference((m, n, k), &a, &b);
            let at: Vec<f64> = (0..m * k).map(|i| a[(i % m.max(1)) * k + i / m.max(1)]).collect();
            for transposed in [false, true] {
                let a = if transposed {
                    Matrix { ptr: at.as_ptr(), row: 1, column: m as isize }
                } else {
                    Matrix { ptr: a.as_ptr(), row: k as isize, column: 1 }
                };
                let b = Matrix { ptr: b.as_ptr(), row: n as isize, column: 1 };
                let mut c = vec![2.0; m * n];
                let out = Matrix { ptr: c.as_mut_ptr(), row: n as isize, column: 1 };
                // SAFETY: the buffers have the sizes that the strides reach.
                unsafe { gemm((m, n, k), 3.0, a, b, 0.5, out) };
                for (c, w) in c.iter().zip(&want) {
                    assert!((c - (1.0 + 3.0 * w)).abs() < 1e-9, "{c} {w} at {m}x{n}x{k}");
                }
            }
        }
    }

    #[test]
    fn without_beta_old_values_are_not_read() {
        let (a, b) = ([1f32, 2.], [3f32, 4.]);
        for k in [0, 2] {
            let mut c = [f32::NAN];
            let row = Matrix { ptr: a.as_ptr(), row: 2, column: 1 };
            let column = Matrix { ptr: b.as_ptr(), row: 1, column: 1 };
            let out = Matrix { ptr: c.as_mut_ptr(), row: 1, column: 1 };
            // SAFETY: the buffers have the sizes that the strides reach.
            unsafe { gemm((1, 1, k), 1.0, row, column, 0.0, out) };
            assert_eq!(c[0], if k == 0 { 0.0 } else { 11.0 });
        }
    }

    #[test]
    fn register_tiles_equal_the_definition() {
        fn check<T: Float>() {
            for level in isa::Isa::ALL.into_iter().filter(|&l| l <= isa::available()) {
                let tile = T::tile(level);
                for (m, n, k) in [(1, 1, 1), (7, 20, 5), (13, 70, 31)] {
                    let (a, b) = (numbers(m * k, 3), numbers(k * n, 4));
                    let want = reference((m, n, k), &a, &b);
                    let narrow = |v: &[f64]| v.iter().map(|&x| T::of(x)).collect::<Vec<T>>();
                    let (a, b) = (narrow(&a), narrow(&b));
                    let mut packed = vec![T::ZERO; micro::packed_len(tile, k, n)];
                    micro::pack(k, n, &b, n, 1, tile.columns, &mut packed);
                    let mut c = vec![T::of(0.5); m * n];
                    for add in [true, false] {
                        let start = if add { 0.5 } else { 0.0 };
                        // SAFETY: the buffers have the sizes given.
                        unsafe {
                            let (a, c) = ((a.as_ptr(), k, 1), (c.as_mut_ptr(), n));
                            micro::multiply(tile, (m, n, k), a, packed.as_ptr(), c, add);
                        }
                        for (c, w) in c.iter().zip(&want) {
                            let error = (c.wide() - w - start).abs();
                            assert!(error < 1e-4, "{level:?} {m}x{n}x{k}: off by {error}");
                        }
                    }
                }
            }
        }
        check::<f32>();
        check::<f64>();
    }
}
