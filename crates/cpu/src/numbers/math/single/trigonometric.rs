//! Sine, cosine and tangent.

use super::super::double;
use super::{MAGIC, fma, poly};

/// Bits of 2 / pi after the binary point, most significant first.
const TWO_OVER_PI: [u64; 5] = [
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
];

/// Bits of a part of 1 / (2 pi): its product with any f32 is exact in f64.
const PART: i32 = 29;
/// 1 / (2 pi) in parts, and what is behind them.
const TURN: ([f64; 5], f64) = {
    let mut parts = [0.0; 5];
    let mut i = 0;
    while i < parts.len() {
        parts[i] = two_over_pi_bits(PART * i as i32, PART, -2);
        i += 1;
    }
    (parts, two_over_pi_bits(PART * parts.len() as i32, 53, -2))
};

/// The number made of `count` bits of 2 / pi from bit `first` on, times 2^e.
const fn two_over_pi_bits(first: i32, count: i32, e: i32) -> f64 {
    let mut value = 0u64;
    let mut i = first;
    while i < first + count {
        let word = TWO_OVER_PI[(i / 64) as usize];
        value = value << 1 | (word >> (63 - i % 64)) & 1;
        i += 1;
    }
    // Bit i weighs 2^(-1 - i); the exponent stays in f64's normal range.
    value as f64 * double::exact_power_of_two(e - first - count)
}

/// `|x| = n pi/2 + r`: gives r in [-pi/4, pi/4] and n modulo 4, exactly enough for every f32, 2^127 included; no
/// number of infinity and NaN.
///
/// Whole turns are taken out of the product with each part of 1 / (2 pi), of which those with the first are all whole
/// if x is large: so many parts take the place of a table by x's exponent, which would be read number by number (Payne
/// and Hanek 1983).
#[inline(always)]
fn reduce_quadrant<const FMA: bool>(x: f32) -> (f32, u32) {
    let x = x.abs() as f64;
    let (parts, behind) = TURN;
    let mut turns = [0.0; 5];
    let mut sum = x * behind;
    let mut i = turns.len();
    while i > 0 {
        i -= 1;
        let product = x * parts[i];
        turns[i] = product - double::nearest::<FMA>(product);
        sum += turns[i];
    }
    let t = double::fma::<FMA>(sum, 4.0, double::MAGIC);
    let n = t - double::MAGIC;
    // The first part less n is exact, and what the others leave of it is small where r is.
    let mut r = double::fma::<FMA>(n, -0.25, turns[0]);
    let mut i = 1;
    while i < turns.len() {
        r += turns[i];
        i += 1;
    }
    let r = double::fma::<FMA>(x, behind, r) * std::f64::consts::TAU;
    (r as f32, t.to_bits() as u32)
}

#[inline(always)]
fn sin_cos_of_quadrant<const FMA: bool>(r: f32, quadrant: u32) -> f32 {
    let z = r * r;
    let sin =
        poly::<FMA, 4>(z, [-0.166_666_67, 0.008_333_329, -0.000_198_393_35, 0.000_002_718_304]);
    let sin = fma::<FMA>(r * z, sin, r);
    let cos = poly::<FMA, 4>(
        z,
        [0.041_666_668, -0.001_388_888_3, 0.000_024_799_52, -0.000_000_272_101_7],
    );
    let cos = fma::<FMA>(z * z, cos, fma::<FMA>(z, -0.5, 1.0));
    let y = if quadrant & 1 == 0 { sin } else { cos };
    f32::from_bits(y.to_bits() ^ (quadrant & 2) << 30)
}

#[inline(always)]
fn tan_of_quadrant<const FMA: bool>(r: f32, quadrant: u32) -> f32 {
    let z = r * r;
    let tan = poly::<FMA, 6>(
        z,
        [0.333_331_1, 0.133_399_68, 0.053_318_188, 0.024_752_054, 0.002_616_960_3, 0.009_676_541],
    );
    let tan = fma::<FMA>(r * z, tan, r);
    if quadrant & 1 == 0 { tan } else { -1.0 / tan }
}

/// `y` with its sign changed where `x` is negative, and for -0: of odd functions.
#[inline(always)]
fn signed_as(x: f32, y: f32) -> f32 {
    f32::from_bits(y.to_bits() ^ x.to_bits() & 0x8000_0000)
}

/// Sine, within 2 ulp for every argument.
#[inline(always)]
pub fn sin<const FMA: bool>(x: f32) -> f32 {
    let (r, quadrant) = reduce_quadrant::<FMA>(x);
    signed_as(x, sin_cos_of_quadrant::<FMA>(r, quadrant))
}

/// Cosine, within 2 ulp for every argument.
#[inline(always)]
pub fn cos<const FMA: bool>(x: f32) -> f32 {
    let (r, quadrant) = reduce_quadrant::<FMA>(x);
    sin_cos_of_quadrant::<FMA>(r, quadrant.wrapping_add(1))
}

/// Tangent, within 3 ulp for every argument.
#[inline(always)]
pub fn tan<const FMA: bool>(x: f32) -> f32 {
    let (r, quadrant) = reduce_quadrant::<FMA>(x);
    signed_as(x, tan_of_quadrant::<FMA>(r, quadrant))
}

/// Whether `x` is too large for [`near_sin`], [`near_cos`] and [`near_tan`]; NaN is not.
#[inline(always)]
pub fn is_far_turn(x: f32) -> bool {
    // Up to here x 2 / pi is off by less than a hundredth when it is rounded to an integer.
    x.abs() > 1e5
}

/// [`reduce_quadrant`] for moderate x, where products are fused (Cody and Waite 1980).
#[inline(always)]
fn reduce_near(x: f32) -> (f32, u32) {
    /// pi/2 in parts.
    const PARTS: [f32; 3] = [f32::from_bits(0x3fc9_0fda), 7.549_789_4e-8, 5.390_302_5e-15];
    let x = x.abs();
    let t = x.mul_add(std::f32::consts::FRAC_2_PI, MAGIC);
    let n = t - MAGIC;
    // The first difference is exact.
    let r = n.mul_add(-PARTS[0], x);
    let r = n.mul_add(-PARTS[1], r);
    (n.mul_add(-PARTS[2], r), t.to_bits())
}

/// [`sin`] unless [`is_far_turn`].
#[inline(always)]
pub fn near_sin(x: f32) -> f32 {
    let (r, quadrant) = reduce_near(x);
    signed_as(x, sin_cos_of_quadrant::<true>(r, quadrant))
}

/// [`cos`] unless [`is_far_turn`].
#[inline(always)]
pub fn near_cos(x: f32) -> f32 {
    let (r, quadrant) = reduce_near(x);
    sin_cos_of_quadrant::<true>(r, quadrant.wrapping_add(1))
}

/// [`tan`] unless [`is_far_turn`].
#[inline(always)]
pub fn near_tan(x: f32) -> f32 {
    let (r, quadrant) = reduce_near(x);
    signed_as(x, tan_of_quadrant::<true>(r, quadrant))
}
