//! What rows of planes need of vector registers beyond [`Pairs`]: loads that leave out the lanes beside
//! the plane.

use std::ops::Range;

use crate::cpu::vector::{Pairs, Plain};

/// A register of f32 numbers for rows of planes.
pub trait Lanes: Pairs<Number = f32> {
    /// Some of the lanes.
    type Mask: Copy + 'static;

    /// The lanes of a range, of which at least the end is at most `LANES`.
    ///
    /// # Safety
    /// The processor has the instruction set, as for all functions here.
    unsafe fn mask(lanes: Range<usize>) -> Self::Mask;
    /// Reads the lanes of a mask; the others are 0, and their memory is not touched.
    ///
    /// # Safety
    /// The lanes of the mask are there.
    unsafe fn load_masked(from: *const f32, mask: Self::Mask) -> Self;

    /// Writes the first `count` numbers.
    ///
    /// # Safety
    /// They are there, and nobody else uses them.
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        let mut line = [0f32; 16];
        // SAFETY: no register has more than 16 numbers; the caller's promise.
        unsafe {
            self.store(line.as_mut_ptr());
            to.copy_from_nonoverlapping(line.as_ptr(), count);
        }
    }
}

impl Lanes for Plain<f32> {
    type Mask = [bool; 4];
    #[inline(always)]
    unsafe fn mask(lanes: Range<usize>) -> [bool; 4] {
        std::array::from_fn(|i| lanes.contains(&i))
    }
    #[inline(always)]
    unsafe fn load_masked(from: *const f32, mask: [bool; 4]) -> Self {
        // SAFETY: the caller's promise for the lanes of the mask; no other is read.
        Plain(std::array::from_fn(|i| if mask[i] { unsafe { *from.wrapping_add(i) } } else { 0.0 }))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::ops::Range;

    use super::Lanes;

    impl Lanes for __m256 {
        type Mask = __m256i;
        #[inline(always)]
        unsafe fn mask(lanes: Range<usize>) -> __m256i {
            let numbers = std::array::from_fn(|i| -(lanes.contains(&i) as i32));
            // SAFETY: 32 bytes of any content are an `__m256i`.
            unsafe { std::mem::transmute::<[i32; 8], __m256i>(numbers) }
        }
        #[inline(always)]
        unsafe fn load_masked(from: *const f32, mask: __m256i) -> Self {
            // SAFETY: the caller's promise; the instruction does not touch the other lanes.
            unsafe { _mm256_maskload_ps(from, mask) }
        }
    }
}
