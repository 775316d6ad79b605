//! The innermost matrix product, of tiles that stay in vector registers. [`gemm`](crate::products::gemm) is built
//! on it, and so are convolution and attention, whose operands a whole product would first have to copy
//! into place.
//!
//! One source for all instruction sets, over [`Vector`]; with AVX2 it reaches nine tenths of a core's
//! peak.

use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use crate::numbers::widen::Real;

use crate::arch::cache::LINE;
use crate::arch::prefetch::{prefetch, prefetch_later};
use crate::numbers::float::Float;
use crate::numbers::vector::{Plain, Vector};

/// One tile product of a compute type at one level of instructions.
#[derive(Clone, Copy)]
pub struct Tile<T> {
    /// Most rows of a tile.
    pub rows: usize,
    /// Most columns of a tile; the length of a row of the packed right operand.
    pub columns: usize,
    /// Most columns of a tile whose right operand's rows are told by [`Product::rows`]: a third register
    /// beside two takes the place of a tile of one, which waits for its loads.
    pub widest: usize,
    /// Most rows of a tile whose left operand's columns are told by [`Product::columns`], its rows neighbours.
    pub tallest: usize,
    /// The product, see [`Product`].
    pub run: unsafe fn(Product<T>),
}

/// Columns of tiles that rows of memory are read for in one go, and steps of a sum that a loop takes at once.
pub const TOGETHER: usize = 4;

/// Parts of B's rows to be brought near beside the sums, a tile's row in each step: the processor does not foresee
/// what is read of many rows in turn.
#[derive(Clone, Copy, Default)]
pub struct Aside {
    /// The first of the rows, of which each has [`TOGETHER`] steps.
    pub first: usize,
    /// Elements between what the tile reads of a row and the part, or 0 for none.
    pub distance: usize,
}

/// `C = start + A B` for `m x n` elements, or `C += start + A B`: a column of tiles.
///
/// *Product invariant*, kept by whoever runs one: A, B and `start` are readable where the fields say, the tables `columns`,
/// `a_rows` and `rows` are null or have a number for each column and row, and `n` is at most what the tile takes. C is
/// writable, and so is `keep` where it is not null; nobody else uses them meanwhile.
#[derive(Clone, Copy)]
pub struct Product<T> {
    /// Length of the sums.
    pub k: usize,
    /// Element (i, p) of A is at `a + i * a_row + p * a_column`, counted in each tile with `a_tile`.
    pub a: *const T,
    /// Distance between rows of A.
    pub a_row: usize,
    /// Distance between columns of A, 1 where its rows are not neighbours.
    pub a_column: usize,
    /// Distance between the tiles of A where they are packed, or 0: rows go on from tile to tile.
    pub a_tile: usize,
    /// Where the k columns of A are, counted from its rows, or null: `a_column` apart. With them `rows` and
    /// `a_tile` are not used.
    pub columns: *const usize,
    /// With `columns`, where the m rows of A are, counted from `a`, or null: `a_row` apart.
    pub a_rows: *const usize,
    /// Row p of B is at `b + p * columns`, or at `b + rows[p]`; all `columns` elements may be read.
    pub b: *const T,
    /// Where the k rows of B are, or null: one after the other.
    pub rows: *const usize,
    /// With `rows`, what is brought near of them for later tiles.
    pub aside: Aside,
    /// With `rows`, and A's rows neighbours, or null: where a tile of all columns writes B's rows one after the other,
    /// as [`pack`](crate::products::pack) does, for those that follow.
    pub keep: *mut T,
    /// Element (i, j) of C is at `c + i * c_row + j * c_column`.
    pub c: *mut T,
    /// Distance between rows of C.
    pub c_row: usize,
    /// Distance between columns of C; 1 is fastest.
    pub c_column: usize,
    /// Rows, at least 1. [`heights`] says how they are divided into tiles.
    pub m: usize,
    /// Columns that are written, 1 to the tile's `columns`, with `rows` to its `widest`.
    pub n: usize,
    /// Adds to what C holds instead of overwriting it.
    pub add: bool,
    /// `m` numbers with which the rows' sums start, or null for 0. With `columns` there is one for each of the
    /// tile's columns instead.
    pub start: *const T,
}

