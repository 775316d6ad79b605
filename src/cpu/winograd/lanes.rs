//! Eight f32 numbers side by side, each of another tile, and the two shuffles between them and rows of
//! an image.

/// Lanes of a group.
pub const L: usize = 8;
/// Outputs of a tile in a row.
pub const OUT: usize = 4;

/// One number of each of eight tiles. All functions need the type's instruction set, and those with
/// pointers that as many numbers are there as they say.
pub trait Lanes: Copy {
    /// Reads eight numbers.
    unsafe fn load(from: *const f32) -> Self;
    /// Writes eight numbers.
    unsafe fn store(self, to: *mut f32);
    /// The same number in all lanes.
    unsafe fn splat(x: f32) -> Self;
    /// `self + b`.
    unsafe fn add(self, b: Self) -> Self;
    /// `self - b`.
    unsafe fn sub(self, b: Self) -> Self;
    /// `k self`.
    unsafe fn times(self, k: f32) -> Self;
    /// `self + k b`.
    unsafe fn plus(self, k: f32, b: Self) -> Self;
    /// The 32 numbers `[a0 b0 c0 d0 a1 b1 ..]` of eight tiles as their a, b, c and d.
    unsafe fn deinterleave(row: *const f32) -> [Self; OUT];
    /// The inverse of `deinterleave`.
    unsafe fn interleave(lanes: [Self; OUT], row: *mut f32);
}

/// Plain arrays.
impl Lanes for [f32; L] {
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's promise, here and below.
        unsafe { from.cast::<Self>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above.
        unsafe { to.cast::<Self>().write_unaligned(self) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        [x; L]
    }
    #[inline(always)]
    unsafe fn add(mut self, b: Self) -> Self {
        for l in 0..L {
            self[l] += b[l];
        }
        self
    }
    #[inline(always)]
    unsafe fn sub(mut self, b: Self) -> Self {
        for l in 0..L {
            self[l] -= b[l];
        }
        self
    }
    #[inline(always)]
    unsafe fn times(mut self, k: f32) -> Self {
        for l in 0..L {
            self[l] *= k;
        }
        self
    }
    #[inline(always)]
    unsafe fn plus(mut self, k: f32, b: Self) -> Self {
        for l in 0..L {
            self[l] += k * b[l];
        }
        self
    }
    #[inline(always)]
    unsafe fn deinterleave(row: *const f32) -> [Self; OUT] {
        // SAFETY: as above.
        let row = unsafe { row.cast::<[[f32; OUT]; L]>().read_unaligned() };
        let mut out = [[0.0; L]; OUT];
        for l in 0..L {
            for j in 0..OUT {
                out[j][l] = row[l][j];
            }
        }
        out
    }
    #[inline(always)]
    unsafe fn interleave(lanes: [Self; OUT], row: *mut f32) {
        let mut out = [[0.0; OUT]; L];
        for l in 0..L {
            for j in 0..OUT {
                out[l][j] = lanes[j][l];
            }
        }
        // SAFETY: as above.
        unsafe { row.cast::<[[f32; OUT]; L]>().write_unaligned(out) };
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Lanes, OUT};
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

    impl Lanes for __m256 {
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller's promise, here and below.
            unsafe { _mm256_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: as above.
            unsafe { _mm256_storeu_ps(to, self) }
        }
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn add(self, b: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_add_ps(self, b) }
        }
        #[inline(always)]
        unsafe fn sub(self, b: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_sub_ps(self, b) }
        }
        #[inline(always)]
        unsafe fn times(self, k: f32) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_mul_ps(self, _mm256_set1_ps(k)) }
        }
        #[inline(always)]
        unsafe fn plus(self, k: f32, b: Self) -> Self {
            // SAFETY: as above.
            unsafe { _mm256_fmadd_ps(_mm256_set1_ps(k), b, self) }
        }
        #[inline(always)]
        unsafe fn deinterleave(row: *const f32) -> [Self; OUT] {
            // SAFETY: as above.
            unsafe {
                // Tile j in the lower half, tile j + 4 in the upper one.
                let pair = |j: usize| {
                    let low = _mm_loadu_ps(row.add(OUT * j));
                    let high = _mm_loadu_ps(row.add(OUT * (j + OUT)));
                    _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(low), high)
                };
                transpose([pair(0), pair(1), pair(2), pair(3)])
            }
        }
        #[inline(always)]
        unsafe fn interleave(lanes: [Self; OUT], row: *mut f32) {
            // SAFETY: as above.
            unsafe {
                let tiles = transpose(lanes);
                for j in 0..OUT {
                    _mm_storeu_ps(row.add(OUT * j), _mm256_castps256_ps128(tiles[j]));
                    let high = _mm256_extractf128_ps::<1>(tiles[j]);
                    _mm_storeu_ps(row.add(OUT * (j + OUT)), high);
                }
            }
        }
    }
}

/// Calls `$body` with the type `$V` of lanes that the instruction set has.
macro_rules! with_lanes {
    ($FMA:ident, $V:ident => $body:expr) => {{
        #[cfg(target_arch = "x86_64")]
        if $FMA {
            type $V = std::arch::x86_64::__m256;
            return $body;
        }
        type $V = [f32; $crate::cpu::winograd::lanes::L];
        $body
    }};
}
pub(super) use with_lanes;
