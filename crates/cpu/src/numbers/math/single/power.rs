//! Powers.

use super::super::double;
use super::exponential::exp2_of_fraction;
use super::{MAGIC, SQRT_HALF, nearest, scale};

/// log2 of a number that is not negative, in f64 within 2^-37.
#[inline(always)]
fn wide_log2<const FMA: bool>(a: f32) -> f64 {
    let tiny = a < f32::MIN_POSITIVE;
    let normal = if tiny { a * 8_388_608.0 } else { a };
    let bits = normal.to_bits().wrapping_sub(SQRT_HALF);
    let e = (bits as i32 >> 23) as f32;
    let e = if tiny { e - 23.0 } else { e };
    // What becomes of these here is what the logarithm is.
    let e = if a == 0.0 { f32::NEG_INFINITY } else { e };
    let e = if a < f32::INFINITY { e } else { a };
    let f = (f32::from_bits((bits & 0x007f_ffff) + SQRT_HALF) - 1.0) as f64;
    let s = f / (f + 2.0);
    let z = s * s;
    const C: [f64; 5] = [
        2.885_390_081_790_086_4,
        0.961_796_673_341_797_5,
        0.577_083_584_965_151_3,
        0.411_672_718_997_776_7,
        0.340_730_106_585_343_36,
    ];
    let fma = double::fma::<FMA>;
    let p = fma(fma(fma(fma(C[4], z, C[3]), z, C[2]), z, C[1]), z, C[0]);
    fma(s, p, e as f64)
}

/// x^y, within 1.25 ulp, with C99's special cases (`pow(1, NaN) = 1`, `pow(-0, -3) = -inf`, ...).
#[inline(always)]
pub fn pow<const FMA: bool>(x: f32, y: f32) -> f32 {
    let a = x.abs();
    // f64 has so many spare bits that the error of the logarithm times y does not matter.
    let p = y as f64 * wide_log2::<FMA>(a);
    let p = if p < -151.0 { -151.0 } else { p };
    let p = if p > 129.0 { 129.0 } else { p };
    let n = (p + double::MAGIC) - double::MAGIC;
    let p = scale::<FMA>(exp2_of_fraction::<FMA>((p - n) as f32), n as f32 + MAGIC);

    // From 2^24 on all f32 are even integers.
    let half = 0.5 * y.abs();
    let integer = nearest::<FMA>(y.abs()) == y.abs();
    let odd = integer & (nearest::<FMA>(half) != half);

    let p = if (a == 1.0) & (y.abs() == f32::INFINITY) { 1.0 } else { p };
    let negative = x.is_sign_negative() & !x.is_nan();
    let signed = if odd & negative { -p } else { p };
    // A negative finite base takes integer exponents only.
    let invalid = (x < 0.0) & (a != f32::INFINITY) & !integer & !y.is_nan();
    let signed = if invalid { f32::NAN } else { signed };
    if (y == 0.0) | (x == 1.0) { 1.0 } else { signed }
}

/// 1 / sqrt(x), of a correctly rounded root: within 1.5 ulp.
#[inline(always)]
pub fn rsqrt<const FMA: bool>(x: f32) -> f32 {
    1.0 / x.sqrt()
}
