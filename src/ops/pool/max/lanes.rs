//! Neighbouring maxima with their places, in a vector register each: the compiler does not find vector
//! code for choices that two arrays share.

use crate::cpu::numbers::float::Float;
use crate::cpu::numbers::vector::{Pairs, Plain};

/// Registers of numbers and, beside them, of their places.
pub trait Lanes: Pairs {
    /// As many places as there are numbers.
    type Places: Copy;

    /// Reads places.
    ///
    /// # Safety
    /// They are there, and the processor has the instruction set, as for all functions here.
    unsafe fn load_places(from: *const i32) -> Self::Places;
    /// Writes places.
    ///
    /// # Safety
    /// As for reading, and nobody else uses them.
    unsafe fn store_places(places: Self::Places, to: *mut i32);
    /// The places `first`, `first + 1`, ..
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    unsafe fn places_from(first: i32) -> Self::Places;
    /// The larger numbers of the maxima so far and of `v`, whose places come later: of equal numbers the
    /// first counts, of NaNs the last.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    unsafe fn later(
        best: (Self, Self::Places),
        v: Self,
        places: Self::Places,
    ) -> (Self, Self::Places);
    /// The same where `v` may stand anywhere: places are compared.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    unsafe fn merge(
        best: (Self, Self::Places),
        v: Self,
        places: Self::Places,
    ) -> (Self, Self::Places);
    /// The largest of three numbers, a NaN if there is one.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    unsafe fn largest(self, b: Self, c: Self) -> Self;
    /// Whether all are above minus infinity, and so none is a NaN.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    unsafe fn are_ordinary(self) -> bool;
    /// The same place in all lanes.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    unsafe fn place(place: i32) -> Self::Places;
    /// `place` where the numbers equal those of `other`, else what is in `at`.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    unsafe fn where_equal(self, other: Self, place: Self::Places, at: Self::Places)
    -> Self::Places;
    /// Place `k` moved on by `first + 2 k`.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    unsafe fn moved(places: Self::Places, first: i32) -> Self::Places;
    /// Of two registers of places those at even and at odd ones, in the memory's order.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    unsafe fn place_halves(a: Self::Places, b: Self::Places) -> [Self::Places; 2];

    /// As [`Pairs::reordered`] for places.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    unsafe fn reordered_places(places: Self::Places) -> Self::Places;

    /// As [`Lanes::place_halves`] for numbers.
    ///
    /// # Safety
    /// `Vector`'s *Instructions*.
    #[inline(always)]
    unsafe fn halves(a: Self, b: Self) -> [Self; 2] {
        // SAFETY: `Vector`'s *Instructions*; registers only.
        unsafe {
            let [even, odd] = Self::split(a, b);
            [even.reordered(), odd.reordered()]
        }
    }
}

/// Whether a number is to take the place of the best so far. Of equal numbers the first place counts,
/// of NaNs the last: the order in which a window is read row by row.
#[inline(always)]
pub(crate) fn wins<T: Float>(v: T, place: i32, best: T, at: i32) -> bool {
    #[allow(clippy::eq_op, reason = "only NaN differs from itself")]
    let (nan, was_nan) = (v != v, best != best);
    (v > best) | ((v == best) & (place < at)) | (nan & (!was_nan | (place > at)))
}

impl<T: Float> Lanes for Plain<T> {
    type Places = [i32; 4];
    #[inline(always)]
    unsafe fn load_places(from: *const i32) -> [i32; 4] {
        // SAFETY: `Lanes::load_places`'s contract: four places lie there.
        unsafe { from.cast::<[i32; 4]>().read() }
    }
    #[inline(always)]
    unsafe fn store_places(places: [i32; 4], to: *mut i32) {
        // SAFETY: `Lanes::store_places`'s contract: four places can be written there.
        unsafe { to.cast::<[i32; 4]>().write(places) }
    }
    #[inline(always)]
    unsafe fn places_from(first: i32) -> [i32; 4] {
        [first, first + 1, first + 2, first + 3]
    }
    #[inline(always)]
    unsafe fn later(best: (Self, [i32; 4]), v: Self, places: [i32; 4]) -> (Self, [i32; 4]) {
        // SAFETY: no special instruction.
        unsafe { Self::merge(best, v, places) }
    }
    #[inline(always)]
    unsafe fn merge(
        (Plain(mut top), mut at): (Self, [i32; 4]),
        Plain(v): Self,
        places: [i32; 4],
    ) -> (Self, [i32; 4]) {
        for k in 0..4 {
            if wins(v[k], places[k], top[k], at[k]) {
                (top[k], at[k]) = (v[k], places[k]);
            }
        }
        (Plain(top), at)
    }
    #[inline(always)]
    unsafe fn largest(self, b: Self, c: Self) -> Self {
        let mut top = self.0;
        for k in 0..4 {
            for v in [b.0[k], c.0[k]] {
                #[allow(clippy::eq_op, reason = "only NaN differs from itself")]
                let take = (v > top[k]) | (v != v);
                top[k] = if take { v } else { top[k] };
            }
        }
        Plain(top)
    }
    #[inline(always)]
    unsafe fn are_ordinary(self) -> bool {
        self.0.into_iter().all(|v| v > T::NEG_INFINITY)
    }
    #[inline(always)]
    unsafe fn place(place: i32) -> [i32; 4] {
        [place; 4]
    }
    #[inline(always)]
    unsafe fn where_equal(self, other: Self, place: [i32; 4], mut at: [i32; 4]) -> [i32; 4] {
        for k in 0..4 {
            if self.0[k] == other.0[k] {
                at[k] = place[k];
            }
        }
        at
    }
    #[inline(always)]
    unsafe fn moved(places: [i32; 4], first: i32) -> [i32; 4] {
        [places[0] + first, places[1] + first + 2, places[2] + first + 4, places[3] + first + 6]
    }
    #[inline(always)]
    unsafe fn place_halves(a: [i32; 4], b: [i32; 4]) -> [[i32; 4]; 2] {
        [[a[0], a[2], b[0], b[2]], [a[1], a[3], b[1], b[3]]]
    }
    #[inline(always)]
    unsafe fn reordered_places(places: [i32; 4]) -> [i32; 4] {
        places
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Lanes, Pairs};
    use std::arch::x86_64::*;

