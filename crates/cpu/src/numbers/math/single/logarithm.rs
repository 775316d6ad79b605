//! Logarithms.

use super::{LN2_HI, LN2_LO, SQRT_HALF, fma, log_special, poly};

/// [`log_parts_of_normal`] for all x > 0, subnormal ones too.
#[inline(always)]
fn log_parts<const FMA: bool>(x: f32) -> (f32, f32, f32) {
    let tiny = x < f32::MIN_POSITIVE;
    let x = if tiny { x * 8_388_608.0 } else { x };
    let shift = if tiny { 23.0 } else { 0.0 };
    let (e, f, tail) = log_parts_of_normal::<FMA>(x);
    (e - shift, f, tail)
}

/// `x = 2^e (1 + f)` with 1 + f in [sqrt(1/2), sqrt 2): gives e, f, and log(1 + f) - f. For normal x > 0.
#[inline(always)]
fn log_parts_of_normal<const FMA: bool>(x: f32) -> (f32, f32, f32) {
    let bits = x.to_bits().wrapping_sub(SQRT_HALF);
    let e = (bits as i32 >> 23) as f32;
    let f = f32::from_bits((bits & 0x007f_ffff) + SQRT_HALF) - 1.0;
    let q = poly::<FMA, 8>(
        f,
        [
            0.333_333_3,
            -0.250_008_2,
            0.200_012_27,
            -0.166_233_57,
            0.142_017_62,
            -0.131_601_88,
            0.127_615_53,
            -0.076_344_505,
        ],
    );
    let z = f * f;
    (e, f, fma::<FMA>(-0.5, z, f * z * q))
}

/// Natural logarithm, within 1 ulp.
#[inline(always)]
pub fn log<const FMA: bool>(x: f32) -> f32 {
    let (e, f, tail) = log_parts::<FMA>(x);
    let y = fma::<FMA>(e, LN2_HI, f + fma::<FMA>(e, LN2_LO, tail));
    log_special(x, y)
}

/// [`log`] of a positive number that is neither subnormal nor infinite.
#[inline(always)]
pub fn log_of_normal<const FMA: bool>(x: f32) -> f32 {
    let (e, f, tail) = log_parts_of_normal::<FMA>(x);
    fma::<FMA>(e, LN2_HI, f + fma::<FMA>(e, LN2_LO, tail))
}

/// Logarithm to base 2, within 2 ulp, exact at powers of two.
#[inline(always)]
pub fn log2<const FMA: bool>(x: f32) -> f32 {
    const BEYOND_ONE: f32 = std::f32::consts::LOG2_E - 1.0;
    let (e, f, tail) = log_parts::<FMA>(x);
    let y = fma::<FMA>(f, BEYOND_ONE, tail * BEYOND_ONE) + tail + f + e;
    log_special(x, y)
}

/// Logarithm to base 10, within 2 ulp.
#[inline(always)]
pub fn log10<const FMA: bool>(x: f32) -> f32 {
    // log10(e) and log10(2), each in two parts.
    const E_HI: f32 = 0.4375;
    const E_LO: f32 = -0.003_205_518;
    const TWO_HI: f32 = 0.300_781_25;
    const TWO_LO: f32 = 0.000_248_745_66;
    let (e, f, tail) = log_parts::<FMA>(x);
    let low = fma::<FMA>(f, E_LO, fma::<FMA>(tail, E_LO, e * TWO_LO));
    let y = fma::<FMA>(e, TWO_HI, fma::<FMA>(f, E_HI, fma::<FMA>(tail, E_HI, low)));
    log_special(x, y)
}

/// log(1 + x), within 2 ulp also near 0.
#[inline(always)]
pub fn log1p<const FMA: bool>(x: f32) -> f32 {
    let u = 1.0 + x;
    // What rounding took from 1 + x, to first order.
    let lost = (x - (u - 1.0)) / u;
    let lost = if u == f32::INFINITY || u == 0.0 { 0.0 } else { lost };
    let y = log::<FMA>(u) + lost;
    // Keeps the sign of zero.
    if x == 0.0 { x } else { y }
}
