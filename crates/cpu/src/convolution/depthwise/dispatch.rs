//! Which kernel a square window has.

use super::job::{SpreadPlanes, SquareFilters, SquarePlanes};
use super::lanes::{run, wide_there};
use super::rolling::Rolling;
use super::rolling_filters::RollingFilters;
use super::rolling_spread::RollingSpread;
use super::square::Square;
use super::{filters, planes, spread};

impl SquarePlanes<'_> {
    /// Computes the planes.
    ///
    /// # Safety
    /// The *Planes invariant* of [`SquarePlanes`].
    pub unsafe fn run(self) {
        let wide = self.square.wide();
        // SAFETY: the *Planes invariant*; the kernel has the square's side and step.
        unsafe {
            match (self.square.side, self.square.step) {
                (3, 1) => run(Rolling::<1>(self), wide),
                (3, 2) => run(Rolling::<2>(self), wide),
                (5, 1) => run(planes::Sized::<5, 1, 4>(self), false),
                (5, 2) => run(planes::Sized::<5, 2, 4>(self), false),
                other => unreachable!("no square window has side and step {other:?}"),
            }
        }
    }
}

impl SpreadPlanes<'_> {
    /// Whether the window is one that this does: step 2, and padding of the same parity in both dimensions.
    pub fn does(square: &Square) -> bool {
        let [y, x] = square.origin;
        square.step == 2 && y <= 0 && x <= 0 && (y - x) % 2 == 0
    }

    /// Computes the planes.
    ///
    /// # Safety
    /// The *Planes invariant* of [`SquarePlanes`].
    pub unsafe fn run(self) {
        // Blocks are pairs of registers.
        let wide = self.square.source[1] > 16;
        // SAFETY: the *Planes invariant*; the kernel has the square's side and the remainder of its
        // origin.
        unsafe {
            match (self.square.side, self.square.origin[0].rem_euclid(2)) {
                // Masked stores, which strips end with, are slow before AVX-512.
                (3, 0) if wide && wide_there() => run(RollingSpread::<0>(self), wide),
                (3, _) if wide && wide_there() => run(RollingSpread::<1>(self), wide),
                (3, 0) => run(spread::Sized::<3, 0>(self), false),
                (3, _) => run(spread::Sized::<3, 1>(self), false),
                (5, 0) => run(spread::Sized::<5, 0>(self), false),
                (5, _) => run(spread::Sized::<5, 1>(self), false),
                other => unreachable!("no square window has side and padding {other:?}"),
            }
        }
    }
}

impl SquareFilters<'_> {
    /// Computes the filters' gradients.
    ///
    /// # Safety
    /// The *Planes invariant* of [`SquarePlanes`]: nobody else uses these channels' filters.
    pub unsafe fn run(self) {
        let wide = self.square.wide();
        // SAFETY: the *Planes invariant*; the kernel has the square's side and step.
        unsafe {
            match (self.square.side, self.square.step) {
                (3, 1) => run(RollingFilters::<1>(self), wide),
                (3, 2) => run(RollingFilters::<2>(self), wide),
                (5, 1) => run(filters::Sized::<5, 1>(self), false),
                (5, 2) => run(filters::Sized::<5, 2>(self), false),
                other => unreachable!("no square window has side and step {other:?}"),
            }
        }
    }
}
