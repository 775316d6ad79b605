//! Exponentials, and what is made of them.

use super::{LN2_HI, LN2_LO, MAGIC, clamp, fma, poly, power_of_two, scale};

/// `x = n ln 2 + r`: gives n + [`MAGIC`] and e^r - 1.
#[inline(always)]
pub(super) fn exp_parts<const FMA: bool>(x: f32) -> (f32, f32) {
    let t = fma::<FMA>(x, std::f32::consts::LOG2_E, MAGIC);
    let n = t - MAGIC;
    let r = fma::<FMA>(n, -LN2_LO, fma::<FMA>(n, -LN2_HI, x));
    let p = poly::<FMA, 5>(
        r,
        [0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_709, 0.001_381_461_6],
    );
    (t, fma::<FMA>(r * r, p, r))
}

/// e^x, within 1.1 ulp; subnormal results and overflow as they should be.
#[inline(always)]
pub fn exp<const FMA: bool>(x: f32) -> f32 {
    let (t, fraction) = exp_parts::<FMA>(clamp(x, -104.0, 89.0));
    scale::<FMA>(fraction + 1.0, t)
}

/// e^x where 2^n is a normal number: x between -87 and 88.
#[inline(always)]
fn exp_moderate<const FMA: bool>(x: f32) -> f32 {
    let (t, fraction) = exp_parts::<FMA>(x);
    (fraction + 1.0) * power_of_two(t)
}

/// e^x for x up to 88, within 1.1 ulp; 0 where the result would be subnormal. For sums of e^(x - max), to which
/// such results add nothing.
#[inline(always)]
pub fn exp_flushed<const FMA: bool>(x: f32) -> f32 {
    let y = exp_moderate::<FMA>(x);
    // NaN stays: it compares false.
    if x < -87.3 { 0.0 } else { y }
}

/// 2^x for x up to 127, within 1.5 ulp; 0 or right where the result would be subnormal. For loops that wait for each
/// other's results rather than for the units: the powers of the fraction are summed in pairs.
#[inline(always)]
pub fn exp2_flushed<const FMA: bool>(x: f32) -> f32 {
    // Adding it leaves the bits of an exponent, those of 0 for -127.
    const BIASED: f32 = MAGIC + 127.0;
    // NaN stays: it compares false.
    let x = if x < -127.0 { -127.0 } else { x };
    let t = x + BIASED;
    let r = x - (t - BIASED);
    let z = r * r;
    let low = fma::<FMA>(r, 0.693_147_24, 1.0);
    let middle = fma::<FMA>(r, 0.055_502_973, 0.240_226_5);
    let high = fma::<FMA>(z, 0.000_154_697_32, fma::<FMA>(r, 0.001_341, 0.009_618_031));
    fma::<FMA>(z, fma::<FMA>(z, high, middle), low) * f32::from_bits(t.to_bits() << 23)
}

/// 2^r for -0.5 <= r <= 0.5, within 1.1 ulp.
#[inline(always)]
pub(super) fn exp2_of_fraction<const FMA: bool>(r: f32) -> f32 {
    let p = poly::<FMA, 7>(
        r,
        [
            std::f32::consts::LN_2,
            0.240_226_5,
            0.055_504_102,
            0.009_618_038,
            0.001_333_393_5,
            0.000_154_667_56,
            1.519_615_4e-5,
        ],
    );
    fma::<FMA>(r, p, 1.0)
}

/// 2^x, within 1.1 ulp; subnormal results and overflow as they should be.
#[inline(always)]
pub fn exp2<const FMA: bool>(x: f32) -> f32 {
    let x = clamp(x, -151.0, 129.0);
    let t = x + MAGIC;
    scale::<FMA>(exp2_of_fraction::<FMA>(x - (t - MAGIC)), t)
}

/// e^x - 1, within 2 ulp also near 0.
#[inline(always)]
pub fn expm1<const FMA: bool>(x: f32) -> f32 {
    let (t, fraction) = exp_parts::<FMA>(clamp(x, -20.0, 89.0));
    // Half of the result, because 2^128 is not a number.
    let s = power_of_two(t - 1.0);
    (2.0 * fma::<FMA>(s, fraction, s - 0.5)).copysign(x)
}
/// Hyperbolic tangent, within 2 ulp.
#[inline(always)]
pub fn tanh<const FMA: bool>(x: f32) -> f32 {
    let a = if x.abs() > 10.0 { 10.0 } else { x.abs() };
    let z = a * a;
    let small = poly::<FMA, 4>(z, [-0.333_329_47, 0.133_207_29, -0.052_672_014, 0.016_437_89]);
    let small = fma::<FMA>(a * z, small, a);
    let large = 1.0 - 2.0 / (exp_moderate::<FMA>(a + a) + 1.0);
    (if a < 0.55 { small } else { large }).copysign(x)
}

/// Logistic function 1 / (1 + e^-x), within 2.5 ulp; subnormal results too.
#[inline(always)]
pub fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    // With e^-|x|, which is a number for all x.
    let power = exp::<FMA>(-x.abs());
    (if x < 0.0 { power } else { 1.0 }) / (1.0 + power)
}

/// Half of e^a for a up to 90, where it is infinite.
#[inline(always)]
fn half_exp<const FMA: bool>(a: f32) -> f32 {
    let (t, fraction) = exp_parts::<FMA>(if a > 90.0 { 90.0 } else { a });
    scale::<FMA>(fraction + 1.0, t - 1.0)
}

/// Hyperbolic sine, within 2 ulp.
#[inline(always)]
pub fn sinh<const FMA: bool>(x: f32) -> f32 {
    let a = x.abs();
    let z = a * a;
    let small = poly::<FMA, 3>(z, [0.166_667_18, 0.008_330_211, 0.000_203_774_05]);
    let small = fma::<FMA>(a * z, small, a);
    let power = half_exp::<FMA>(a);
    let large = power - 0.25 / power;
    (if a < 1.0 { small } else { large }).copysign(x)
}

/// Hyperbolic cosine, within 2 ulp.
#[inline(always)]
pub fn cosh<const FMA: bool>(x: f32) -> f32 {
    let power = half_exp::<FMA>(x.abs());
    power + 0.25 / power
}
