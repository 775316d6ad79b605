//! The innermost matrix product, of a tile that stays in vector registers, and the packing of its
//! right operand. Convolution and attention are built on it where a whole [`gemm`](super::gemm)
//! would first have to copy its operands into place.
//!
//! One source for all instruction sets, over [`Vector`]; with AVX2 it reaches nine tenths of a core's
//! peak.

use super::float::{Float, simd_fn};
use super::vector::{Plain, Vector};

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
    /// Row p of B is at `b + p * columns`, or at `b + rows[p]`; all `columns` elements are read.
    pub b: *const T,
    /// Where the k rows of B are, or null: one after the other.
    pub rows: *const usize,
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

/// Registers side by side in a tile.
const SIDE: usize = 2;

/// # Safety
/// The operands are as [`Product`] says, with M = m and tiles of `SIDE` registers, and the processor
/// has the vector's instruction set; as for the functions below.
#[inline(always)]
unsafe fn product<V: Vector, const M: usize, const ROWS: bool>(p: Product<V::Number>) {
    // SAFETY: B has k rows of SIDE registers (where `rows` says, with ROWS), A m rows and k columns, C m rows of n numbers, `start`
    // is null or has m numbers, by the caller's word.
    unsafe {
        let mut sums = [[V::splat(V::Number::ZERO); SIDE]; M];
        if !p.start.is_null() {
            for (i, row) in sums.iter_mut().enumerate() {
                *row = [V::splat(*p.start.add(i)); SIDE];
            }
        }
        let (mut a, mut b) = (p.a, p.b);
        for step in 0..p.k {
            if ROWS {
                b = p.b.add(*p.rows.add(step));
            }
            let row = [V::load(b), V::load(b.add(V::LANES))];
            for (i, sums) in sums.iter_mut().enumerate() {
                let x = V::splat(*a.add(i * p.a_row));
                for j in 0..SIDE {
                    sums[j] = x.fma(row[j], sums[j]);
                }
            }
            // The last step may go past the end of a strided operand; nothing is read there.
            a = a.wrapping_add(p.a_column);
            if !ROWS {
                b = b.wrapping_add(SIDE * V::LANES);
            }
        }
        if p.n == SIDE * V::LANES {
            for (i, sums) in sums.iter().enumerate() {
                for (j, &sum) in sums.iter().enumerate() {
                    let c = p.c.add(i * p.c_row + j * V::LANES);
                    if p.add { V::load(c).add(sum).store(c) } else { sum.store(c) }
                }
            }
            return;
        }
        // 32 numbers are the most that a row of a tile has.
        let mut line = [V::Number::ZERO; 32];
        for (i, sums) in sums.iter().enumerate() {
            for (j, &sum) in sums.iter().enumerate() {
                sum.store(line.as_mut_ptr().add(j * V::LANES));
            }
            for (j, &sum) in line.iter().enumerate().take(p.n) {
                let c = &mut *p.c.add(i * p.c_row + j);
                *c = if p.add { *c + sum } else { sum };
            }
        }
    }
}

/// # Safety
/// As `product`, for any m from 1 to 8.
#[inline(always)]
unsafe fn any_rows<V: Vector, const ROWS: bool>(p: Product<V::Number>) {
    // SAFETY: the caller's promise, with M = m.
    unsafe {
        match p.m {
            1 => product::<V, 1, ROWS>(p),
            2 => product::<V, 2, ROWS>(p),
            3 => product::<V, 3, ROWS>(p),
            4 => product::<V, 4, ROWS>(p),
            5 => product::<V, 5, ROWS>(p),
            6 => product::<V, 6, ROWS>(p),
            7 => product::<V, 7, ROWS>(p),
            8 => product::<V, 8, ROWS>(p),
            m => unreachable!("a tile has 1 to 8 rows, not {m}"),
        }
    }
}

/// # Safety
/// As `any_rows`.
#[inline(always)]
unsafe fn any_product<V: Vector>(p: Product<V::Number>) {
    // SAFETY: the caller's promise.
    unsafe { if p.rows.is_null() { any_rows::<V, false>(p) } else { any_rows::<V, true>(p) } }
}

/// # Safety
/// As `any_rows`.
unsafe fn baseline<T: Float>(p: Product<T>) {
    // SAFETY: the caller's promise.
    unsafe { any_product::<Plain<T>>(p) }
}

/// # Safety
/// As `any_rows`, and the processor has AVX2 and FMA.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2<V: Vector>(p: Product<V::Number>) {
    // SAFETY: the caller's promise.
    unsafe { any_product::<V>(p) }
}

/// # Safety
/// As `any_rows`, and the processor has AVX-512 F, VL, DQ and BW.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
unsafe fn avx512<V: Vector>(p: Product<V::Number>) {
    // SAFETY: the caller's promise.
    unsafe { any_product::<V>(p) }
}

/// # Safety
/// As `any_rows`.
#[cfg(target_arch = "aarch64")]
unsafe fn neon<V: Vector>(p: Product<V::Number>) {
    // SAFETY: the caller's promise, and NEON is always there.
    unsafe { any_product::<V>(p) }
}

/// The tile of NEON registers: 16 of the 32 are sums, enough for four units that take four cycles for
/// each multiply-add.
#[cfg(target_arch = "aarch64")]
pub fn neon_tile<V: Vector>() -> Tile<V::Number> {
    Tile { rows: 8, columns: SIDE * V::LANES, run: neon::<V> }
}

/// The tile of plain loops.
#[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "has a tile of its own"))]
pub fn plain_tile<T: Float>() -> Tile<T> {
    Tile { rows: 6, columns: SIDE * Plain::<T>::LANES, run: baseline::<T> }
}

/// The tile of AVX2 registers: 12 of the 16 are sums.
#[cfg(target_arch = "x86_64")]
pub fn avx2_tile<V: Vector>() -> Tile<V::Number> {
    Tile { rows: 6, columns: SIDE * V::LANES, run: avx2::<V> }
}

/// The tile of AVX-512 registers: 16 of the 32 are sums.
#[cfg(target_arch = "x86_64")]
pub fn avx512_tile<V: Vector>() -> Tile<V::Number> {
    Tile { rows: 8, columns: SIDE * V::LANES, run: avx512::<V> }
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
                    rows: std::ptr::null(),
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
