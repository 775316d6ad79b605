//! f32 functions. Errors are in units in the last place (ulp) against f64, over a dense sample of all
//! f32 values; `ops/pointwise/accuracy.rs` holds them there, in the loops of each instruction set.

use super::double;

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

/// [`poly`] of the odd and the even powers apart, which half as many operations wait for; `z` is x^2.
#[inline(always)]
fn poly_by_halves<const FMA: bool>(x: f32, z: f32, [c0, c1, c2, c3, c4, c5]: [f32; 6]) -> f32 {
    fma::<FMA>(x, poly::<FMA, 3>(z, [c1, c3, c5]), poly::<FMA, 3>(z, [c0, c2, c4]))
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

/// 2^n for the integer that adding [`MAGIC`] put into `t`'s low bits; n in -126..=127.
#[inline(always)]
fn power_of_two(t: f32) -> f32 {
    f32::from_bits(t.to_bits().wrapping_add(127) << 23)
}

/// `x = n ln 2 + r`: gives n + [`MAGIC`] and e^r - 1.
#[inline(always)]
fn exp_parts<const FMA: bool>(x: f32) -> (f32, f32) {
    let t = fma::<FMA>(x, std::f32::consts::LOG2_E, MAGIC);
    let n = t - MAGIC;
    let r = fma::<FMA>(n, -LN2_LO, fma::<FMA>(n, -LN2_HI, x));
    let p = poly::<FMA, 5>(
        r,
        [0.499_999_94, 0.166_665_21, 0.041_668_39, 0.008_368_709, 0.001_381_461_6],
    );
    (t, fma::<FMA>(r * r, p, r))
}

/// e^x, within 1.1 ulp; subnormal results and overflow as they should be.
#[inline(always)]
pub fn exp<const FMA: bool>(x: f32) -> f32 {
    let (t, fraction) = exp_parts::<FMA>(clamp(x, -104.0, 89.0));
    // In two steps, because 2^n alone may be too large or subnormal.
    let half = fma::<FMA>(t - MAGIC, 0.5, MAGIC);
    let rest = t - (half - MAGIC);
    (fraction + 1.0) * power_of_two(half) * power_of_two(rest)
}

/// e^x where 2^n is a normal number: x between -87 and 88.
#[inline(always)]
fn exp_moderate<const FMA: bool>(x: f32) -> f32 {
    let (t, fraction) = exp_parts::<FMA>(x);
    (fraction + 1.0) * power_of_two(t)
}

/// e^x for x up to 88, within 1.1 ulp; 0 where the result would be subnormal. For sums of e^(x - max), to which
/// such results add nothing.
#[inline(always)]
pub fn exp_flushed<const FMA: bool>(x: f32) -> f32 {
    let y = exp_moderate::<FMA>(x);
    // NaN stays: it compares false.
    if x < -87.3 { 0.0 } else { y }
}

/// 2^x for x up to 127, within 1.5 ulp; 0 or right where the result would be subnormal. For loops that wait for each
/// other's results rather than for the units: the powers of the fraction are summed in pairs.
#[inline(always)]
pub fn exp2_flushed<const FMA: bool>(x: f32) -> f32 {
    // Adding it leaves the bits of an exponent, those of 0 for -127.
    const BIASED: f32 = MAGIC + 127.0;
    // NaN stays: it compares false.
    let x = if x < -127.0 { -127.0 } else { x };
    let t = x + BIASED;
    let r = x - (t - BIASED);
    let z = r * r;
    let low = fma::<FMA>(r, 0.693_147_24, 1.0);
    let middle = fma::<FMA>(r, 0.055_502_973, 0.240_226_5);
    let high = fma::<FMA>(z, 0.000_154_697_32, fma::<FMA>(r, 0.001_341, 0.009_618_031));
    fma::<FMA>(z, fma::<FMA>(z, high, middle), low) * f32::from_bits(t.to_bits() << 23)
}

/// e^x - 1, within 2 ulp also near 0.
#[inline(always)]
pub fn expm1<const FMA: bool>(x: f32) -> f32 {
    let (t, fraction) = exp_parts::<FMA>(clamp(x, -20.0, 89.0));
    // Half of the result, because 2^128 is not a number.
    let s = power_of_two(t - 1.0);
    (2.0 * fma::<FMA>(s, fraction, s - 0.5)).copysign(x)
}

/// [`log_parts_of_normal`] for all x > 0, subnormal ones too.
#[inline(always)]
fn log_parts<const FMA: bool>(x: f32) -> (f32, f32, f32) {
    let tiny = x < f32::MIN_POSITIVE;
    let x = if tiny { x * 8_388_608.0 } else { x };
    let shift = if tiny { 23.0 } else { 0.0 };
    let (e, f, tail) = log_parts_of_normal::<FMA>(x);
    (e - shift, f, tail)
}

/// `x = 2^e (1 + f)` with 1 + f in [sqrt(1/2), sqrt 2): gives e, f, and log(1 + f) - f. For normal x > 0.
#[inline(always)]
fn log_parts_of_normal<const FMA: bool>(x: f32) -> (f32, f32, f32) {
    const SQRT_HALF: u32 = 0x3f35_04f3;
    let bits = x.to_bits().wrapping_sub(SQRT_HALF);
    let e = (bits as i32 >> 23) as f32;
    let f = f32::from_bits((bits & 0x007f_ffff) + SQRT_HALF) - 1.0;
    let q = poly::<FMA, 8>(
        f,
        [
            0.333_333_3,
            -0.250_008_2,
            0.200_012_27,
            -0.166_233_57,
            0.142_017_62,
            -0.131_601_88,
            0.127_615_53,
            -0.076_344_505,
        ],
    );
    let z = f * f;
    (e, f, fma::<FMA>(-0.5, z, f * z * q))
}

/// `y`, or what the logarithm is at 0, at infinity and for negative numbers.
#[inline(always)]
fn log_special(x: f32, y: f32) -> f32 {
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    // NaN compares false.
    if x >= 0.0 { y } else { f32::NAN }
}

/// Natural logarithm, within 1 ulp.
#[inline(always)]
pub fn log<const FMA: bool>(x: f32) -> f32 {
    let (e, f, tail) = log_parts::<FMA>(x);
    let y = fma::<FMA>(e, LN2_HI, f + fma::<FMA>(e, LN2_LO, tail));
    log_special(x, y)
}

/// [`log`] of a positive number that is neither subnormal nor infinite.
#[inline(always)]
pub fn log_of_normal<const FMA: bool>(x: f32) -> f32 {
    let (e, f, tail) = log_parts_of_normal::<FMA>(x);
    fma::<FMA>(e, LN2_HI, f + fma::<FMA>(e, LN2_LO, tail))
}

/// Logarithm to base 2, within 2 ulp, exact at powers of two.
#[inline(always)]
pub fn log2<const FMA: bool>(x: f32) -> f32 {
    const BEYOND_ONE: f32 = std::f32::consts::LOG2_E - 1.0;
    let (e, f, tail) = log_parts::<FMA>(x);
    let y = fma::<FMA>(f, BEYOND_ONE, tail * BEYOND_ONE) + tail + f + e;
    log_special(x, y)
}

/// Logarithm to base 10, within 2 ulp.
#[inline(always)]
pub fn log10<const FMA: bool>(x: f32) -> f32 {
    // log10(e) and log10(2), each in two parts.
    const E_HI: f32 = 0.4375;
    const E_LO: f32 = -0.003_205_518;
    const TWO_HI: f32 = 0.300_781_25;
    const TWO_LO: f32 = 0.000_248_745_66;
    let (e, f, tail) = log_parts::<FMA>(x);
    let low = fma::<FMA>(f, E_LO, fma::<FMA>(tail, E_LO, e * TWO_LO));
    let y = fma::<FMA>(e, TWO_HI, fma::<FMA>(f, E_HI, fma::<FMA>(tail, E_HI, low)));
    log_special(x, y)
}

/// log(1 + x), within 2 ulp also near 0.
#[inline(always)]
pub fn log1p<const FMA: bool>(x: f32) -> f32 {
    let u = 1.0 + x;
    // What rounding took from 1 + x, to first order.
    let lost = (x - (u - 1.0)) / u;
    let lost = if u == f32::INFINITY || u == 0.0 { 0.0 } else { lost };
    let y = log::<FMA>(u) + lost;
    // Keeps the sign of zero.
    if x == 0.0 { x } else { y }
}

/// Hyperbolic tangent, within 2 ulp.
#[inline(always)]
pub fn tanh<const FMA: bool>(x: f32) -> f32 {
    let a = if x.abs() > 10.0 { 10.0 } else { x.abs() };
    let z = a * a;
    let small = poly::<FMA, 4>(z, [-0.333_329_47, 0.133_207_29, -0.052_672_014, 0.016_437_89]);
    let small = fma::<FMA>(a * z, small, a);
    let large = 1.0 - 2.0 / (exp_moderate::<FMA>(a + a) + 1.0);
    (if a < 0.55 { small } else { large }).copysign(x)
}

/// Logistic function 1 / (1 + e^-x), within 2.5 ulp; subnormal results too.
#[inline(always)]
pub fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    // With e^-|x|, which is a number for all x.
    let power = exp::<FMA>(-x.abs());
    (if x < 0.0 { power } else { 1.0 }) / (1.0 + power)
}

