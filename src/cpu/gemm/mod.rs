//! Matrix products over strided f32 and f64 buffers. A transpose is only another pair of strides.

mod blocked;
mod gemv;
#[cfg(test)]
mod tests;

use super::float::Float;
use super::parts::Shared;
use super::threads::{get_num_threads, parallel_for};

/// Floating-point operations that are worth a second thread, which may have to be woken.
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
    fn transposed(self) -> Self {
        Matrix { ptr: self.ptr, row: self.column, column: self.row }
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

/// How a product is computed. It depends on the whole product's shape and not on how it is divided among
/// threads: results must not either.
#[derive(Clone, Copy)]
enum Way {
    /// By adding multiples of B's rows.
    Sums,
    /// By dot products with B's columns.
    Dots,
    /// In blocks for the caches.
    Blocked,
    /// As `Blocked`, of the transposed product: to pack B, whose columns are dense, would take longer than
    /// to use it for the few rows of A, and a left operand is used in place.
    Transposed,
}

/// Most rows for which B's packing is not worth its while.
const FEW: usize = 48;

impl Way {
    fn of<T>((m, n, _): (usize, usize, usize), b: Matrix<*const T>, c: Matrix<*mut T>) -> Way {
        match m {
            0..=gemv::ROWS if b.column == 1 && c.column == 1 => Way::Sums,
            0..=gemv::ROWS if b.row == 1 => Way::Dots,
            0..=FEW if b.row == 1 && m < n => Way::Transposed,
            _ => Way::Blocked,
        }
    }

    /// The product, on this thread.
    ///
    /// # Safety
    /// As [`gemm`].
    unsafe fn run<T: Float>(
        self,
        (m, n, k): (usize, usize, usize),
        alpha: T,
        a: Matrix<*const T>,
        b: Matrix<*const T>,
        beta: T,
        c: Matrix<*mut T>,
    ) {
        let size = (m, n, k);
        if m == 0 || n == 0 {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Way::Sums => {
                    scale((m, n), beta, c);
                    gemv::Sums { size, alpha, a, b, c }.add();
                }
                Way::Dots => {
                    scale((m, n), beta, c);
                    gemv::Dots { size, alpha, a, b, c }.add();
                }
                Way::Blocked => blocked::multiply(size, alpha, a, b, beta, c),
                Way::Transposed => {
                    let (a, b, c) = (a.transposed(), b.transposed(), c.transposed());
                    blocked::multiply((n, m, k), alpha, b, a, beta, c);
                }
            }
        }
    }
}

/// The product, or the transposed one where that has few rows.
#[allow(clippy::type_complexity, reason = "what it takes")]
fn oriented<T>(
    (m, n, k): (usize, usize, usize),
    a: Matrix<*const T>,
    b: Matrix<*const T>,
    c: Matrix<*mut T>,
) -> ((usize, usize, usize), Matrix<*const T>, Matrix<*const T>, Matrix<*mut T>) {
    if n <= gemv::ROWS && n < m && (a.column == 1 || (a.row == 1 && c.row == 1)) {
        ((n, m, k), b.transposed(), a.transposed(), c.transposed())
    } else {
        ((m, n, k), a, b, c)
    }
}

/// `C = beta C + alpha A B` for an `m x k` matrix A and a `k x n` matrix B, whose strides are not negative.
/// With `beta` 0 what C holds is not read (it may be NaN). `T` is f32 or f64.
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
    let ((m, n, k), a, b, c) = oriented((m, n, k), a, b, c);
    let way = Way::of((m, n, k), b, c);
    let flops = 2 * m * n * k;
    if flops < 2 * WORTH_A_THREAD || get_num_threads() == 1 {
        // SAFETY: the caller's promise.
        return unsafe { way.run((m, n, k), alpha, a, b, beta, c) };
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
                way.run((m, to - from, k), alpha, a, b.at(0, from), beta, c.at(0, from));
            } else {
                way.run((to - from, n, k), alpha, a.at(from, 0), b, beta, c.at(from, 0));
            }
        }
    });
}

/// One product per item of `offsets` (of A, of B and of C, in elements).
///
/// # Safety
/// As [`gemm`], for every product; the results are disjoint.
pub unsafe fn gemm_batched<T: Float>(
    size: (usize, usize, usize),
    a: Matrix<*const T>,
    b: Matrix<*const T>,
    beta: T,
    c: Matrix<*mut T>,
    offsets: &[[isize; 3]],
) {
    let one = |i: usize, a: Matrix<*const T>, b: Matrix<*const T>, c: Matrix<*mut T>| {
        let [of_a, of_b, of_c] = offsets[i];
        (
            Matrix { ptr: a.ptr.wrapping_offset(of_a), ..a },
            Matrix { ptr: b.ptr.wrapping_offset(of_b), ..b },
            Matrix { ptr: c.ptr.wrapping_offset(of_c), ..c },
        )
    };
    let unit = T::of(1.0);
    if offsets.len() < get_num_threads() {
        for i in 0..offsets.len() {
            let (a, b, c) = one(i, a, b, c);
            // SAFETY: the caller's promise.
            unsafe { gemm(size, unit, a, b, beta, c) };
        }
        return;
    }
    let grain = WORTH_A_THREAD.div_ceil((2 * size.0 * size.1 * size.2).max(1));
    let shared = Shared::new((a, b, c));
    parallel_for(offsets.len(), grain, |range| {
        let (a, b, c) = shared.get();
        for i in range {
            let (a, b, c) = one(i, a, b, c);
            let (size, a, b, c) = oriented(size, a, b, c);
            // SAFETY: the caller's promise; the results are disjoint.
            unsafe { Way::of(size, b, c).run(size, unit, a, b, beta, c) };
        }
    });
}

/// `C = beta C`; C is not read for 0.
///
/// # Safety
/// C is writable wherever its strides lead, and nobody else uses it.
unsafe fn scale<T: Float>((m, n): (usize, usize), beta: T, c: Matrix<*mut T>) {
    if beta == T::of(1.0) {
        return;
    }
    for i in 0..m {
        for j in 0..n {
            // SAFETY: an element of C.
            let c = unsafe { &mut *c.at(i, j).ptr };
            *c = if beta == T::ZERO { beta } else { beta * *c };
        }
    }
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
