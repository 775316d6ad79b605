//! Accuracy in ulp, of both forms of every f64 function and of f32 powers, against the system's f64
//! library. The f32 functions of one argument: `ops/pointwise/accuracy.rs`.

mod orders;
mod special;

use torchrs_cpu::numbers::math::ulps::ulps32;
use torchrs_cpu::numbers::math::{double, single};

// The system's C library has it; Rust's standard library does not expose it.
unsafe extern "C" {
    #[link_name = "erf"]
    safe fn c_erf(x: f64) -> f64;
}

fn ulps64(got: f64, want: f64) -> f64 {
    if got.is_nan() || want.is_nan() {
        return if got.is_nan() && want.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if got.is_infinite() || want.is_infinite() {
        return if got == want { 0.0 } else { f64::INFINITY };
    }
    let order = |x: f64| x.abs().to_bits() as i128 * if x < 0.0 { -1 } else { 1 };
    (order(got) - order(want)).unsigned_abs() as f64
}

/// A sample of all f32 values (every sign, exponent, infinities and NaN), and the corners.
fn floats() -> impl Iterator<Item = f32> {
    let corners = [0.0, -0.0, 1.0, -1.0, 0.5, f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-45, -1e-45];
    let corners = corners.into_iter().chain([f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    corners.chain((0..u32::MAX).step_by(1013).map(f32::from_bits))
}

fn doubles() -> impl Iterator<Item = f64> {
    let step = u64::MAX / 1_000_003;
    let everywhere = (0..1_000_003).map(move |i| f64::from_bits(i * step));
    let usual = (-400_000..400_000).map(|i| i as f64 * 1.000_37e-4);
    let corners = [0.0, -0.0, 1.0, -1.0, f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324, -5e-324];
    let corners = corners.into_iter().chain([f64::INFINITY, f64::NEG_INFINITY, f64::NAN]);
    corners.chain(usual).chain(everywhere)
}

fn check64(name: &str, f: fn(f64) -> f64, want: fn(f64) -> f64, bound: f64) {
    let mut worst = (0.0, 0.0);
    for x in doubles() {
        let error = ulps64(f(x), want(x));
        if error > worst.0 {
            worst = (error, x);
        }
    }
    println!("{name}: {} ulp at {:e}", worst.0, worst.1);
    let (got, want) = (f(worst.1), want(worst.1));
    assert!(worst.0 <= bound, "{name}({:e}) = {got:e}, not {want:e}: {} ulp", worst.1, worst.0);
}

macro_rules! accuracy {
    ($($test:ident: $module:ident::$f:ident, $check:ident, $want:expr, $bound:literal;)*) => {$(
        #[test]
        fn $test() {
            $check(concat!(stringify!($f), " fused"), $module::$f::<true>, $want, $bound);
            $check(concat!(stringify!($f), " plain"), $module::$f::<false>, $want, $bound);
        }
    )*};
}

accuracy! {
    exp64: double::exp, check64, f64::exp, 2.0;
    exp2_64: double::exp2, check64, f64::exp2, 3.0;
    expm1_64: double::expm1, check64, f64::exp_m1, 3.0;
    log64: double::log, check64, f64::ln, 2.0;
    log2_64: double::log2, check64, f64::log2, 3.0;
    log10_64: double::log10, check64, f64::log10, 3.0;
    log1p_64: double::log1p, check64, f64::ln_1p, 3.0;
    tanh64: double::tanh, check64, f64::tanh, 4.0;
    sigmoid64: double::sigmoid, check64, |x| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) }, 5.0;
    erf64: double::erf, check64, |x| c_erf(x), 3.0;
}

#[test]
fn exponentials_that_may_be_flushed() {
    for x in floats().filter(|&x| x <= 88.0) {
        let want = if x < -87.3 { 0.0 } else { (x as f64).exp() };
        for got in [single::exp_flushed::<true>(x), single::exp_flushed::<false>(x)] {
            let error = if want == 0.0 { got as f64 } else { (got as f64 / want - 1.0).abs() };
            assert!(error < 1.4e-7, "{x}: {got} {want}");
        }
    }
    for x in floats().filter(|&x| x <= 127.0) {
        let want = (x as f64).exp2();
        for got in [single::exp2_flushed::<true>(x), single::exp2_flushed::<false>(x)] {
            let right = (got as f64 / want - 1.0).abs() < 1.5e-7;
            assert!(right || x < -126.0 && got < f32::MIN_POSITIVE, "{x}: {got} {want}");
        }
    }
    assert!(single::exp_flushed::<true>(f32::NAN).is_nan());
    assert!(single::exp2_flushed::<true>(f32::NAN).is_nan());
}

#[test]
fn zeros_keep_their_sign() {
    for f in
        [single::expm1::<true>, single::log1p::<true>, single::tanh::<true>, single::erf::<true>]
    {
        assert!(f(-0.0).is_sign_negative() && f(0.0).is_sign_positive());
    }
    assert!(single::sin::<true>(-0.0).is_sign_negative());
}

#[test]
fn pow32() {
    let exponents = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.0,
        3.0,
        -3.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        7.0,
        8.0,
        1e-3,
        -1e-3,
        33.0,
        1e15,
        16_777_215.0,
        8_388_609.0,
        1e30,
        f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    for f in [single::pow::<true>, single::pow::<false>] {
        for x in floats().step_by(37).chain(floats().take(13)) {
            for y in exponents {
                // C99's powf has the special cases; its f64 form is the exact value.
                let want = (x as f64).powf(y as f64);
                let (got, error) = (f(x, y), ulps32(f(x, y), want));
                assert!(error <= 1.25, "pow({x:e}, {y:e}) = {got:e}, not {want:e}: {error} ulp");
                let zero = got == 0.0 && want == 0.0;
                assert!(
                    !zero || got.is_sign_negative() == want.is_sign_negative(),
                    "pow({x:e}, {y:e})"
                );
            }
        }
    }
}
