//! Source planes times square filters: forward, and the data gradient at stride 1. The source is read in
//! place: each of its row vectors is loaded once for several grid rows, and what is outside the plane
//! is masked out of the load. Filters of 3x3 taps are mostly [`rolling`](super::rolling)'s.

use super::job::{AHEAD, SquarePlanes};
use super::lanes::{Job, Lanes};
use super::square::{Block, Rows, Square, rows_from, taps, unrolled};
use crate::arch::prefetch::prefetch;

/// Planes of a certain window, of which `ROWS` grid rows are computed together; only made by
/// `SquarePlanes::run`, whose caller vouches for the results.
pub struct Sized<'a, const K: usize, const STEP: usize, const ROWS: usize>(pub SquarePlanes<'a>);

impl<const K: usize, const STEP: usize, const ROWS: usize> Job for Sized<'_, K, STEP, ROWS> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        // SAFETY: `Vector`'s *Instructions*, as `Job::run` has them; the *Planes invariant*.
        unsafe { in_rows::<V, K, STEP, ROWS>(self.0) }
    }
}

/// The planes, `ROWS` whole grid rows at a time.
///
/// # Safety
/// As [`SquarePlanes::run`], K and STEP are the square's, and the processor has the instruction set.
#[inline(always)]
pub unsafe fn in_rows<V: Lanes, const K: usize, const STEP: usize, const ROWS: usize>(
    job: SquarePlanes,
) {
    let square = job.square;
    let ([h, w], height) = (square.source, square.grid[0]);
    // SAFETY: `Vector`'s *Instructions*, which `blocks` asks for.
    let blocks = unsafe { square.blocks::<V>(false) };
    let zeros = vec![0f32; w];
    for item in job.items {
        let (source, filter, start) = (job.operands)(item);
        assert!(source.len() == h * w && filter.len() == K * K);
        // SAFETY: the blocks' masks keep to the source, whose length was just checked; the result is of
        // the grid's size and this thread's own by the *Planes invariant*.
        unsafe {
            let plane = Plane::<V, K> {
                source: source.as_ptr(),
                square,
                filter: square.spread(filter),
                start: V::splat(start),
                out: (job.result)(item),
            };
            let whole = height - height % ROWS;
            let rows = |i: usize, count: usize| {
                let top = (i * STEP) as isize + square.origin[0];
                rows_from(plane.source, square.source, top, &zeros, (count - 1) * STEP + K)
            };
            for i in (0..whole).step_by(ROWS) {
                let rows = rows(i, ROWS);
                for block in &blocks {
                    plane.block::<STEP, ROWS>(i, &rows, block);
                }
            }
            for i in whole..height {
                let rows = rows(i, 1);
                for block in &blocks {
                    plane.block::<STEP, 1>(i, &rows, block);
                }
            }
        }
    }
}

struct Plane<'a, V, const K: usize> {
    source: *const f32,
    square: &'a Square,
    filter: [[V; K]; K],
    start: V,
    out: *mut f32,
}

impl<V: Lanes, const K: usize> Plane<'_, V, K> {
    /// A block of the grid rows from i on, which read `rows`.
    ///
    /// # Safety
    /// As `sums`; the result is this thread's own.
    #[inline(always)]
    unsafe fn block<const STEP: usize, const ROWS: usize>(
        &self,
        i: usize,
        rows: &Rows,
        block: &Block<V::Mask>,
    ) {
        let [height, width] = self.square.grid;
        // SAFETY: the *Planes invariant*; the block's points are in the grid row, and what a whole register
        // writes past them is in rows of this plane that are written later.
        unsafe {
            let sums = if block.edge {
                self.sums::<STEP, ROWS, true>(rows, block)
            } else {
                self.sums::<STEP, ROWS, false>(rows, block)
            };
            for (k, sum) in sums.into_iter().enumerate() {
                let sum = if STEP == 2 { sum.reordered() } else { sum };
                let at = (i + k) * width + block.first;
                if block.count == V::LANES || at + V::LANES <= height * width {
                    sum.store(self.out.add(at));
                } else {
                    sum.store_first(self.out.add(at), block.count);
                }
            }
        }
    }

    /// The sums of a block of the grid rows that read `rows`.
    ///
    /// # Safety
    /// The block and its masks are the square's, the source is a plane of it, and the processor has the
    /// instruction set.
    #[inline(always)]
    unsafe fn sums<const STEP: usize, const ROWS: usize, const EDGE: bool>(
        &self,
        rows: &Rows,
        block: &Block<V::Mask>,
    ) -> [V; ROWS] {
        let column = (block.first * STEP) as isize + self.square.origin[1];
        let mut sums = [self.start; ROWS];
        unrolled!(t < (ROWS - 1) * STEP + K => {
            let row = rows[t].wrapping_offset(column);
            // SAFETY: a row of the plane, or zeros, read where the block's masks say; `Vector`'s *Instructions*.
            unsafe {
                let x = taps::<V, K, STEP, EDGE>(row, &block.masks);
                if t + STEP >= K {
                    prefetch(row.wrapping_add(AHEAD));
                }
                for k in 0..ROWS {
                    if t >= k * STEP && t - k * STEP < K {
                        for s in 0..K {
                            sums[k] = x[s].fma(self.filter[t - k * STEP][s], sums[k]);
                        }
                    }
                }
            }
        });
        sums
    }
}
