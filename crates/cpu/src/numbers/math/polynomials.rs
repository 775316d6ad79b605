//! Orthogonal polynomials of a degree that is a number: by their recurrences, and inside of the interval, where these lose
//! digits, by cosines of the angle (Digital Library of Mathematical Functions, 18.5.1 to 18.5.4 and 18.9.1). A degree is cut to an
//! integer; of a negative one all are 0, as PyTorch's.

/// The polynomial of that degree by a recurrence: `step(k, last, before)` is the one of degree k + 1.
fn recurrence(degree: i64, first: f64, step: impl Fn(f64, f64, f64) -> f64) -> f64 {
    let (mut before, mut last) = (1.0, first);
    if degree == 0 {
        return before;
    }
    for k in 1..degree {
        (before, last) = (last, step(k as f64, last, before));
        if last.is_nan() {
            break;
        }
    }
    last
}

/// The degree, if it is not negative.
fn degree(n: f64) -> Option<i64> {
    // Numbers beyond the integers and NaN have none.
    (n > -1.0 && n < 9.2e18).then_some(n as i64)
}

/// (-1)^n.
fn parity(n: i64) -> f64 {
    if n % 2 == 0 { 1.0 } else { -1.0 }
}

/// The four kinds of Chebyshev's polynomials.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    T,
    U,
    V,
    W,
}

/// A polynomial of Chebyshev at x.
fn chebyshev(kind: Kind, x: f64, n: f64) -> f64 {
    let Some(n) = degree(n) else { return 0.0 };
    let count = n as f64;
    if x.abs() == 1.0 {
        let above = x > 0.0;
        return match kind {
            Kind::T => {
                if above {
                    1.0
                } else {
                    parity(n)
                }
            }
            Kind::U => (count + 1.0) * if above { 1.0 } else { parity(n) },
            Kind::V => {
                if above {
                    1.0
                } else {
                    parity(n) * (2.0 * count + 1.0)
                }
            }
            Kind::W => {
                if above {
                    2.0 * count + 1.0
                } else {
                    parity(n)
                }
            }
        };
    }
    let few = if kind == Kind::T { 6 } else { 8 };
    if n > few && x.abs() < 1.0 {
        let angle = x.acos();
        let half = 0.5 * angle;
        return match kind {
            Kind::T => (count * angle).cos(),
            Kind::U => ((count + 1.0) * angle).sin() / angle.sin(),
            Kind::V => ((count + 0.5) * angle).cos() / half.cos(),
            Kind::W => ((count + 0.5) * angle).sin() / half.sin(),
        };
    }
    let first = match kind {
        Kind::T => x,
        Kind::U => 2.0 * x,
        Kind::V => 2.0 * x - 1.0,
        Kind::W => 2.0 * x + 1.0,
    };
    recurrence(n, first, |_, last, before| 2.0 * x * last - before)
}

/// Chebyshev's polynomial of the first kind.
pub fn chebyshev_polynomial_t(x: f64, n: f64) -> f64 {
    chebyshev(Kind::T, x, n)
}

/// Chebyshev's polynomial of the second kind.
pub fn chebyshev_polynomial_u(x: f64, n: f64) -> f64 {
    chebyshev(Kind::U, x, n)
}

/// Chebyshev's polynomial of the third kind.
pub fn chebyshev_polynomial_v(x: f64, n: f64) -> f64 {
    chebyshev(Kind::V, x, n)
}

/// Chebyshev's polynomial of the fourth kind.
pub fn chebyshev_polynomial_w(x: f64, n: f64) -> f64 {
    chebyshev(Kind::W, x, n)
}

/// [`chebyshev_polynomial_t`] of 2 x - 1.
pub fn shifted_chebyshev_polynomial_t(x: f64, n: f64) -> f64 {
    chebyshev(Kind::T, 2.0 * x - 1.0, n)
}

/// [`chebyshev_polynomial_u`] of 2 x - 1.
pub fn shifted_chebyshev_polynomial_u(x: f64, n: f64) -> f64 {
    chebyshev(Kind::U, 2.0 * x - 1.0, n)
}

/// [`chebyshev_polynomial_v`] of 2 x - 1.
pub fn shifted_chebyshev_polynomial_v(x: f64, n: f64) -> f64 {
    chebyshev(Kind::V, 2.0 * x - 1.0, n)
}

/// [`chebyshev_polynomial_w`] of 2 x - 1.
pub fn shifted_chebyshev_polynomial_w(x: f64, n: f64) -> f64 {
    chebyshev(Kind::W, 2.0 * x - 1.0, n)
}

/// Degrees of Hermite's polynomials from which on PyTorch gives NaN.
const MOST_HERMITE: i64 = 512;

/// Hermite's polynomial as physicists have it.
pub fn hermite_polynomial_h(x: f64, n: f64) -> f64 {
    match degree(n) {
        None => 0.0,
        Some(n) if n > MOST_HERMITE => f64::NAN,
        Some(n) => recurrence(n, 2.0 * x, |k, last, before| 2.0 * (x * last - k * before)),
    }
}

/// Hermite's polynomial as probabilists have it.
pub fn hermite_polynomial_he(x: f64, n: f64) -> f64 {
    match degree(n) {
        None => 0.0,
        Some(n) if n > MOST_HERMITE => f64::NAN,
        Some(n) => recurrence(n, x, |k, last, before| x * last - k * before),
    }
}

/// Laguerre's polynomial.
pub fn laguerre_polynomial_l(x: f64, n: f64) -> f64 {
    let Some(n) = degree(n) else { return 0.0 };
    if x == 0.0 {
        return 1.0;
    }
    recurrence(n, 1.0 - x, |k, last, before| ((2.0 * k + 1.0 - x) * last - k * before) / (k + 1.0))
}

/// Legendre's polynomial.
pub fn legendre_polynomial_p(x: f64, n: f64) -> f64 {
    let Some(n) = degree(n) else { return 0.0 };
    if x.abs() == 1.0 {
        return if x > 0.0 { 1.0 } else { parity(n) };
    }
    recurrence(n, x, |k, last, before| ((2.0 * k + 1.0) * x * last - k * before) / (k + 1.0))
}