    // The functions have `Vector`'s *Instructions*, which are AVX2's here.
    impl Lanes for __m256 {
        type Places = __m256i;
        #[inline(always)]
        unsafe fn load_places(from: *const i32) -> __m256i {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; eight places lie there.
            unsafe { _mm256_loadu_si256(from.cast()) }
        }
        #[inline(always)]
        unsafe fn store_places(places: __m256i, to: *mut i32) {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; eight places can be written there.
            unsafe { _mm256_storeu_si256(to.cast(), places) }
        }
        #[inline(always)]
        unsafe fn places_from(first: i32) -> __m256i {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; registers only.
            unsafe {
                _mm256_add_epi32(
                    _mm256_set1_epi32(first),
                    _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                )
            }
        }
        #[inline(always)]
        unsafe fn later((top, at): (Self, __m256i), v: Self, places: __m256i) -> (Self, __m256i) {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; registers only.
            unsafe {
                let larger = _mm256_cmp_ps::<_CMP_GT_OQ>(v, top);
                choose(
                    _mm256_or_ps(larger, _mm256_cmp_ps::<_CMP_UNORD_Q>(v, v)),
                    (top, at),
                    (v, places),
                )
            }
        }
        #[inline(always)]
        unsafe fn merge((top, at): (Self, __m256i), v: Self, places: __m256i) -> (Self, __m256i) {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; registers only.
            unsafe {
                let larger = _mm256_cmp_ps::<_CMP_GT_OQ>(v, top);
                let before = _mm256_castsi256_ps(_mm256_cmpgt_epi32(at, places));
                let equal = _mm256_and_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(v, top), before);
                let behind = _mm256_castsi256_ps(_mm256_cmpgt_epi32(places, at));
                let other = _mm256_or_ps(_mm256_cmp_ps::<_CMP_ORD_Q>(top, top), behind);
                let nan = _mm256_and_ps(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v), other);
                choose(_mm256_or_ps(_mm256_or_ps(larger, equal), nan), (top, at), (v, places))
            }
        }
        #[inline(always)]
        unsafe fn largest(self, b: Self, c: Self) -> Self {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; registers only.
            unsafe {
                // Where one is a NaN, the instruction gives the second: that of `self` stays. All bits set
                // are a NaN too.
                let top = _mm256_max_ps(c, _mm256_max_ps(b, self));
                _mm256_or_ps(top, _mm256_cmp_ps::<_CMP_UNORD_Q>(b, c))
            }
        }
        #[inline(always)]
        unsafe fn are_ordinary(self) -> bool {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; registers only.
            unsafe {
                let lowest = _mm256_set1_ps(f32::NEG_INFINITY);
                _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(self, lowest)) == 0xff
            }
        }
        #[inline(always)]
        unsafe fn place(place: i32) -> __m256i {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; registers only.
            unsafe { _mm256_set1_epi32(place) }
        }
        #[inline(always)]
        unsafe fn where_equal(self, other: Self, place: __m256i, at: __m256i) -> __m256i {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; registers only.
            unsafe {
                let equal = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_EQ_OQ>(self, other));
                _mm256_blendv_epi8(at, place, equal)
            }
        }
        #[inline(always)]
        unsafe fn moved(places: __m256i, first: i32) -> __m256i {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; registers only.
            unsafe {
                let steps = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
                _mm256_add_epi32(places, _mm256_add_epi32(_mm256_set1_epi32(first), steps))
            }
        }
        #[inline(always)]
        unsafe fn place_halves(a: __m256i, b: __m256i) -> [__m256i; 2] {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; registers only.
            unsafe {
                let [even, odd] = Self::halves(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b));
                [_mm256_castps_si256(even), _mm256_castps_si256(odd)]
            }
        }
        #[inline(always)]
        unsafe fn reordered_places(places: __m256i) -> __m256i {
            // SAFETY: AVX2 by `Vector`'s *Instructions*; registers only.
            unsafe { _mm256_castps_si256(_mm256_castsi256_ps(places).reordered()) }
        }
    }

    /// The second pair where `mask` is set.
    #[inline(always)]
    unsafe fn choose(
        mask: __m256,
        (top, at): (__m256, __m256i),
        (v, places): (__m256, __m256i),
    ) -> (__m256, __m256i) {
        // SAFETY: AVX2 by `Vector`'s *Instructions*; registers only.
        unsafe {
            (
                _mm256_blendv_ps(top, v, mask),
                _mm256_blendv_epi8(at, places, _mm256_castps_si256(mask)),
            )
        }
    }
}
