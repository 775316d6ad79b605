//! The gradient of square filters: each tap's sum stays in a register while a source plane and the
//! gradient's plane pass by. Those of 3x3 taps are [`rolling_filters`](super::rolling_filters).

use std::slice;

use super::job::SquareFilters;
use super::lanes::{Job, Lanes};
use super::square::{Block, Rows, Square, rows_from, taps, unrolled};

/// Numbers that a lane adds up before its sum is added to the total, in f64.
pub const RUN: usize = 512;

/// Filters of 5x5 taps; only made by `SquareFilters::run`, whose caller vouches for `out`.
pub struct Sized<'a, const K: usize, const STEP: usize>(pub SquareFilters<'a>);

impl<const K: usize, const STEP: usize> Job for Sized<'_, K, STEP> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        // SAFETY: `Vector`'s *Instructions*, as `Job::run` has them; the *Planes invariant*.
        unsafe { all::<V, K, STEP>(self.0) }
    }
}

/// # Safety
/// As [`SquareFilters::run`], K and STEP are the square's, and the processor has the instruction set.
#[inline(always)]
unsafe fn all<V: Lanes, const K: usize, const STEP: usize>(job: SquareFilters) {
    let square = job.square;
    // SAFETY: `Vector`'s *Instructions*, which `blocks` asks for.
    let blocks = unsafe { square.blocks::<V>(true) };
    let zeros = vec![0f32; square.source[1]];
    for c in job.channels.clone() {
        let mut places = [0f64; 25];
        // SAFETY: `Vector`'s *Instructions*; the *Planes invariant*. Ten sums fit in the registers.
        unsafe {
            let walk = Walk { job: &job, blocks: &blocks, zeros: &zeros, channel: c };
            walk.tap_rows::<V, K, STEP, 2, 2>(0, &mut places);
            walk.tap_rows::<V, K, STEP, 2, 2>(2, &mut places);
            walk.tap_rows::<V, K, STEP, 1, 2>(4, &mut places);
        }
        // SAFETY: these channels are this thread's.
        let out = unsafe { job.out.slice(c * K * K..(c + 1) * K * K) };
        for (out, sum) in out.iter_mut().zip(square.gathered(&places)) {
            *out = sum as f32;
        }
    }
}

struct Walk<'a, 'b, M> {
    job: &'a SquareFilters<'b>,
    blocks: &'a [Block<M>],
    /// A row of zeros.
    zeros: &'a [f32],
    channel: usize,
}

impl<M: Copy> Walk<'_, '_, M> {
    /// The sums of `TAPS` rows of taps from row `first` on, over all images, `ROWS` grid rows at a time.
    ///
    /// # Safety
    /// As [`all`].
    #[inline(always)]
    unsafe fn tap_rows<
        V: Lanes<Mask = M>,
        const K: usize,
        const STEP: usize,
        const TAPS: usize,
        const ROWS: usize,
    >(
        &self,
        first: usize,
        places: &mut [f64],
    ) {
        let square = self.job.square;
        let ([h, w], [height, width]) = (square.source, square.grid);
        // SAFETY: `Vector`'s *Instructions*; the operands' lengths are checked.
        unsafe {
            let mut sums = [[V::splat(0.0); K]; TAPS];
            let mut added = 0;
            for n in 0..self.job.batch {
                let (source, gradient) = (self.job.operands)(n, self.channel);
                assert!(source.len() == h * w && gradient.len() == height * width);
                let pair = Pair { square, source: source.as_ptr(), gradient: gradient.as_ptr() };
                let whole = height - height % ROWS;
                let mut i = 0;
                while i < height {
                    let count = if i < whole { ROWS } else { 1 };
                    let top = (i * STEP + first) as isize + square.origin[0];
                    let reach = (count - 1) * STEP + TAPS;
                    let rows = rows_from(pair.source, square.source, top, self.zeros, reach);
                    for block in self.blocks {
                        sums =
                            match (block.edge, count == 1) {
                                (false, false) => pair
                                    .block::<V, K, STEP, TAPS, ROWS, false>(i, &rows, block, sums),
                                (true, false) => pair
                                    .block::<V, K, STEP, TAPS, ROWS, true>(i, &rows, block, sums),
                                (false, true) => {
                                    pair.block::<V, K, STEP, TAPS, 1, false>(i, &rows, block, sums)
                                }
                                (true, true) => {
                                    pair.block::<V, K, STEP, TAPS, 1, true>(i, &rows, block, sums)
                                }
                            };
                    }
                    i += count;
                    added += count * self.blocks.len();
                    if added >= RUN || (i == height && n + 1 == self.job.batch) {
                        let lines = sums;
                        let lines = slice::from_raw_parts(
                            lines.as_ptr().cast::<f32>(),
                            TAPS * K * V::LANES,
                        );
                        add_totals(lines, V::LANES, &mut places[first * K..]);
                        sums = [[V::splat(0.0); K]; TAPS];
                        added = 0;
                    }
                }
            }
        }
    }
}

/// Adds the sums of lines of `lanes` numbers. (Not part of the loop: its indices would keep the loop's sums
/// out of the registers.)
#[inline(never)]
fn add_totals(lines: &[f32], lanes: usize, places: &mut [f64]) {
    for (place, line) in places.iter_mut().zip(lines.chunks_exact(lanes)) {
        *place += line.iter().map(|&sum| sum as f64).sum::<f64>();
    }
}

/// A source plane and a gradient's plane.
struct Pair<'a> {
    square: &'a Square,
    source: *const f32,
    gradient: *const f32,
}

impl Pair<'_> {
    /// Adds the products of a block of the grid rows from i on, which read `rows`, to the taps' sums.
    ///
    /// # Safety
    /// The block is the square's; the planes are of the square's sizes, and
    /// the processor has the instruction set.
    #[inline(always)]
    unsafe fn block<
        V: Lanes,
        const K: usize,
        const STEP: usize,
        const TAPS: usize,
        const ROWS: usize,
        const EDGE: bool,
    >(
        &self,
        i: usize,
        rows: &Rows,
        block: &Block<V::Mask>,
        mut sums: [[V; K]; TAPS],
    ) -> [[V; K]; TAPS] {
        let width = self.square.grid[1];
        let column = (block.first * STEP) as isize + self.square.origin[1];
        // SAFETY: the lanes of the grid rows are there.
        let gradient = unsafe {
            let mut lines = [V::splat(0.0); ROWS];
            for k in 0..ROWS {
                let from = self.gradient.add((i + k) * width + block.first);
                let line = if EDGE { V::load_masked(from, &block.lanes) } else { V::load(from) };
                lines[k] = if STEP == 2 { line.reordered() } else { line };
            }
            lines
        };
        unrolled!(t < (ROWS - 1) * STEP + TAPS => {
            let row = rows[t].wrapping_offset(column);
            // SAFETY: a row of the plane, or zeros, read where the block's masks say; `Vector`'s *Instructions*.
            unsafe {
                let x = taps::<V, K, STEP, EDGE>(row, &block.masks);
                for k in 0..ROWS {
                    if t >= k * STEP && t - k * STEP < TAPS {
                        for s in 0..K {
                            let sum = &mut sums[t - k * STEP][s];
                            *sum = gradient[k].fma(x[s], *sum);
                        }
                    }
                }
            }
        });
        sums
    }
}
