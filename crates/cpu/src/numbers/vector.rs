//! Vector registers of the instruction sets as one small trait. Most kernels are plain loops that
//! the compiler vectorises; the register tiles of matrix products are too large for it to find.

use crate::numbers::float::Float;

/// A register of [`Float`] numbers.
///
/// Whoever calls its functions, or others over such registers, keeps two invariants:
///
/// - *Instructions*: the processor has the registers' instruction set. [`Plain`] needs none.
/// - *Reach*: the numbers that a load or a store names are there, and nobody else uses those that are written.
pub trait Vector: Copy {
    /// The numbers' type.
    type Number: Float;
    /// How many there are.
    const LANES: usize;

    /// Reads `LANES` numbers.
    ///
    /// # Safety
    /// *Reach* and *Instructions*.
    unsafe fn load(from: *const Self::Number) -> Self;
    /// Writes `LANES` numbers.
    ///
    /// # Safety
    /// *Reach* and *Instructions*.
    unsafe fn store(self, to: *mut Self::Number);
    /// The same number in all lanes.
    ///
    /// # Safety
    /// *Instructions*.
    unsafe fn splat(x: Self::Number) -> Self;
    /// `self + other`.
    ///
    /// # Safety
    /// *Instructions*.
    unsafe fn add(self, other: Self) -> Self;
    /// `self * b + c`.
    ///
    /// # Safety
    /// *Instructions*.
    unsafe fn fma(self, b: Self, c: Self) -> Self;

    /// Whether [`Vector::store_head`] and [`Vector::store_columns`] are faster than to take numbers one by
    /// one from memory.
    const MASKS: bool = false;
    /// Writes the first `n` numbers, which may be none or more than there are, or adds them to what is
    /// there.
    ///
    /// # Safety
    /// As [`Vector::store`] for these, and the registers have [`Vector::MASKS`].
    unsafe fn store_head(self, to: *mut Self::Number, n: usize, add: bool) {
        let _ = (to, n, add);
        unreachable!("has no masks")
    }
    /// Writes number j of each of the first `m` registers to `to + j * distance`, for j below `n`, or adds
    /// them to what is there.
    ///
    /// # Safety
    /// As [`Vector::store_head`].
    unsafe fn store_columns(
        rows: [Self; 8],
        m: usize,
        to: *mut Self::Number,
        distance: usize,
        n: usize,
        add: bool,
    ) {
        let _ = (rows, m, to, distance, n, add);
        unreachable!("has no masks")
    }
}

/// Registers whose lanes can be taken apart by whether their places are even or odd. *Instructions* is [`Vector`]'s.
pub trait Pairs: Vector {
    /// The numbers with even and those with odd places among those of `a` followed by `b`, both in an
    /// order of their own, which [`Pairs::reordered`] turns into the memory's.
    ///
    /// # Safety
    /// *Instructions*, as for all functions here.
    unsafe fn split(a: Self, b: Self) -> [Self; 2];
    /// From the order of [`Pairs::split`] to the memory's, or back.
    ///
    /// # Safety
    /// *Instructions*.
    unsafe fn reordered(self) -> Self;
    /// `even` and `odd` in turns.
    ///
    /// # Safety
    /// *Instructions*.
    unsafe fn interleave(even: Self, odd: Self) -> [Self; 2];
}

/// Registers that can be transposed as a square of numbers: at most 8 of at most 8. *Instructions* is [`Vector`]'s.
pub trait Square: Vector {
    /// The transposed square of the first `LANES` registers.
    ///
    /// # Safety
    /// *Instructions*.
    unsafe fn transpose(rows: [Self; 8]) -> [Self; 8];
}

/// Calls `$body` with `$V` as the registers of f32 numbers where `$FMA`, which is only set where AVX2 is,
/// says that there are some, or as `$Plain`.
#[doc(hidden)]
#[macro_export]
macro_rules! with_registers {
    ($FMA:ident, $V:ident = $Plain:ty => $body:expr) => {{
        #[cfg(target_arch = "x86_64")]
        if $FMA {
            type $V = std::arch::x86_64::__m256;
            return $body;
        }
        type $V = $Plain;
        $body
    }};
}
pub use with_registers;

