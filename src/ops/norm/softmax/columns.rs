//! Softmax along a dimension that is not innermost: columns side by side.

use crate::cpu::arch::vectorize::{Kernel, vectorize};
use crate::cpu::folds::fold::SharedMut;
use crate::cpu::numbers::widen::{Real, Widen};
use crate::cpu::threads::{GRAIN, get_num_threads, parallel_for};

/// Most columns of a tile. As wide as can be: the processor foresees what is read next in a line, but no next line.
const MOST: usize = 2048;
/// Fewest, unless there are no more.
const FEWEST: usize = 64;
/// Lines that the maximum of a block is taken of: they stay in the second-level cache until their exponentials are
/// summed.
const BLOCK: usize = 16;
/// Lines of a range, of which there are several where a tile is long: of those each has sums of its own, so that
/// threads share the lines and not the columns.
const RANGE: usize = 256;

/// A dense `[outer, n, inner]` array, cut into tiles of neighbouring columns and ranges of lines. In forward `a` is
/// `x`; in backward `a` is `y` and `b` is `g`.
#[derive(Clone, Copy)]
struct Lines<'a, T: Widen> {
    a: &'a [T],
    b: &'a [T],
    out: SharedMut<T>,
    n: usize,
    inner: usize,
    width: usize,
    /// Maxima and sums of each range's columns, `inner` of each in turn; where there is one range, that of a thread.
    /// In the end those of the first range are for all.
    found: SharedMut<T::Wide>,
}

/// A part of a tile: lines of `width` elements, the first at `at`.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    count: usize,
    width: usize,
    /// Where among what is found its columns begin, and those of the tile's first range.
    own: usize,
    first: usize,
}

impl<T: Widen<Wide: Real>> Lines<'_, T> {
    fn ranges(&self) -> usize {
        self.n.div_ceil(RANGE)
    }

    fn tiles(&self) -> usize {
        self.inner.div_ceil(self.width)
    }

    /// Part `part`: ranges of a tile are neighbours, then tiles, then slabs.
    #[inline(always)]
    fn place(&self, part: usize) -> Place {
        let (tile, range) = (part / self.ranges(), part % self.ranges());
        let (slab, start) = (tile / self.tiles(), tile % self.tiles() * self.width);
        let found = |range: usize| 2 * ((slab * self.ranges() + range) * self.inner + start);
        Place {
            at: (slab * self.n + range * RANGE) * self.inner + start,
            count: RANGE.min(self.n - range * RANGE),
            width: self.width.min(self.inner - start),
            own: found(range),
            first: found(0),
        }
    }

    /// Line k of a part, in `a` and in `b`, which is empty in forward. The loops over lines are no closures: one with
    /// exponentials is too long to be inlined, and then knows no instruction set.
    #[inline(always)]
    fn line(&self, place: Place, k: usize) -> (&[T], &[T]) {
        let at = place.at + k * self.inner;
        let b = if self.b.is_empty() { self.b } else { &self.b[at..at + place.width] };
        (&self.a[at..at + place.width], b)
    }

    /// Maximum and sum in one pass, the sum so far being that of the exponentials less the maximum so far (Milakov and
    /// Gimelshein 2018), block by block of lines. A NaN is no maximum, but makes the sum one.
    #[inline(always)]
    fn find<const FMA: bool>(
        &self,
        place: Place,
        (max, sum): (&mut [T::Wide], &mut [T::Wide]),
        shift: &mut [T::Wide],
    ) {
        max.fill(T::Wide::NEG_INFINITY);
        sum.fill(T::Wide::ZERO);
        let mut start = 0;
        while start < place.count {
            let end = place.count.min(start + BLOCK);
            shift.copy_from_slice(max);
            for k in start..end {
                let (x, _) = self.line(place, k);
                for (m, &x) in max.iter_mut().zip(x) {
                    let x = x.widen();
                    *m = if x > *m { x } else { *m };
                }
            }
            for ((s, shift), &m) in sum.iter_mut().zip(&mut *shift).zip(&*max) {
                let next = finite(m);
                *s = *s * (*shift - next).exp_flushed::<FMA>();
                *shift = next;
            }
            for k in start..end {
                let (x, _) = self.line(place, k);
                for ((s, &m), &x) in sum.iter_mut().zip(&*shift).zip(x) {
                    *s += (x.widen() - m).exp_flushed::<FMA>();
                }
            }
            start = end;
        }
    }

    /// The same in backward: the sums.
    #[inline(always)]
    fn find_back<const LOG: bool>(&self, place: Place, sum: &mut [T::Wide]) {
        sum.fill(T::Wide::ZERO);
        for k in 0..place.count {
            let (y, g) = self.line(place, k);
            for ((s, &y), &g) in sum.iter_mut().zip(y).zip(g) {
                *s += if LOG { g.widen() } else { y.widen() * g.widen() };
            }
        }
    }

    #[inline(always)]
    fn apply<const LOG: bool, const BACKWARD: bool, const FMA: bool>(
        &self,
        place: Place,
        (max, sum): (&[T::Wide], &[T::Wide]),
    ) {
        for k in 0..place.count {
            let (a, b) = self.line(place, k);
            let at = place.at + k * self.inner;
            // SAFETY: `out` is as long as `a`; parts are disjoint.
            let out = unsafe { self.out.slice(at..at + a.len()) };
            if BACKWARD {
                for (((o, &s), &y), &g) in out.iter_mut().zip(sum).zip(a).zip(b) {
                    let (y, g) = (y.widen(), g.widen());
                    *o = T::narrow(if LOG { g - y.exp_flushed::<FMA>() * s } else { y * (g - s) });
                }
            } else {
                for (((o, &s), &m), &x) in out.iter_mut().zip(sum).zip(max).zip(a) {
                    let d = x.widen() - m;
                    *o = T::narrow(if LOG { d - s } else { d.exp_flushed::<FMA>() * s });
                }
            }
        }
    }
}

