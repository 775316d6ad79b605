//! The innermost matrix product, of a tile that stays in vector registers, and the packing of its
//! right operand. Convolution and attention are built on it where a whole [`gemm`](super::gemm)
//! would first have to copy its operands into place.
//!
//! The kernels are plain loops of constant length: the compiler keeps the accumulators in registers
//! and reaches 90% of an AVX2 core's peak, so there is one source for all instruction sets.

use super::float::{Float, simd_fn};

/// One tile product of a compute type at one level of instructions.
#[derive(Clone, Copy)]
pub struct Tile<T> {
    /// Most rows of a tile.
    pub rows: usize,
    /// Most columns of a tile; the length of a row of the packed right operand.
    pub columns: usize,
    /// The product, see [`Product`].
    pub run: unsafe fn(Product<T>),
}

/// `C = start + A B` for a tile of `m x n` elements, or `C += A B`.
#[derive(Clone, Copy)]
pub struct Product<T> {
    /// Length of the sums.
    pub k: usize,
    /// Element (i, p) of A is at `a + i * a_row + p * a_column`.
    pub a: *const T,
    /// Distance between rows of A.
    pub a_row: usize,
    /// Distance between columns of A.
    pub a_column: usize,
    /// Row p of B is at `b + p * columns`; all `columns` elements are read.
    pub b: *const T,
    /// Element (i, j) of C is at `c + i * c_row + j`.
    pub c: *mut T,
    /// Distance between rows of C.
    pub c_row: usize,
    /// Rows of the tile, 1 to the tile's `rows`.
    pub m: usize,
    /// Columns that are written, 1 to the tile's `columns`.
    pub n: usize,
    /// Adds to what C holds instead of overwriting it.
    pub add: bool,
    /// Without `add`: `m` numbers with which the rows' sums start, or null for 0.
    pub start: *const T,
}

