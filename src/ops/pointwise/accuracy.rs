//! How accurate the f32 rows of one operand are, in the loops of every instruction set that this
//! processor has: the largest error in units in the last place (ulp) against f64, over a sample of all of f32 and
//! what is near the places where functions change. `cargo test --release --lib accuracy -- --ignored` takes all
//! numbers that there are.

use std::sync::atomic::{AtomicU64, Ordering};

use super::tables;
use crate::cpu::arch::isa::{self, Isa};
use crate::cpu::numbers::math::special;
use crate::cpu::numbers::math::ulps::ulps32;
use crate::loops::Compute;

// The system's C library has it; Rust's standard library does not expose it.
unsafe extern "C" {
    #[link_name = "erf"]
    safe fn c_erf(x: f64) -> f64;
}

/// Where functions change: overflow and underflow of exponentials, their subnormal results, the
/// joints of the approximations, zeros, poles and ends of domains.
const CENTRES: [f32; 27] = [
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
    8.0,
    10.0,
    17.328_68,
    87.336_55,
    88.722_84,
    91.900_765,
    91.906_265,
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
    run_on(name, isa, &[inputs], results);
}

/// The same for any number of operands.
fn run_on(name: &str, isa: Isa, inputs: &[&[f32]], results: &mut [f32]) {
    let row = tables().find(|row| row.name == name).expect("a row of this name");
    assert_eq!((row.inputs.len(), row.params.len()), (inputs.len(), 0));
    assert!(inputs.iter().all(|x| x.len() == results.len()));
    let mut pointers = vec![results.as_mut_ptr().cast::<u8>()];
    pointers.extend(inputs.iter().map(|x| x.as_ptr().cast_mut().cast()));
    let params = [0u64];
    // SAFETY: arrays of as many f32, no parameters, and an instruction set that is there.
    unsafe {
        row.kernel.tile(Compute::F32, isa)(pointers.as_ptr(), params.as_ptr().cast(), results.len())
    };
}

/// The same with a number in between, again and again, that functions which are quicker for moderate arguments are not
/// quick for: they take the other way for its neighbours too.
fn run_far(name: &str, isa: Isa, inputs: &[f32], results: &mut [f32]) {
    const APART: usize = 100;
    let spread: Vec<f32> = inputs.chunks(APART).flat_map(|x| [&[1e30], x].concat()).collect();
    let mut spread_results = vec![0f32; spread.len()];
    run(name, isa, &spread, &mut spread_results);
    for (to, from) in results.chunks_mut(APART).zip(spread_results.chunks(APART + 1)) {
        to.copy_from_slice(&from[1..]);
    }
}

/// The row's loop on its own ([`run`]), or with far numbers in between ([`run_far`]).
type Run = fn(&str, Isa, &[f32], &mut [f32]);

/// Every instruction set that is there, with both ways to run a row.
fn ways() -> impl Iterator<Item = (Isa, Run)> {
    let isas = Isa::ALL.into_iter().filter(|&isa| isa <= isa::available());
    isas.flat_map(|isa| [(isa, run as Run), (isa, run_far)])
}

/// The row's largest error for these numbers, in ulp, and where it is; asserts that it is at most `bound`.
fn worst(
    name: &str,
    (isa, run): (Isa, Run),
    inputs: &[f32],
    exact: &[f64],
    bound: f64,
) -> (f64, f32) {
    let mut results = vec![0f32; inputs.len()];
    run(name, isa, inputs, &mut results);
    let mut worst = (0.0, 0);
    for i in 0..inputs.len() {
        let error = ulps32(results[i], exact[i]);
        if error > worst.0 {
            worst = (error, i);
        }
    }
    let (error, i) = worst;
    assert!(
        error <= bound,
        "{name}({:e}) = {:e}, not {:e}, at {}: {error} ulp",
        inputs[i],
        results[i],
        exact[i],
        isa.name()
    );
    (error, inputs[i])
}

