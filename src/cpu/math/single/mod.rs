//! f32 functions. Errors are in units in the last place (ulp) against f64, over a dense sample of all
//! f32 values; `ops/pointwise/accuracy.rs` holds them there, in the loops of each instruction set.

mod error;
mod exponential;
mod gamma;
mod inverse;
mod logarithm;
mod power;
mod trigonometric;

pub use super::quotient::single::{floored_quotient, floored_remainder};
pub use error::{erf, erfc, erfinv, gelu};
pub use exponential::{cosh, exp, exp_flushed, exp2, exp2_flushed, expm1, sigmoid, sinh, tanh};
pub use gamma::{digamma, lgamma};
pub use inverse::{acos, asin, atan, atan2};
pub use logarithm::{log, log_of_normal, log1p, log2, log10};
pub use power::pow;
pub use trigonometric::{cos, is_far_turn, near_cos, near_sin, near_tan, sin, tan};

/// `a * b + c`, fused where that is an instruction.
#[inline(always)]
pub fn fma<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    if FMA { a.mul_add(b, c) } else { a * b + c }
}

/// `c[0] + c[1] x + c[2] x^2 + ...`
#[inline(always)]
fn poly<const FMA: bool, const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let mut y = c[N - 1];
    let mut i = N - 1;
    while i > 0 {
        i -= 1;
        y = fma::<FMA>(y, x, c[i]);
    }
    y
}

/// [`poly`] of the odd and the even powers apart, which half as many operations wait for.
#[inline(always)]
fn poly_by_halves<const FMA: bool, const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let z = x * x;
    let (mut first, mut second) = (c[N - 1], c[N - 2]);
    let mut i = N - 2;
    while i > 1 {
        i -= 2;
        first = fma::<FMA>(first, z, c[i + 1]);
        second = fma::<FMA>(second, z, c[i]);
    }
    if i == 1 {
        // `first` has the even powers.
        return fma::<FMA>(second, x, fma::<FMA>(first, z, c[0]));
    }
    fma::<FMA>(first, x, second)
}

/// `x` between `low` and `high`; NaN stays NaN.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// 1.5 * 2^23: adding it rounds to an integer, which is then in the low bits.
const MAGIC: f32 = 12_582_912.0;
/// ln 2 in two parts; the first has few bits, so that its product with an exponent is exact.
const LN2_HI: f32 = 0.693_359_4;
const LN2_LO: f32 = -2.121_944_4e-4;
/// The bits of the root of 1/2.
const SQRT_HALF: u32 = 0x3f35_04f3;

/// The nearest integer to a number that is not negative.
#[inline(always)]
fn nearest<const FMA: bool>(x: f32) -> f32 {
    /// From here on all are integers, and adding it to those below leaves one.
    const WHOLE: f32 = 8_388_608.0;
    match FMA {
        // Where FMA is an instruction, this is one.
        true => x.round_ties_even(),
        false if x >= WHOLE => x,
        false => (x + WHOLE) - WHOLE,
    }
}

/// 2^n for the integer that adding [`MAGIC`] put into `t`'s low bits; n in -126..=127.
#[inline(always)]
fn power_of_two(t: f32) -> f32 {
    f32::from_bits(t.to_bits().wrapping_add(127) << 23)
}

/// `y` times 2^n for the integer n that adding [`MAGIC`] put into `t`'s low bits; n in -252..=254. In two steps, because
/// 2^n alone may be too large or subnormal.
#[inline(always)]
fn scale<const FMA: bool>(y: f32, t: f32) -> f32 {
    let half = fma::<FMA>(t - MAGIC, 0.5, MAGIC);
    let rest = t - (half - MAGIC);
    y * power_of_two(half) * power_of_two(rest)
}
