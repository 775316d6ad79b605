//! Loops over pixels, as vector code of the best instruction set.

use crate::cpu::arch::vectorize::{Kernel, vectorize};

struct Map<'a, T, U, F> {
    from: &'a [T],
    to: &'a mut [U],
    f: F,
}

impl<T: Copy, U, F: Fn(T) -> U> Kernel for Map<'_, T, U, F> {
    type Output = ();
    const WIDE: bool = true;

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let count = self.to.len();
        let (from, to) = (&self.from[..count], self.to);
        for at in 0..count {
            to[at] = (self.f)(from[at]);
        }
    }
}

/// Each place of `to` from the same place of a list that is as long. `f` and what it calls have to be inlined.
pub(super) fn map_into<T: Copy, U>(from: &[T], to: &mut [U], f: impl Fn(T) -> U) {
    vectorize(Map { from, to, f });
}

/// As [`map_into`], as a new list.
pub(super) fn map<T: Copy, U: Copy + Default>(from: &[T], f: impl Fn(T) -> U) -> Vec<U> {
    let mut to = vec![U::default(); from.len()];
    map_into(from, &mut to, f);
    to
}

struct OfColours<'a, T, U, F> {
    from: [&'a [T]; 3],
    to: &'a mut [U],
    f: F,
}

impl<T: Copy, U, F: Fn(T, T, T) -> U> Kernel for OfColours<'_, T, U, F> {
    type Output = ();
    const WIDE: bool = true;

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let (count, to) = (self.to.len(), self.to);
        let [red, green, blue] = self.from;
        let (red, green, blue) = (&red[..count], &green[..count], &blue[..count]);
        for at in 0..count {
            to[at] = (self.f)(red[at], green[at], blue[at]);
        }
    }
}

/// A list from red, green and blue, as [`map_into`].
pub(super) fn of_colours<T: Copy, U: Copy + Default>(
    from: [&[T]; 3],
    f: impl Fn(T, T, T) -> U,
) -> Vec<U> {
    let mut to = vec![U::default(); from[0].len()];
    vectorize(OfColours { from, to: &mut to, f });
    to
}

struct Mix<'a, T, V, U, F> {
    one: &'a [T],
    other: &'a [V],
    to: &'a mut [U],
    f: F,
}

impl<T: Copy, V: Copy, U, F: Fn(T, V) -> U> Kernel for Mix<'_, T, V, U, F> {
    type Output = ();
    const WIDE: bool = true;

    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let count = self.to.len();
        let (one, other, to) = (&self.one[..count], &self.other[..count], self.to);
        for at in 0..count {
            to[at] = (self.f)(one[at], other[at]);
        }
    }
}

/// Each place of `to` from the same place of two lists of different types.
pub(super) fn mix_into<T: Copy, V: Copy, U>(
    one: &[T],
    other: &[V],
    to: &mut [U],
    f: impl Fn(T, V) -> U,
) {
    vectorize(Mix { one, other, to, f });
}

struct Sum<'a>(&'a [f32]);

impl Kernel for Sum<'_> {
    type Output = f64;
    const WIDE: bool = true;

    #[inline(always)]
    fn run<const FMA: bool>(self) -> f64 {
        const LANES: usize = 16;
        let mut sums = [0f64; LANES];
        let (whole, rest) = self.0.as_chunks::<LANES>();
        for lanes in whole {
            for lane in 0..LANES {
                sums[lane] += f64::from(lanes[lane]);
            }
        }
        sums.iter().sum::<f64>() + rest.iter().map(|v| f64::from(*v)).sum::<f64>()
    }
}

/// The sum of all, in f64.
pub(super) fn sum(values: &[f32]) -> f64 {
    vectorize(Sum(values))
}
