//! What rows of planes need of vector registers beyond [`Pairs`]: loads that leave out the lanes beside
//! the plane.

use std::ops::Range;

use crate::arch::isa::{self, Isa};
use crate::arch::vectorize::{Kernel, vectorize};
use crate::numbers::vector::{Pairs, Plain, with_registers};

/// Work that is written for any registers.
pub trait Job {
    /// Does the work.
    ///
    /// # Safety
    /// [`Vector`](crate::numbers::vector::Vector)'s *Instructions*; the rest is the job's own.
    unsafe fn run<V: Lanes>(self);
}

/// Whether there are 512-bit registers.
pub fn wide_there() -> bool {
    // On other architectures the level is never that high.
    isa::current() == Isa::Avx512
}

/// Does a job with the widest registers, 512-bit ones only if `wide`.
///
/// # Safety
/// What the job demands.
pub unsafe fn run<J: Job>(job: J, wide: bool) {
    #[cfg(target_arch = "x86_64")]
    if wide && wide_there() {
        // SAFETY: 512-bit registers are there; the rest is what the job demands, by this function's contract.
        return unsafe { x86::run_wide(job) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = wide;
    vectorize(Narrow(job))
}

/// A job with registers of at most 256 bits; only made by `run`, whose caller vouches for the job.
struct Narrow<J>(J);

impl<J: Job> Kernel for Narrow<J> {
    type Output = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<const FMA: bool>(self) {
        // SAFETY: `FMA` is only set where AVX2 is; the rest is as `run` demands.
        unsafe { with_registers!(FMA, V = Plain<f32> => self.0.run::<V>()) }
    }
}

/// A register of f32 numbers for rows of planes.
pub trait Lanes: Pairs<Number = f32> {
    /// Some of the lanes.
    type Mask: Copy + 'static;

    /// The lanes of a range, of which at least the end is at most `LANES`.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*, as for all functions here.
    unsafe fn mask(lanes: Range<usize>) -> Self::Mask;
    /// Reads the lanes of a mask; the others are 0, and their memory is not touched.
    ///
    /// # Safety
    /// The lanes of the mask are there.
    unsafe fn load_masked(from: *const f32, mask: &Self::Mask) -> Self;
    /// Writes the lanes of a mask.
    ///
    /// # Safety
    /// They are there, and nobody else uses them.
    unsafe fn store_masked(self, to: *mut f32, mask: Self::Mask);

    /// Writes the first `count` numbers.
    ///
    /// # Safety
    /// They are there, and nobody else uses them.
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        let mut line = [0f32; 16];
        // SAFETY: no register has more than 16 numbers; `count` can be written by this function's contract.
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
    unsafe fn load_masked(from: *const f32, mask: &[bool; 4]) -> Self {
        // SAFETY: `Lanes::load_masked`'s contract for the lanes of the mask; no other is read.
        Plain(std::array::from_fn(|i| if mask[i] { unsafe { *from.wrapping_add(i) } } else { 0.0 }))
    }
    #[inline(always)]
    unsafe fn store_masked(self, to: *mut f32, mask: [bool; 4]) {
        for i in 0..4 {
            if mask[i] {
                // SAFETY: `Lanes::store_masked`'s contract: the lane is one of the mask's.
                unsafe { *to.wrapping_add(i) = self.0[i] }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::ops::Range;

    use super::{Job, Lanes};

    /// # Safety
    /// The processor has these instructions; what the job demands.
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512vl,avx512dq,avx512bw")]
    pub unsafe fn run_wide<J: Job>(job: J) {
        // SAFETY: AVX-512 is there by this function's contract, which gives *Instructions*; the
        // rest is the job's.
        unsafe { job.run::<__m512>() }
    }

    impl Lanes for __m256 {
        type Mask = __m256i;
        #[inline(always)]
        unsafe fn mask(lanes: Range<usize>) -> __m256i {
            let numbers = std::array::from_fn(|i| -(lanes.contains(&i) as i32));
            // SAFETY: 32 bytes of any content are an `__m256i`.
            unsafe { std::mem::transmute::<[i32; 8], __m256i>(numbers) }
        }
        #[inline(always)]
        unsafe fn load_masked(from: *const f32, mask: &__m256i) -> Self {
            // The mask from memory each time: registers, of which there are 16, had better keep sums.
            // SAFETY: `Vector`'s *Instructions*; the mask's lanes are there, and the instruction touches no others.
            unsafe { _mm256_maskload_ps(from, std::ptr::read_volatile(mask)) }
        }
        #[inline(always)]
        unsafe fn store_masked(self, to: *mut f32, mask: __m256i) {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; the mask's lanes are there, and the
            // instruction touches no others.
            unsafe { _mm256_maskstore_ps(to, mask, self) }
        }
    }

    impl Lanes for __m512 {
        type Mask = __mmask16;
        #[inline(always)]
        unsafe fn mask(lanes: Range<usize>) -> __mmask16 {
            let below = |end: usize| ((1u32 << end) - 1) as __mmask16;
            below(lanes.end) & !below(lanes.start.min(16))
        }
        #[inline(always)]
        unsafe fn load_masked(from: *const f32, mask: &__mmask16) -> Self {
            // SAFETY: `Vector`'s *Instructions*; the mask's lanes are there, and the instruction touches no others.
            unsafe { _mm512_maskz_loadu_ps(*mask, from) }
        }
        #[inline(always)]
        unsafe fn store_masked(self, to: *mut f32, mask: __mmask16) {
            // SAFETY: AVX-512 by `Vector`'s *Instructions*; the mask's lanes are there, and the
            // instruction touches no others.
            unsafe { _mm512_mask_storeu_ps(to, mask, self) }
        }
        #[inline(always)]
        unsafe fn store_first(self, to: *mut f32, count: usize) {
            // SAFETY: `Vector`'s *Instructions*; `count` numbers are there by this function's
            // contract, and it is at most 16.
            unsafe { self.store_masked(to, Self::mask(0..count)) }
        }
    }
}
