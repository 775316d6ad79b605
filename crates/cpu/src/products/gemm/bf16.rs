//! Matrix products of bf16 whose operands are multiplied in pairs, see [`pairs`](crate::products::pairs): sums in
//! f32, which are rounded once. Blocks and threads are divided as for f32; see [`blocked`](super::blocked).

use half::bf16;

use super::operands::Matrix;
use super::share::{WORTH_A_THREAD, each_of};
use crate::arch::prefetch::prefetch;
use crate::products::micro::{Product, Tile, heights};
use crate::products::pairs::{self, Finish, HalfPanels, Kernels, Round, are_pairs};
use crate::threads::parts::{Shared, with_scratch};
use crate::threads::{get_num_threads, parallel_for};

/// Most pairs in a tile's sum. Its panel of B, 128 bytes for each, comes from the second-level cache; shorter sums
/// would fit the first, but more of them have parts, which are kept in f32.
const DEPTH: usize = 512;
/// Rows of A that are packed at once, which stay in the second-level cache.
const ROWS: usize = 96;
/// Columns of B that are packed at once.
const WIDE: usize = 1024;
/// Rows of the sums that are kept in f32 where they have several parts.
const TALL: usize = 1024;
/// Columns of C for which packing A is worth its while.
const REUSED_A: usize = 128;

/// `C = A B`, or more in the end: `m x k` times `k x n` numbers of bf16.
///
/// *HalfGemm invariant*, kept by whoever runs one: [`HalfGemm::is_there`]; A, B and the start are readable and C is
/// writable wherever their strides, which are not negative, lead; C does not overlap them nor itself, and nobody else uses
/// C.
#[derive(Clone, Copy)]
pub struct HalfGemm {
    /// m, n and k.
    pub size: (usize, usize, usize),
    /// `m x k`.
    pub a: Matrix<*const bf16>,
    /// `k x n`.
    pub b: Matrix<*const bf16>,
    /// `m x n`, whose columns follow one another.
    pub c: Matrix<*mut bf16>,
    /// What becomes of the sums, if they are not the result.
    pub finish: Option<Finish>,
}

impl HalfGemm {
    /// Whether this processor has the instructions.
    #[inline]
    pub fn is_there() -> bool {
        pairs::kernels().is_some()
    }

    /// The product.
    ///
    /// # Safety
    /// The *HalfGemm invariant*.
    pub unsafe fn run(self) {
        let (m, n, k) = self.size;
        let flops = 2 * m * n * k;
        if flops < 2 * WORTH_A_THREAD || get_num_threads() == 1 {
            // SAFETY: the *HalfGemm invariant*.
            return unsafe { self.run_here() };
        }
        // Along the longer side, in pieces that whole register tiles fill.
        let (long, piece) = if n >= m { (n, 32) } else { (m, 8) };
        let pieces = long.div_ceil(piece);
        let grain = (pieces * WORTH_A_THREAD).div_ceil(flops);
        let shared = Shared::new(self);
        parallel_for(pieces, grain, |range| {
            let (from, to) = (range.start * piece, (range.end * piece).min(long));
            let all = shared.get();
            let (size, at) = if n >= m {
                ((m, to - from, k), (0, from))
            } else {
                ((to - from, n, k), (from, 0))
            };
            let finish = all.finish.map(|f| f.at(at.0, at.1));
            let (a, b, c) = (all.a.at(at.0, 0), all.b.at(0, at.1), all.c.at(at.0, at.1));
            // SAFETY: the *HalfGemm invariant*; the threads' parts of C are disjoint.
            unsafe { HalfGemm { size, a, b, c, finish }.run_here() };
        });
    }

    /// One product per item of `offsets`: of A, of B and of C, in elements. There is no start.
    ///
    /// # Safety
    /// As [`HalfGemm::run`], for every product; the results are disjoint.
    pub unsafe fn run_batched(self, offsets: &[[isize; 3]]) {
        let moved = |all: Self, [a, b, c]: [isize; 3]| HalfGemm {
            a: all.a.moved(a),
            b: all.b.moved(b),
            c: all.c.moved(c),
            ..all
        };
        let shared = Shared::new(self);
        // SAFETY: the *HalfGemm invariant* of each product; the results are disjoint.
        let whole = |item| unsafe { moved(shared.get(), item).run() };
        // SAFETY: the *HalfGemm invariant* of each product; the results are disjoint.
        let here = |item| unsafe { moved(shared.get(), item).run_here() };
        each_of(self.size, offsets, whole, here);
    }

    /// The product, on this thread.
    ///
    /// # Safety
    /// As [`HalfGemm::run`].
    unsafe fn run_here(self) {
        let (m, n, _) = self.size;
        debug_assert_eq!(self.c.column, 1);
        if let Some(kernels) = pairs::kernels().filter(|_| m > 0 && n > 0) {
            // SAFETY: the *HalfGemm invariant*; C is not empty.
            unsafe { self.multiply(kernels) }
        }
    }

