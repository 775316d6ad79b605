//! Bessel functions of orders 0 and 1, Airy's function: plain scalar f64, by series, recurrences and continued fractions
//! instead of tables. Relative errors are about 1e-14, but near zeros of the function, where absolute ones are.
//!
//! Formulas are those of the Digital Library of Mathematical Functions (DLMF), chapters 9 and 10.

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2, FRAC_PI_4, PI};

/// Euler's constant.
const EULER: f64 = 0.577_215_664_901_532_9;
/// Up to here power series are used.
const NEAR: f64 = 2.0;
/// From here on the asymptotic series of oscillating functions has 17 digits.
const FAR: f64 = 25.0;
/// The term from which recurrences run down; those above are below 1e-30 of the first ones, for arguments up to `FAR`.
const TOP: u32 = 80;

/// The power series of z = x^2 / 4, of alternating signs for J and Y (DLMF 10.2.2, 10.8.1) and of positive terms for K.
struct Series {
    /// Sum of z^k / k!^2.
    of_zero: f64,
    /// The same with each term times H(k), the harmonic number.
    of_zero_harmonic: f64,
    /// Sum of z^k / (k! (k + 1)!).
    of_one: f64,
    /// The same with each term times H(k) + H(k + 1).
    of_one_harmonic: f64,
}

fn series(z: f64) -> Series {
    let mut sums =
        Series { of_zero: 1.0, of_zero_harmonic: 0.0, of_one: 1.0, of_one_harmonic: 1.0 };
    let (mut zero, mut one, mut harmonic, mut k) = (1.0f64, 1.0, 0.0, 0.0);
    while zero.abs() > 1e-18 {
        k += 1.0;
        harmonic += 1.0 / k;
        zero *= z / (k * k);
        one *= z / (k * (k + 1.0));
        sums.of_zero += zero;
        sums.of_zero_harmonic += zero * harmonic;
        sums.of_one += one;
        sums.of_one_harmonic += one * (2.0 * harmonic + 1.0 / (k + 1.0));
    }
    sums
}

/// Sums over a recurrence that runs down (J. C. P. Miller).
#[derive(Default)]
struct Recurrence {
    /// J of the order itself and of the next one.
    first: [f64; 2],
    /// Sum over k > 0 of (-1)^k J(2k) / k, for Y0.
    even: f64,
    /// Sum over k > 0 of (-1)^k (2k + 1) / (k (k + 1)) J(2k + 1), for Y1.
    odd: f64,
}

/// J of `order` and what follows, for `NEAR` < x < `FAR`. The sums mean something for order 0. `gamma` is the gamma function of the
/// order, 1 for order 0.
fn downwards(order: f64, gamma: f64, x: f64) -> Recurrence {
    // The series of (x / 2)^order by J has factors (order + 2k) gamma(order + k) / k! (DLMF 10.23.15).
    let mut factors = [0.0; TOP as usize / 2 + 1];
    factors[0] = if order == 0.0 { 1.0 } else { order * gamma };
    let mut rising = gamma;
    for k in 1..factors.len() {
        let n = k as f64;
        // gamma(order + k) / k!
        rising *= if order == 0.0 && k == 1 { 1.0 } else { (order + n - 1.0) / n };
        factors[k] = (order + 2.0 * n) * rising;
    }
    let (mut above, mut here, mut norm) = (0.0, 1e-250, 0.0);
    let mut sums = Recurrence::default();
    for m in (0..=TOP).rev() {
        let k = f64::from(m / 2);
        let sign = if m / 2 % 2 == 0 { 1.0 } else { -1.0 };
        if m % 2 == 0 {
            norm += here * factors[m as usize / 2];
            sums.even += if m > 0 { sign * here / k } else { 0.0 };
        } else if m > 1 {
            sums.odd += sign * here * f64::from(m) / (k * (k + 1.0));
        }
        if m < 2 {
            sums.first[m as usize] = here;
        }
        let below = 2.0 * (order + f64::from(m)) / x * here - above;
        (above, here) = (here, below);
    }
    let scale = (0.5 * x).powf(order) / norm;
    sums.first = sums.first.map(|j| j * scale);
    sums.even *= scale;
    sums.odd *= scale;
    sums
}

