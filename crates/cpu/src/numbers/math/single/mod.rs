//! f32 functions. Errors are in units in the last place (ulp) against f64, over a dense sample of all
//! f32 values; `ops/pointwise/accuracy.rs` holds them there, in the loops of each instruction set.

mod bessel;
mod error;
mod exponential;
mod gamma;
mod inverse;
mod logarithm;
mod power;
mod quotient;
mod trigonometric;

use super::basic::single::{clamp, log_special, nearest, poly};
pub use super::basic::single::{floored_quotient, floored_remainder, fma};
pub use bessel::{i0, i0e, i1, i1e};
pub use error::{erf, erfc, erfinv, gelu};
pub use exponential::{cosh, exp, exp_flushed, exp2, exp2_flushed, expm1, sigmoid, sinh, tanh};
pub use gamma::{digamma, lgamma};
pub use inverse::{acos, asin, atan, atan2};
pub use logarithm::{log, log_of_normal, log1p, log2, log10};
pub use power::{pow, rsqrt};
pub use quotient::{is_near_quotient, near_fmod};
pub use trigonometric::{cos, is_far_turn, near_cos, near_sin, near_tan, sin, tan};

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

/// 1.5 * 2^23: adding it rounds to an integer, which is then in the low bits.
const MAGIC: f32 = 12_582_912.0;
/// ln 2 in two parts; the first has few bits, so that its product with an exponent is exact.
const LN2_HI: f32 = 0.693_359_4;
const LN2_LO: f32 = -2.121_944_4e-4;
/// The bits of the root of 1/2.
const SQRT_HALF: u32 = 0x3f35_04f3;

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
