//! Inverse trigonometric functions.

use std::f32::consts::{FRAC_PI_2, PI};

use super::{fma, poly};

/// What f32's pi leaves out.
const PI_LOW: f32 = -8.742_278e-8;

/// arctan(t) for 0 <= t <= 1.
#[inline(always)]
fn arctangent<const FMA: bool>(t: f32) -> f32 {
    let z = t * t;
    let p = poly::<FMA, 9>(
        z,
        [
            -0.333_333_02,
            0.199_986_38,
            -0.142_652_45,
            0.109_575_786,
            -0.084_194_64,
            0.058_234_62,
            -0.031_455_763,
            0.011_064_468,
            -0.001_827_218,
        ],
    );
    fma::<FMA>(t * z, p, t)
}

/// Inverse tangent, within 2 ulp.
#[inline(always)]
pub fn atan<const FMA: bool>(x: f32) -> f32 {
    let a = x.abs();
    let steep = a > 1.0;
    let y = arctangent::<FMA>(if steep { 1.0 / a } else { a });
    (if steep { (FRAC_PI_2 - y) + 0.5 * PI_LOW } else { y }).copysign(x)
}

/// Angle of the point with ordinate `y` and abscissa `x`, within 3 ulp; C99's special cases.
#[inline(always)]
pub fn atan2<const FMA: bool>(y: f32, x: f32) -> f32 {
    let (a, b) = (x.abs(), y.abs());
    let steep = b > a;
    let (low, high) = if steep { (a, b) } else { (b, a) };
    let t = low / high;
    // 0 / 0 and infinity / infinity, but not NaN.
    let t = if high == 0.0 { 0.0 } else { t };
    let t = if low == f32::INFINITY { 1.0 } else { t };
    let angle = arctangent::<FMA>(t);
    let angle = if steep { (FRAC_PI_2 - angle) + 0.5 * PI_LOW } else { angle };
    let angle = if x.is_sign_negative() { (PI - angle) + PI_LOW } else { angle };
    // Comparisons with NaN chose one of the two.
    let angle = if x.is_nan() { x } else { angle };
    if y.is_nan() { y } else { angle.copysign(y) }
}

/// arcsin(s) for s with the square z, 0 <= z <= 1/4.
#[inline(always)]
fn arcsine<const FMA: bool>(s: f32, z: f32) -> f32 {
    let p =
        poly::<FMA, 5>(z, [0.166_667_54, 0.074_952_33, 0.045_478_34, 0.024_140_993, 0.042_230_54]);
    fma::<FMA>(s * z, p, s)
}

/// `|x|` is above 1/2, and arcsin(s) for the s that x is reduced to: x, or the sine of half of what is left to pi/2.
#[inline(always)]
fn reduce_arcsine<const FMA: bool>(a: f32) -> (bool, f32) {
    let far = a > 0.5;
    let z = if far { fma::<FMA>(-0.5, a, 0.5) } else { a * a };
    let s = if far { z.sqrt() } else { a };
    (far, arcsine::<FMA>(s, z))
}

/// Inverse sine, within 2 ulp.
#[inline(always)]
pub fn asin<const FMA: bool>(x: f32) -> f32 {
    let (far, y) = reduce_arcsine::<FMA>(x.abs());
    let y = if far { fma::<FMA>(-2.0, y, FRAC_PI_2) + 0.5 * PI_LOW } else { y };
    y.copysign(x)
}

/// Inverse cosine, within 2 ulp.
#[inline(always)]
pub fn acos<const FMA: bool>(x: f32) -> f32 {
    let (far, y) = reduce_arcsine::<FMA>(x.abs());
    let negative = x < 0.0;
    let twice = y + y;
    let outer = if negative { (PI - twice) + PI_LOW } else { twice };
    let inner = (FRAC_PI_2 - if negative { -y } else { y }) + 0.5 * PI_LOW;
    if far { outer } else { inner }
}