/// Error function, within 2 ulp.
#[inline(always)]
pub fn erf<const FMA: bool>(x: f32) -> f32 {
    let a = if x.abs() > 4.0 { 4.0 } else { x.abs() };
    // The coefficients of erf(a) / a - 1: the 1 is added last, where it costs no precision.
    let z = a * a;
    let small = poly::<FMA, 6>(
        z,
        [
            0.128_379_15,
            -0.376_124_47,
            0.112_813_21,
            -0.026_748_873,
            0.004_967_51,
            -0.000_586_207_67,
        ],
    );
    let small = fma::<FMA>(a, small, a);
    // 1 - 2^q with q = log2(1 - erf(a)): no division, and the power needs little precision.
    let q = poly_by_halves::<FMA>(
        a,
        z,
        [-0.003_167_836_7, -1.614_480_7, -0.941_057_2, -0.129_957, 0.021_989_938, -0.001_743_673_6],
    );
    // With 2^n's exponent as it is stored, in the low bits.
    const BIASED: f32 = MAGIC + 127.0;
    let t = q + BIASED;
    let r = q - (t - BIASED);
    let power = poly::<FMA, 6>(
        r,
        [1.0, 0.693_146_77, 0.240_222_32, 0.055_507_34, 0.009_671_518, 0.001_326_459_2],
    );
    let large = fma::<FMA>(-power, f32::from_bits(t.to_bits() << 23), 1.0);
    (if a < 0.95 { small } else { large }).copysign(x)
}

