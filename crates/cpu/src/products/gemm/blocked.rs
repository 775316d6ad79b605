//! One matrix product on one thread, in the order that the caches want (Goto and van de Geijn 2008,
//! "Anatomy of high-performance matrix multiplication"): a panel of B stays in the first-level cache
//! while a block of A, in the second, goes past it, tile by tile of registers.

use std::mem::MaybeUninit;

use super::operands::{Gemm, Matrix};
use crate::arch::cache::{self, LINE};
use crate::arch::isa;
use crate::arch::prefetch::Later;
use crate::products::micro::{Aside, Product, TOGETHER, Tile, heights};
use crate::products::panels::Panels;
use crate::products::tiled::Tiled;
use crate::threads::parts::with_scratch;

/// Longest sum of a tile: longer ones would push the panel of B, 64 bytes a step, out of the first-level
/// cache, and shorter ones read and write C more often.
const DEPTH: usize = 384;
/// Rows of A that are packed at once, which stay in the second-level cache.
const ROWS: usize = 96;
/// Columns of B that are packed at once, which stay in the third.
const WIDE: usize = 2048;
/// Bytes of a packed A that stays in the second-level cache as a whole. Then B is packed panel by panel, which
/// never leave the first, and is read once, while the products of what was read before are computed.
const KEPT_A: usize = 256 << 10;
/// Columns of C for which packing A is worth its while.
const REUSED_A: usize = 512;
/// Rows of C for which packing B is.
const REUSED_B: usize = 18;
/// Rows of C for which packing a B is whose rows start anywhere in a cache line.
const REUSED_UNALIGNED: usize = 512;
/// Bytes of a first-level cache from which on an operand may lie as it likes in the second, from which tiles read it
/// as fast: their sums take longer. In a smaller one its lines, many of which share a set, are in the way of what
/// another program has there that runs on the same core.
const ROOMY: usize = 48 << 10;
/// Lines of a set in a smaller one that an operand may take.
const SHARING: usize = 4;
/// Bytes between rows whose lines share one set of the first-level cache.
const PAGE: usize = 4096;

/// `C = C + alpha A B`, or `alpha A B` with `beta` 0; fastest where C's columns follow one another. With
/// `beta` 0 the rows' sums start with the m numbers at `start`, if that is not null.
///
/// # Safety
/// As [`Gemm::run`]; no size is 0.
pub unsafe fn multiply<T: Tiled>(product: &Gemm<T>, start: *const T) {
    let &Gemm { size: (m, n, k), alpha, a, b, .. } = product;
    let tile = T::tile(isa::current());
    let roomy = |apart: isize| cache::first() >= ROOMY || sharing::<T>(k, apart) <= SHARING;
    let lies = a.column == 1 || (a.row == 1 && roomy(a.column) && is_near::<T>(k, a.column));
    let packs_a = !lies || n > REUSED_A || alpha != T::of(1.0);
    let packs_b = b.column != 1
        || (m > REUSED_B && !(roomy(b.row) && is_near::<T>(k, b.row) && is_read_well(b, m)));
    // SAFETY: the *Gemm invariant*; in place every tile's columns are all there.
    unsafe {
        if !packs_a && !packs_b && n.is_multiple_of(tile.columns) && k <= DEPTH {
            in_place(product, tile, start);
        } else {
            in_blocks(product, tile, (packs_a, packs_b), start);
        }
    }
}

/// Whether an operand of k rows that lie `apart` stays in the second-level cache with what is between them.
fn is_near<T>(k: usize, apart: isize) -> bool {
    k * apart as usize * size_of::<T>() <= cache::second() / 4
}

