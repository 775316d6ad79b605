//! The regularised incomplete gamma functions: plain scalar f64. Formulas are those of the Digital Library of Mathematical
//! Functions (DLMF), chapter 8; near a = x Temme's uniform expansion, summed as by A. Gil, J. Segura and N. Temme (SIAM J. Sci.
//! Comput. 34, 2012).

use std::f64::consts::PI;

use super::special::{erfc, lgamma};

/// Of eta / (lambda - 1), behind 1: coefficients of eta^(n + 1), where eta^2 / 2 = lambda - 1 - log(lambda). They follow from that
/// equation by inverting its series.
const EXPANSION: [f64; 26] = [
    -0.333_333_333_333_333_3,
    0.083_333_333_333_333_33,
    -0.014_814_814_814_814_815,
    0.001_157_407_407_407_407_4,
    0.000_352_733_686_067_019_5,
    -0.000_178_755_144_032_921_8,
    3.919_263_178_522_438e-5,
    -2.185_448_510_679_992e-6,
    -1.854_062_210_715_16e-6,
    8.296_711_340_953_087e-7,
    -1.766_595_273_682_607_8e-7,
    6.707_853_543_401_498e-9,
    1.026_180_978_424_030_9e-8,
    -4.382_036_018_453_353e-9,
    9.147_699_582_236_79e-10,
    -2.551_419_399_494_624_8e-11,
    -5.830_772_132_550_426e-11,
    2.436_194_802_066_741_5e-11,
    -5.027_669_280_114_175_6e-12,
    1.100_439_203_195_613_5e-13,
    3.371_763_262_400_985e-13,
    -1.392_388_722_418_162e-13,
    2.853_489_380_704_744_5e-14,
    -5.139_111_834_242_572e-16,
    -1.975_228_829_434_944_2e-15,
    8.099_521_156_704_561e-16,
];

/// mu - log(1 + mu) for |mu| <= 0.3, by the series of the inverse hyperbolic tangent.
fn excess(mu: f64) -> f64 {
    let t = mu / (2.0 + mu);
    let z = t * t;
    let (mut power, mut sum, mut k) = (t * z, 0.0, 3.0);
    while k < 32.0 {
        sum += power / k;
        power *= z;
        k += 2.0;
    }
    2.0 * z / (1.0 - t) - 2.0 * sum
}

/// x^a e^-x / gamma(a + 1).
fn density(a: f64, x: f64) -> f64 {
    if a < 10.0 {
        return (a * x.ln() - x - lgamma(a + 1.0)).exp();
    }
    // By Stirling's series, so that large numbers do not cancel.
    let z = 1.0 / (a * a);
    let correction =
        (1.0 / 12.0 - z * (1.0 / 360.0 - z * (1.0 / 1260.0 - z * (1.0 / 1680.0 - z / 1188.0)))) / a;
    let mu = (x - a) / a;
    let distance = if mu.abs() <= 0.3 { excess(mu) } else { mu - (x / a).ln() };
    (-a * distance - correction).exp() / (2.0 * PI * a).sqrt()
}

/// The lower function by its power series (DLMF 8.11.4).
fn power_series(a: f64, x: f64) -> f64 {
    let (mut term, mut sum, mut n) = (1.0, 1.0, a);
    for _ in 0..20_000 {
        n += 1.0;
        term *= x / n;
        sum += term;
        if term < sum * 1e-17 {
            break;
        }
    }
    density(a, x) * sum
}

/// The upper function by its continued fraction (DLMF 8.9.2), by Lentz's algorithm, for x > 1 and x > a.
fn fraction(a: f64, x: f64) -> f64 {
    let mut b = x + 1.0 - a;
    let (mut c, mut d) = (1e300, 1.0 / b);
    let mut value = d;
    let mut k = 0.0;
    while k < 20_000.0 {
        k += 1.0;
        let numerator = -k * (k - a);
        b += 2.0;
        d = 1.0 / (numerator * d + b);
        c = b + numerator / c;
        let factor = c * d;
        value *= factor;
        if (factor - 1.0).abs() < 1e-16 {
            break;
        }
    }
    density(a, x) * a * value
}

/// The upper function of small x: 1 - x^a / gamma(a + 1), and what the series has behind its first term (DLMF 8.7.3).
fn small(a: f64, x: f64) -> f64 {
    let (mut factor, mut sum, mut n) = (1.0, 0.0f64, 0.0);
    while n < 200.0 {
        n += 1.0;
        factor *= -x / n;
        let term = factor / (a + n);
        sum += term;
        if term.abs() <= sum.abs() * 1e-17 {
            break;
        }
    }
    let power = a * x.ln() - lgamma(a + 1.0);
    -power.exp_m1() - power.exp() * a * sum
}

/// Both functions, near a = x, for a >= 20 (DLMF 8.12.3).
fn uniform(a: f64, x: f64) -> [f64; 2] {
    let mu = (x - a) / a;
    let half = excess(mu);
    let eta = (2.0 * half).sqrt().copysign(mu);
    // Two numbers behind the one that is being made.
    let (mut next, mut after, mut sum) = (0.0, 0.0, 0.0);
    for (n, d) in EXPANSION.iter().enumerate().rev() {
        let b = d + (n as f64 + 2.0) * after / a;
        (next, after) = (b, next);
        sum = sum * eta + b;
    }
    let remainder = (-a * half).exp() / (2.0 * PI * a).sqrt() * a / (a + after) * sum;
    let root = eta * (0.5 * a).sqrt();
    [0.5 * erfc(-root) - remainder, 0.5 * erfc(root) + remainder]
}

/// The lower and the upper function.
fn both(a: f64, x: f64) -> [f64; 2] {
    // The order of these tests is PyTorch's, which decides what an infinite number makes of NaN.
    if x < 0.0 || a < 0.0 {
        return [f64::NAN; 2];
    }
    if a == 0.0 {
        return if x > 0.0 { [1.0, 0.0] } else { [f64::NAN; 2] };
    }
    if x == 0.0 {
        return [0.0, 1.0];
    }
    if a.is_infinite() {
        return if x.is_infinite() { [f64::NAN; 2] } else { [0.0, 1.0] };
    }
    if x.is_infinite() {
        return [1.0, 0.0];
    }
    if a.is_nan() || x.is_nan() {
        return [f64::NAN; 2];
    }
    if a >= 20.0 && (x - a).abs() <= 0.3 * a {
        return uniform(a, x);
    }
    if x > 1.1 {
        if x < a {
            let lower = power_series(a, x);
            return [lower, 1.0 - lower];
        }
        let upper = fraction(a, x);
        return [1.0 - upper, upper];
    }
    // Whichever is not small is made of the other.
    let mostly_lower = if x <= 0.5 { -0.4 / x.ln() < a } else { x * 1.1 < a };
    let lower = power_series(a, x);
    [lower, if mostly_lower { 1.0 - lower } else { small(a, x) }]
}

/// The regularised lower incomplete gamma function of `a` and `x`.
#[inline]
pub fn igamma(a: f64, x: f64) -> f64 {
    both(a, x)[0]
}

/// The regularised upper incomplete gamma function of `a` and `x`.
#[inline]
pub fn igammac(a: f64, x: f64) -> f64 {
    both(a, x)[1]
}
