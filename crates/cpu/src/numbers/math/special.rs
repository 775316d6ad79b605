//! Special functions, which are rare in training: plain scalar f64. `erfc`, `erfinv`, `lgamma`, `digamma` and the Bessel functions
//! have vector code of their own for f32 (`single/`); of the others these are the only ones. Relative errors are about 1e-14, but near zeros of the function.

use std::f64::consts::{FRAC_2_SQRT_PI, PI, SQRT_2};

pub use super::bessel::*;
pub use super::incomplete_gamma::*;
pub use super::polynomials::*;

// The system's C library has them; Rust's standard library does not expose them.
unsafe extern "C" {
    #[link_name = "erfc"]
    safe fn c_erfc(x: f64) -> f64;
    #[link_name = "lgamma_r"]
    fn c_lgamma_r(x: f64, sign: *mut i32) -> f64;
}

/// Complement of the error function, 1 - erf(x).
#[inline]
pub fn erfc(x: f64) -> f64 {
    c_erfc(x)
}

/// Scaled complement of the error function, e^(x^2) erfc(x).
pub fn erfcx(x: f64) -> f64 {
    if x < 25.0 {
        return (x * x).exp() * c_erfc(x);
    }
    // The asymptotic series; its next term is below 1e-11 of the sum.
    let z = 0.5 / (x * x);
    0.5 * FRAC_2_SQRT_PI / x * (1.0 - z * (1.0 - 3.0 * z * (1.0 - 5.0 * z * (1.0 - 7.0 * z))))
}

/// Inverse of the error function.
pub fn erfinv(x: f64) -> f64 {
    let a = x.abs();
    let mut y = erfc_inverse(1.0 - a);
    if a < 0.5 {
        // erfc loses small values; one step of Newton on erf(y) by its series.
        let error = a - erf_series(y);
        y += error / (FRAC_2_SQRT_PI * (-y * y).exp());
    }
    y.copysign(x)
}

/// Inverse of the normal distribution's function.
#[inline]
pub fn ndtri(p: f64) -> f64 {
    if p < 0.5 { -SQRT_2 * erfc_inverse(2.0 * p) } else { SQRT_2 * erfc_inverse(2.0 - 2.0 * p) }
}

/// The y >= 0 with erfc(y) = `c`, for 0 <= c <= 1; else NaN.
fn erfc_inverse(c: f64) -> f64 {
    if !(c > 0.0 && c <= 1.0) {
        return if c == 0.0 { f64::INFINITY } else { f64::NAN };
    }
    // Winitzki's approximation, within 0.2 %, then Halley's steps.
    let log = (c * (2.0 - c)).ln();
    let b = 2.0 / (PI * 0.147) + 0.5 * log;
    let mut y = ((b * b - log / 0.147).sqrt() - b).max(0.0).sqrt();
    if c < 1e-290 {
        // erfc has few digits there; its logarithm has all, for Newton's steps.
        for _ in 0..4 {
            let scaled = erfcx(y);
            y += (scaled.ln() - y * y - c.ln()) * scaled / FRAC_2_SQRT_PI;
        }
        return y;
    }
    for _ in 0..4 {
        let step = (c_erfc(y) - c) / (FRAC_2_SQRT_PI * (-y * y).exp());
        y += step / (1.0 - y * step);
    }
    y
}

/// The error function below 1, where its series needs few terms.
pub fn erf_series(x: f64) -> f64 {
    let z = 2.0 * x * x;
    let (mut term, mut sum, mut k) = (x, x, 1.0);
    while term > sum * 1e-17 {
        k += 2.0;
        term *= z / k;
        sum += term;
    }
    FRAC_2_SQRT_PI * (-x * x).exp() * sum
}

/// Logarithm of the absolute value of the gamma function.
pub fn lgamma(x: f64) -> f64 {
    let mut sign = 0;
    // SAFETY: the sign is written to a variable that is ours.
    unsafe { c_lgamma_r(x, &mut sign) }
}

/// Derivative of [`lgamma`].
pub fn digamma(x: f64) -> f64 {
    if x == 0.0 {
        return f64::NEG_INFINITY.copysign(-x.signum());
    }
    if x < 0.0 {
        if x == x.floor() {
            return f64::NAN;
        }
        // Reflected; the distance from the nearest integer keeps the tangent exact.
        return digamma(1.0 - x) - PI / (PI * (x - x.round())).tan();
    }
    let (mut x, mut shifted) = (x, 0.0);
    while x < 10.0 {
        shifted += 1.0 / x;
        x += 1.0;
    }
    let z = 1.0 / (x * x);
    let series = z
        * (1.0 / 12.0
            - z * (1.0 / 120.0
                - z * (1.0 / 252.0
                    - z * (1.0 / 240.0 - z * (1.0 / 132.0 - z * (691.0 / 32760.0 - z / 12.0))))));
    x.ln() - 0.5 / x - series - shifted
}