impl<T> Default for Product<T> {
    /// Nothing, with dense rows.
    fn default() -> Self {
        Product {
            k: 0,
            a: null(),
            a_row: 1,
            a_column: 0,
            a_tile: 0,
            columns: null(),
            a_rows: null(),
            b: null(),
            rows: null(),
            aside: Aside::default(),
            keep: null_mut(),
            c: null_mut(),
            c_row: 0,
            c_column: 1,
            m: 0,
            n: 0,
            add: false,
            start: null(),
        }
    }
}

/// Most numbers of any tile, 14 rows of 32.
const MOST_NUMBERS: usize = 14 * 32;

/// Registers side by side in a tile, of which the columns of a narrow product need one.
pub const SIDE: usize = 2;
/// Registers side by side in a tile of [`Tile::widest`] columns, where there are 32.
pub const WIDEST: usize = 3;

/// The heights of the tiles of `m` rows, of which at most `rows` make one: about equal, because a tile
/// of a few rows waits for its own sums.
#[inline(always)]
pub fn heights(m: usize, rows: usize) -> impl Iterator<Item = usize> {
    let tiles = m.div_ceil(rows);
    let (least, higher) = (m / tiles, m % tiles);
    (0..tiles).map(move |t| least + (t < higher) as usize)
}

/// The number, of which the compiler does not know where it comes from. It would reach rows that lie apart by adding
/// their distance again and again, one addition waiting for the other, which takes longer than the sums.
#[inline(always)]
fn opaque(number: usize) -> usize {
    let mut number = number;
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    // SAFETY: no instruction at all.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) number, options(pure, nomem, nostack, preserves_flags));
    }
    number
}

/// # Safety
/// The *Product invariant*, with a tile of M rows from row `first` on and S registers each, whose A is at `a`. Rows of A
/// follow one another if `PACKED`. `lines` has room for the tile. [`Vector`]'s *Instructions*.
#[inline(always)]
unsafe fn product<
    V: Vector,
    const S: usize,
    const M: usize,
    const ROWS: bool,
    const COLUMNS: bool,
    const PACKED: bool,
    const KEEP: bool,