/// x times the normal distribution's function, within 1.3 f32::EPSILON |x|.
#[inline(always)]
pub fn gelu<const FMA: bool>(x: f32) -> f32 {
    // Where 2^q has come to 2^-127, whose exponent as it is stored is that of 0.
    const LAST: f32 = 12.968_148;
    let a = if x.abs() > LAST { LAST } else { x.abs() };
    let z = a * a;
    // Half of 2^q lies beyond a, with q = log2(1 - erf(a / sqrt(2))). The polynomial has its error where a power of it
    // does not count: of that it takes 3.2e-8 at most.
    let even = poly::<FMA, 4>(z, [-1.151_108, -0.052_628_13, -0.000_343_097_07, 1.659_56e-5]);
    let odd = poly::<FMA, 4>(z, [-0.459_174_07, 0.007_294_048, -8.906_992e-5, -7.507_433_8e-7]);
    let q = a * fma::<FMA>(a, odd, even);
    // With 2^n's exponent as it is stored, in the low bits.
    const BIASED: f32 = MAGIC + 127.0;
    let t = q + BIASED;
    let r = q - (t - BIASED);
    let half = poly::<FMA, 6>(
        r,
        [0.5, 0.346_573_38, 0.120_111_16, 0.027_753_67, 0.004_835_759, 0.000_663_229_6],
    );
    let beyond = half * f32::from_bits(t.to_bits() << 23);
    fma::<FMA>(-a, beyond, if x > 0.0 { x } else { 0.0 })
}

/// x^y, within 1 ulp, with C99's special cases (`pow(1, NaN) = 1`, `pow(-0, -3) = -inf`, ...).
#[inline(always)]
pub fn pow<const FMA: bool>(x: f32, y: f32) -> f32 {
    let a = x.abs();
    // f64 has so many spare bits that the error of the logarithm times y does not matter.
    let (wide, y_wide) = (a as f64, y as f64);
    let p = double::exp2::<FMA>(y_wide * double::log2::<FMA>(wide)) as f32;

    // Integers and odd integers, by rounding in f64; from 2^51 on every f32 is an even integer.
    const MAGIC: f64 = double::MAGIC;
    let half = 0.5 * y_wide;
    let large = y.abs() >= 1e15;
    let integer = ((y_wide + MAGIC) - MAGIC == y_wide) | large;
    let odd = integer & ((half + MAGIC) - MAGIC != half) & !large;

    let p = if (a == 1.0) & (y.abs() == f32::INFINITY) { 1.0 } else { p };
    let negative = x.is_sign_negative() & !x.is_nan();
    let signed = if odd & negative { -p } else { p };
    // A negative finite base takes integer exponents only.
    let invalid = (x < 0.0) & (a != f32::INFINITY) & !integer & !y.is_nan();
    let signed = if invalid { f32::NAN } else { signed };
    if (y == 0.0) | (x == 1.0) { 1.0 } else { signed }
}