    /// # Safety
    /// As [`HalfGemm::run`]; C is not empty.
    unsafe fn multiply(self, kernels: Kernels) {
        let tile = kernels.tile;
        let HalfGemm { size: (m, n, k), a, b, c, finish } = self;
        let steps = k.div_ceil(2).max(1);
        let depth = steps.div_ceil(steps.div_ceil(DEPTH));
        let whole = depth == steps;
        let wide = WIDE.min(n.next_multiple_of(tile.columns));
        let tall = if whole { m } else { TALL.min(m) };
        let height = tall.div_ceil(tall.div_ceil(ROWS)).next_multiple_of(tile.rows);
        let in_place = a.column == 1 && n <= REUSED_A && k % 2 == 0 && are_pairs(a.ptr, a.row);
        // Not a whole number of pages apart, whose lines would share a set of the first-level cache.
        let distance = (depth | 1) * tile.columns;
        let right = distance * wide.div_ceil(tile.columns);
        let left = if in_place { 0 } else { depth * height };
        // Sums of a column of tiles, or, in columns of tiles, of all.
        let sums = if whole { height * tile.columns } else { tall * wide };
        with_scratch(right + left + sums, |scratch: &mut [f32]| {
            let (right, rest) = scratch.split_at_mut(right);
            let (left, sums) = rest.split_at_mut(left);
            for j0 in (0..n).step_by(wide) {
                for i1 in (0..m).step_by(tall) {
                    for p0 in (0..steps).step_by(depth) {
                        let deep = (k - (2 * p0).min(k)).min(2 * depth);
                        let columns = wide.min(n - j0);
                        let panels = HalfPanels {
                            k: deep,
                            source: b.at(2 * p0, j0).ptr,
                            row: b.row,
                            column: b.column,
                            count: columns,
                            width: tile.columns,
                            out: right.as_mut_ptr(),
                            distance,
                        };
                        // SAFETY: the *HalfGemm invariant*; the scratch has room for all panels.
                        unsafe { pairs::pack(panels) };
                        let end = m.min(i1 + tall);
                        for i0 in (i1..end).step_by(height) {
                            let rows = height.min(end - i0);
                            if !in_place {
                                // SAFETY: the *HalfGemm invariant*; there is room for `height` rows.
                                unsafe { self.pack_left(tile, (i0, rows), (p0, deep), left) };
                            }
                            for j in (0..columns).step_by(tile.columns) {
                                let count = tile.columns.min(columns - j);
                                let at =
                                    if whole { 0 } else { j * tall + (i0 - i1) * tile.columns };
                                let sums = sums[at..][..rows * tile.columns].as_mut_ptr();
                                let pairs = deep.div_ceil(2);
                                let (a, a_row, a_column, a_tile) = if in_place {
                                    (a.at(i0, 2 * p0).ptr.cast(), a.row as usize / 2, 1, 0)
                                } else {
                                    (left.as_ptr(), 1, tile.rows, tile.rows * pairs)
                                };
                                let product = Product {
                                    k: pairs,
                                    a,
                                    a_row,
                                    a_column,
                                    a_tile,
                                    b: right[j / tile.columns * distance..].as_ptr(),
                                    c: sums,
                                    c_row: tile.columns,
                                    m: rows,
                                    // Whole registers.
                                    n: count.next_multiple_of(tile.columns / 2),
                                    add: p0 > 0,
                                    ..Product::default()
                                };
                                let last = p0 + depth >= steps;
                                if last {
                                    // Wanted at the end, and often not in the caches.
                                    for i in 0..rows {
                                        prefetch(c.at(i0 + i, j0 + j).ptr);
                                    }
                                }
                                // SAFETY: both operands have `deep` steps; the sums have room.
                                unsafe {
                                    (tile.run)(product);
                                    if last {
                                        (kernels.round)(Round {
                                            from: sums,
                                            distance: tile.columns,
                                            size: (rows, count),
                                            to: c.at(i0, j0 + j),
                                            finish: finish.map(|f| f.at(i0, j0 + j)),
                                        });
                                    }
                                }
                            }
                        }
                    }
                }
            }
        });
    }

    /// Packs rows `i0..i0 + rows` of A, steps from pair p0 on.
    ///
    /// # Safety
    /// As [`HalfGemm::run`], and `left` has room.
    unsafe fn pack_left(
        &self,
        tile: Tile<f32>,
        (mut i, rows): (usize, usize),
        (p0, deep): (usize, usize),
        left: &mut [f32],
    ) {
        let len = tile.rows * deep.div_ceil(2);
        for (t, count) in heights(rows, tile.rows).enumerate() {
            let panel = HalfPanels {
                k: deep,
                source: self.a.at(i, 2 * p0).ptr,
                row: self.a.column,
                column: self.a.row,
                count,
                width: tile.rows,
                out: left[t * len..][..len].as_mut_ptr(),
                distance: 0,
            };
            // SAFETY: the *HalfGemm invariant* for A; `out` is a slice of the panel's length.
            unsafe { pairs::pack(panel) };
            i += count;
        }
    }
}