/// [`multiply`], with copies of the operands of which `packs` says so, of A and of B.
///
/// # Safety
/// As [`multiply`]; without a copy A's rows or columns are dense, and B's rows.
#[inline(never)]
unsafe fn in_blocks<T: Tiled>(
    product: &Gemm<T>,
    tile: Tile<T>,
    (packs_a, packs_b): (bool, bool),
    start: *const T,
) {
    let &Gemm { size: (m, n, k), alpha, a, b, beta, c } = product;
    let packer = T::packer(isa::current());
    let depth = k.div_ceil(k.div_ceil(DEPTH));
    let whole = m.next_multiple_of(tile.rows);
    let keeps_a = packs_a && packs_b && whole * k * size_of::<T>() <= KEPT_A;
    let (height, wide) = if keeps_a {
        (whole, tile.columns)
    } else {
        let height = m.div_ceil(m.div_ceil(ROWS)).next_multiple_of(tile.rows);
        (height, WIDE.min(n.next_multiple_of(tile.columns)))
    };
    // Panels of B are not a whole number of pages apart, whose lines would share a set of the first-level
    // cache.
    let distance = (depth | 1) * tile.columns;
    let left = if packs_a { height * if keeps_a { k } else { depth } } else { 0 };
    let right = distance * wide.div_ceil(tile.columns);
    // Columns of tiles read parts of many rows of memory, each of which had better be read in one go: beside each
    // of some columns a part of the rows, for as many columns.
    let aside = |column: usize, deep: usize| {
        let turn = column / tile.columns % TOGETHER;
        let far = !packs_b && !is_near::<T>(k, b.row);
        Aside {
            first: turn * deep / TOGETHER,
            distance: if far { (TOGETHER - turn) * tile.columns } else { 0 },
        }
    };
    let mut distances = [const { MaybeUninit::uninit() }; DEPTH];
    if !packs_b || keeps_a {
        fill(&mut distances[..depth], b.row as usize);
    }
    with_scratch(left + right, |scratch: &mut [T]| {
        let (right, left) = scratch.split_at_mut(right);
        for j0 in (0..n).step_by(wide) {
            let columns = wide.min(n - j0);
            for p0 in (0..k).step_by(depth) {
                let deep = depth.min(k - p0);
                let ahead = keeps_a && b.column == 1;
                // The first of a column's tiles reads a whole panel of rows where they are, and packs it on the way.
                let on_the_way = ahead && columns == tile.columns;
                // Without packing only the last panel, if it is not whole.
                let whole = if packs_b && !on_the_way { 0 } else { columns / tile.columns };
                let first = whole * tile.columns;
                let panels = Panels {
                    k: deep,
                    source: b.at(p0, j0 + first).ptr,
                    row: b.row,
                    column: b.column,
                    count: columns - first,
                    readable: n - j0 - first,
                    width: tile.columns,
                    out: right[whole * distance..].as_mut_ptr(),
                    distance,
                };
                if panels.count > 0 {
                    // SAFETY: the *Gemm invariant* for B; the scratch has room for all panels.
                    unsafe { packer(panels) };
                }
                let next = if p0 + deep < k { (p0 + deep, j0) } else { (0, j0 + columns) };
                let (of, each) = (depth.min(k - next.0), wide.min(n - next.1));
                let turns = columns.div_ceil(tile.columns) * m.div_ceil(tile.rows);
                let rows = (if ahead && each > 0 { of } else { 0 }, b.row as usize);
                let mut later = Later::new(b.at(next.0, next.1).ptr, each, rows, turns);
                let left = if keeps_a { &mut left[p0 * height..] } else { &mut *left };
                for i0 in (0..m).step_by(height) {
                    let rows = height.min(m - i0);
                    if packs_a && (!keeps_a || j0 == 0) {
                        let mut i = i0;
                        for (panel, count) in
                            left.chunks_exact_mut(tile.rows * deep).zip(heights(rows, tile.rows))
                        {
                            let packing = Panels {
                                k: deep,
                                source: a.at(i, p0).ptr,
                                row: a.column,
                                column: a.row,
                                count,
                                readable: m - i,
                                width: tile.rows,
                                out: panel.as_mut_ptr(),
                                distance: 0,
                            };
                            // SAFETY: the *Gemm invariant* for A; `panel` has room for `deep`
                            // columns.
                            unsafe { packer(packing) };
                            if alpha != T::of(1.0) {
                                panel.iter_mut().for_each(|v| *v = alpha * *v);
                            }
                            i += count;
                        }
                    }
                    let (a, a_row, a_column, a_tile) = if packs_a {
                        (left.as_ptr(), 1, tile.rows, tile.rows * deep)
                    } else {
                        (a.at(i0, p0).ptr, a.row as usize, a.column as usize, 0)
                    };
                    for j in (0..columns).step_by(tile.columns) {
                        let count = tile.columns.min(columns - j);
                        let (panel, places) = if packs_b || count < tile.columns {
                            (right[j / tile.columns * distance..].as_ptr(), std::ptr::null())
                        } else {
                            (b.at(p0, j0 + j).ptr, distances.as_ptr().cast())
                        };
                        // The first block of the sums brings it along.
                        let start = if start.is_null() || p0 > 0 {
                            std::ptr::null()
                        } else {
                            // SAFETY: there are m numbers.
                            unsafe { start.add(i0) }
                        };
                        let product = Product {
                            k: deep,
                            a,
                            a_row,
                            a_column,
                            a_tile,
                            b: panel,
                            rows: places,
                            aside: aside(j, deep),
                            c: c.at(i0, j0 + j).ptr,
                            c_row: c.row as usize,
                            c_column: c.column as usize,
                            m: rows,
                            n: count,
                            add: p0 > 0 || beta != T::ZERO,
                            start,
                            ..Product::default()
                        };
                        if !ahead {
                            // SAFETY: the *Gemm invariant*; both operands have `deep` steps.
                            unsafe { (tile.run)(product) };
                            continue;
                        }
                        // One by one: lines that are asked for all at once wait for one another.
                        let mut i = 0;
                        for (t, m) in heights(rows, tile.rows).enumerate() {
                            let (a, c) = (left[t * a_tile..].as_ptr(), c.at(i, j0 + j).ptr);
                            // SAFETY: as above, of one tile's rows.
                            unsafe {
                                let start = if start.is_null() { start } else { start.add(i) };
                                let mut product = Product { a, c, m, start, ..product };
                                if on_the_way && t == 0 {
                                    product.keep = right.as_mut_ptr();
                                    product.b = b.at(p0, j0).ptr;
                                    product.rows = distances.as_ptr().cast();
                                }
                                (tile.run)(product);
                            }
                            later.bring();
                            i += m;
                        }
                    }
                }
            }
        }
    });
}