>(
    p: &Product<V::Number>,
    mut a: *const V::Number,
    first: usize,
    lines: *mut V::Number,
) {
    debug_assert!(COLUMNS || PACKED || p.a_column == 1, "columns lie {} apart", p.a_column);
    // SAFETY: by the *Product invariant* B has k rows of S registers (where `rows` says, with ROWS), A M rows and k
    // columns, C rows of n numbers, `start` is null or has a number for each. *Instructions* holds.
    unsafe {
        let result = p.c.wrapping_add(first * p.c_row);
        // C is wanted at the end, and has often left the caches since its last use.
        if COLUMNS && p.c_row == 1 {
            for j in 0..p.n {
                prefetch(result.wrapping_add(j * p.c_column));
            }
        } else {
            for i in 0..M {
                let row = result.wrapping_add(i * p.c_row);
                prefetch(row);
                prefetch(row.wrapping_add(S * V::LANES - 1));
            }
        }
        let mut sums = [[V::splat(V::Number::ZERO); S]; M];
        if !p.start.is_null() {
            for i in 0..M {
                for j in 0..S {
                    sums[i][j] = if COLUMNS {
                        V::load(p.start.add(j * V::LANES))
                    } else {
                        V::splat(*p.start.add(first + i))
                    };
                }
            }
        }
        let a_row = if PACKED { 1 } else { p.a_row };
        let mut origins = [a; M];
        if COLUMNS {
            for i in 0..M {
                let row = if p.a_rows.is_null() { i * a_row } else { *p.a_rows.add(first + i) };
                origins[i] = a.add(row);
            }
        }
        // Of rows that lie apart every third has its own pointer.
        let mut thirds = [a; M];
        if !COLUMNS && !PACKED {
            for i in (0..M).step_by(3) {
                thirds[i / 3] = a.wrapping_add(opaque(i * a_row));
            }
        }
        let mut b = p.b;
        let (once, thrice) = (p.a_column, opaque(3 * p.a_column));
        // Step `steps + of`, of four that follow one another.
        macro_rules! step {
            ($steps:expr, $of:literal) => {
                let step = $steps + $of;
                let column = if COLUMNS { *p.columns.add(step) } else { 0 };
                if ROWS {
                    b = p.b.add(*p.rows.add(step));
                }
                let mut row = [V::load(b); S];
                for j in 1..S {
                    row[j] = V::load(b.add(j * V::LANES));
                }
                if KEEP {
                    for j in 0..S {
                        row[j].store(p.keep.add((step * S + j) * V::LANES));
                    }
                }
                // What is reached from one pointer takes no addition of its own.
                let origin = match $of {
                    _ if COLUMNS => a.wrapping_add(column),
                    3 => a.wrapping_add(thrice),
                    of => a.wrapping_add(of * once),
                };
                for i in 0..M {
                    let x = V::splat(match (COLUMNS, PACKED) {
                        (true, false) => *origins[i].add(column),
                        (false, false) => *thirds[i / 3].add(i % 3 * a_row + $of),
                        (_, true) => *origin.add(i),
                    });
                    for j in 0..S {
                        sums[i][j] = x.fma(row[j], sums[i][j]);
                    }
                }
                if !ROWS {
                    b = b.wrapping_add(SIDE * V::LANES);
                }
            };
        }
        // What lies ahead may be past the end of a strided operand; nothing is read there.
        macro_rules! ahead {
            ($steps:expr) => {
                if !COLUMNS && PACKED {
                    a = a.wrapping_add($steps * p.a_column);
                }
                if !COLUMNS && !PACKED {
                    for i in 0..M.div_ceil(3) {
                        thirds[i] = thirds[i].wrapping_add($steps);
                    }
                }
            };
        }
        let mut steps = 0;
        // Four steps at once: of a tall tile's instructions a tenth count its steps, and where another program has its
        // share of the core the sums take as long as the instructions. Few sums take as long as they wait for each other.
        let many = ROWS || M * S >= 8;
        while many && steps + TOGETHER <= p.k {
            if ROWS && !KEEP && p.aside.distance > 0 {
                let row = *p.rows.add(p.aside.first + steps / TOGETHER);
                for part in 0..TOGETHER {
                    let at = p.b.wrapping_add(row + p.aside.distance + part * (S * V::LANES));
                    prefetch_later(at);
                    if S * size_of::<V>() > LINE {
                        prefetch_later(at.wrapping_add(V::LANES));
                    }
                }
            }
            const { assert!(TOGETHER == 4) };
            step!(steps, 0);
            step!(steps, 1);
            step!(steps, 2);
            step!(steps, 3);
            ahead!(TOGETHER);
            steps += TOGETHER;
        }
        while steps < p.k {
            step!(steps, 0);
            ahead!(1);
            steps += 1;
        }
        if p.n == S * V::LANES && p.c_column == 1 {
            for i in 0..M {
                for j in 0..S {
                    let c = result.add(i * p.c_row + j * V::LANES);
                    let sum = sums[i][j];
                    if p.add { V::load(c).add(sum).store(c) } else { sum.store(c) }
                }
            }
            return;
        }
        if V::MASKS && p.c_row == 1 && M <= 8 {
            macro_rules! store {
                ($($j:literal),*) => {$(
                    if $j < S {
                        let mut rows = [V::splat(V::Number::ZERO); 8];
                        for i in 0..M {
                            rows[i] = sums[i][$j];
                        }
                        let column = result.wrapping_add($j * V::LANES * p.c_column);
                        let count = p.n.saturating_sub($j * V::LANES);
                        V::store_columns(rows, M, column, p.c_column, count, p.add);
                    }
                )*};
            }
            store!(0, 1, 2);
            return;
        }
        for i in 0..M {
            for j in 0..S {
                sums[i][j].store(lines.add((i * S + j) * V::LANES));
            }
        }
        if V::MASKS && p.c_column == 1 {
            for i in 0..M {
                for j in 0..S {
                    let c = result.add(i * p.c_row + j * V::LANES);
                    let count = p.n.saturating_sub(j * V::LANES);
                    V::load(lines.add((i * S + j) * V::LANES)).store_head(c, count, p.add);
                }
            }
            return;
        }
        if V::MASKS && p.c_row == 1 {
            for j in 0..S {
                let count = p.n.saturating_sub(j * V::LANES);
                let mut i = 0;
                while i < M {
                    let column = result.wrapping_add(i + j * V::LANES * p.c_column);
                    let mut rows = [V::splat(V::Number::ZERO); 8];
                    for r in 0..8 {
                        if i + r < M {
                            rows[r] = V::load(lines.add(((i + r) * S + j) * V::LANES));
                        }
                    }
                    V::store_columns(rows, (M - i).min(8), column, p.c_column, count, p.add);
                    i += 8;
                }
            }
            return;
        }
        // Not number by number, which takes longer.
        if !V::MASKS && p.c_column == 1 && p.n >= V::LANES && !p.add {
            for i in 0..M {
                let (row, sums) = (result.add(i * p.c_row), lines.add(i * S * V::LANES));
                let mut j = 0;
                while j + V::LANES <= p.n {
                    V::load(sums.add(j)).store(row.add(j));
                    j += V::LANES;
                }
                if j < p.n {
                    // The last ones, some of which are there already.
                    let j = p.n - V::LANES;
                    V::load(sums.add(j)).store(row.add(j));
                }
            }
            return;
        }
        // Dense columns, as those of a transposed product, have a loop of known distances.
        for j in 0..p.n {
            let (column, sums) = (result.add(j * p.c_column), lines.add(j));
            if p.c_row == 1 && !p.add {
                for i in 0..M {
                    *column.add(i) = *sums.add(i * S * V::LANES);
                }
            } else {
                for i in 0..M {
                    let (c, sum) = (column.add(i * p.c_row), *sums.add(i * S * V::LANES));
                    *c = if p.add { *c + sum } else { sum };
                }
            }
        }
    }
}

