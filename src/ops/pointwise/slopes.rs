//! Functions of formulas that are composed of others: derivatives which the formula on paper would lose at a removable
//! singularity, or where squares underflow. Over tensors each is made of recorded ops, so that derivatives of them are
//! right there too: what a choice leaves out is computed at an argument where it is finite, because a gradient of 0
//! times an infinite or unknown derivative is NaN.

use super::formula::{PI, abs, cos, eq, i0, lt, maximum, select, sin};
use crate::cpu::numbers::lane::{Float, Literal, Number};

/// Below, series are used: above, the closed forms cancel no more than a digit.
const NEAR: f64 = 0.25;

/// Of the derivative of sin(a) / a, divided by a: term k of a^(2 k) is -(-1)^k (2 k + 2) / (2 k + 3)!.
const SINC_SERIES: [f64; 8] = [
    -1.0 / 3.0,
    1.0 / 30.0,
    -1.0 / 840.0,
    1.0 / 45_360.0,
    -1.0 / 3_991_680.0,
    1.0 / 518_918_400.0,
    -1.0 / 93_405_312_000.0,
    1.0 / 22_230_464_256_000.0,
];

/// Of the derivative of I1: term k of x^(2 k) is (2 k + 1) / (2^(2 k + 1) k! (k + 1)!).
const I1_SERIES: [f64; 6] =
    [0.5, 3.0 / 16.0, 5.0 / 384.0, 7.0 / 18_432.0, 9.0 / 1_474_560.0, 11.0 / 176_947_200.0];

/// The derivative of J1 by its series, up to 1/4 in magnitude; what it is at 0 beyond.
///
/// ```
/// use torchrs::Tensor;
/// torchrs::pointwise! { table rows; /** Doc. */ pub float row(x) = j1_slope_near(x); }
/// let expected = Tensor::from([0.5, 0.4981263021]);
/// assert!(row(&Tensor::from([0f64, 0.1])).allclose(&expected, Default::default()));
/// ```
#[inline(always)]
pub fn j1_slope_near<S: Number>(x: S) -> S
where
    f64: Literal<S>,
{
    let close = select(lt(abs(x), NEAR), x, 0.0);
    // The terms of I1's derivative, with alternating signs.
    let z = -(close * close);
    let mut series = S::from(I1_SERIES[5]);
    for k in (0..5).rev() {
        series = series * z + I1_SERIES[k];
    }
    series
}

/// `a / (a^2 + b^2)`, and 0 where both are 0; the squares do not underflow.
///
/// ```
/// use torchrs::Tensor;
/// torchrs::pointwise! { table rows; /** Doc. */ pub float row(x, y) = over_squares(x, y); }
/// let slopes = row(&Tensor::from([2f32, 1e-30, 0.]), 0.0);
/// assert!(slopes.allclose(&Tensor::from([0.5f32, 1e30, 0.0]), Default::default()));
/// ```
#[inline(always)]
pub fn over_squares<S: Number>(a: S, b: S) -> S
where
    f64: Literal<S>,
{
    let largest = maximum(abs(a), abs(b));
    // Powers of two; f32 has neither the first limit nor its scale, and no number there.
    let scale = select(
        lt(largest, 1e-130),
        3.432_398_830_065_304e156,
        select(lt(largest, 1e-15), 1.208_925_819_614_629_2e24, 1.0),
    );
    let (x, y) = (a * scale, b * scale);
    let squares = select(eq(largest, 0.0), 1.0, x * x + y * y);
    select(eq(largest, 0.0), 0.0, x / squares * scale)
}

/// The derivative of sin(pi x) / (pi x).
///
/// ```
/// use torchrs::Tensor;
/// torchrs::pointwise! { table rows; /** Doc. */ pub float row(x) = sinc_slope(x); }
/// let slopes = row(&Tensor::from([0f64, 1., 1e-4]));
/// let expected = Tensor::from([0f64, -1.0, -3.2898680203729363e-4]);
/// assert!(slopes.allclose(&expected, Default::default()));
/// ```
#[inline(always)]
pub fn sinc_slope<S: Float>(x: S) -> S
where
    f64: Literal<S>,
{
    let close = select(lt(abs(x), NEAR), x, 0.0);
    let z = close * PI * (close * PI);
    let mut series = S::from(SINC_SERIES[7]);
    for k in (0..7).rev() {
        series = series * z + SINC_SERIES[k];
    }
    let near = close * PI * PI * series;
    let far = select(lt(abs(x), NEAR), 1.0, x);
    select(lt(abs(x), NEAR), near, (far * PI * cos(far * PI) - sin(far * PI)) / (far * far * PI))
}

/// The derivative of I1, the Bessel function, whose value at `x` is `y`.
///
/// ```
/// use torchrs::Tensor;
/// torchrs::pointwise! { table rows; /** Doc. */ pub float row(x, y) = i1_slope(x, y); }
/// let x = Tensor::from([0f64, 1.]);
/// let expected = Tensor::from([0.5, 0.7009067737595233]);
/// assert!(row(&x, &x.i1()).allclose(&expected, Default::default()));
/// ```
#[inline(always)]
pub fn i1_slope<S: Float>(x: S, y: S) -> S
where
    f64: Literal<S>,
{
    let far = select(lt(abs(x), NEAR), 1.0, x);
    select(lt(abs(x), NEAR), i1_slope_near(x), i0(far) - y / far)
}

/// The derivative of I1 by its series, up to 1/4 in magnitude; what it is at 0 beyond.
///
/// ```
/// use torchrs::Tensor;
/// torchrs::pointwise! { table rows; /** Doc. */ pub float row(x) = i1_slope_near(x); }
/// let expected = Tensor::from([0.5, 0.5018763024]);
/// assert!(row(&Tensor::from([0f64, 0.1])).allclose(&expected, Default::default()));
/// ```
#[inline(always)]
pub fn i1_slope_near<S: Number>(x: S) -> S
where
    f64: Literal<S>,
{
    let close = select(lt(abs(x), NEAR), x, 0.0);
    let z = close * close;
    let mut series = S::from(I1_SERIES[5]);
    for k in (0..5).rev() {
        series = series * z + I1_SERIES[k];
    }
    series
}
