//! The loops of batch normalisation over `[batch, channels, plane]`, a channel at a time: its numbers stay in
//! the second-level cache from the pass that adds them up to the one that writes.

use crate::cpu::folds::moments::{BLOCK, Moments, REGISTER, lane_sums};
use crate::cpu::numbers::float::{Float, simd_fn};

/// `[batch, channels, plane]`.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub batch: usize,
    pub channels: usize,
    pub plane: usize,
}

impl Sizes {
    /// The plane of item `n` in channel `c`, as a range of elements.
    #[inline(always)]
    pub fn plane(self, n: usize, c: usize) -> std::ops::Range<usize> {
        let start = (n * self.channels + c) * self.plane;
        start..start + self.plane
    }

    /// Numbers of a channel.
    pub fn count(self) -> usize {
        self.batch * self.plane
    }
}

/// Planes of at most so many numbers are brought together before they are added up.
const SMALL: usize = 256;

simd_fn! {
    /// The moments of channel `c`; `block` is room for [`BLOCK`] numbers.
    pub fn moments<T, FMA>(sizes: Sizes, c: usize, x: &[T], block: &mut [T]) -> Moments {
        let (mut moments, mut filled) = (Moments::default(), 0);
        for n in 0..sizes.batch {
            let plane = &x[sizes.plane(n, c)];
            if plane.len() > SMALL {
                moments = moments.with(Moments::of::<T, FMA>(plane));
                continue;
            }
            copy(plane, &mut block[filled..]);
            filled += plane.len();
            if filled + plane.len() > BLOCK || n + 1 == sizes.batch {
                moments = moments.with(Moments::of::<T, FMA>(&block[..filled]));
                filled = 0;
            }
        }
        moments
    }

    /// y = (x - mean) scale + shift.
    pub fn rescale<T, FMA>(x: &[T], mean: T, scale: T, shift: T, y: &mut [T]) {
        let x = &x[..y.len()];
        for i in 0..y.len() {
            y[i] = (x[i] - mean).fma::<FMA>(scale, shift);
        }
    }

    /// The sums of dy and of dy (x - mean) over channel `c`.
    pub fn sums<T, FMA>(sizes: Sizes, c: usize, dy: &[T], x: &[T], mean: T) -> (f64, f64) {
        let (mut plain, mut along) = (0.0, 0.0);
        for n in 0..sizes.batch {
            let (dy, x) = (&dy[sizes.plane(n, c)], &x[sizes.plane(n, c)]);
            for start in (0..x.len()).step_by(BLOCK) {
                let n = BLOCK.min(x.len() - start);
                let (a, b) = lane_sums!(
                    T, n; a = a + dy, b = dy.fma::<FMA>(x - mean, b); dy in dy[start..], x in x[start..]
                );
                plain += a;
                along += b;
            }
        }
        (plain, along)
    }

    /// dx = (dy - plain - (x - mean) slope) factor.
    pub fn propagate<T, FMA>(dy: &[T], x: &[T], mean: T, plain: T, slope: T, factor: T, dx: &mut [T]) {
        let (dy, x) = (&dy[..dx.len()], &x[..dx.len()]);
        for i in 0..dx.len() {
            dx[i] = (mean - x[i]).fma::<FMA>(slope, dy[i] - plain) * factor;
        }
    }
}

/// Copies a few numbers without a call, which would cost more than the copy.
#[allow(clippy::manual_memcpy, reason = "that is a call")]
#[inline(always)]
fn copy<T: Float>(from: &[T], to: &mut [T]) {
    let n = from.len();
    if n < REGISTER {
        for i in 0..n {
            to[i] = from[i];
        }
        return;
    }
    for start in (0..n).step_by(REGISTER) {
        // The last register may overlap the one before.
        let start = start.min(n - REGISTER);
        let numbers: &[T; REGISTER] = from[start..].first_chunk().expect("so many are left");
        *to[start..].first_chunk_mut().expect("there is room") = *numbers;
    }
}
