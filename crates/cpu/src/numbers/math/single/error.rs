//! The error function and its kin.

use super::exponential::exp_parts;
use super::logarithm::log_of_normal;
use super::{MAGIC, fma, poly, poly_by_halves, scale};

/// erf(a) for 0 <= a < 1; `z` is a^2.
#[inline(always)]
fn small_erf<const FMA: bool>(a: f32, z: f32) -> f32 {
    // The coefficients of erf(a) / a - 1: the 1 is added last, where it costs no precision.
    let p = poly::<FMA, 6>(
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
    fma::<FMA>(a, p, a)
}

/// Error function, within 2 ulp.
#[inline(always)]
pub fn erf<const FMA: bool>(x: f32) -> f32 {
    let a = if x.abs() > 4.0 { 4.0 } else { x.abs() };
    let z = a * a;
    let small = small_erf::<FMA>(a, z);
    // 1 - 2^q with q = log2(1 - erf(a)): no division, and the power needs little precision.
    let q = poly_by_halves::<FMA, 6>(
        a,
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

/// x times the normal distribution's function, within 1.3 f32::EPSILON |x|; NaN at minus infinity, as PyTorch's product.
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
    // Of minus infinity itself, which is not clipped, NaN.
    fma::<FMA>(if x < -a { x } else { -a }, beyond, if x > 0.0 { x } else { 0.0 })
}

/// Complement of the error function, 1 - erf(x), within 4 ulp; subnormal results too.
#[inline(always)]
pub fn erfc<const FMA: bool>(x: f32) -> f32 {
    let a = if x.abs() > 10.1 { 10.1 } else { x.abs() };
    // e^-z needs all bits of a^2: `low` has those that z has not.
    let z = a * a;
    let low = if FMA { a.mul_add(a, -z) } else { (a as f64 * a as f64 - z as f64) as f32 };
    let (t, fraction) = exp_parts::<FMA>(-z);
    let power = fraction + 1.0;
    let power = fma::<FMA>(-power, low, power);
    // (1 + 2 a) e^(a^2) erfc(a) is nearly constant (Shepherd and Laframboise 1981).
    let flat = poly::<FMA, 10>(
        (a - 2.0) / (a + 2.0),
        [
            1.276_978_4,
            -0.092_763_98,
            -0.166_031_42,
            0.164_055_35,
            -0.054_204_296,
            -0.008_059_877,
            0.008_631_679,
            0.001_313_524_7,
            -0.001_229_924_3,
            -0.000_400_575_87,
        ],
    );
    let large = scale::<FMA>(power * flat / fma::<FMA>(2.0, a, 1.0), t);
    let y = if a < 0.5 { 1.0 - small_erf::<FMA>(a, z) } else { large };
    if x < 0.0 { 2.0 - y } else { y }
}

/// Inverse of the error function, within 4 ulp.
#[inline(always)]
pub fn erfinv<const FMA: bool>(x: f32) -> f32 {
    let a = x.abs();
    // erfinv(x) / x by the logarithm of 1 - x^2, and far out by its root (Giles 2012).
    let w = -log_of_normal::<FMA>((1.0 - a) * (1.0 + a));
    let central = poly_by_halves::<FMA, 10>(
        w - 2.5,
        [
            1.501_409_4,
            0.246_640_28,
            -0.004_177_387,
            -0.001_252_741_9,
            0.000_218_344_44,
            -4.963_335e-6,
            -3.462_706e-6,
            4.661_679_3e-7,
            2.323_273_5e-8,
            -8.790_861e-9,
        ],
    );
    let tail = poly_by_halves::<FMA, 9>(
        w.sqrt() - 3.0,
        [
            2.832_977,
            1.001_674_2,
            0.009_435_039,
            -0.007_626_243_4,
            0.005_765_537_3,
            -0.003_656_545,
            0.001_292_252_4,
            8.252_23e-5,
            -0.000_159_782_18,
        ],
    );
    let y = x * if w < 5.0 { central } else { tail };
    let y = if a == 1.0 { f32::INFINITY.copysign(x) } else { y };
    if a > 1.0 { f32::NAN } else { y }
}
