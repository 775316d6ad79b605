//! Weighted sums of f32 neighbours in registers: what the compiler makes of the plain loop it keeps in memory,
//! in pieces.

use super::sizes::GROUP;
use crate::cpu::arch::vectorize::Kernel;
use crate::cpu::numbers::vector::{Plain, Vector, with_registers};

/// y `[points, GROUP]` = sum over a point's neighbours of weight times the channels of x there.
pub struct Reads<'a> {
    pub x: &'a [f32],
    /// Neighbours of a point.
    pub taps: usize,
    pub places: &'a [u32],
    pub weights: &'a [f32],
    pub y: &'a mut [f32],
}

impl Reads<'_> {
    /// # Safety
    /// The processor has the instruction set of `V`.
    #[inline(always)]
    unsafe fn sums<V: Vector<Number = f32>>(self) {
        let Reads { x, taps, places, weights, y } = self;
        assert!(GROUP.is_multiple_of(V::LANES));
        for p in 0..y.len() / GROUP {
            let (places, weights) = (&places[p * taps..][..taps], &weights[p * taps..][..taps]);
            let y = &mut y[p * GROUP..][..GROUP];
            for channel in (0..GROUP).step_by(V::LANES) {
                // SAFETY: a register from `channel` on is inside a group of each slice; the rest is the caller's
                // promise.
                unsafe {
                    let mut sum = V::splat(0.0);
                    for t in 0..taps {
                        let group = &x[places[t] as usize * GROUP..][..GROUP];
                        sum = V::load(group.as_ptr().add(channel)).fma(V::splat(weights[t]), sum);
                    }
                    sum.store(y.as_mut_ptr().add(channel));
                }
            }
        }
    }
}

impl Kernel for Reads<'_> {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        // SAFETY: registers are chosen by the instruction set that this is compiled for.
        unsafe { with_registers!(FMA, V = Plain<f32> => self.sums::<V>()) }
    }
}