/// Bits of 2 / pi after the binary point, most significant first.
const TWO_OVER_PI: [u64; 5] = [
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
];

/// Bits of a part of 1 / (2 pi): its product with any f32 is exact in f64.
const PART: i32 = 29;
/// 1 / (2 pi) in parts, and what is behind them.
const TURN: ([f64; 5], f64) = {
    let mut parts = [0.0; 5];
    let mut i = 0;
    while i < parts.len() {
        parts[i] = two_over_pi_bits(PART * i as i32, PART, -2);
        i += 1;
    }
    (parts, two_over_pi_bits(PART * parts.len() as i32, 53, -2))
};

/// The number made of `count` bits of 2 / pi from bit `first` on, times 2^e.
const fn two_over_pi_bits(first: i32, count: i32, e: i32) -> f64 {
    let mut value = 0u64;
    let mut i = first;
    while i < first + count {
        let word = TWO_OVER_PI[(i / 64) as usize];
        value = value << 1 | (word >> (63 - i % 64)) & 1;
        i += 1;
    }
    // Bit i weighs 2^(-1 - i); the exponent stays in f64's normal range.
    value as f64 * double::exact_power_of_two(e - first - count)
}

/// The nearest integer to a number that is not negative.
#[inline(always)]
fn nearest<const FMA: bool>(x: f64) -> f64 {
    /// From here on all are integers, and adding it to those below leaves one.
    const WHOLE: f64 = double::exact_power_of_two(52);
    match FMA {
        // Where FMA is an instruction, this is one.
        true => x.round_ties_even(),
        false if x >= WHOLE => x,
        false => (x + WHOLE) - WHOLE,
    }
}

/// `|x| = n pi/2 + r`: gives r in [-pi/4, pi/4] and n modulo 4, exactly enough for every f32, 2^127 included; no
/// number of infinity and NaN.
///
/// Whole turns are taken out of the product with each part of 1 / (2 pi), of which those with the first are all whole
/// if x is large: so many parts take the place of a table by x's exponent, which would be read number by number (Payne
/// and Hanek 1983).
#[inline(always)]
fn reduce_quadrant<const FMA: bool>(x: f32) -> (f32, u32) {
    let x = x.abs() as f64;
    let (parts, behind) = TURN;
    let mut turns = [0.0; 5];
    let mut sum = x * behind;
    let mut i = turns.len();
    while i > 0 {
        i -= 1;
        let product = x * parts[i];
        turns[i] = product - nearest::<FMA>(product);
        sum += turns[i];
    }
    let t = double::fma::<FMA>(sum, 4.0, double::MAGIC);
    let n = t - double::MAGIC;
    // The first part less n is exact, and what the others leave of it is small where r is.
    let mut r = double::fma::<FMA>(n, -0.25, turns[0]);
    let mut i = 1;
    while i < turns.len() {
        r += turns[i];
        i += 1;
    }
    let r = double::fma::<FMA>(x, behind, r) * std::f64::consts::TAU;
    (r as f32, t.to_bits() as u32)
}

#[inline(always)]
fn sin_cos_of_quadrant<const FMA: bool>(r: f32, quadrant: u32) -> f32 {
    let z = r * r;
    let sin =
        poly::<FMA, 4>(z, [-0.166_666_67, 0.008_333_329, -0.000_198_393_35, 0.000_002_718_304]);
    let sin = fma::<FMA>(r * z, sin, r);
    let cos = poly::<FMA, 4>(
        z,
        [0.041_666_668, -0.001_388_888_3, 0.000_024_799_52, -0.000_000_272_101_7],
    );
    let cos = fma::<FMA>(z * z, cos, fma::<FMA>(z, -0.5, 1.0));
    let y = if quadrant & 1 == 0 { sin } else { cos };
    f32::from_bits(y.to_bits() ^ (quadrant & 2) << 30)
}

/// Sine, within 2 ulp for every argument.
#[inline(always)]
pub fn sin<const FMA: bool>(x: f32) -> f32 {
    let (r, quadrant) = reduce_quadrant::<FMA>(x);
    let y = sin_cos_of_quadrant::<FMA>(r, quadrant);
    f32::from_bits(y.to_bits() ^ x.to_bits() & 0x8000_0000)
}

/// Cosine, within 2 ulp for every argument.
#[inline(always)]
pub fn cos<const FMA: bool>(x: f32) -> f32 {
    let (r, quadrant) = reduce_quadrant::<FMA>(x);
    sin_cos_of_quadrant::<FMA>(r, quadrant.wrapping_add(1))
}
