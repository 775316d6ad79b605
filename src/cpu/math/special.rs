//! Special functions, which are rare in training: plain scalar f64, also for f32, so that there is one
//! of each. Relative errors are about 1e-14, but near zeros of the function.

use std::f64::consts::{FRAC_2_SQRT_PI, PI};

// The system's C library has them; Rust's standard library does not expose them.
unsafe extern "C" {
    #[link_name = "erfc"]
    safe fn c_erfc(x: f64) -> f64;
    #[link_name = "lgamma_r"]
    fn c_lgamma_r(x: f64, sign: *mut i32) -> f64;
}

/// Complement of the error function, 1 - erf(x).
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
    if a >= 1.0 || a.is_nan() {
        return if a == 1.0 { f64::INFINITY.copysign(x) } else { f64::NAN };
    }
    // Winitzki's approximation, within 0.2 %, then Halley's steps on whichever of erf(y) = a and
    // erfc(y) = 1 - a keeps its digits.
    let log = (-a * a).ln_1p();
    let b = 2.0 / (PI * 0.147) + 0.5 * log;
    let mut y = ((b * b - log / 0.147).sqrt() - b).max(0.0).sqrt();
    for _ in 0..3 {
        let error = c_erfc(y) - (1.0 - a);
        let step = error / (FRAC_2_SQRT_PI * (-y * y).exp());
        y += step / (1.0 - y * step);
    }
    if a < 0.5 {
        // erfc loses small values; one step of Newton on erf(y) by its series.
        let error = a - erf_series(y);
        y += error / (FRAC_2_SQRT_PI * (-y * y).exp());
    }
    y.copysign(x)
}

/// The error function below 1, where its series needs few terms.
fn erf_series(x: f64) -> f64 {
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

/// Modified Bessel function of the first kind and order `ORDER` (0 or 1).
fn bessel<const ORDER: u32>(x: f64) -> f64 {
    let a = x.abs();
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
        return sum;
    }
    // The asymptotic series in 1 / (8 a), up to its smallest term.
    let (mut term, mut sum, mut k) = (1.0, 1.0f64, 1.0);
    while f64::abs(term) > 1e-17 && k < 40.0 {
        let odd = 2.0 * k - 1.0;
        term *= (odd * odd - 4.0 * order * order) / (8.0 * a * k);
        sum += term;
        k += 1.0;
    }
    // In two factors, so that it overflows no earlier than the result.
    let half = (0.5 * a).exp();
    half * (half * sum / (2.0 * PI * a).sqrt())
}

/// Modified Bessel function of order 0.
pub fn i0(x: f64) -> f64 {
    if x.is_nan() { x } else { bessel::<0>(x) }
}

/// Modified Bessel function of order 1.
pub fn i1(x: f64) -> f64 {
    if x.is_nan() { x } else { bessel::<1>(x).copysign(x) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(got: f64, want: f64) {
        assert!((got - want).abs() <= 1e-12 * want.abs().max(1e-3), "{got}, not {want}");
    }

    #[test]
    fn known_values() {
        near(erfcx(0.0), 1.0);
        near(erfcx(24.999_999), erfcx(25.000_001) * (25.000_001 / 24.999_999));
        near(lgamma(5.0), 24f64.ln());
        near(digamma(1.0), -0.577_215_664_901_532_9);
        near(digamma(0.5), -0.577_215_664_901_532_9 - 2.0 * std::f64::consts::LN_2);
        near(digamma(-0.5), digamma(0.5) + 2.0);
        near(zeta(2.0, 1.0), PI * PI / 6.0);
        near(zeta(4.0, 1.0), PI.powi(4) / 90.0);
        near(zeta(2.0, -0.5), zeta(2.0, 0.5) + 4.0);
        near(i0(1.0), 1.266_065_877_752_008_4);
        near(i1(1.0), 0.565_159_103_992_485);
        near(i0(30.000_000_000_1), i0(30.0) + 1e-10 * i1(30.0));
    }

    #[test]
    fn the_inverse_error_function_is_one() {
        for y in [1e-9, 0.01, 0.3, 0.4, 0.7, 1.5] {
            near(erfinv(if y < 1.0 { erf_series(y) } else { 1.0 - erfc(y) }), y);
        }
        assert_eq!(erfinv(-1.0), f64::NEG_INFINITY);
        assert!(erfinv(1.5).is_nan());
    }
}