/// Derivative of [`digamma`]. Below 1/2 it is reflected by the sine of pi x, which is not 0 at the poles, as pi is rounded.
pub fn trigamma(x: f64) -> f64 {
    if x < 0.5 {
        let sine = (PI * x).sin();
        return PI * PI / (sine * sine) - trigamma(1.0 - x);
    }
    let (mut x, mut sum) = (x, 0.0);
    while x < 10.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let z = 1.0 / (x * x);
    let series = z
        * (1.0 / 6.0
            - z * (1.0 / 30.0
                - z * (1.0 / 42.0
                    - z * (1.0 / 30.0 - z * (5.0 / 66.0 - z * (691.0 / 2730.0 - z * 7.0 / 6.0))))));
    sum + (1.0 + 0.5 / x + series) / x
}

/// Hurwitz's zeta function, the sum over k >= 0 of 1 / (q + k)^s, for s > 1, by Euler and Maclaurin.
pub fn zeta(s: f64, q: f64) -> f64 {
    if s == 1.0 {
        return f64::INFINITY;
    }
    if s < 1.0 || s.is_nan() || q.is_nan() {
        return f64::NAN;
    }
    if q <= 0.0 {
        if q == q.floor() {
            return f64::INFINITY;
        }
        // Powers of negative numbers need a whole exponent.
        if s != s.floor() {
            return f64::NAN;
        }
    }
    // B_2k / (2k)!
    const COEFFICIENTS: [f64; 8] = [
        1.0 / 12.0,
        -1.0 / 720.0,
        1.0 / 30_240.0,
        -1.0 / 1_209_600.0,
        1.0 / 47_900_160.0,
        -691.0 / 1_307_674_368_000.0,
        1.0 / 74_724_249_600.0,
        -3617.0 / 10_670_622_842_880_000.0,
    ];
    let (mut q, mut sum) = (q, 0.0);
    while q < 12.0 {
        sum += q.powf(-s);
        q += 1.0;
    }
    let power = q.powf(-s);
    sum += power * q / (s - 1.0) + 0.5 * power;
    let mut factor = s * power / q;
    for (k, c) in COEFFICIENTS.into_iter().enumerate() {
        sum += factor * c;
        let k = 2.0 * k as f64;
        factor *= (s + k + 1.0) * (s + k + 2.0) / (q * q);
    }
    sum
}

/// Modified Bessel function of the first kind and order `ORDER` (0 or 1) of |x|, in two factors, so that
/// it overflows no earlier than the result; with `SCALED` times e^-|x|.
fn bessel<const ORDER: u32, const SCALED: bool>(x: f64) -> f64 {
    // Far beyond where it is infinite, the factors of infinity itself would be infinity and 0.
    let a = if SCALED { x.abs() } else { x.abs().min(1e4) };
    let order = f64::from(ORDER);
    if a <= 30.0 {
        // The power series: all of its terms are positive.
        let z = 0.25 * a * a;
        let (mut term, mut sum, mut k) = (if ORDER == 0 { 1.0 } else { 0.5 * a }, 0.0, 0.0);
        while term > sum * 1e-17 {
            sum += term;
            k += 1.0;
            term *= z / (k * (k + order));
        }
        return if SCALED { sum * (-a).exp() } else { sum };
    }
    // The asymptotic series in 1 / (8 a), which has enough falling terms.
    let (mut term, mut sum, mut k) = (1.0, 1.0f64, 1.0);
    while f64::abs(term) > 1e-17 && k < 40.0 {
        let odd = 2.0 * k - 1.0;
        term *= (odd * odd - 4.0 * order * order) / (8.0 * a * k);
        sum += term;
        k += 1.0;
    }
    let scaled = sum / (2.0 * PI * a).sqrt();
    let half = (0.5 * a).exp();
    if SCALED { scaled } else { half * (half * scaled) }
}

/// Modified Bessel function of order 0.
#[inline]
pub fn i0(x: f64) -> f64 {
    if x.is_nan() { x } else { bessel::<0, false>(x) }
}

/// Modified Bessel function of order 1.
#[inline]
pub fn i1(x: f64) -> f64 {
    if x.is_nan() { x } else { bessel::<1, false>(x).copysign(x) }
}

/// [`i0`] times e^-|x|.
#[inline]
pub fn i0e(x: f64) -> f64 {
    if x.is_nan() { x } else { bessel::<0, true>(x) }
}

/// [`i1`] times e^-|x|.
#[inline]
pub fn i1e(x: f64) -> f64 {
    if x.is_nan() { x } else { bessel::<1, true>(x).copysign(x) }
}
