//! The gradient of 3x3 filters: strips of the grid, a few registers wide, run down a source plane and the
//! gradient's plane. A source row is read once per strip and meets the grid rows that read it, which are
//! still in registers, as are the sums of all taps.

use super::filters::RUN;
use super::job::{AHEAD, SquareFilters};
use super::lanes::{Job, Lanes};
use super::rolling::{MOST, fetch, read, strips};
use super::square::{Block, Square, row_from};
use crate::arch::prefetch::prefetch;

/// Filters of a 3x3 window; only made by `SquareFilters::run`, whose caller vouches for `out`.
pub struct RollingFilters<'a, const STEP: usize>(pub SquareFilters<'a>);

impl<const STEP: usize> Job for RollingFilters<'_, STEP> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) {
        let job = self.0;
        let square = job.square;
        let ([h, w], [height, width]) = (square.source, square.grid);
        // SAFETY: `Vector`'s *Instructions*, as `Job::run` has them.
        let blocks = unsafe { square.blocks::<V>(true) };
        // Of 16 registers nine sums leave as many as one block needs, and a small plane is read fast in any order.
        let most = if V::LANES == 8 && blocks.len() <= 2 { 1 } else { MOST };
        let strips = strips(&blocks, |block| block.edge, most);
        let zeros = vec![0f32; w.max(width)];
        for c in job.channels.clone() {
            let mut places = [0f64; 9];
            // SAFETY: the masks keep to the planes, whose lengths are checked.
            unsafe {
                let mut sums = [[0f32; LANES]; 9];
                let mut added = 0;
                for n in 0..job.batch {
                    let (source, gradient) = (job.operands)(n, c);
                    assert!(source.len() == h * w && gradient.len() == height * width);
                    let pair = Pair {
                        square,
                        source: source.as_ptr(),
                        gradient: gradient.as_ptr(),
                        zeros: zeros.as_ptr(),
                    };
                    for strip in &strips {
                        let mut first = 0;
                        while first < height {
                            let count = (RUN / strip.len()).min(height - first);
                            if added + count * strip.len() > RUN {
                                add_totals(&mut sums, &mut places);
                                added = 0;
                            }
                            let rows = [first, first + count];
                            match strip.len() {
                                1 => pair.strip::<V, STEP, 1>(strip, rows, &mut sums),
                                2 => pair.strip::<V, STEP, 2>(strip, rows, &mut sums),
                                3 => pair.strip::<V, STEP, 3>(strip, rows, &mut sums),
                                _ => pair.strip::<V, STEP, MOST>(strip, rows, &mut sums),
                            }
                            added += count * strip.len();
                            first += count;
                        }
                    }
                }
                add_totals(&mut sums, &mut places);
            }
            // SAFETY: these channels are this thread's.
            let out = unsafe { job.out.slice(c * 9..(c + 1) * 9) };
            for (out, sum) in out.iter_mut().zip(square.gathered(&places)) {
                *out = sum as f32;
            }
        }
    }
}

/// Most lanes of a register.
const LANES: usize = 16;

/// Adds the lanes of the taps' sums to the totals, and clears them.
#[inline(always)]
fn add_totals(sums: &mut [[f32; LANES]; 9], places: &mut [f64; 9]) {
    for (place, line) in places.iter_mut().zip(sums) {
        let mut halves = [0f64; 8];
        for i in 0..8 {
            halves[i] = line[i] as f64 + line[i + 8] as f64;
        }
        *place += ((halves[0] + halves[4]) + (halves[2] + halves[6]))
            + ((halves[1] + halves[5]) + (halves[3] + halves[7]));
        *line = [0.0; LANES];
    }
}

/// What a register of a strip reads of a grid row.
///
/// # Safety
/// The strip is the grid's, as is the row, and the processor has the instruction set.
#[inline(always)]
unsafe fn load<V: Lanes, const STEP: usize, const B: usize>(
    row: *const f32,
    strip: &[Block<V::Mask>; B],
    b: usize,
) -> V {
    let from = row.wrapping_add(strip[b].first);
    // SAFETY: the row is the grid's by this function's contract; only the last register may be short. `Vector`'s *Instructions*.
    let line =
        unsafe { if b == B - 1 { V::load_masked(from, &strip[b].lanes) } else { V::load(from) } };
    // SAFETY: `Vector`'s *Instructions*; registers only.
    if STEP == 2 { unsafe { line.reordered() } } else { line }
}

