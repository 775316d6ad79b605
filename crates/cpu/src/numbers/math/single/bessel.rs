//! Modified Bessel functions of the first kind, by f64: their powers' sums are long.

use super::super::double::{self, poly};

/// From here on e^-a sqrt(a) I(a) is a polynomial of 1 / a, and below it I(a) one of (a / 2)^2.
const FAR: f64 = 8.0;
/// Of this and more the result is no f32.
const INFINITE: f64 = 700.0;

/// I0(a) from 0 to [`FAR`], as a polynomial of (a / 2)^2.
const NEAR_0: [f64; 11] = [
    1.000_000_000_280_561,
    0.999_999_991_862_718_5,
    0.250_000_034_589_693_55,
    0.027_777_725_562_309_955,
    0.001_736_148_651_961_325,
    6.942_960_853_264_599e-5,
    1.932_492_296_941_164e-6,
    3.886_511_170_352_102e-8,
    6.599_195_326_985_34e-10,
    5.220_152_961_557_223e-12,
    1.422_541_247_293_541_3e-13,
];
/// e^-a sqrt(a) I0(a) from [`FAR`] on, as a polynomial of 1 / a.
const FAR_0: [f64; 8] = [
    0.398_942_280_368_805_25,
    0.049_867_822_999_151_04,
    0.028_043_817_641_539_29,
    0.029_676_777_748_479_99,
    0.029_998_283_318_035_508,
    0.338_876_085_228_245_2,
    -1.914_272_091_023_521_6,
    8.543_654_784_792_915,
];
/// I1(a) / (a / 2) from 0 to [`FAR`], as a polynomial of (a / 2)^2.
const NEAR_1: [f64; 11] = [
    1.000_000_000_059_995_1,
    0.499_999_998_583_281_4,
    0.083_333_338_461_499_65,
    0.006_944_437_629_468_508,
    0.000_347_226_644_303_438_63,
    1.157_246_675_010_949_8e-5,
    2.759_250_532_297_756_4e-7,
    4.872_984_295_225_344e-9,
    7.242_170_955_564_519e-11,
    5.519_857_348_249_129e-13,
    1.251_442_484_143_155_9e-14,
];
/// e^-a sqrt(a) I1(a) from [`FAR`] on, as a polynomial of 1 / a.
const FAR_1: [f64; 8] = [
    0.398_942_280_444_214_4,
    -0.149_603_400_963_666_48,
    -0.046_743_016_165_213_25,
    -0.041_438_893_173_538_41,
    -0.040_570_834_571_826_81,
    -0.393_682_886_823_963_63,
    2.153_428_284_013_712,
    -9.624_275_009_069_354,
];

/// The function of order `ORDER` (0 or 1) of a >= 0; with `SCALED` times e^-a.
#[inline(always)]
fn bessel<const FMA: bool, const ORDER: u32, const SCALED: bool>(a: f64) -> f64 {
    let (near, far) = if ORDER == 0 { (NEAR_0, FAR_0) } else { (NEAR_1, FAR_1) };
    // NaN stays: it compares false.
    let a = if !SCALED && a > INFINITE { INFINITE } else { a };
    let power = double::exp::<FMA>(if SCALED { -a } else { a });
    let half = 0.5 * a;
    let near = poly::<FMA, 11>(half * half, near) * if ORDER == 0 { 1.0 } else { half };
    let far = poly::<FMA, 8>(1.0 / a, far) / a.sqrt();
    let (near, far) = if SCALED { (near * power, far) } else { (near, far * power) };
    if a < FAR { near } else { far }
}

/// Order 0, within 0.51 ulp.
#[inline(always)]
pub fn i0<const FMA: bool>(x: f32) -> f32 {
    bessel::<FMA, 0, false>(x.abs() as f64) as f32
}

/// Order 1, within 0.51 ulp.
#[inline(always)]
pub fn i1<const FMA: bool>(x: f32) -> f32 {
    (bessel::<FMA, 1, false>(x.abs() as f64) as f32).copysign(x)
}

/// [`i0`] times e^-|x|, within 0.51 ulp.
#[inline(always)]
pub fn i0e<const FMA: bool>(x: f32) -> f32 {
    bessel::<FMA, 0, true>(x.abs() as f64) as f32
}

/// [`i1`] times e^-|x|, within 0.51 ulp.
#[inline(always)]
pub fn i1e<const FMA: bool>(x: f32) -> f32 {
    (bessel::<FMA, 1, true>(x.abs() as f64) as f32).copysign(x)
}
