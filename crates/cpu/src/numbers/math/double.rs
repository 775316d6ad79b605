//! f64 functions. Errors are in units in the last place (ulp). Trigonometric functions and powers of f64 are
//! the system library's (see `lane/float.rs`): exact for every argument, and f64 is rare in training.

use super::basic::double::{clamp, log_special};
pub use super::basic::double::{floored_quotient, floored_remainder, fma, nearest, poly};

/// 1.5 * 2^52: adding it rounds to an integer, which is then in the low bits.
pub const MAGIC: f64 = 6_755_399_441_055_744.0;
/// ln 2 in two parts; the first has 32 bits, so that its product with an exponent is exact.
const LN2_HI: f64 = 0.693_147_180_369_123_8;
const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;

/// 2^n for the integer that adding [`MAGIC`] put into `t`'s low bits; n in -1022..=1023.
#[inline(always)]
fn power_of_two(t: f64) -> f64 {
    f64::from_bits(t.to_bits().wrapping_add(1023) << 52)
}

/// 2^n at compile time; n in -1022..=1023.
pub const fn exact_power_of_two(n: i32) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

/// e^r - 1 - r for |r| <= ln 2 / 2.
#[inline(always)]
fn exp_tail<const FMA: bool>(r: f64) -> f64 {
    let p = poly::<FMA, 11>(
        r,
        [
            0.5,
            0.166_666_666_666_666_82,
            0.041_666_666_666_666_095,
            0.008_333_333_333_317_034,
            0.001_388_888_888_911_563,
            0.000_198_412_698_963_837_98,
            2.480_158_692_662_971_6e-5,
            2.755_723_486_191_909_3e-6,
            2.755_758_185_062_259e-7,
            2.511_203_684_458_965e-8,
            2.082_662_645_782_586_5e-9,
        ],
    );
    r * r * p
}

/// `x = n ln 2 + r`: gives n, r, and e^r - 1 - r.
#[inline(always)]
fn exp_parts<const FMA: bool>(x: f64) -> (f64, f64, f64) {
    let n = fma::<FMA>(x, std::f64::consts::LOG2_E, MAGIC) - MAGIC;
    let r = fma::<FMA>(n, -LN2_LO, fma::<FMA>(n, -LN2_HI, x));
    (n, r, exp_tail::<FMA>(r))
}

/// y * 2^n in two steps, because 2^n alone may be too large or subnormal.
#[inline(always)]
fn scale<const FMA: bool>(y: f64, n: f64) -> f64 {
    let half = fma::<FMA>(n, 0.5, MAGIC);
    let rest = n - (half - MAGIC) + MAGIC;
    y * power_of_two(half) * power_of_two(rest)
}

/// e^x, within 1 ulp.
#[inline(always)]
pub fn exp<const FMA: bool>(x: f64) -> f64 {
    let (n, r, tail) = exp_parts::<FMA>(clamp(x, -746.0, 710.0));
    scale::<FMA>(r + tail + 1.0, n)
}

/// 2^x, within 2 ulp.
#[inline(always)]
pub fn exp2<const FMA: bool>(x: f64) -> f64 {
    let x = clamp(x, -1100.0, 1100.0);
    let n = (x + MAGIC) - MAGIC;
    let r = (x - n) * std::f64::consts::LN_2;
    scale::<FMA>(r + exp_tail::<FMA>(r) + 1.0, n)
}

/// e^x - 1, within 2 ulp also near 0.
#[inline(always)]
pub fn expm1<const FMA: bool>(x: f64) -> f64 {
    let (n, r, tail) = exp_parts::<FMA>(clamp(x, -40.0, 710.0));
    // Half of the result, because 2^1024 is not a number.
    let s = power_of_two(n - 1.0 + MAGIC);
    (2.0 * fma::<FMA>(s, r + tail, s - 0.5)).copysign(x)
}

/// `x = 2^e (1 + f)` with 1 + f in [sqrt(1/2), sqrt 2): gives e, f, and log(1 + f) - f. For x > 0,
/// subnormal ones too.
#[inline(always)]
fn log_parts<const FMA: bool>(x: f64) -> (f64, f64, f64) {
    let tiny = x < f64::MIN_POSITIVE;
    let x = if tiny { x * 18_014_398_509_481_984.0 } else { x };
    let bias = if tiny { 54.0 + 2048.0 } else { 2048.0 };
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    // Kept positive by 2048, so that a logical shift and the bits of 2^52 make the conversion.
    let bits = x.to_bits().wrapping_sub(SQRT_HALF);
    let shifted = bits.wrapping_add(2048 << 52) >> 52;
    let e = f64::from_bits(shifted & 0xfff | 0x4330_0000_0000_0000) - 4_503_599_627_370_496.0;
    let e = e - bias;
    let f = f64::from_bits((bits & 0x000f_ffff_ffff_ffff) + SQRT_HALF) - 1.0;
    // With s = f / (2 + f): log(1 + f) = 2 s + s^3 R(s^2).
    let s = f / (2.0 + f);
    let z = s * s;
    let r = z * poly::<FMA, 7>(
        z,
        [
            0.666_666_666_666_673_4,
            0.399_999_999_994_146_2,
            0.285_714_287_424_021_33,
            0.222_221_985_716_254_82,
            0.181_835_644_101_390_2,
            0.153_140_483_317_959_26,
            0.147_959_726_050_471_47,
        ],
    );
    let half_square = 0.5 * f * f;
    (e, f, fma::<FMA>(s, half_square + r, -half_square))
}