/// # Safety
/// The *Product invariant*, for any number of rows and tiles of at most `R`, and [`Vector`]'s *Instructions*.
#[inline(always)]
pub(super) unsafe fn all_rows<
    V: Vector,
    const S: usize,
    const R: usize,
    const ROWS: bool,
    const COLUMNS: bool,
    const PACKED: bool,
    const KEEP: bool,
>(
    p: &Product<V::Number>,
) {
    let (mut first, mut a) = (0, p.a);
    let mut lines = [const { MaybeUninit::<V::Number>::uninit() }; MOST_NUMBERS];
    let lines = lines.as_mut_ptr().cast::<V::Number>();
    for height in heights(p.m, R) {
        // SAFETY: the *Product invariant*, with M = height, which is at most R; `lines` has room for any tile.
        unsafe {
            match height {
                1 => product::<V, S, 1, ROWS, COLUMNS, PACKED, KEEP>(p, a, first, lines),
                2 => product::<V, S, 2, ROWS, COLUMNS, PACKED, KEEP>(p, a, first, lines),
                3 => product::<V, S, 3, ROWS, COLUMNS, PACKED, KEEP>(p, a, first, lines),
                4 => product::<V, S, 4, ROWS, COLUMNS, PACKED, KEEP>(p, a, first, lines),
                5 => product::<V, S, 5, ROWS, COLUMNS, PACKED, KEEP>(p, a, first, lines),
                6 => product::<V, S, 6, ROWS, COLUMNS, PACKED, KEEP>(p, a, first, lines),
                7 if R > 6 => product::<V, S, 7, ROWS, COLUMNS, PACKED, KEEP>(p, a, first, lines),
                8 if R > 6 => product::<V, S, 8, ROWS, COLUMNS, PACKED, KEEP>(p, a, first, lines),
                9 if R > 8 => product::<V, S, 9, ROWS, COLUMNS, PACKED, KEEP>(p, a, first, lines),
                10 if R > 8 => product::<V, S, 10, ROWS, COLUMNS, PACKED, KEEP>(p, a, first, lines),
                11 if R > 8 => product::<V, S, 11, ROWS, COLUMNS, PACKED, KEEP>(p, a, first, lines),
                12 if R > 8 => product::<V, S, 12, ROWS, COLUMNS, PACKED, KEEP>(p, a, first, lines),
                13 if R > 12 => {
                    product::<V, S, 13, ROWS, COLUMNS, PACKED, KEEP>(p, a, first, lines)
                }
                14 if R > 12 => {
                    product::<V, S, 14, ROWS, COLUMNS, PACKED, KEEP>(p, a, first, lines)
                }
                _ => unreachable!("a tile has at most {R} rows, not {height}"),
            }
        }
        first += height;
        a = a.wrapping_add(match p.a_tile {
            _ if !p.a_rows.is_null() => 0,
            0 => height * p.a_row,
            packed => packed,
        });
    }
}