/// Some numbers without any special instruction.
#[derive(Clone, Copy)]
pub struct Plain<T, const N: usize = 4>(pub [T; N]);

impl<T: Float, const N: usize> Vector for Plain<T, N> {
    type Number = T;
    const LANES: usize = N;
    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: `Vector`'s *Reach*: `N` numbers lie there, and an array of them has their
        // alignment.
        Plain(unsafe { from.cast::<[T; N]>().read() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: `Vector`'s *Reach*: there is room for `N` numbers, and an array of them has their
        // alignment.
        unsafe { to.cast::<[T; N]>().write(self.0) }
    }
    #[inline(always)]
    unsafe fn splat(x: T) -> Self {
        Plain([x; N])
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }
    #[inline(always)]
    unsafe fn fma(self, b: Self, c: Self) -> Self {
        Plain(std::array::from_fn(|i| self.0[i] * b.0[i] + c.0[i]))
    }
}

impl<T: Float> Pairs for Plain<T> {
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

impl<T: Float> Square for Plain<T> {
    #[inline(always)]
    unsafe fn transpose(rows: [Self; 8]) -> [Self; 8] {
        let mut out = rows;
        for i in 0..Self::LANES {
            for j in 0..Self::LANES {
                out[i].0[j] = rows[j].0[i];
            }
        }
        out
    }
}

/// Implements [`Vector`] by an architecture's own functions.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! vector {
    (
        $v:ty, $t:ty, $lanes:literal, $load:ident $store:ident $splat:ident $add:ident $fma:ident
        $($more:item)*
    ) => {
        impl Vector for $v {
            type Number = $t;
            const LANES: usize = $lanes;
            #[inline(always)]
            unsafe fn load(from: *const $t) -> Self {
                // SAFETY: `Vector`'s *Reach*, and its *Instructions*.
                unsafe { $load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $t) {
                // SAFETY: `Vector`'s *Reach*, and its *Instructions*.
                unsafe { $store(to, self) }
            }
            #[inline(always)]
            unsafe fn splat(x: $t) -> Self {
                // SAFETY: `Vector`'s *Instructions*: the function touches registers only.
                unsafe { $splat(x) }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: `Vector`'s *Instructions*: the function touches registers only.
                unsafe { $add(self, other) }
            }
            #[inline(always)]
            unsafe fn fma(self, b: Self, c: Self) -> Self {
                // SAFETY: `Vector`'s *Instructions*: the function touches registers only.
                unsafe { $fma(self, b, c) }
            }
            $($more)*
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Pairs, Square, Vector};
    use std::arch::x86_64::*;

    vector!(__m256, f32, 8, _mm256_loadu_ps _mm256_storeu_ps _mm256_set1_ps _mm256_add_ps _mm256_fmadd_ps);
    vector!(__m256d, f64, 4, _mm256_loadu_pd _mm256_storeu_pd _mm256_set1_pd _mm256_add_pd _mm256_fmadd_pd);
    vector!(
        __m512, f32, 16, _mm512_loadu_ps _mm512_storeu_ps _mm512_set1_ps _mm512_add_ps _mm512_fmadd_ps
        const MASKS: bool = true;
        #[inline(always)]
        unsafe fn store_head(self, to: *mut f32, n: usize, add: bool) {
            // SAFETY: `Vector`'s *Reach* for the first `n` numbers, the only ones that are touched, and *Instructions*.
            unsafe {
                let mask = first(n) as __mmask16;
                let all = if add { _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to), self) } else { self };
                _mm512_mask_storeu_ps(to, mask, all);
            }
        }
        #[inline(always)]
        unsafe fn store_columns(
            r: [Self; 8],
            m: usize,
            to: *mut f32,
            distance: usize,
            n: usize,
            add: bool,
        ) {
            // SAFETY: `Vector`'s *Reach* for `m` numbers of the first `n` columns, the only ones that are touched, and
            // *Instructions*.
            unsafe {
                // In each quarter of a register four rows of one column, then all eight of two columns.
                let (upper, lower) = (quarters(r[0], r[1], r[2], r[3]), quarters(r[4], r[5], r[6], r[7]));
                let (even, odd) = (
                    _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13),
                    _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15),
                );
                let mask = first(m) as __mmask8;
                for c in 0..4 {
                    let pair = _mm512_permutex2var_pd(upper[c], even, lower[c]);
                    let (low, high) = (_mm512_castpd512_pd256(pair), _mm512_extractf64x4_pd::<1>(pair));
                    column(low, to.wrapping_add(c * distance), mask, c < n, add);
                    column(high, to.wrapping_add((c + 8) * distance), mask, c + 8 < n, add);
                    let pair = _mm512_permutex2var_pd(upper[c], odd, lower[c]);
                    let (low, high) = (_mm512_castpd512_pd256(pair), _mm512_extractf64x4_pd::<1>(pair));
                    column(low, to.wrapping_add((c + 4) * distance), mask, c + 4 < n, add);
                    column(high, to.wrapping_add((c + 12) * distance), mask, c + 12 < n, add);
                }
            }
        }
    );
    vector!(
        __m512d, f64, 8, _mm512_loadu_pd _mm512_storeu_pd _mm512_set1_pd _mm512_add_pd _mm512_fmadd_pd
    );

    /// A mask of the first `n` lanes.
    #[inline(always)]
    fn first(n: usize) -> u32 {
        ((1u64 << n.min(32)) - 1) as u32
    }

    /// Four rows' squares of four columns, transposed: quarter q of register c is column 4 q + c.
    ///
    /// # Safety
    /// The processor has AVX-512.
    #[inline(always)]
    unsafe fn quarters(a: __m512, b: __m512, c: __m512, d: __m512) -> [__m512d; 4] {
        // SAFETY: AVX-512 is there by this function's contract; registers only.
        unsafe {
            let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
            let (ef, gh) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
            let (ab, cd) = (_mm512_castps_pd(ab), _mm512_castps_pd(cd));
            let (ef, gh) = (_mm512_castps_pd(ef), _mm512_castps_pd(gh));
            [
                _mm512_unpacklo_pd(ab, cd),
                _mm512_unpackhi_pd(ab, cd),
                _mm512_unpacklo_pd(ef, gh),
                _mm512_unpackhi_pd(ef, gh),
            ]
        }
    }

    /// Writes a column's numbers if it is `wanted`, or adds them to what is there.
    ///
    /// # Safety
    /// As [`Vector::store_columns`].
    #[inline(always)]
    unsafe fn column(numbers: __m256d, to: *mut f32, mask: __mmask8, wanted: bool, add: bool) {
        // SAFETY: as for `Vector::store_columns`, whose contract this is; only places in the mask are touched.
        unsafe {
            let mut numbers = _mm256_castpd_ps(numbers);
            if !wanted {
                return;
            }
            if add {
                numbers = _mm256_add_ps(_mm256_maskz_loadu_ps(mask, to), numbers);
            }
            if mask == 0xFF {
                // Several times as fast as one with a mask.
                return _mm256_storeu_ps(to, numbers);
            }
            _mm256_mask_storeu_ps(to, mask, numbers);
        }
    }

    impl Pairs for __m256 {
        // In each half of a register: two numbers of `a`, two of `b`.
        #[inline(always)]
        unsafe fn split(a: Self, b: Self) -> [Self; 2] {
            // SAFETY: `Vector`'s *Instructions*; registers only.
            unsafe { [_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xDD>(a, b)] }
        }
        #[inline(always)]
        unsafe fn reordered(self) -> Self {
            // SAFETY: `Vector`'s *Instructions*; registers only.
            unsafe { _mm256_castpd_ps(_mm256_permute4x64_pd::<0xD8>(_mm256_castps_pd(self))) }
        }
        #[inline(always)]
        unsafe fn interleave(even: Self, odd: Self) -> [Self; 2] {
            // SAFETY: `Vector`'s *Instructions*; registers only.
            unsafe {
                let (low, high) = (_mm256_unpacklo_ps(even, odd), _mm256_unpackhi_ps(even, odd));
                [
                    _mm256_permute2f128_ps::<0x20>(low, high),
                    _mm256_permute2f128_ps::<0x31>(low, high),
                ]
            }
        }
    }

    /// The places of two registers' lanes, those of the second from 16 on: `first + step * i` in lane i.
    const fn places(first: i32, step: i32) -> [i32; 16] {
        let mut places = [0; 16];
        let mut i = 0;
        while i < 16 {
            places[i as usize] = first + step * i;
            i += 1;
        }
        places
    }
    /// From lane `first` on, a lane of each register in turns.
    const fn in_turns(first: i32) -> [i32; 16] {
        let mut places = [0; 16];
        let mut i = 0;
        while i < 16 {
            places[i as usize] = first + i / 2 + i % 2 * 16;
            i += 1;
        }
        places
    }
    const EVEN: [i32; 16] = places(0, 2);
    const ODD: [i32; 16] = places(1, 2);
    const LOW: [i32; 16] = in_turns(0);
    const HIGH: [i32; 16] = in_turns(8);

    /// The lanes of two registers at these places.
    ///
    /// # Safety
    /// The processor has AVX-512.
    #[inline(always)]
    unsafe fn picked(places: &[i32; 16], a: __m512, b: __m512) -> __m512 {
        // SAFETY: `places` has the 64 bytes that are read; AVX-512 is there by this function's contract.
        unsafe { _mm512_permutex2var_ps(a, _mm512_loadu_si512(places.as_ptr().cast()), b) }
    }

    impl Pairs for __m512 {
        #[inline(always)]
        unsafe fn split(a: Self, b: Self) -> [Self; 2] {
            // SAFETY: `Vector`'s *Instructions*: this register's are AVX-512.
            unsafe { [picked(&EVEN, a, b), picked(&ODD, a, b)] }
        }
        #[inline(always)]
        unsafe fn reordered(self) -> Self {
            self
        }
        #[inline(always)]
        unsafe fn interleave(even: Self, odd: Self) -> [Self; 2] {
            // SAFETY: `Vector`'s *Instructions*: this register's are AVX-512.
            unsafe { [picked(&LOW, even, odd), picked(&HIGH, even, odd)] }
        }
    }

    impl Square for __m256 {
        #[inline(always)]
        unsafe fn transpose(r: [Self; 8]) -> [Self; 8] {
            // SAFETY: `Vector`'s *Instructions*; registers only.
            unsafe {
                // Squares of 2, then of 4, then of 8.
                let (a0, a1) = (_mm256_unpacklo_ps(r[0], r[1]), _mm256_unpackhi_ps(r[0], r[1]));
                let (a2, a3) = (_mm256_unpacklo_ps(r[2], r[3]), _mm256_unpackhi_ps(r[2], r[3]));
                let (a4, a5) = (_mm256_unpacklo_ps(r[4], r[5]), _mm256_unpackhi_ps(r[4], r[5]));
                let (a6, a7) = (_mm256_unpacklo_ps(r[6], r[7]), _mm256_unpackhi_ps(r[6], r[7]));
                let (b0, b1) =
                    (_mm256_shuffle_ps::<0x44>(a0, a2), _mm256_shuffle_ps::<0xEE>(a0, a2));
                let (b2, b3) =
                    (_mm256_shuffle_ps::<0x44>(a1, a3), _mm256_shuffle_ps::<0xEE>(a1, a3));
                let (b4, b5) =
                    (_mm256_shuffle_ps::<0x44>(a4, a6), _mm256_shuffle_ps::<0xEE>(a4, a6));
                let (b6, b7) =
                    (_mm256_shuffle_ps::<0x44>(a5, a7), _mm256_shuffle_ps::<0xEE>(a5, a7));
                [
                    _mm256_permute2f128_ps::<0x20>(b0, b4),
                    _mm256_permute2f128_ps::<0x20>(b1, b5),
                    _mm256_permute2f128_ps::<0x20>(b2, b6),
                    _mm256_permute2f128_ps::<0x20>(b3, b7),
                    _mm256_permute2f128_ps::<0x31>(b0, b4),
                    _mm256_permute2f128_ps::<0x31>(b1, b5),
                    _mm256_permute2f128_ps::<0x31>(b2, b6),
                    _mm256_permute2f128_ps::<0x31>(b3, b7),
                ]
            }
        }
    }

    impl Square for __m256d {
        #[inline(always)]
        unsafe fn transpose(r: [Self; 8]) -> [Self; 8] {
            // SAFETY: `Vector`'s *Instructions*; registers only.
            unsafe {
                let (a0, a1) = (_mm256_unpacklo_pd(r[0], r[1]), _mm256_unpackhi_pd(r[0], r[1]));
                let (a2, a3) = (_mm256_unpacklo_pd(r[2], r[3]), _mm256_unpackhi_pd(r[2], r[3]));
                let mut out = r;
                out[0] = _mm256_permute2f128_pd::<0x20>(a0, a2);
                out[1] = _mm256_permute2f128_pd::<0x20>(a1, a3);
                out[2] = _mm256_permute2f128_pd::<0x31>(a0, a2);
                out[3] = _mm256_permute2f128_pd::<0x31>(a1, a3);
                out
            }
        }
    }
}

