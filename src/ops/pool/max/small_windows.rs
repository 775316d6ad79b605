//! Maxima and their places of windows of two by two or three by three numbers at a stride of 2. The largest of a
//! window is found first, and then where it is by comparing it with all: less work than to carry places along.

use super::lanes::{Lanes, wins};
use super::stride_two;
use crate::cpu::numbers::float::Float;

/// Up to three lines of the input with the padding around them.
pub struct Lines<T> {
    numbers: Vec<T>,
    /// Numbers of a line, padding among them, and as many more as registers may read.
    len: usize,
    left: usize,
    /// The lines that are there, by where they start in the input.
    held: [usize; 3],
}

impl<T: Float> Lines<T> {
    /// For lines of `len` numbers with all padding, of which `left` columns are before them.
    pub fn new(len: usize, left: usize) -> Self {
        Lines { numbers: vec![T::NEG_INFINITY; 3 * len], len, left, held: [usize::MAX; 3] }
    }

    /// The lines that follow are of another plane.
    pub fn forget(&mut self) {
        self.held = [usize::MAX; 3];
    }

    /// These lines of `x`, at most three, each of `width` columns, which fill a register.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    #[inline(always)]
    unsafe fn hold<V: Lanes<Number = T>, const K: usize>(
        &mut self,
        x: &[T],
        lines: [usize; K],
        width: usize,
    ) -> [&[T]; K] {
        let mut slots = [0; K];
        for k in 0..K {
            // Neighbouring rows of windows share a line.
            slots[k] = match find(&self.held, |line| line == lines[k]) {
                Some(slot) => slot,
                None => {
                    let free = find(&self.held, |line| !lines.contains(&line));
                    let slot = free.expect("two other lines fill two slots");
                    self.held[slot] = lines[k];
                    let to = &mut self.numbers[slot * self.len + self.left..][..width];
                    // SAFETY: `Vector`'s *Instructions*; both slices have `width` numbers, which
                    // fill a register.
                    unsafe { stride_two::copy::<V>(&x[lines[k]..][..width], to) };
                    slot
                }
            };
        }
        let mut padded = [&self.numbers[..0]; K];
        for k in 0..K {
            padded[k] = &self.numbers[slots[k] * self.len..][..self.len];
        }
        padded
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
    pub left: usize,
    pub width: usize,
}

impl<T: Float> Call<'_, T> {
    /// Writes the row's maxima, of windows that fill a register, and their places; `held` keeps what rows share.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    #[inline(always)]
    pub unsafe fn squares<V: Lanes<Number = T>, const K: usize>(
        &self,
        held: &mut Lines<T>,
        y: &mut [T],
        places: &mut [i32],
    ) {
        // At the edge a line stands for the one that is missing.
        let mut lines = [0; K];
        for k in 0..K {
            lines[k] = self.lines[k.min(self.lines.len() - 1)];
        }
        let &Call { x, left, width, .. } = self;
        // SAFETY: `Vector`'s *Instructions*, which `hold` asks for.
        let padded = unsafe { held.hold::<V, K>(x, lines, width) };
        // SAFETY: `Vector`'s *Instructions*, which `maxima` asks for.
        unsafe { Squares { x, lines, padded, left, width }.maxima::<V>(y, places) };
    }
}

/// The same with what `K` says at hand.
struct Squares<'a, T, const K: usize> {
    x: &'a [T],
    /// Where the lines start in `x`; one may come twice.
    lines: [usize; K],
    /// The lines with the padding around them.
    padded: [&'a [T]; K],
    left: usize,
    width: usize,
}

impl<T: Float, const K: usize> Squares<'_, T, K> {
    /// Writes maxima, which fill a register, and their places.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    #[inline(always)]
    unsafe fn maxima<V: Lanes<Number = T>>(&self, y: &mut [T], places: &mut [i32]) {
        let count = y.len();
        assert!((2..=3).contains(&K) && count >= V::LANES && places.len() == count);
        assert!(self.padded.iter().all(|line| line.len() >= 2 * count + K));
        for j in (0..count).step_by(V::LANES) {
            // The last register may overlap the one before.
            let j = j.min(count - V::LANES);
            // SAFETY: `j` and the next places of a register are below `count`, for which the lines, `y` and
            // `places` have just been checked; `Vector`'s *Instructions*.
            let ordinary = unsafe {
                let mut windows = [[V::splat(T::ZERO); 3]; K];
                for (k, window) in windows.iter_mut().enumerate() {
                    let at = |c: usize| V::load(self.padded[k].as_ptr().add(2 * j + c));
                    let [even, odd] = V::split(at(0), at(V::LANES));
                    let third = if K > 2 { V::split(at(2), at(2 + V::LANES))[0] } else { odd };
                    *window = [even, odd, third];
                }
                let line = |k: usize| windows[k][0].largest(windows[k][1], windows[k][2]);
                let top = line(0).largest(line(1), line(K - 1));
                let mut at = V::place(0);
                // Backwards, so that of equal ones the first stays.
                for k in (0..K).rev() {
                    for t in (0..K).rev() {
                        let place = (self.lines[k] + t) as i32 - self.left as i32;
                        at = windows[k][t].where_equal(top, V::place(place), at);
                    }
                }
                let places = places.as_mut_ptr().add(j);
                V::store_places(V::moved(V::reordered_places(at), 2 * j as i32), places);
                top.reordered().store(y.as_mut_ptr().add(j));
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
                let c = (2 * j + t).wrapping_sub(self.left);
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