/// Whether tiles may read B's rows where they are, m rows of C one after another: most rows' lines are not in
/// each other's way, and registers do not cross from line to line too often.
fn is_read_well<T>(b: Matrix<*const T>, m: usize) -> bool {
    let apart = b.row as usize * size_of::<T>();
    let aligned = apart.is_multiple_of(LINE) && b.ptr.addr().is_multiple_of(LINE);
    !(apart > 0 && apart.is_multiple_of(PAGE)) && (aligned || m <= REUSED_UNALIGNED)
}

/// How many of k rows that lie `apart` have their lines in the same set of the first-level cache.
pub fn sharing<T>(k: usize, apart: isize) -> usize {
    let bytes = apart as usize * size_of::<T>();
    // The largest power of two that divides the distance: the rows come back to a set after a page.
    let step = (1 << bytes.trailing_zeros().min(PAGE.trailing_zeros())).max(LINE);
    k.div_ceil(PAGE / step)
}

/// Where rows are that lie `apart`.
fn fill(distances: &mut [MaybeUninit<usize>], apart: usize) {
    for (p, distance) in distances.iter_mut().enumerate() {
        distance.write(p * apart);
    }
}

/// [`multiply`] of operands that both are used where they are.
///
/// # Safety
/// As [`multiply`]; A's rows or columns and B's rows are dense, n is a multiple of the tile's columns, k at most [`DEPTH`].
unsafe fn in_place<T: Tiled>(product: &Gemm<T>, tile: Tile<T>, start: *const T) {
    let &Gemm { size: (m, n, k), a, b, beta, c, .. } = product;
    let mut distances = [const { MaybeUninit::uninit() }; DEPTH];
    // One panel of dense rows is what packing would make of it.
    let rows = if b.row as usize == tile.columns {
        std::ptr::null()
    } else {
        fill(&mut distances[..k], b.row as usize);
        distances.as_ptr().cast()
    };
    for j in (0..n).step_by(tile.columns) {
        // SAFETY: the *Gemm invariant*; `rows` is null or has k distances.
        unsafe {
            (tile.run)(Product {
                k,
                a: a.ptr,
                a_row: a.row as usize,
                a_column: a.column as usize,
                b: b.at(0, j).ptr,
                rows,
                c: c.at(0, j).ptr,
                c_row: c.row as usize,
                c_column: c.column as usize,
                m,
                n: tile.columns,
                add: beta != T::ZERO,
                start,
                ..Product::default()
            });
        }
    }
}