/// NEON, which every aarch64 processor has.
#[cfg(target_arch = "aarch64")]
#[allow(unused_unsafe, reason = "functions of the baseline are safe; the others are not")]
mod neon {
    use super::{Square, Vector};
    use std::arch::aarch64::*;

    /// `a * b + c`: the instruction's function takes the summand first.
    #[inline(always)]
    fn fma_f32(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        // SAFETY: NEON is there.
        unsafe { vfmaq_f32(c, a, b) }
    }
    #[inline(always)]
    fn fma_f64(a: float64x2_t, b: float64x2_t, c: float64x2_t) -> float64x2_t {
        // SAFETY: NEON is there.
        unsafe { vfmaq_f64(c, a, b) }
    }

    vector!(float32x4_t, f32, 4, vld1q_f32 vst1q_f32 vdupq_n_f32 vaddq_f32 fma_f32);
    vector!(float64x2_t, f64, 2, vld1q_f64 vst1q_f64 vdupq_n_f64 vaddq_f64 fma_f64);

    impl Square for float32x4_t {
        #[inline(always)]
        unsafe fn transpose(r: [Self; 8]) -> [Self; 8] {
            // SAFETY: NEON is there.
            unsafe {
                let (a0, a1) = (vzip1q_f32(r[0], r[2]), vzip2q_f32(r[0], r[2]));
                let (b0, b1) = (vzip1q_f32(r[1], r[3]), vzip2q_f32(r[1], r[3]));
                let mut out = r;
                (out[0], out[1]) = (vzip1q_f32(a0, b0), vzip2q_f32(a0, b0));
                (out[2], out[3]) = (vzip1q_f32(a1, b1), vzip2q_f32(a1, b1));
                out
            }
        }
    }

    impl Square for float64x2_t {
        #[inline(always)]
        unsafe fn transpose(r: [Self; 8]) -> [Self; 8] {
            // SAFETY: NEON is there.
            unsafe {
                let mut out = r;
                (out[0], out[1]) = (vzip1q_f64(r[0], r[1]), vzip2q_f64(r[0], r[1]));
                out
            }
        }
    }
}