/// Asserts that the row's error is at most `bound` ulp at every instruction set, and that it is odd
/// in the sign of zero where `want` is.
fn check(name: &str, want: fn(f64) -> f64, bound: f64) {
    let inputs: Vec<f32> =
        magnitudes().flat_map(|b| [b, b | 1 << 31]).map(f32::from_bits).collect();
    let exact: Vec<f64> = inputs.iter().map(|&x| want(x as f64)).collect();
    for way in ways() {
        let (error, at) = worst(name, way, &inputs, &exact, bound);
        println!("{name} {}: {error:.3} ulp at {at:e}", way.0.name());
        if want(0.0) == 0.0 {
            let zeros = [0.0, -0.0];
            let mut results = [1.0; 2];
            way.1(name, way.0, &zeros, &mut results);
            assert_eq!(results.map(f32::to_bits), zeros.map(f32::to_bits), "{name} of zeros");
        }
    }
}

/// The same for all numbers that there are.
fn check_all(name: &str, want: fn(f64) -> f64, bound: f64) {
    const BLOCK: u64 = 1 << 20;
    let next = AtomicU64::new(0);
    let part = || {
        let mut largest = vec![(0.0, 0f32); ways().count()];
        loop {
            let start = next.fetch_add(BLOCK, Ordering::Relaxed);
            if start > u32::MAX.into() {
                return largest;
            }
            let inputs: Vec<f32> =
                (start..start + BLOCK).map(|bits| f32::from_bits(bits as u32)).collect();
            let exact: Vec<f64> = inputs.iter().map(|&x| want(x as f64)).collect();
            for (largest, way) in largest.iter_mut().zip(ways()) {
                let found = worst(name, way, &inputs, &exact, bound);
                if found.0 > largest.0 {
                    *largest = found;
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let parts: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(part)).collect();
        threads.into_iter().map(|thread| thread.join().expect("within the bound")).collect()
    });
    for (i, (isa, _)) in ways().enumerate() {
        let (error, at) =
            parts.iter().map(|part| part[i]).max_by(|a, b| a.0.total_cmp(&b.0)).expect("a thread");
        println!("{name} {}: {error:.3} ulp at {at:e}, of all numbers", isa.name());
    }
}

macro_rules! within {
    ($($name:ident $bound:literal $want:expr;)*) => {$(
        #[test]
        fn $name() {
            check(stringify!($name), $want, $bound);
        }
    )*

    /// Name, what is right, and the bound.
    const BOUNDS: &[(&str, fn(f64) -> f64, f64)] = &[$((stringify!($name), $want, $bound)),*];
    };
}
within! {
    exp 1.1 f64::exp;
    exp2 1.1 f64::exp2;
    expm1 2.0 f64::exp_m1;
    log 1.0 f64::ln;
    log2 2.0 f64::log2;
    log10 2.0 f64::log10;
    log1p 2.0 f64::ln_1p;
    sqrt 0.5 f64::sqrt;
    rsqrt 1.5 |x| 1.0 / x.sqrt();
    sin 2.0 f64::sin;
    cos 2.0 f64::cos;
    tan 3.0 f64::tan;
    asin 2.0 f64::asin;
    acos 2.0 f64::acos;
    atan 2.0 f64::atan;
    sinh 2.0 f64::sinh;
    cosh 2.0 f64::cosh;
    tanh 2.0 f64::tanh;
    erf 2.0 |x| c_erf(x);
    erfc 4.0 special::erfc;
    erfinv 4.0 special::erfinv;
    lgamma 4.0 special::lgamma;
    digamma 4.0 special::digamma;
    // At infinity PyTorch's formula is infinity times 0.
    i0 0.51 |x| if x.is_finite() { special::i0(x) } else { f64::NAN };
    i1 0.51 |x| if x.is_finite() { special::i1(x) } else { f64::NAN };
    i0e 0.51 special::i0e;
    i1e 0.51 special::i1e;
    sigmoid 2.5 |x| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) };
}

#[test]
#[ignore = "takes minutes for each function"]
fn all_numbers() {
    for &(name, want, bound) in BOUNDS {
        if ["exp", "log", "tanh", "erf", "sin", "cos"].contains(&name) {
            check_all(name, want, bound);
        }
    }
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
        // At minus infinity PyTorch's formula is infinity times 0.
        assert!(results[0].is_nan() && results[2].is_nan());
        assert_eq!([results[1], results[3]], [f32::INFINITY, 0.0]);
    }
}

