//! Eight f32 numbers side by side, each of another tile, and the two shuffles between them and rows of
//! an image.

use crate::cpu::vector::{Plain, Vector};

/// Lanes of a group.
pub const L: usize = 8;
/// Outputs of a tile in a row.
pub const OUT: usize = 4;

/// One number of each of eight tiles.
pub trait Shuffles: Sums {
    /// The four numbers a, b, c and d of each of eight tiles, which begin at `at`.
    ///
    /// # Safety
    /// They are there, and the processor has the instruction set, as for all functions here.
    unsafe fn deinterleave(at: [*mut f32; L]) -> [Self; OUT];
    /// The even ones and the odd ones of 16 numbers.
    ///
    /// # Safety
    /// As for `deinterleave`.
    unsafe fn split(row: *const f32) -> [Self; 2];
    /// The inverse of `deinterleave`: to tiles that begin at `at`, written from the last to the first.
    ///
    /// # Safety
    /// Four numbers can be written to each.
    unsafe fn interleave(lanes: [Self; OUT], at: [*mut f32; L]);
}

/// Makes a kernel of what has a method of lanes, which are the processor's best.
macro_rules! by_lanes {
    ($kernel:ident $method:ident) => {
        impl $crate::cpu::vectorize::Kernel for $kernel<'_> {
            type Output = ();
            const WIDE: bool = true;
            #[inline(always)]
            fn run<const FMA: bool>(self) {
                use $crate::cpu::vector::{Plain, with_registers};
                // SAFETY: with FMA there is AVX2; the rest is the promise of whoever made the kernel.
                with_registers!(FMA, V = Plain<f32, { $crate::cpu::winograd::lanes::L }> => unsafe { self.$method::<V>() })
            }
        }
    };
}
pub(super) use by_lanes;

/// What the transforms compute with.
pub trait Sums: Vector<Number = f32> {
    /// `self + k b`.
    ///
    /// # Safety
    /// The processor has the instruction set, as below.
    #[inline(always)]
    unsafe fn plus(self, k: f32, b: Self) -> Self {
        // SAFETY: the caller's promise, as below.
        unsafe { Self::splat(k).fma(b, self) }
    }
    /// `self - b`.
    ///
    /// # Safety
    /// As for `plus`.
    #[inline(always)]
    unsafe fn minus(self, b: Self) -> Self {
        // SAFETY: as above.
        unsafe { self.plus(-1.0, b) }
    }
    /// `k self`.
    ///
    /// # Safety
    /// As for `plus`.
    #[inline(always)]
    unsafe fn times(self, k: f32) -> Self {
        // SAFETY: as above.
        unsafe { Self::splat(0.0).plus(k, self) }
    }
}

impl<V: Vector<Number = f32>> Sums for V {}

impl Shuffles for Plain<f32, L> {
    #[inline(always)]
    unsafe fn deinterleave(at: [*mut f32; L]) -> [Self; OUT] {
        // SAFETY: the caller's promise.
        let tiles = at.map(|tile| unsafe { tile.cast::<[f32; OUT]>().read() });
        std::array::from_fn(|j| Plain(std::array::from_fn(|l| tiles[l][j])))
    }
    #[inline(always)]
    unsafe fn split(row: *const f32) -> [Self; 2] {
        // SAFETY: as above.
        let row = unsafe { row.cast::<[[f32; 2]; L]>().read() };
        std::array::from_fn(|j| Plain(std::array::from_fn(|l| row[l][j])))
    }
    #[inline(always)]
    unsafe fn interleave(lanes: [Self; OUT], at: [*mut f32; L]) {
        for (l, tile) in at.into_iter().enumerate().rev() {
            let numbers: [f32; OUT] = std::array::from_fn(|j| lanes[j].0[l]);
            // SAFETY: the caller's promise.
            unsafe { tile.cast::<[f32; OUT]>().write(numbers) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{L, OUT, Shuffles};
    use std::arch::x86_64::*;

    /// Transposes the squares in the two halves.
    #[inline(always)]
    unsafe fn transpose([a, b, c, d]: [__m256; OUT]) -> [__m256; OUT] {
        // SAFETY: the caller has AVX2.
        unsafe {
            let pd = |x: __m256| _mm256_castps_pd(x);
            let ps = |x: __m256d| _mm256_castpd_ps(x);
            let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
            let (ef, gh) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
            [
                ps(_mm256_unpacklo_pd(pd(ab), pd(cd))),
                ps(_mm256_unpackhi_pd(pd(ab), pd(cd))),
                ps(_mm256_unpacklo_pd(pd(ef), pd(gh))),
                ps(_mm256_unpackhi_pd(pd(ef), pd(gh))),
            ]
        }
    }

    impl Shuffles for __m256 {
        #[inline(always)]
        unsafe fn deinterleave(at: [*mut f32; L]) -> [Self; OUT] {
            // SAFETY: the caller's promise, as below.
            unsafe {
                // Tile j in the lower half, tile j + 4 in the upper one.
                let pair = |j: usize| {
                    let low = _mm_loadu_ps(at[j]);
                    let high = _mm_loadu_ps(at[j + OUT]);
                    _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(low), high)
                };
                transpose([pair(0), pair(1), pair(2), pair(3)])
            }
        }
        #[inline(always)]
        unsafe fn split(row: *const f32) -> [Self; 2] {
            // SAFETY: as above.
            unsafe {
                let (low, high) = (_mm256_loadu_ps(row), _mm256_loadu_ps(row.add(8)));
                // Pairs of the lower halves, of the upper ones, and so on: to be put in order.
                let ordered = |x: __m256| {
                    let x = _mm256_permute4x64_pd::<0b11_01_10_00>(_mm256_castps_pd(x));
                    _mm256_castpd_ps(x)
                };
                let even = _mm256_shuffle_ps::<0b10_00_10_00>(low, high);
                let odd = _mm256_shuffle_ps::<0b11_01_11_01>(low, high);
                [ordered(even), ordered(odd)]
            }
        }
        #[inline(always)]
        unsafe fn interleave(lanes: [Self; OUT], at: [*mut f32; L]) {
            // SAFETY: as above.
            unsafe {
                let tiles = transpose(lanes);
                for j in (0..OUT).rev() {
                    let high = _mm256_extractf128_ps::<1>(tiles[j]);
                    _mm_storeu_ps(at[j + OUT], high);
                }
                for j in (0..OUT).rev() {
                    _mm_storeu_ps(at[j], _mm256_castps256_ps128(tiles[j]));
                }
            }
        }
    }
}
