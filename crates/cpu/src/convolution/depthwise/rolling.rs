//! Source planes times 3x3 filters: forward, and the data gradient at stride 1. Strips of the grid, a few
//! registers wide, run down the plane, and the source is read in place: a source row once per strip for the
//! two or three grid rows that it belongs to, whose sums stay in registers with the filter. Beside the
//! plane the loads of a strip's first and last register are masked.

use super::job::{AHEAD, SquarePlanes};
use super::lanes::{Job, Lanes};
use super::planes::in_rows;
use super::square::{Block, Square, row_from, taps};
use crate::arch::prefetch::prefetch;

/// Most registers of a strip. (Of the registers with fewer than 16 lanes there are not enough for four
/// sums and the filter, but long pieces of rows in the memory's order are worth more than that.)
pub const MOST: usize = 4;

/// Planes of a 3x3 window; only made by `SquarePlanes::run`, whose caller vouches for the results.
pub struct Rolling<'a, const STEP: usize>(pub SquarePlanes<'a>);

impl<const STEP: usize> Job for Rolling<'_, STEP> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let job = self.0;
        let square = job.square;
        let [h, w] = square.source;
        // SAFETY: `Vector`'s *Instructions*, as `Job::run` has them.
        let blocks = unsafe { square.blocks::<V>(false) };
        if STEP == 2 && blocks.len() > MOST {
            // Each source row is read by hardly more than one grid row: what strips save of reading is less than
            // what it costs to take memory in pieces of rows.
            // SAFETY: `Vector`'s *Instructions*; the *Planes invariant*; the square is of 3x3 taps
            // at this step.
            return unsafe { in_rows::<V, 3, STEP, 2>(job) };
        }
        let strips = strips(&blocks, |block| block.edge, MOST);
        let zeros = vec![0f32; w];
        for item in job.items {
            let (source, filter, start) = (job.operands)(item);
            assert!(source.len() == h * w);
            // SAFETY: the masks keep to the source, whose length was just checked; the result is of the
            // grid's size and this thread's own by the *Planes invariant*.
            unsafe {
                let plane = Plane {
                    source: source.as_ptr(),
                    zeros: zeros.as_ptr(),
                    square,
                    filter: square.spread::<V, 3>(filter),
                    start: V::splat(start),
                    out: (job.result)(item),
                };
                for strip in &strips {
                    match strip.len() {
                        1 => plane.strip::<STEP, 1>(strip),
                        2 => plane.strip::<STEP, 2>(strip),
                        3 => plane.strip::<STEP, 3>(strip),
                        _ => plane.strip::<STEP, MOST>(strip),
                    }
                }
            }
        }
    }
}

/// The blocks of strips of at most `most`: alike in length, and of edges only the first and the last.
pub fn strips<B>(blocks: &[B], edge: impl Fn(&B) -> bool, most: usize) -> Vec<&[B]> {
    let length = blocks.len().div_ceil(blocks.len().div_ceil(most));
    let mut strips = vec![];
    let mut rest = blocks;
    while !rest.is_empty() {
        let mut count = length.min(rest.len());
        if let Some(inner) = (1..count).find(|&b| edge(&rest[b])) {
            count = inner + 1;
        }
        let (strip, others) = rest.split_at(count);
        strips.push(strip);
        rest = others;
    }
    strips
}

/// Has brought in what a register reads at `at` of a source row; any address will do.
#[inline(always)]
pub fn fetch<V: Lanes, const STEP: usize>(at: *const f32) {
    prefetch(at);
    if STEP == 2 {
        prefetch(at.wrapping_add(V::LANES));
    }
}

