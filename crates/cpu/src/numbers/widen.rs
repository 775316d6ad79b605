//! Element types seen by kernels that compute in a wider one: f16 and bf16 in f32, the others in
//! their own. The conversions are branch-free bit arithmetic, so loops over them vectorise.

use half::{bf16, f16};

use crate::numbers::math::{double, single};

/// A stored element and the type that kernels compute in.
pub trait Widen: Copy + Default + Send + Sync + 'static {
    /// f32 for the half types, else the type itself.
    type Wide: Copy + Default + PartialOrd + Send + Sync + 'static;
    /// The value in the wider type.
    fn widen(self) -> Self::Wide;
    /// The nearest value, ties to even.
    fn narrow(wide: Self::Wide) -> Self;
    /// [`widen`](Self::widen) of each of some neighbours. `FMA` as in [`vectorize`](crate::arch::vectorize).
    #[inline(always)]
    fn widen_some<const FMA: bool, const Q: usize>(some: &[Self; Q]) -> [Self::Wide; Q] {
        let mut wide = [Self::Wide::default(); Q];
        for j in 0..Q {
            wide[j] = some[j].widen();
        }
        wide
    }
}

/// f32 or f64: what floating-point kernels compute in.
pub trait Real:
    Widen<Wide = Self>
    + PartialOrd
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
    + std::ops::AddAssign
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Minus infinity.
    const NEG_INFINITY: Self;
    /// Rounds.
    fn of(value: f64) -> Self;
    /// The value as f64.
    fn as_f64(self) -> f64;
    /// Absolute value.
    fn magnitude(self) -> Self;
    /// e^x.
    fn exp<const FMA: bool>(self) -> Self;
    /// e^x for x up to 88; 0 or right where the result would be subnormal.
    fn exp_flushed<const FMA: bool>(self) -> Self;
    /// 2^x for x up to 127; 0 or right where the result would be subnormal.
    fn exp2_flushed<const FMA: bool>(self) -> Self;
    /// Natural logarithm.
    fn log<const FMA: bool>(self) -> Self;
}

macro_rules! itself {
    ($($t:ty)*) => {$(
        impl Widen for $t {
            type Wide = $t;
            #[inline(always)]
            fn widen(self) -> $t { self }
            #[inline(always)]
            fn narrow(wide: $t) -> $t { wide }
        }
    )*};
}
itself!(f64 f32 i64 i32 i16 i8 u8 bool);

macro_rules! real {
    ($($t:ident $math:ident $exp:ident $exp2:ident;)*) => {$(
        impl Real for $t {
            const ZERO: $t = 0.0;
            const ONE: $t = 1.0;
            const NEG_INFINITY: $t = $t::NEG_INFINITY;
            #[inline(always)]
            fn of(value: f64) -> $t { value as $t }
            #[inline(always)]
            fn as_f64(self) -> f64 { self as f64 }
            #[inline(always)]
            fn magnitude(self) -> $t { self.abs() }
            #[inline(always)]
            fn exp<const FMA: bool>(self) -> $t { $math::exp::<FMA>(self) }
            #[inline(always)]
            fn exp_flushed<const FMA: bool>(self) -> $t { $math::$exp::<FMA>(self) }
            #[inline(always)]
            fn exp2_flushed<const FMA: bool>(self) -> $t { $math::$exp2::<FMA>(self) }
            #[inline(always)]
            fn log<const FMA: bool>(self) -> $t { $math::log::<FMA>(self) }
        }
    )*};
}
real!(f32 single exp_flushed exp2_flushed; f64 double exp exp2;);

impl Widen for bf16 {
    type Wide = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits((self.to_bits() as u32) << 16)
    }
    #[inline(always)]
    fn narrow(wide: f32) -> bf16 {
        let bits = wide.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
        // Rounding could turn a NaN into infinity: NaN keeps its upper bits and is made quiet.
        let quiet = bits | 0x0040_0000;
        bf16::from_bits((if wide.is_nan() { quiet } else { rounded } >> 16) as u16)
    }
}

impl Widen for f16 {
    type Wide = f32;
    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = self.to_bits() as u32;
        // Exponent and mantissa at f32's place, then times 2^(127 - 15), which also makes subnormal
        // halves normal.
        let magnitude = (bits & 0x7fff) << 13;
        let scaled = (f32::from_bits(magnitude) * f32::from_bits(0x7780_0000)).to_bits();
        let special = if magnitude >= 0x0f80_0000 { 0x7f80_0000 } else { 0 };
        f32::from_bits(scaled | special | (bits & 0x8000) << 16)
    }
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn widen_some<const FMA: bool, const Q: usize>(some: &[f16; Q]) -> [f32; Q] {
        let mut wide = [0.0; Q];
        // SAFETY: as many on both sides; whatever has FMA has F16C.
        let done = if FMA { unsafe { widen_f16(some.as_ptr(), wide.as_mut_ptr(), Q) } } else { 0 };
        for j in done..Q {
            wide[j] = some[j].widen();
        }
        wide
    }
    #[inline(always)]
    fn narrow(wide: f32) -> f16 {
        let bits = wide.to_bits();
        let magnitude = bits & 0x7fff_ffff;
        // Rounds to nearest even by carrying into the bits that are kept.
        let odd = magnitude >> 13 & 1;
        let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
        // Adding 0.5 moves a subnormal half's bits to the low end; the addition rounds.
        let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
        let special = if magnitude > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
        let half = if magnitude < 113 << 23 { subnormal } else { normal };
        let half = if magnitude >= 143 << 23 { special } else { half };
        f16::from_bits((half | bits >> 16 & 0x8000) as u16)
    }
}

/// Widens as many of `n` numbers as fill registers, and says how many.
///
/// # Safety
/// There are `n` numbers on both sides; the processor has F16C.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx,f16c")]
#[inline]
pub unsafe fn widen_f16(from: *const f16, to: *mut f32, n: usize) -> usize {
    use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
    for i in (0..n / 8 * 8).step_by(8) {
        // SAFETY: this function's contract: eight more numbers are on both sides, and F16C is
        // there.
        unsafe {
            _mm256_storeu_ps(to.add(i), _mm256_cvtph_ps(_mm_loadu_si128(from.add(i).cast())))
        };
    }
    n / 8 * 8
}
