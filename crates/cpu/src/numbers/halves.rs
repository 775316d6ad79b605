//! Runs of f32 to f16 and bf16, by the instructions that x86-64 has for it.

use half::{bf16, f16};
use std::arch::x86_64::*;

use crate::numbers::widen::Widen;

/// Rounds as many of `n` numbers as fill registers, and says how many.
///
/// # Safety
/// There are `n` numbers on both sides; the processor has F16C.
#[target_feature(enable = "avx,f16c")]
#[inline]
pub unsafe fn narrow_f16(from: *const f32, to: *mut f16, n: usize) -> usize {
    for i in (0..n / 8 * 8).step_by(8) {
        // SAFETY: this function's contract: eight more numbers are on both sides, and F16C is
        // there.
        unsafe {
            let wide = _mm256_loadu_ps(from.add(i));
            let half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide);
            _mm_storeu_si128(to.add(i).cast(), half);
        }
    }
    n / 8 * 8
}

/// Rounds as many of `n` numbers as fill pairs of registers, and says how many. The upper and the lower halves of
/// sixteen are rounded as integers of 16 bits, which takes half as many instructions as eight of 32.
///
/// # Safety
/// There are `n` numbers on both sides; the processor has AVX2.
#[target_feature(enable = "avx2")]
#[inline]
pub unsafe fn narrow_bf16(from: *const f32, to: *mut bf16, n: usize) -> usize {
    const ODD_WORDS: i32 = 0b1010_1010;
    let (one, middle) = (_mm256_set1_epi16(1), _mm256_set1_epi16(i16::MIN));
    // Of each four pairs of words the first ones, then the others.
    let apart = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15,
    ));
    for i in (0..n / 16 * 16).step_by(16) {
        // SAFETY: this function's contract: sixteen more numbers are on both sides, and AVX2 is
        // there.
        unsafe {
            let (x, y) = (_mm256_loadu_ps(from.add(i)), _mm256_loadu_ps(from.add(i + 8)));
            if _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_UNORD_Q>(x, y)) != 0 {
                // A NaN, which rounding could turn into infinity.
                for j in i..i + 16 {
                    to.add(j).write(bf16::narrow(from.add(j).read()));
                }
                continue;
            }
            let (x, y) = (_mm256_castps_si256(x), _mm256_castps_si256(y));
            let upper = _mm256_blend_epi16::<ODD_WORDS>(_mm256_srli_epi32::<16>(x), y);
            let lower = _mm256_blend_epi16::<ODD_WORDS>(x, _mm256_slli_epi32::<16>(y));
            // Up from more than the middle, and from the middle to an even number.
            let past = _mm256_adds_epu16(lower, _mm256_and_si256(upper, one));
            let up = _mm256_min_epu16(_mm256_subs_epu16(past, middle), one);
            let mixed = _mm256_shuffle_epi8(_mm256_add_epi16(upper, up), apart);
            let rounded = _mm256_permute4x64_epi64::<0b11_01_10_00>(mixed);
            _mm256_storeu_si256(to.add(i).cast(), rounded);
        }
    }
    n / 16 * 16
}