/// Natural logarithm, within 1 ulp.
#[inline(always)]
pub fn log<const FMA: bool>(x: f64) -> f64 {
    let (e, f, tail) = log_parts::<FMA>(x);
    let y = fma::<FMA>(e, LN2_HI, f + fma::<FMA>(e, LN2_LO, tail));
    log_special(x, y)
}

/// Logarithm to base 2, within 2 ulp, exact at powers of two.
#[inline(always)]
pub fn log2<const FMA: bool>(x: f64) -> f64 {
    const BEYOND_ONE: f64 = std::f64::consts::LOG2_E - 1.0;
    let (e, f, tail) = log_parts::<FMA>(x);
    let y = fma::<FMA>(f, BEYOND_ONE, tail * BEYOND_ONE) + tail + f + e;
    log_special(x, y)
}

/// Logarithm to base 10, within 2 ulp.
#[inline(always)]
pub fn log10<const FMA: bool>(x: f64) -> f64 {
    // log10(e) and log10(2), each in two parts.
    const E_HI: f64 = 0.434_294_481_761_753_56;
    const E_LO: f64 = 1.414_982_685_385_801e-10;
    const TWO_HI: f64 = 0.301_029_995_549_470_2;
    const TWO_LO: f64 = 1.145_110_089_802_183_8e-10;
    let (e, f, tail) = log_parts::<FMA>(x);
    let low = fma::<FMA>(f, E_LO, fma::<FMA>(tail, E_LO, e * TWO_LO));
    let y = fma::<FMA>(e, TWO_HI, fma::<FMA>(f, E_HI, fma::<FMA>(tail, E_HI, low)));
    log_special(x, y)
}

/// log(1 + x), within 2 ulp also near 0.
#[inline(always)]
pub fn log1p<const FMA: bool>(x: f64) -> f64 {
    let u = 1.0 + x;
    // What rounding took from 1 + x, to first order.
    let lost = (x - (u - 1.0)) / u;
    let lost = if u == f64::INFINITY || u == 0.0 { 0.0 } else { lost };
    let y = log::<FMA>(u) + lost;
    // Keeps the sign of zero.
    if x == 0.0 { x } else { y }
}

/// Hyperbolic tangent, within 3 ulp.
#[inline(always)]
pub fn tanh<const FMA: bool>(x: f64) -> f64 {
    let t = expm1::<FMA>(clamp(2.0 * x.abs(), 0.0, 44.0));
    (t / (t + 2.0)).copysign(x)
}

/// Logistic function 1 / (1 + e^-x), within 3 ulp; subnormal results too.
#[inline(always)]
pub fn sigmoid<const FMA: bool>(x: f64) -> f64 {
    // With e^-|x|, which is a number for all x.
    let power = exp::<FMA>(-x.abs());
    (if x < 0.0 { power } else { 1.0 }) / (1.0 + power)
}

/// Error function, within 2 ulp.
#[inline(always)]
pub fn erf<const FMA: bool>(x: f64) -> f64 {
    let a = clamp(x.abs(), 0.0, 6.0);
    let z = a * a;
    let small = a * poly::<FMA, 12>(
        z,
        [
            std::f64::consts::FRAC_2_SQRT_PI,
            -0.376_126_389_031_835_2,
            0.112_837_916_709_441_85,
            -0.026_866_170_643_111_524,
            0.005_223_977_606_118_885,
            -0.000_854_832_592_933_168_2,
            0.000_120_552_935_773_519_06,
            -1.492_471_230_964_373_4e-5,
            1.644_713_165_416_047_7e-6,
            -1.620_631_431_499_866_1e-7,
            1.371_098_249_610_463_3e-8,
            -7.779_471_875_636_672e-10,
        ],
    );
    // 1 - exp(-a^2) q with q = erfcx(a), a polynomial in 1 / (a + 2).
    let q = poly::<FMA, 14>(
        1.0 / (a + 2.0),
        [
            -7.437_626_045_694_211e-6,
            0.564_589_639_601_012_2,
            1.118_453_911_990_946_2,
            2.124_945_035_150_834,
            1.273_630_579_981_412,
            14.092_146_646_988_64,
            -62.044_449_452_712_02,
            239.122_701_540_100_96,
            -727.682_059_316_438_4,
            1_440.747_527_835_42,
            -1_811.546_972_387_44,
            1_409.242_773_365_650_5,
            -616.819_584_515_046_5,
            114.020_059_063_157_09,
        ],
    );
    let large = 1.0 - exp::<FMA>(-z) * q;
    (if a < 1.0 { small } else { large }).copysign(x)
}

/// x times the normal distribution's function, within 2 f64::EPSILON |x|; NaN at minus infinity.
#[inline(always)]
pub fn gelu<const FMA: bool>(x: f64) -> f64 {
    0.5 * x * (1.0 + erf::<FMA>(x * std::f64::consts::FRAC_1_SQRT_2))
}

/// x^y, by the system's library.
#[inline(always)]
pub fn pow<const FMA: bool>(x: f64, y: f64) -> f64 {
    x.powf(y)
}

/// Angle of the point with ordinate `y` and abscissa `x`, by the system's library.
#[inline(always)]
pub fn atan2<const FMA: bool>(y: f64, x: f64) -> f64 {
    y.atan2(x)
}

/// 1 / sqrt(x), of a correctly rounded root: within 1.5 ulp.
#[inline(always)]
pub fn rsqrt<const FMA: bool>(x: f64) -> f64 {
    1.0 / x.sqrt()
}
