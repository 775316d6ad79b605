//! Lines of bf16 that are interleaved to pairs.

use half::bf16;

use super::interleave::{interleave, pair};
use crate::arch::prefetch::prefetch;
use crate::arch::vectorize::{Kernel, vectorize};

/// Pairs of numbers of two lines; without a second one with 0.
pub fn interleave_lines(even: &[bf16], odd: Option<&[bf16]>, out: &mut [f32]) {
    vectorize(Lines { even, odd, out });
}

struct Lines<'a> {
    even: &'a [bf16],
    odd: Option<&'a [bf16]>,
    out: &'a mut [f32],
}

impl Kernel for Lines<'_> {
    type Output = ();
    const WIDE: bool = true;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Lines { even, odd, out } = self;
        let even = &even[..out.len()];
        if let Some(odd) = odd.map(|odd| &odd[..out.len()]) {
            for j in 0..out.len() {
                out[j] = pair(even[j], odd[j]);
            }
        } else {
            for j in 0..out.len() {
                out[j] = pair(even[j], bf16::ZERO);
            }
        }
    }
}

/// Taps that are interleaved at once.
const PIECE: usize = 16;
/// Numbers that are asked for ahead of their use.
const AHEAD: usize = 512;

/// The taps of pairs of channels, `input` apart in `data`, one pair's behind another's. `out` has room for
/// [`SLACK`] pairs behind them.
///
/// # Panics
/// When the channels' taps are outside `data`, or `out` is too short.
pub fn interleave_channels(
    data: &[bf16],
    channels: (usize, usize),
    taps: &[usize],
    out: &mut [f32],
) {
    vectorize(Channels { data, channels, taps, out });
}

/// Pairs that may be written behind those of [`interleave_channels`].
pub const SLACK: usize = PIECE;

struct Channels<'a> {
    data: &'a [bf16],
    channels: (usize, usize),
    taps: &'a [usize],
    out: &'a mut [f32],
}

impl Kernel for Channels<'_> {
    type Output = ();
    const WIDE: bool = true;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        let Channels { data, channels: (count, input), taps, out } = self;
        let k = taps.len();
        assert!(count.div_ceil(2) * k + SLACK <= out.len());
        let first = taps[0];
        let straight = k <= PIECE && (0..k).all(|t| taps[t] == first + t);
        for s in 0..count.div_ceil(2) {
            let (even, odd) = (2 * s * input, (2 * s + 1) * input);
            let both = 2 * s + 1 < count;
            if straight && both && odd.max(even) + first + PIECE <= data.len() {
                // SAFETY: inside both, as just checked; what is too much is written over by the next pair, or
                // is in the slack.
                unsafe {
                    let data = data.as_ptr().add(first);
                    let to = out.as_mut_ptr().add(s * k);
                    prefetch(data.wrapping_add(even + AHEAD));
                    interleave::<PIECE>(data.add(even), data.add(odd), to);
                }
                continue;
            }
            for t in 0..k {
                let odd = if both { data[odd + taps[t]] } else { bf16::ZERO };
                out[s * k + t] = pair(data[even + taps[t]], odd);
            }
        }
    }
}
