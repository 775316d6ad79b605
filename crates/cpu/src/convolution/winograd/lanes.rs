//! Eight f32 numbers side by side, each of another tile, and the two shuffles between them and rows of
//! an image.

use crate::numbers::vector::{Plain, Vector};

/// Lanes of a group.
pub const L: usize = 8;
/// Outputs of a tile in a row.
pub const OUT: usize = 4;

/// One number of each of eight tiles. *Instructions* is [`Vector`]'s invariant, which all functions have.
pub trait Shuffles: Sums {
    /// Some of the lanes.
    type Mask: Copy;
    /// The lanes l for which `x + l` is one of those `inside`.
    ///
    /// # Safety
    /// *Instructions*.
    unsafe fn mask(inside: [usize; 2], x: usize) -> Self::Mask;
    /// Numbers of a row in a mask's lanes, which alone are read, and zeros.
    ///
    /// # Safety
    /// *Instructions*, and they are there.
    unsafe fn load_inside(row: *const f32, mask: Self::Mask) -> Self;
    /// The four numbers a, b, c and d of each of eight tiles, which begin at `at`.
    ///
    /// # Safety
    /// *Instructions*, and they are there.
    unsafe fn deinterleave(at: [*mut f32; L]) -> [Self; OUT];
    /// The even ones and the odd ones of the numbers of two registers.
    ///
    /// # Safety
    /// *Instructions*.
    unsafe fn split(row: [Self; 2]) -> [Self; 2];
    /// The inverse of `deinterleave`: to tiles that begin at `at`, written from the last to the first.
    ///
    /// # Safety
    /// *Instructions*, and four numbers can be written to each.
    unsafe fn interleave(lanes: [Self; OUT], at: [*mut f32; L]);
}

/// Makes a kernel of what has a method of lanes, which are the processor's best.
macro_rules! by_lanes {
    ($kernel:ident $method:ident) => {
        impl $crate::arch::vectorize::Kernel for $kernel<'_> {
            type Output = ();
            const WIDE: bool = true;
            #[inline(always)]
            fn run<const FMA: bool>(self) {
                use $crate::numbers::vector::{Plain, with_registers};
                // SAFETY: with FMA there is AVX2, which gives *Instructions*; the rest is the invariant of what the kernel holds.
                with_registers!(FMA, V = Plain<f32, { $crate::convolution::winograd::lanes::L }> => unsafe { self.$method::<V>() })
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
    /// [`Vector`]'s *Instructions*, as for all functions here.
    #[inline(always)]
    unsafe fn plus(self, k: f32, b: Self) -> Self {
        // SAFETY: `Vector`'s *Instructions*; registers only.
        unsafe { Self::splat(k).fma(b, self) }
    }
    /// `self - b`.
    ///
    /// # Safety
    /// As for `plus`.
    #[inline(always)]
    unsafe fn minus(self, b: Self) -> Self {
        // SAFETY: `Vector`'s *Instructions*; registers only.
        unsafe { self.plus(-1.0, b) }
    }
    /// `k self`.
    ///
    /// # Safety
    /// As for `plus`.
    #[inline(always)]
    unsafe fn times(self, k: f32) -> Self {
        // SAFETY: `Vector`'s *Instructions*; registers only.
        unsafe { Self::splat(0.0).plus(k, self) }
    }
}

impl<V: Vector<Number = f32>> Sums for V {}

impl Shuffles for Plain<f32, L> {
    type Mask = [usize; 2];
    #[inline(always)]
    unsafe fn mask(inside: [usize; 2], x: usize) -> Self::Mask {
        inside.map(|end| end.saturating_sub(x).min(L))
    }
    #[inline(always)]
    unsafe fn load_inside(row: *const f32, [first, end]: Self::Mask) -> Self {
        let mut all = [0.0; L];
        for l in first..end {
            // SAFETY: `Shuffles::load_inside`'s contract: the numbers in the mask's lanes are
            // there, and `l` is one of them.
            all[l] = unsafe { row.wrapping_add(l).read() };
        }
        Plain(all)
    }
    #[inline(always)]
    unsafe fn deinterleave(at: [*mut f32; L]) -> [Self; OUT] {
        // SAFETY: `Shuffles::deinterleave`'s contract: four numbers lie at each place.
        let tiles = at.map(|tile| unsafe { tile.cast::<[f32; OUT]>().read() });
        std::array::from_fn(|j| Plain(std::array::from_fn(|l| tiles[l][j])))
    }
    #[inline(always)]
    unsafe fn split([low, high]: [Self; 2]) -> [Self; 2] {
        let at = |i: usize| if i < L { low.0[i] } else { high.0[i - L] };
        std::array::from_fn(|j| Plain(std::array::from_fn(|l| at(2 * l + j))))
    }
    #[inline(always)]
    unsafe fn interleave(lanes: [Self; OUT], at: [*mut f32; L]) {
        for (l, tile) in at.into_iter().enumerate().rev() {
            let numbers: [f32; OUT] = std::array::from_fn(|j| lanes[j].0[l]);
            // SAFETY: `Shuffles::interleave`'s contract: four numbers can be written to each place.
            unsafe { tile.cast::<[f32; OUT]>().write(numbers) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{L, OUT, Shuffles};
    use std::arch::x86_64::*;

    /// Transposes the squares in the two halves.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn transpose([a, b, c, d]: [__m256; OUT]) -> [__m256; OUT] {
        // SAFETY: AVX2 is there by this function's contract; registers only.
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

    /// The lanes l for which `x + l` is below `end`.
    ///
    /// # Safety
    /// The processor has AVX2.
    #[inline(always)]
    unsafe fn below(end: usize, x: usize) -> __m256i {
        let end = end.saturating_sub(x).min(L) as i32;
        // SAFETY: AVX2 is there by this function's contract; registers only.
        unsafe {
            _mm256_cmpgt_epi32(_mm256_set1_epi32(end), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))
        }
    }

    impl Shuffles for __m256 {
        type Mask = __m256i;
        #[inline(always)]
        unsafe fn mask(inside: [usize; 2], x: usize) -> __m256i {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; registers only.
            unsafe { _mm256_andnot_si256(below(inside[0], x), below(inside[1], x)) }
        }
        #[inline(always)]
        unsafe fn load_inside(row: *const f32, mask: __m256i) -> Self {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; the mask's numbers are there, and no others are touched.
            unsafe { _mm256_maskload_ps(row, mask) }
        }
        #[inline(always)]
        unsafe fn deinterleave(at: [*mut f32; L]) -> [Self; OUT] {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; four numbers lie at each place.
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
        unsafe fn split([low, high]: [Self; 2]) -> [Self; 2] {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; registers only.
            unsafe {
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
            // SAFETY: AVX2 by `Vector`'s *Instructions*; four numbers can be written to each place.
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