/// A source plane and a gradient's plane.
struct Pair<'a> {
    square: &'a Square,
    source: *const f32,
    gradient: *const f32,
    /// A row of zeros, for both.
    zeros: *const f32,
}

impl Pair<'_> {
    /// Adds the products of a strip of `B` registers to the taps' sums, of the grid rows of a range.
    ///
    /// # Safety
    /// The strip and the rows are the square's, the planes are of its sizes, and the processor has the
    /// instruction set.
    #[inline(always)]
    unsafe fn strip<V: Lanes, const STEP: usize, const B: usize>(
        &self,
        strip: &[Block<V::Mask>],
        [first, end]: [usize; 2],
        totals: &mut [[f32; LANES]; 9],
    ) {
        let square = self.square;
        let width = square.grid[1];
        let column = square.origin[1];
        let ahead = AHEAD.min(square.source[0] * square.source[1]);
        let gradient_ahead = AHEAD.min(square.grid[0] * width);
        // SAFETY: as for this function; the strip has `B` registers.
        unsafe {
            let strip = &*strip.as_ptr().cast::<[Block<V::Mask>; B]>();
            let row = |y: isize| row_from(self.source, square.source, y, self.zeros);
            let line = |i: usize| {
                if i < end { self.gradient.add(i * width) } else { self.zeros }
            };
            // Of the grid: the row whose top taps the next source row is, the one above, and at step 1
            // the one above that.
            let zero = [V::splat(0.0); B];
            let (mut own, mut above, mut highest) = (zero, zero, zero);
            let mut y = (first * STEP) as isize + square.origin[0];
            let mut i = first;
            let mut steps = if STEP == 1 { end - first + 2 } else { end - first + 1 };
            // Above the source the grid rows only pass by.
            while y < 0 && steps > 0 {
                let from = line(i);
                i += 1;
                y += STEP as isize;
                steps -= 1;
                for b in 0..B {
                    above[b] = own[b];
                    own[b] = load::<V, STEP, B>(from, strip, b);
                }
            }
            let mut inside = row(y);
            // Here, because across the loop above not all would stay in registers.
            let mut sums = [[V::splat(0.0); 3]; 3];
            for r in 0..3 {
                for s in 0..3 {
                    sums[r][s] = V::load(totals[r * 3 + s].as_ptr());
                }
            }
            while steps > 0 && y < (square.source[0] + STEP - 1) as isize {
                let from = line(i);
                i += 1;
                steps -= 1;
                if STEP == 2 && y > 0 {
                    let center = row(y - 1);
                    for b in 0..B {
                        fetch::<V, STEP>(center.wrapping_add(ahead + strip[b].first * STEP));
                        let x = read::<V, STEP, B>(center, strip, column, b);
                        for s in 0..3 {
                            sums[1][s] = own[b].fma(x[s], sums[1][s]);
                        }
                    }
                }
                // At step 1 all rows here are the source's.
                let last = if STEP == 1 { inside } else { row(y) };
                inside = inside.wrapping_add(square.source[1]);
                y += STEP as isize;
                for b in 0..B {
                    if STEP == 1 {
                        highest[b] = above[b];
                    }
                    above[b] = own[b];
                    own[b] = load::<V, STEP, B>(from, strip, b);
                    prefetch(from.wrapping_add(gradient_ahead + strip[b].first));
                    fetch::<V, STEP>(last.wrapping_add(ahead + strip[b].first * STEP));
                    let x = read::<V, STEP, B>(last, strip, column, b);
                    for s in 0..3 {
                        sums[0][s] = own[b].fma(x[s], sums[0][s]);
                        if STEP == 1 {
                            sums[1][s] = above[b].fma(x[s], sums[1][s]);
                            sums[2][s] = highest[b].fma(x[s], sums[2][s]);
                        } else {
                            sums[2][s] = above[b].fma(x[s], sums[2][s]);
                        }
                    }
                }
            }
            for r in 0..3 {
                for s in 0..3 {
                    sums[r][s].store(totals[r * 3 + s].as_mut_ptr());
                }
            }
        }
    }
}
