//! Maxima and their places of windows of two by two or three by three numbers at a stride of 2. The largest of a
//! window is found first, and then where it is by comparing it with all: less work than to carry places along.

use super::kernel::split_maxima;
use super::lanes::{Lanes, wins};
use crate::cpu::float::Float;

/// Up to three lines of the input, the even columns of each (counted with the padding) and then the odd ones.
pub struct Split<T> {
    numbers: Vec<T>,
    /// Numbers of the even columns.
    phase: usize,
    left: usize,
    /// The lines that are there, by where they start in the input.
    held: [usize; 3],
}

impl<T: Float> Split<T> {
    /// For lines with `left` columns of padding.
    pub fn new(phase: usize, left: usize) -> Self {
        Split { numbers: vec![T::NEG_INFINITY; 6 * phase], phase, left, held: [usize::MAX; 3] }
    }

    /// The lines that follow are of another plane.
    pub fn forget(&mut self) {
        self.held = [usize::MAX; 3];
    }

    /// These lines of `x`, at most three, each of `width` columns, which fill two registers.
    ///
    /// # Safety
    /// The processor has the instruction set of `V`.
    #[inline(always)]
    unsafe fn split<V: Lanes<Number = T>, const K: usize>(
        &mut self,
        x: &[T],
        lines: [usize; K],
        width: usize,
    ) -> [&[T]; K] {
        let mut slots = [0; K];
        for k in 0..K {
            // Neighbouring rows of windows share a line.
            let slot = match find(&self.held, |line| line == lines[k]) {
                Some(slot) => slot,
                None => {
                    let free = find(&self.held, |line| !lines.contains(&line));
                    let slot = free.expect("two other lines fill two slots");
                    self.held[slot] = lines[k];
                    let to = &mut self.numbers[slot * 2 * self.phase..][..2 * self.phase];
                    for c in (0..width).step_by(2 * V::LANES) {
                        let c = c.min(width - 2 * V::LANES);
                        // SAFETY: the caller's promise.
                        unsafe { split_maxima::<V>(x, &[lines[k]], c, self.left, self.phase, to) };
                    }
                    slot
                }
            };
            slots[k] = slot;
        }
        let line = |slot: usize| &self.numbers[slot * 2 * self.phase..][..2 * self.phase];
        let mut all = [&self.numbers[..0]; K];
        for k in 0..K {
            all[k] = line(slots[k]);
        }
        all
    }
}

/// The first slot whose line is as wanted.
#[inline(always)]
fn find(held: &[usize; 3], wanted: impl Fn(usize) -> bool) -> Option<usize> {
    (0..3).find(|&slot| wanted(held[slot]))
}

/// A row of square windows at a stride of 2.
pub struct Call<'a, T> {
    pub x: &'a [T],
    /// Where the lines start in `x`.
    pub lines: &'a [usize],
    /// Where the columns of the first window are in a split line.
    pub taps: &'a [usize],
    pub left: usize,
    pub width: usize,
    pub dilation: usize,
    /// Windows.
    pub out: usize,
}

impl<T: Float> Call<'_, T> {
    /// Writes the row's maxima and their places; `lines` keeps what rows share.
    ///
    /// # Safety
    /// The processor has the instruction set of `V`.
    #[inline(always)]
    pub unsafe fn squares<V: Lanes<Number = T>, const K: usize>(
        &self,
        lines: &mut Split<T>,
        y: &mut [T],
        places: &mut [i32],
    ) {
        let (mut these, mut taps) = ([0; K], [0; K]);
        for k in 0..K {
            // At the edge a line stands for the one that is missing.
            these[k] = self.lines[k.min(self.lines.len() - 1)];
            taps[k] = self.taps[k];
        }
        // SAFETY: the caller's promise.
        let split = unsafe { lines.split::<V, K>(self.x, these, self.width) };
        let &Call { x, dilation, left, width, .. } = self;
        let windows = Squares { x, lines: these, split, taps, dilation, left, width };
        // SAFETY: as above.
        unsafe { windows.maxima::<V>(self.out, y, places) };
    }
}

/// The same with what `K` says at hand.
struct Squares<'a, T, const K: usize> {
    x: &'a [T],
    /// Where the lines start in `x`; one may come twice.
    lines: [usize; K],
    split: [&'a [T]; K],
    /// Where the columns of the first window are in a split line.
    taps: [usize; K],
    dilation: usize,
    left: usize,
    width: usize,
}

impl<T: Float, const K: usize> Squares<'_, T, K> {
    /// Writes `count` maxima, which fill a register, and their places.
    ///
    /// # Safety
    /// The processor has the instruction set of `V`.
    #[inline(always)]
    unsafe fn maxima<V: Lanes<Number = T>>(&self, count: usize, y: &mut [T], places: &mut [i32]) {
        let taps = self.taps;
        assert!(count >= V::LANES && y.len() >= count && places.len() >= count);
        assert!(self.split.iter().all(|line| taps.iter().all(|tap| tap + count <= line.len())));
        for j in (0..count).step_by(V::LANES) {
            // The last register may overlap the one before.
            let j = j.min(count - V::LANES);
            // SAFETY: `j` and the next places of a register are below `count`, for which the lines, `y` and
            // `places` have just been checked; the instruction set is the caller's promise.
            let ordinary = unsafe {
                let v = |k: usize, t: usize| V::load(self.split[k].as_ptr().add(taps[t] + j));
                let line = |k: usize| v(k, 0).largest(v(k, 1), v(k, K - 1));
                let top = line(0).largest(line(1), line(K - 1));
                let mut at = V::place(0);
                // Backwards, so that of equal ones the first stays.
                for k in (0..K).rev() {
                    for t in (0..K).rev() {
                        let place = (self.lines[k] + t * self.dilation) as i32 - self.left as i32;
                        at = v(k, t).where_equal(top, V::place(place), at);
                    }
                }
                top.store(y.as_mut_ptr().add(j));
                V::store_places(V::moved(at, 2 * j as i32), places.as_mut_ptr().add(j));
                top.are_ordinary()
            };
            if !ordinary {
                // A NaN equals nothing, and minus infinity is in the padding too.
                for j in j..j + V::LANES {
                    (y[j], places[j]) = self.maximum(j);
                }
            }
        }
    }

    /// The maximum of window `j` by the definition.
    #[cold]
    #[inline(never)]
    fn maximum(&self, j: usize) -> (T, i32) {
        let (mut top, mut at) = (T::NEG_INFINITY, i32::MAX);
        for line in self.lines {
            for t in 0..K {
                let c = (2 * j + t * self.dilation).wrapping_sub(self.left);
                if c < self.width {
                    let (v, place) = (self.x[line + c], (line + c) as i32);
                    if wins(v, place, top, at) {
                        (top, at) = (v, place);
                    }
                }
            }
        }
        (top, at)
    }
}
