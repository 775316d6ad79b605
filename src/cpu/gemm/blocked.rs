//! One matrix product on one thread, in the order that the caches want (Goto and van de Geijn 2008,
//! "Anatomy of high-performance matrix multiplication"): a panel of B stays in the first-level cache
//! while a block of A, in the second, goes past it, tile by tile of registers.

use std::mem::MaybeUninit;

use super::Gemm;
use crate::cpu::float::Float;
use crate::cpu::isa;
use crate::cpu::micro::{Product, heights};
use crate::cpu::pack::Panels;
use crate::cpu::parts::with_scratch;
use crate::cpu::prefetch::Later;

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
const REUSED_A: usize = 128;
/// Rows of C for which packing B is.
const REUSED_B: usize = 18;
/// Rows of C for which packing a small B is: one that as a whole stays in the first-level cache.
const SMALL_M: usize = 64;
/// Numbers of a small B, with what is between its rows.
const SMALL_B: usize = 2048;

/// `C = C + alpha A B`, or `alpha A B` with `beta` 0; fastest where C's columns follow one another. With
/// `beta` 0 the rows' sums start with the m numbers at `start`, if that is not null.
///
/// # Safety
/// As [`Gemm::run`]; no size is 0.
pub unsafe fn multiply<T: Float>(product: Gemm<T>, start: *const T) {
    let Gemm { size: (m, n, k), alpha, a, b, beta, c } = product;
    let level = isa::current();
    let (tile, packer) = (T::tile(level), T::packer(level));
    let depth = k.div_ceil(k.div_ceil(DEPTH));
    let packs_a = a.column != 1 || alpha != T::of(1.0) || n > REUSED_A;
    let small = m <= SMALL_M && k * n.max(b.row as usize) <= SMALL_B;
    let packs_b = b.column != 1 || (m > REUSED_B && !small);
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
    let mut distances = [const { MaybeUninit::uninit() }; DEPTH];
    if !packs_b {
        for p in 0..depth {
            distances[p].write(p * b.row as usize);
        }
    }
    with_scratch(left + right, |scratch: &mut [T]| {
        let (right, left) = scratch.split_at_mut(right);
        for j0 in (0..n).step_by(wide) {
            let columns = wide.min(n - j0);
            for p0 in (0..k).step_by(depth) {
                let deep = depth.min(k - p0);
                // Without packing only the last panel, if it is not whole.
                let whole = if packs_b { 0 } else { columns / tile.columns };
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
                    // SAFETY: the caller's promise; the scratch has room for all panels.
                    unsafe { packer(panels) };
                }
                let ahead = keeps_a && b.column == 1;
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
                            // SAFETY: as above.
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
                        (a.at(i0, p0).ptr, a.row as usize, 1, 0)
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
                            // SAFETY: the caller's promise; both operands have `deep` steps.
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
                                (tile.run)(Product { a, c, m, start, ..product });
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