/// J and Y of the order, from `FAR` on (Hankel; DLMF 10.17.3).
fn hankel(order: f64, x: f64) -> [f64; 2] {
    let (mut even, mut odd, mut term, mut k) = (1.0, 0.0, 1.0f64, 0.0);
    while term.abs() > 1e-18 && k < 40.0 {
        k += 1.0;
        let twice = 2.0 * k - 1.0;
        term *= (4.0 * order * order - twice * twice) / (8.0 * k * x);
        match k as u32 % 4 {
            0 => even += term,
            1 => odd += term,
            2 => even -= term,
            _ => odd -= term,
        }
    }
    // The phase is subtracted by the addition theorem: of a large x a difference would lose digits.
    let (sine, cosine) = x.sin_cos();
    let (phase_sine, phase_cosine) = (order * FRAC_PI_2 + FRAC_PI_4).sin_cos();
    let c = cosine * phase_cosine + sine * phase_sine;
    let s = sine * phase_cosine - cosine * phase_sine;
    let amplitude = (FRAC_2_PI / x).sqrt();
    [amplitude * (c * even - s * odd), amplitude * (s * even + c * odd)]
}

/// Bessel function of the first kind and order 0.
pub fn bessel_j0(x: f64) -> f64 {
    let x = x.abs();
    if x <= NEAR {
        series(-0.25 * x * x).of_zero
    } else if x < FAR {
        downwards(0.0, 1.0, x).first[0]
    } else {
        hankel(0.0, x)[0]
    }
}

/// Bessel function of the first kind and order 1.
pub fn bessel_j1(x: f64) -> f64 {
    let a = x.abs();
    let y = if a <= NEAR {
        0.5 * a * series(-0.25 * a * a).of_one
    } else if a < FAR {
        downwards(0.0, 1.0, a).first[1]
    } else {
        hankel(1.0, a)[0]
    };
    if x < 0.0 || x == 0.0 && x.is_sign_negative() { -y } else { y }
}

/// Bessel function of the second kind and order 0; NaN below 0.
pub fn bessel_y0(x: f64) -> f64 {
    if x.is_nan() || x <= 0.0 {
        return if x == 0.0 { f64::NEG_INFINITY } else { f64::NAN };
    }
    let log = (0.5 * x).ln() + EULER;
    if x <= NEAR {
        let sums = series(-0.25 * x * x);
        FRAC_2_PI * (log * sums.of_zero - sums.of_zero_harmonic)
    } else if x < FAR {
        let sums = downwards(0.0, 1.0, x);
        FRAC_2_PI * (log * sums.first[0] - 2.0 * sums.even)
    } else {
        hankel(0.0, x)[1]
    }
}

/// Bessel function of the second kind and order 1; NaN below 0.
pub fn bessel_y1(x: f64) -> f64 {
    if x.is_nan() || x <= 0.0 {
        return if x == 0.0 { f64::NEG_INFINITY } else { f64::NAN };
    }
    let log = (0.5 * x).ln() + EULER;
    if x <= NEAR {
        let sums = series(-0.25 * x * x);
        FRAC_2_PI * (0.5 * x * (log * sums.of_one - 0.5 * sums.of_one_harmonic) - 1.0 / x)
    } else if x < FAR {
        let sums = downwards(0.0, 1.0, x);
        let [zero, one] = sums.first;
        FRAC_2_PI * ((log - 1.0) * one - zero / x - sums.odd)
    } else {
        hankel(1.0, x)[1]
    }
}

/// e^x times the modified Bessel functions of the second kind of `order` and the next one, for x >= `NEAR`, by the continued
/// fraction of Temme (J. Comput. Phys. 19, 1975), summed with Steed's algorithm.
fn fraction(order: f64, x: f64) -> [f64; 2] {
    let first = 0.25 - order * order;
    let (mut a, mut b) = (-first, 2.0 * (1.0 + x));
    let mut d = 1.0 / b;
    let (mut step, mut h) = (d, d);
    let (mut before, mut last, mut c, mut q) = (0.0, 1.0, first, first);
    let mut sum = 1.0 + q * step;
    let mut k = 1.0;
    while k < 500.0 {
        k += 1.0;
        a -= 2.0 * (k - 1.0);
        c *= -a / k;
        (before, last) = (last, (before - b * last) / a);
        q += c * last;
        b += 2.0;
        d = 1.0 / (b + a * d);
        step *= b * d - 1.0;
        h += step;
        sum += q * step;
        if (q * step).abs() < 1e-17 * sum.abs() {
            break;
        }
    }
    let value = (FRAC_PI_2 / x).sqrt() / sum;
    [value, value * (order + x + 0.5 - first * h) / x]
}

