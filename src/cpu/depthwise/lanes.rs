//! What rows of planes need of vector registers beyond [`Vector`]: loads that leave out the lanes
//! beside the plane, and the two halves of a stride of 2.

use std::ops::Range;

use crate::cpu::vector::{Plain, Vector};

/// A register of f32 numbers for rows of planes.
pub trait Lanes: Vector<Number = f32> {
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
    /// The numbers with even and those with odd places among those of `a` followed by `b`, both in an
    /// order of their own, which [`Lanes::reordered`] turns into the memory's.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn split(a: Self, b: Self) -> [Self; 2];
    /// From the order of [`Lanes::split`] to the memory's, or back.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn reordered(self) -> Self;
    /// `even` and `odd` in turns.
    ///
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn interleave(even: Self, odd: Self) -> [Self; 2];

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
    #[inline(always)]
    unsafe fn split(Plain(a): Self, Plain(b): Self) -> [Self; 2] {
        [Plain([a[0], a[2], b[0], b[2]]), Plain([a[1], a[3], b[1], b[3]])]
    }
    #[inline(always)]
    unsafe fn reordered(self) -> Self {
        self
    }
    #[inline(always)]
    unsafe fn interleave(Plain(a): Self, Plain(b): Self) -> [Self; 2] {
        [Plain([a[0], b[0], a[1], b[1]]), Plain([a[2], b[2], a[3], b[3]])]
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
        // In each half of a register: two numbers of `a`, two of `b`.
        #[inline(always)]
        unsafe fn split(a: Self, b: Self) -> [Self; 2] {
            // SAFETY: the caller's promise, as below.
            unsafe { [_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xDD>(a, b)] }
        }
        #[inline(always)]
        unsafe fn reordered(self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_castpd_ps(_mm256_permute4x64_pd::<0xD8>(_mm256_castps_pd(self))) }
        }
        #[inline(always)]
        unsafe fn interleave(even: Self, odd: Self) -> [Self; 2] {
            // SAFETY: as above.
            unsafe {
                let (low, high) = (_mm256_unpacklo_ps(even, odd), _mm256_unpackhi_ps(even, odd));
                [
                    _mm256_permute2f128_ps::<0x20>(low, high),
                    _mm256_permute2f128_ps::<0x31>(low, high),
                ]
            }
        }
    }
}
