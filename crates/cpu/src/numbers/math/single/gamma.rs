//! The gamma function's logarithm and its derivative, by f64: near their zeros large numbers cancel.

use std::f64::consts::PI;

use super::super::double::{self, fma, poly};

/// From here on Stirling's series has what is needed.
const SHIFT: f64 = 8.0;

/// `x` reflected at 1/2 if it is below: gives whether it was, the argument of at least 1/2, and x less the nearest
/// integer.
#[inline(always)]
fn reflect<const FMA: bool>(x: f32) -> (bool, f64, f64) {
    let x = x as f64;
    let below = x < 0.5;
    let a = x.abs();
    let f = a - double::nearest::<FMA>(a);
    (below, if below { 1.0 - x } else { x }, if x < 0.0 { -f } else { f })
}

/// `y` and, below [`SHIFT`], y + 8: gives q = y (y + 7), by which (y + k) (y + 7 - k) = q + k (7 - k), too.
#[inline(always)]
fn shift(y: f64) -> (bool, f64, f64) {
    let low = y < SHIFT;
    (low, if low { y + 8.0 } else { y }, y * (y + 7.0))
}

/// sin(pi f) / f for the square z of f, |f| <= 1/2.
#[inline(always)]
fn sine<const FMA: bool>(z: f64) -> f64 {
    poly::<FMA, 7>(
        z,
        [
            3.141_592_653_589_597_3,
            -5.167_712_779_977_311,
            2.550_164_035_419_305,
            -0.599_264_425_735_409_5,
            0.082_144_732_113_074_16,
            -0.007_363_785_021_130_689,
            0.000_447_200_288_136_461,
        ],
    )
}

/// Logarithm of the gamma function's absolute value, within 4 ulp.
#[inline(always)]
pub fn lgamma<const FMA: bool>(x: f32) -> f32 {
    let (below, y, f) = reflect::<FMA>(x);
    let (low, v, q) = shift(y);
    let product = q * (q + 6.0) * ((q + 10.0) * (q + 12.0));
    let product = if low { product } else { 1.0 };
    let sine = (f * sine::<FMA>(f * f)).abs();
    // One logarithm for what was shifted over and what was reflected.
    let log = double::log::<FMA>(if below { PI * product / sine } else { product });

    let inverse = 1.0 / v;
    let series = poly::<FMA, 5>(
        inverse * inverse,
        [
            0.083_333_333_333_316_93,
            -0.002_777_777_756_577_391,
            0.000_793_643_111_031_709_1,
            -0.000_594_095_686_060_853_6,
            0.000_766_347_894_152_469,
        ],
    );
    const HALF_LOG_TAU: f64 = 0.918_938_533_204_672_7;
    let stirling = fma::<FMA>(v - 0.5, double::log::<FMA>(v), -v);
    let stirling = stirling + fma::<FMA>(series, inverse, HALF_LOG_TAU);
    let result = (if below { log - stirling } else { stirling - log }) as f32;
    let result = if (x == 1.0) | (x == 2.0) { 0.0 } else { result };
    if x.abs() == f32::INFINITY { f32::INFINITY } else { result }
}

/// Derivative of [`lgamma`], within 2 ulp.
#[inline(always)]
pub fn digamma<const FMA: bool>(x: f32) -> f32 {
    let (below, y, f) = reflect::<FMA>(x);
    let (low, v, q) = shift(y);
    // The sum of 1 / (y + k), in pairs whose sums have one numerator.
    let (a, b) = (q * (q + 6.0), (q + 10.0) * (q + 12.0));
    let pairs = fma::<FMA>(q + q + 6.0, b, (q + q + 22.0) * a) / (a * b);
    let shifted = if low { (y + y + 7.0) * pairs } else { 0.0 };

    let inverse = 1.0 / v;
    let z = inverse * inverse;
    let series = poly::<FMA, 5>(
        z,
        [
            0.083_333_333_332_932_79,
            -0.008_333_332_966_284_28,
            0.003_968_144_422_148_396,
            -0.004_152_300_390_992_972,
            0.006_704_903_119_945_416,
        ],
    );
    let positive = double::log::<FMA>(v) - fma::<FMA>(z, series, 0.5 * inverse) - shifted;

    let square = f * f;
    let cosine = poly::<FMA, 6>(
        square,
        [
            0.999_999_999_996_645,
            -0.934_802_199_611_537_2,
            0.319_503_281_732_710_8,
            -0.057_248_758_828_328_12,
            0.006_327_305_426_618_623,
            -0.000_456_691_068_940_567_56,
        ],
    );
    let cotangent = cosine * fma::<FMA>(-4.0, square, 1.0) / (f * sine::<FMA>(square));
    let result = (if below { fma::<FMA>(-PI, cotangent, positive) } else { positive }) as f32;
    let pole = if x.is_sign_negative() { f32::INFINITY } else { f32::NEG_INFINITY };
    let result = if (x < 0.0) & (f == 0.0) { f32::NAN } else { result };
    if x == 0.0 { pole } else { result }
}