/// With neither `rows` nor `columns`.
///
/// # Safety
/// As `all_rows`.
#[inline(always)]
unsafe fn dense<V: Vector, const R: usize>(p: &Product<V::Number>) {
    // SAFETY: the *Product invariant*, with rows and columns that are as far apart as the constants
    // say.
    unsafe {
        match (p.a_row == 1, p.n <= V::LANES) {
            (true, false) => all_rows::<V, SIDE, R, false, false, true, false>(p),
            (true, true) => all_rows::<V, 1, R, false, false, true, false>(p),
            (false, false) => all_rows::<V, SIDE, R, false, false, false, false>(p),
            (false, true) => all_rows::<V, 1, R, false, false, false, false>(p),
        }
    }
}

/// With `rows`.
///
/// # Safety
/// As `all_rows`.
#[inline(always)]
unsafe fn by_rows<V: Vector, const R: usize, const WIDEST: usize>(p: &Product<V::Number>) {
    // SAFETY: the *Product invariant*; `rows` is not null.
    unsafe {
        match (p.a_row == 1, p.n.div_ceil(V::LANES)) {
            (true, 1) => all_rows::<V, 1, R, true, false, true, false>(p),
            (true, wide) if WIDEST > SIDE && wide > SIDE => {
                all_rows::<V, WIDEST, R, true, false, true, false>(p)
            }
            (true, _) => all_rows::<V, SIDE, R, true, false, true, false>(p),
            (false, _) => all_rows::<V, SIDE, R, true, false, false, false>(p),
        }
    }
}

/// With `columns`.
///
/// # Safety
/// As `all_rows`.
#[inline(always)]
unsafe fn by_columns<V: Vector, const R: usize, const TALLEST: usize>(p: &Product<V::Number>) {
    // SAFETY: the *Product invariant*; `columns` is not null.
    unsafe {
        match (p.a_rows.is_null() && p.a_row == 1, p.n <= V::LANES) {
            (true, false) => all_rows::<V, SIDE, TALLEST, false, true, true, false>(p),
            (true, true) => all_rows::<V, 1, TALLEST, false, true, true, false>(p),
            (false, false) => all_rows::<V, SIDE, R, false, true, false, false>(p),
            (false, true) => all_rows::<V, 1, R, false, true, false, false>(p),
        }
    }
}