#[inline(always)]
unsafe fn product<T: Float, const FMA: bool, const M: usize, const N: usize>(p: Product<T>) {
    let mut sums = [[T::ZERO; N]; M];
    if !p.start.is_null() {
        for (i, row) in sums.iter_mut().enumerate() {
            // SAFETY: `start` holds `m` numbers, and M is m.
            *row = [unsafe { *p.start.add(i) }; N];
        }
    }
    let (mut a, mut b) = (p.a, p.b);
    for _ in 0..p.k {
        // SAFETY: B has k rows of N elements.
        let row = unsafe { &*b.cast::<[T; N]>() };
        for i in 0..M {
            // SAFETY: A has m = M rows and k columns.
            let x = unsafe { *a.add(i * p.a_row) };
            for j in 0..N {
                sums[i][j] = x.fma::<FMA>(row[j], sums[i][j]);
            }
        }
        // The last step may go one past the end of a strided operand; it is not read there.
        a = a.wrapping_add(p.a_column);
        b = b.wrapping_add(N);
    }
    for (i, row) in sums.iter().enumerate() {
        // SAFETY: C has m rows, and `n <= N` elements of each are the caller's to write.
        unsafe {
            let c = p.c.add(i * p.c_row);
            if p.n == N {
                let c = &mut *c.cast::<[T; N]>();
                for j in 0..N {
                    c[j] = if p.add { c[j] + row[j] } else { row[j] };
                }
            } else {
                for (j, &sum) in row.iter().enumerate().take(p.n) {
                    let c = c.add(j);
                    *c = if p.add { *c + sum } else { sum };
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn any_rows<T: Float, const FMA: bool, const N: usize>(p: Product<T>) {
    // SAFETY: the caller's promise, with M = m.
    unsafe {
        match p.m {
            1 => product::<T, FMA, 1, N>(p),
            2 => product::<T, FMA, 2, N>(p),
            3 => product::<T, FMA, 3, N>(p),
            4 => product::<T, FMA, 4, N>(p),
            5 => product::<T, FMA, 5, N>(p),
            6 => product::<T, FMA, 6, N>(p),
            7 => product::<T, FMA, 7, N>(p),
            8 => product::<T, FMA, 8, N>(p),
            m => unreachable!("a tile has 1 to 8 rows, not {m}"),
        }
    }
}

/// # Safety
/// The operands are as [`Product`] says.
pub unsafe fn baseline<T: Float, const N: usize>(p: Product<T>) {
    // SAFETY: the caller's promise.
    unsafe { any_rows::<T, false, N>(p) }
}

/// # Safety
/// The operands are as [`Product`] says, and the processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
pub unsafe fn avx2<T: Float, const N: usize>(p: Product<T>) {
    // SAFETY: the caller's promise.
    unsafe { any_rows::<T, true, N>(p) }
}

/// # Safety
/// The operands are as [`Product`] says, and the processor has AVX-512 F, VL, DQ and BW.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
pub unsafe fn avx512<T: Float, const N: usize>(p: Product<T>) {
    // SAFETY: the caller's promise.
    unsafe { any_rows::<T, true, N>(p) }
}

/// `C (+)= A B` for packed B ([`pack`]) and any number of rows and columns, tile after tile.
///
/// # Safety
/// A has m rows and k columns with the given distances; `b` holds `n` columns packed for `tile` with
/// `k` rows each; C has m rows of n elements, `c_row` apart, and nobody else uses it.
#[allow(clippy::too_many_arguments, reason = "a matrix product has nine numbers")]
#[inline]
pub unsafe fn multiply<T: Float>(
    tile: Tile<T>,
    (m, n, k): (usize, usize, usize),
    (a, a_row, a_column): (*const T, usize, usize),
    b: *const T,
    (c, c_row): (*mut T, usize),
    add: bool,
) {
    let mut j = 0;
    while j < n {
        let mut i = 0;
        while i < m {
            // SAFETY: rows i.. and columns j.. of the operands that the caller vouches for.
            unsafe {
                (tile.run)(Product {
                    k,
                    a: a.add(i * a_row),
                    a_row,
                    a_column,
                    b: b.add(j * k),
                    c: c.add(i * c_row + j),
                    c_row,
                    m: (m - i).min(tile.rows),
                    n: (n - j).min(tile.columns),
                    add,
                    start: std::ptr::null(),
                });
            }
            i += tile.rows;
        }
        j += tile.columns;
    }
}

/// Elements that `n` columns of `k` rows take when packed.
pub fn packed_len<T>(tile: Tile<T>, k: usize, n: usize) -> usize {
    k * n.next_multiple_of(tile.columns)
}

simd_fn! {
    /// Packs a `k x n` matrix, element (p, j) at `source[p * row + j * column]`, into panels of
    /// `width` columns: panel after panel, in each row after row; missing columns are 0.
    pub fn pack<T, FMA>(k: usize, n: usize, source: &[T], row: usize, column: usize, width: usize, out: &mut [T]) {
        let _ = FMA;
        for (panel, first) in out.chunks_exact_mut((k * width).max(1)).zip((0..n).step_by(width)) {
            let count = width.min(n - first);
            if count < width {
                panel.fill(T::ZERO);
            }
            if column == 1 {
                for (p, out) in panel.chunks_exact_mut(width).enumerate() {
                    let from = p * row + first;
                    out[..count].copy_from_slice(&source[from..from + count]);
                }
            } else if row == 1 {
                // Eight columns at a time: the writes of a row of the panel share a cache line.
                for j0 in (0..count).step_by(8) {
                    let columns = 8.min(count - j0);
                    if columns == 8 {
                        let line: [&[T]; 8] = std::array::from_fn(|j| &source[(first + j0 + j) * column..][..k]);
                        for p in 0..k {
                            let out = &mut panel[p * width + j0..p * width + j0 + 8];
                            for j in 0..8 {
                                out[j] = line[j][p];
                            }
                        }
                    } else {
                        for j in j0..j0 + columns {
                            let line = &source[(first + j) * column..][..k];
                            for (p, &v) in line.iter().enumerate() {
                                panel[p * width + j] = v;
                            }
                        }
                    }
                }
            } else {
                for p in 0..k {
                    for j in 0..count {
                        panel[p * width + j] = source[p * row + (first + j) * column];
                    }
                }
            }
        }
    }
}
