//! How accurate the f32 rows of one operand are, in the loops of every instruction set that this
//! processor has: the largest error in units in the last place (ulp) against f64, over all of f32.

use super::tables;
use crate::cpu::isa::{self, Isa};
use crate::cpu::lane::Compute;
use crate::cpu::math::tests::ulps32;

// The system's C library has it; Rust's standard library does not expose it.
unsafe extern "C" {
    #[link_name = "erf"]
    safe fn c_erf(x: f64) -> f64;
}

/// Where functions change: overflow and underflow of exponentials, their subnormal results, the
/// joints of the approximations, zeros, poles and ends of domains.
const CENTRES: [f32; 24] = [
    0.0,
    f32::MIN_POSITIVE,
    1e-4,
    0.25,
    0.346_573_6,
    0.5,
    0.55,
    std::f32::consts::FRAC_1_SQRT_2,
    1.0,
    1.1,
    std::f32::consts::SQRT_2,
    2.0,
    4.0,
    10.0,
    17.328_68,
    87.336_55,
    88.722_84,
    88.029_69,
    103.972_08,
    104.0,
    127.0,
    128.0,
    149.0,
    f32::MAX,
];

/// Those f32 that are closest to multiples of pi/2, of all.
const NEAR_QUADRANTS: [u32; 8] = [
    0x6f79_be45,
    0x50a3_e87f,
    0x437c_e5f1,
    0x6a19_76f1,
    0x53b1_46a6,
    0x6589_8498,
    0x7758_4625,
    0x4c23_32e9,
];

/// Positive f32: some of every exponent, subnormal ones too, all near the centres, and those near
/// multiples of pi/2.
fn magnitudes() -> impl Iterator<Item = u32> {
    let infinity = f32::INFINITY.to_bits();
    let near = |x: f32| (x.to_bits().saturating_sub(400)..=x.to_bits() + 400).filter(|&b| b > 0);
    let quadrants = (1..20_000).map(|k| (k as f64 * std::f64::consts::FRAC_PI_2) as f32);
    (0..infinity)
        .step_by(2053)
        .chain((0..infinity).step_by(1 << 23))
        .chain(CENTRES.into_iter().flat_map(near).filter(move |&b| b < infinity))
        .chain(quadrants.map(f32::to_bits))
        .chain(
            NEAR_QUADRANTS.into_iter().flat_map(|b| (0..4).map(move |double| b + (double << 23))),
        )
        .chain([infinity, f32::NAN.to_bits()])
}

/// Runs the row's f32 loop at one instruction set.
fn run(name: &str, isa: Isa, inputs: &[f32], results: &mut [f32]) {
    let row = tables().find(|row| row.name == name).expect("a row of this name");
    assert_eq!((row.inputs.len(), row.params.len(), inputs.len()), (1, 0, results.len()));
    let pointers = [results.as_mut_ptr().cast::<u8>(), inputs.as_ptr().cast_mut().cast()];
    let params = [0u64];
    // SAFETY: two arrays of as many f32, no parameters, and an instruction set that is there.
    unsafe {
        row.kernel.tile(Compute::F32, isa)(pointers.as_ptr(), params.as_ptr().cast(), inputs.len())
    };
}

/// Asserts that the row's error is at most `bound` ulp at every instruction set, and that it is odd
/// in the sign of zero where `want` is.
fn check(name: &str, want: fn(f64) -> f64, bound: f64) {
    let inputs: Vec<f32> =
        magnitudes().flat_map(|b| [b, b | 1 << 31]).map(f32::from_bits).collect();
    let exact: Vec<f64> = inputs.iter().map(|&x| want(x as f64)).collect();
    let mut results = vec![0f32; inputs.len()];
    for isa in Isa::ALL.into_iter().filter(|&isa| isa <= isa::available()) {
        run(name, isa, &inputs, &mut results);
        let mut worst = (0.0, 0);
        for i in 0..inputs.len() {
            let error = ulps32(results[i], exact[i]);
            if error > worst.0 {
                worst = (error, i);
            }
        }
        let (error, i) = worst;
        println!("{name} {}: {error:.3} ulp at {:e}", isa.name(), inputs[i]);
        assert!(
            error <= bound,
            "{name}({:e}) = {:e}, not {:e}, at {}: {error} ulp",
            inputs[i],
            results[i],
            exact[i],
            isa.name()
        );
        if want(0.0) == 0.0 {
            let zeros = [0.0, -0.0];
            let mut results = [1.0; 2];
            run(name, isa, &zeros, &mut results);
            assert_eq!(results.map(f32::to_bits), zeros.map(f32::to_bits), "{name} of zeros");
        }
    }
}

macro_rules! within {
    ($($name:ident $bound:literal $want:expr;)*) => {$(
        #[test]
        fn $name() {
            check(stringify!($name), $want, $bound);
        }
    )*};
}
within! {
    exp 1.1 f64::exp;
    exp2 1.0 f64::exp2;
    expm1 2.0 f64::exp_m1;
    log 1.0 f64::ln;
    log2 2.0 f64::log2;
    log10 2.0 f64::log10;
    log1p 2.0 f64::ln_1p;
    sqrt 0.5 f64::sqrt;
    rsqrt 1.5 |x| 1.0 / x.sqrt();
    sin 2.0 f64::sin;
    cos 2.0 f64::cos;
    tan 2.0 f64::tan;
    asin 2.0 f64::asin;
    acos 2.0 f64::acos;
    atan 2.0 f64::atan;
    sinh 2.0 f64::sinh;
    cosh 2.0 f64::cosh;
    tanh 2.0 f64::tanh;
    erf 2.0 |x| c_erf(x);
    sigmoid 2.5 |x| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) };
}

/// Far below 0 the distribution function is small, and its error small against 1: so is gelu's against x.
#[test]
fn gelu() {
    let near = (-60_000..=60_000).map(|i| i as f32 * 1e-4);
    let far = (-3_000..=3_000).map(|i| i as f32 * 5e-3);
    let ends = [13.09f32, 13.1, 13.2, 1e3, 1e20, f32::MAX].into_iter().flat_map(|x| [x, -x]);
    let inputs: Vec<f32> = near.chain(far).chain(ends).collect();
    let mut results = vec![0f32; inputs.len()];
    for isa in Isa::ALL.into_iter().filter(|&isa| isa <= isa::available()) {
        run("gelu", isa, &inputs, &mut results);
        for (&x, &y) in inputs.iter().zip(&results) {
            let wide = x as f64;
            let want = 0.5 * wide * (1.0 + c_erf(wide * std::f64::consts::FRAC_1_SQRT_2));
            let bound = 1.3 * f32::EPSILON as f64 * wide.abs();
            assert!((y as f64 - want).abs() <= bound, "gelu({x}) = {y}, not {want}");
        }
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -1e4];
        let mut results = [0f32; 4];
        run("gelu", isa, &odd, &mut results);
        assert!(results[0].is_nan());
        assert_eq!(results[1..], [f32::INFINITY, 0.0, 0.0]);
    }
}