/// Modified Bessel functions of the second kind of orders 0 and 1, with `SCALED` times e^x.
fn second_kind<const SCALED: bool>(x: f64) -> [f64; 2] {
    if x.is_nan() || x <= 0.0 {
        return [if x == 0.0 { f64::INFINITY } else { f64::NAN }; 2];
    }
    if x.is_infinite() {
        return [0.0; 2];
    }
    if x <= NEAR {
        let sums = series(0.25 * x * x);
        let log = (0.5 * x).ln() + EULER;
        let zero = sums.of_zero_harmonic - log * sums.of_zero;
        let one = 1.0 / x + 0.5 * x * (log * sums.of_one - 0.5 * sums.of_one_harmonic);
        let scale = if SCALED { x.exp() } else { 1.0 };
        return [zero * scale, one * scale];
    }
    let scale = if SCALED { 1.0 } else { (-x).exp() };
    fraction(0.0, x).map(|value| value * scale)
}

/// Modified Bessel function of the second kind and order 0; NaN below 0.
#[inline]
pub fn modified_bessel_k0(x: f64) -> f64 {
    second_kind::<false>(x)[0]
}

/// Modified Bessel function of the second kind and order 1; NaN below 0.
#[inline]
pub fn modified_bessel_k1(x: f64) -> f64 {
    second_kind::<false>(x)[1]
}

/// [`modified_bessel_k0`] times e^x.
#[inline]
pub fn scaled_modified_bessel_k0(x: f64) -> f64 {
    second_kind::<true>(x)[0]
}

/// [`modified_bessel_k1`] times e^x.
#[inline]
pub fn scaled_modified_bessel_k1(x: f64) -> f64 {
    second_kind::<true>(x)[1]
}

/// Spherical Bessel function of the first kind and order 0, sin(x) / x.
pub fn spherical_bessel_j0(x: f64) -> f64 {
    if x.is_infinite() {
        return 0.0;
    }
    if x == 0.0 { 1.0 } else { x.sin() / x }
}

/// Airy's function Ai; NaN at infinities, as PyTorch's.
pub fn airy_ai(x: f64) -> f64 {
    if !x.is_finite() {
        return f64::NAN;
    }
    let a = x.abs();
    let zeta = 2.0 / 3.0 * a * a.sqrt();
    if zeta < NEAR {
        // Maclaurin's series (DLMF 9.4.1); Ai(0) and -Ai'(0).
        let cube = x * x * x;
        let (mut f, mut g, mut even, mut odd, mut k) = (1.0, x, 1.0f64, x, 0.0);
        while even.abs() + odd.abs() > 1e-19 {
            k += 3.0;
            even *= cube / (k * (k - 1.0));
            odd *= cube / (k * (k + 1.0));
            f += even;
            g += odd;
        }
        return 0.355_028_053_887_817_2 * f - 0.258_819_403_792_806_8 * g;
    }
    if x > 0.0 {
        // By K of order 1/3 (DLMF 9.6.1).
        return (a / 3.0).sqrt() / PI * (-zeta).exp() * fraction(1.0 / 3.0, zeta)[0];
    }
    // By J of orders 1/3 and -1/3 (DLMF 9.6.5), with the gamma function of these.
    let sum = if zeta < FAR {
        downwards(1.0 / 3.0, 2.678_938_534_707_747_6, zeta).first[0]
            + downwards(-1.0 / 3.0, -4.062_353_818_279_201, zeta).first[0]
    } else {
        hankel(1.0 / 3.0, zeta)[0] + hankel(-1.0 / 3.0, zeta)[0]
    };
    a.sqrt() / 3.0 * sum
}