/// Of minus infinity alone the exponentials are 0 less any number.
#[inline(always)]
fn finite<T: Real>(max: T) -> T {
    if max == T::NEG_INFINITY { T::ZERO } else { max }
}

/// From sums what is applied: factors, or in the logarithm's case their logarithms.
#[inline(always)]
fn conclude<T: Real, const LOG: bool, const FMA: bool>(sum: &mut [T]) {
    for s in sum {
        *s = if LOG { s.log::<FMA>() } else { T::ONE / *s };
    }
}

/// Adds what was found in another range.
#[inline(always)]
fn join<T: Real, const FMA: bool>(
    (max, sum): (&mut [T], &mut [T]),
    (other_max, other_sum): (&[T], &[T]),
) {
    for (((m, s), &n), &t) in max.iter_mut().zip(sum).zip(other_max).zip(other_sum) {
        let larger = if n > *m { n } else { *m };
        let shift = finite(larger);
        *s = *s * (*m - shift).exp_flushed::<FMA>() + t * (n - shift).exp_flushed::<FMA>();
        *m = larger;
    }
}

/// What is done with some parts.
#[derive(Clone, Copy, PartialEq)]
enum Stage {
    /// All of it: tiles of one range.
    Whole,
    /// Maxima and sums of ranges.
    Find,
    /// Those of a tile's ranges together; the parts are tiles.
    Join,
    /// The results.
    Apply,
}

struct Run<'a, T: Widen, const LOG: bool, const BACKWARD: bool> {
    lines: Lines<'a, T>,
    stage: Stage,
    parts: std::ops::Range<usize>,
}