/// The product of a level of instructions, whose tiles have at most so many rows, registers side by side and
/// rows of neighbours. The kinds have stack frames of their own.
macro_rules! level {
    ($name:ident, $rows:literal, $widest:expr, $tallest:literal $(, #[$attribute:meta])*) => {
        /// # Safety
        /// As `all_rows`; the processor has the instructions.
        unsafe fn $name<V: Vector>(p: Product<V::Number>) {
            $(#[$attribute])*
            unsafe fn neither<V: Vector>(p: &Product<V::Number>) {
                // SAFETY: the *Product invariant*; this level's instructions are `V`'s. Neither
                // table is there.
                unsafe { dense::<V, $rows>(p) }
            }
            $(#[$attribute])*
            unsafe fn rows<V: Vector>(p: &Product<V::Number>) {
                // SAFETY: the *Product invariant*; this level's instructions are `V`'s. `rows` is
                // not null.
                unsafe { by_rows::<V, $rows, { $widest }>(p) }
            }
            $(#[$attribute])*
            unsafe fn keeping<V: Vector>(p: &Product<V::Number>) {
                debug_assert!(p.a_row == 1 && p.n == SIDE * V::LANES);
                // SAFETY: the *Product invariant*; this level's instructions are `V`'s. Neither
                // `rows` nor `keep` is null.
                unsafe { all_rows::<V, SIDE, $rows, true, false, true, true>(p) }
            }
            $(#[$attribute])*
            unsafe fn columns<V: Vector>(p: &Product<V::Number>) {
                // SAFETY: the *Product invariant*; this level's instructions are `V`'s. `columns`
                // is not null.
                unsafe { by_columns::<V, $rows, $tallest>(p) }
            }
            // SAFETY: the processor has the instructions by this function's contract; the *Product
            // invariant* goes on to the kind that fits.
            unsafe {
                match (p.rows.is_null(), p.columns.is_null()) {
                    (true, true) => neither::<V>(&p),
                    (false, true) if !p.keep.is_null() => keeping::<V>(&p),
                    (false, true) => rows::<V>(&p),
                    (_, false) => columns::<V>(&p),
                }
            }
        }
    };
}

level!(baseline, 6, SIDE, 6);
#[cfg(target_arch = "x86_64")]
level!(avx2, 6, SIDE, 6, #[target_feature(enable = "avx2,fma")]);
#[cfg(target_arch = "x86_64")]
level!(
    avx512, 8, WIDEST, 14,
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
);
#[cfg(target_arch = "aarch64")]
level!(neon, 8, WIDEST, 8);

/// The tile of NEON registers: 16 of the 32 are sums, enough for four units that take four cycles for
/// each multiply-add.
#[cfg(target_arch = "aarch64")]
pub fn neon_tile<V: Vector>() -> Tile<V::Number> {
    let (columns, widest) = (SIDE * V::LANES, WIDEST * V::LANES);
    Tile { rows: 8, columns, widest, tallest: 8, run: neon::<V> }
}

/// The tile of plain loops.
#[cfg_attr(target_arch = "aarch64", allow(dead_code, reason = "has a tile of its own"))]
pub fn plain_tile<T: Float>() -> Tile<T> {
    let columns = SIDE * Plain::<T>::LANES;
    Tile { rows: 6, columns, widest: columns, tallest: 6, run: baseline::<Plain<T>> }
}

/// The tile of AVX2 registers: 12 of the 16 are sums.
#[cfg(target_arch = "x86_64")]
pub fn avx2_tile<V: Vector>() -> Tile<V::Number> {
    let columns = SIDE * V::LANES;
    Tile { rows: 6, columns, widest: columns, tallest: 6, run: avx2::<V> }
}

/// The tile of AVX-512 registers: 16 of the 32 are sums.
#[cfg(target_arch = "x86_64")]
pub fn avx512_tile<V: Vector>() -> Tile<V::Number> {
    let (columns, widest) = (SIDE * V::LANES, WIDEST * V::LANES);
    Tile { rows: 8, columns, widest, tallest: 14, run: avx512::<V> }
}

/// `C (+)= A B` for packed B (`pack`) and any number of rows and columns, tile after tile.
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
        // SAFETY: columns j.. of the operands that the caller vouches for.
        unsafe {
            (tile.run)(Product {
                k,
                a,
                a_row,
                a_column,
                b: b.add(j * k),
                c: c.add(j),
                c_row,
                m,
                n: (n - j).min(tile.columns),
                add,
                ..Product::default()
            });
        }
        j += tile.columns;
    }
}