/// Pairs of numbers of all sizes: moderate and extreme quotients, quotients that are nearly integers, and the special ones.
fn pairs() -> (Vec<f32>, Vec<f32>) {
    let odd = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        3.0,
        1e-45,
        -1e-40,
        1e38,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let mut pairs: Vec<_> = odd.iter().flat_map(|&a| odd.map(|b| (a, b))).collect();
    let mut state = 1u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    for _ in 0..200_000 {
        let sign = |x: f32, bit: u32| if bit & 1 == 0 { x } else { -x };
        let b = sign(random() as f32 * 1e-4 + 1e-6, random() >> 7);
        let near = b * ((random() >> 4) as f32) * 2f32.powi(-((random() >> 5) as i32 % 20));
        let near = f32::from_bits(near.to_bits().wrapping_add((random() >> 9) % 3).wrapping_sub(1));
        pairs.push((sign(near, random() >> 7), b));
    }
    for _ in 0..100_000 {
        pairs.push((
            f32::from_bits(random() << 8 | random() & 255),
            f32::from_bits(random() << 8 | random() & 255),
        ));
    }
    pairs.into_iter().unzip()
}

#[test]
fn remainders_are_exact() {
    let (a, b) = pairs();
    let mut results = vec![0f32; a.len()];
    type Exact = fn(f32, f32) -> f32;
    let floored = |a: f32, b: f32| {
        let r = a % b;
        if r != 0.0 && (b < 0.0) != (r < 0.0) { r + b } else { r }
    };
    for (name, want) in [("fmod", (|a, b| a % b) as Exact), ("remainder", floored)] {
        for isa in Isa::ALL.into_iter().filter(|&isa| isa <= isa::available()) {
            run_on(name, isa, &[&a, &b], &mut results);
            for ((&a, &b), &got) in a.iter().zip(&b).zip(&results) {
                let want = want(a, b);
                let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
                assert!(same, "{name}({a:e}, {b:e}) = {got:e}, not {want:e}, at {}", isa.name());
            }
        }
    }
}

#[test]
fn floored_quotients() {
    let (a, b) = pairs();
    let mut results = vec![0f32; a.len()];
    for isa in Isa::ALL.into_iter().filter(|&isa| isa <= isa::available()) {
        run_on("floor_divide", isa, &[&a, &b], &mut results);
        for ((&a, &b), &got) in a.iter().zip(&b).zip(&results) {
            let (wide, divisor) = (a as f64, b as f64);
            let r = wide % divisor;
            let q =
                (wide - r) / divisor - ((r != 0.0 && (divisor < 0.0) != (r < 0.0)) as u8 as f64);
            // As long as f64 holds the quotient exactly. Here it is what PyTorch's is, near 2^23 one less where the
            // product of an exact quotient is rounded.
            if q.abs() < 9e15 && q != 0.0 {
                let error = ulps32(got, q);
                let bound = if q.abs() < 4e6 { 0.0 } else { 2.0 };
                assert!(error <= bound, "floor_divide({a:e}, {b:e}) = {got:e}, not {q:e}");
            }
        }
    }
}

#[test]
fn angles() {
    let (a, b) = pairs();
    let mut results = vec![0f32; a.len()];
    let mut worst = 0f64;
    for isa in Isa::ALL.into_iter().filter(|&isa| isa <= isa::available()) {
        run_on("atan2", isa, &[&a, &b], &mut results);
        for ((&a, &b), &got) in a.iter().zip(&b).zip(&results) {
            let want = (a as f64).atan2(b as f64);
            let error = ulps32(got, want);
            worst = worst.max(error);
            assert!(error <= 3.0, "atan2({a:e}, {b:e}) = {got:e}, not {want:e}, at {}", isa.name());
            let zero = want as f32 == 0.0;
            assert!(
                !zero || got.is_sign_negative() == want.is_sign_negative(),
                "atan2({a:e}, {b:e})"
            );
        }
    }
    println!("atan2: {worst:.3} ulp");
}