/// What a register of a strip reads of a source row, which begins at `row`.
///
/// # Safety
/// The strip is the square's, the row is one of its source's, and the processor has the instruction set.
#[inline(always)]
pub unsafe fn read<V: Lanes, const STEP: usize, const B: usize>(
    row: *const f32,
    strip: &[Block<V::Mask>; B],
    column: isize,
    b: usize,
) -> [V; 3] {
    let at = row.wrapping_offset((strip[b].first * STEP) as isize + column);
    // SAFETY: the numbers are there by this function's contract; registers in the middle are not edges. `Vector`'s *Instructions*.
    unsafe {
        if b == 0 || b == B - 1 {
            taps::<V, 3, STEP, true>(at, &strip[b].masks)
        } else {
            taps::<V, 3, STEP, false>(at, &strip[b].masks)
        }
    }
}

struct Plane<'a, V> {
    source: *const f32,
    /// A source row of zeros.
    zeros: *const f32,
    square: &'a Square,
    filter: [[V; 3]; 3],
    start: V,
    out: *mut f32,
}

impl<V: Lanes> Plane<'_, V> {
    /// The results of a strip of `B` registers.
    ///
    /// # Safety
    /// The strip is the square's, the source is a plane of it, the result is this thread's own, and the
    /// processor has the instruction set.
    #[inline(always)]
    unsafe fn strip<const STEP: usize, const B: usize>(&self, strip: &[Block<V::Mask>]) {
        let square = self.square;
        let ([height, width], [top, middle, bottom]) = (square.grid, self.filter);
        let [mut y, column] = square.origin;
        let lanes = strip[0].lanes;
        let ahead = AHEAD.min(square.source[0] * square.source[1]);
        let out_ahead = AHEAD.min(height * width);
        // SAFETY: as for this function; the strip has `B` registers.
        unsafe {
            let strip = &*strip.as_ptr().cast::<[Block<V::Mask>; B]>();
            let row = |y: isize| row_from(self.source, square.source, y, self.zeros);
            // Sums of the grid row above, at step 1, and of the one that the last source row began.
            let (mut above, mut own) = ([self.start; B], [self.start; B]);
            if STEP == 1 && y >= 0 {
                let first = row(y);
                for b in 0..B {
                    above[b] = sum(top, read::<V, STEP, B>(first, strip, column, b), self.start);
                }
            }
            y += (STEP == 1) as isize;
            let first = row(y);
            for b in 0..B {
                let x = read::<V, STEP, B>(first, strip, column, b);
                if STEP == 1 {
                    above[b] = sum(middle, x, above[b]);
                }
                own[b] = sum(top, x, self.start);
            }
            y += 1;
            let mut out = self.out;
            for _ in 0..height {
                let mut done = above;
                if STEP == 2 {
                    let center = row(y);
                    for b in 0..B {
                        fetch::<V, STEP>(center.wrapping_add(ahead + strip[b].first * STEP));
                        done[b] = sum(middle, read::<V, STEP, B>(center, strip, column, b), own[b]);
                    }
                    y += 1;
                }
                let last = row(y);
                y += 1;
                for b in 0..B {
                    let x = read::<V, STEP, B>(last, strip, column, b);
                    fetch::<V, STEP>(last.wrapping_add(ahead + strip[b].first * STEP));
                    prefetch(out.wrapping_add(out_ahead + strip[b].first));
                    done[b] = sum(bottom, x, done[b]);
                    if STEP == 1 {
                        above[b] = sum(middle, x, own[b]);
                    }
                    own[b] = sum(top, x, self.start);
                }
                for b in 0..B {
                    let to = out.add(strip[b].first);
                    let done = if STEP == 2 { done[b].reordered() } else { done[b] };
                    if B == 1 {
                        done.store_masked(to, lanes);
                    } else {
                        done.store(to);
                    }
                }
                out = out.add(width);
            }
        }
    }
}

/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn sum<V: Lanes>(filter: [V; 3], x: [V; 3], start: V) -> V {
    // SAFETY: `Vector`'s *Instructions*; registers only.
    unsafe { x[2].fma(filter[2], x[1].fma(filter[1], x[0].fma(filter[0], start))) }
}