impl<T: Widen<Wide: Real>, const LOG: bool, const BACKWARD: bool> Kernel
    for Run<'_, T, LOG, BACKWARD>
{
    type Output = ();
    const WIDE: bool = size_of::<T>() == 4;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Run { lines, stage, parts } = self;
        let whole = stage == Stage::Whole;
        let mut own = vec![T::Wide::ZERO; if whole { 2 * lines.width } else { 0 }];
        let mut shift = vec![T::Wide::ZERO; lines.width];
        for part in parts {
            let ranges = lines.ranges();
            let place = lines.place(if stage == Stage::Join { part * ranges } else { part });
            // SAFETY: where columns begin, `2 * width` numbers. A part's own are its alone while they are found, and all
            // of a tile while they are joined; then they are only read.
            unsafe {
                let columns = match stage {
                    Stage::Whole => own.as_mut_ptr(),
                    Stage::Find => lines.found.at(place.own),
                    Stage::Join | Stage::Apply => lines.found.at(place.first),
                };
                if whole || stage == Stage::Find {
                    let (max, sum) = columns_mut(columns, place.width);
                    if BACKWARD {
                        lines.find_back::<LOG>(place, sum);
                    } else {
                        lines.find::<FMA>(place, (max, sum), &mut shift[..place.width]);
                    }
                }
                if stage == Stage::Join {
                    let (max, sum) = columns_mut(columns, place.width);
                    for range in 1..ranges {
                        let other = columns.add(range * 2 * lines.inner);
                        let (other_max, other_sum) = columns_mut(other, place.width);
                        if BACKWARD {
                            sum.iter_mut().zip(other_sum).for_each(|(s, t)| *s += *t);
                        } else {
                            join::<_, FMA>((max, sum), (other_max, other_sum));
                        }
                    }
                }
                if !BACKWARD && (whole || stage == Stage::Join) {
                    conclude::<_, LOG, FMA>(columns_mut(columns, place.width).1);
                }
                if whole || stage == Stage::Apply {
                    let all = std::slice::from_raw_parts(columns, 2 * place.width);
                    lines.apply::<LOG, BACKWARD, FMA>(place, all.split_at(place.width));
                }
            }
        }
    }
}

/// The maxima of `width` columns, and their sums behind them.
///
/// # Safety
/// They are there, and nobody else uses them.
#[inline(always)]
unsafe fn columns_mut<'a, T>(at: *mut T, width: usize) -> (&'a mut [T], &'a mut [T]) {
    // SAFETY: this function's contract: `2 * width` numbers are there, which nobody else uses.
    unsafe { std::slice::from_raw_parts_mut(at, 2 * width) }.split_at_mut(width)
}

/// Softmax, its logarithm, or the gradient of either, along the middle dimension of `[outer, n, inner]`.
pub(crate) fn run<T: Widen<Wide: Real>, const LOG: bool, const BACKWARD: bool>(
    a: &[T],
    b: &[T],
    out: SharedMut<T>,
    [outer, n, inner]: [usize; 3],
    cost: usize,
) {
    let ranges = n.div_ceil(RANGE);
    // As wide as leaves a few tiles to each thread, where ranges do not.
    let share = (outer * inner).div_ceil(4 * get_num_threads()).next_multiple_of(FEWEST);
    let width = if ranges > 1 { MOST } else { share.min(MOST) }.min(inner);
    let mut found = vec![T::Wide::ZERO; if ranges > 1 { 2 * outer * ranges * inner } else { 0 }];
    let found = SharedMut(found.as_mut_ptr());
    let lines = Lines { a, b, out, n, inner, width, found };
    let tiles = outer * lines.tiles();
    let in_parallel = |parts: usize, stage: Stage, cost: usize| {
        parallel_for(parts, GRAIN / cost.max(1), |parts| {
            vectorize(Run::<T, LOG, BACKWARD> { lines, stage, parts });
        });
    };
    if ranges == 1 {
        return in_parallel(tiles, Stage::Whole, n * width * cost);
    }
    in_parallel(tiles * ranges, Stage::Find, RANGE * width * cost);
    in_parallel(tiles, Stage::Join, ranges * width * cost);
    in_parallel(tiles * ranges, Stage::Apply, RANGE * width * cost);
}
