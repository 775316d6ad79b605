//! Loops over dense operands and numbers.

use torchrs_cpu::arch::cache::is_beyond;
use torchrs_cpu::elementwise::dense::execute_dense;
use torchrs_cpu::elementwise::kernel::{Formula, Kernel};
use torchrs_cpu::numbers::lane::Number;
use torchrs_cpu::threads::GRAIN;
use torchrs_loops::{Compute, Constant};

/// `x + y p`.
struct Scaled;
impl<S: Number> Formula<S, 2, 1, 1> for Scaled {
    #[inline(always)]
    fn eval([x, y]: [S; 2], [p]: [S; 1]) -> [S; 1] {
        [x + y * p]
    }
}
static SCALED: Kernel = Kernel::number::<Scaled, 2, 1, 1>();

#[test]
fn dense_operands_need_no_plan() {
    // One element, a vector's rest, several tiles, several threads.
    for n in [0, 1, 16, 17, 600, 3000, 3 * GRAIN + 5] {
        let x: Vec<f64> = (0..n).map(|i| i as f64).collect();
        let params = [Constant::F(0.5)];
        let run = |out: &mut [f64], x: Option<&[f64]>, y: Option<f64>| {
            let out = out.as_mut_ptr().cast::<u8>();
            let x = x.map_or(out, |x| x.as_ptr().cast_mut().cast());
            let other = if y.is_some() { std::ptr::null_mut() } else { x };
            let numbers: Vec<(usize, Constant)> = y.iter().map(|&y| (2, Constant::F(y))).collect();
            // SAFETY: `out` and `x` have n values; they are the same or apart.
            unsafe { execute_dense(&SCALED, Compute::F64, &params, n, &[out, x, other], &numbers) };
        };
        for y in [None, Some(4.0)] {
            let want: Vec<f64> = x.iter().map(|x| x + 0.5 * y.unwrap_or(*x)).collect();
            let mut out = vec![-1.0; n + 1];
            run(&mut out, Some(&x), y);
            assert_eq!((&out[..n], out[n]), (&want[..], -1.0), "{n} elements");
            let mut own = x.clone();
            run(&mut own, None, y);
            assert_eq!(own, want, "{n} elements in place");
        }
    }
}

/// `x - y`.
struct Less;
impl<S: Number> Formula<S, 2, 0, 1> for Less {
    const LIGHT: bool = true;
    #[inline(always)]
    fn eval([x, y]: [S; 2], []: [S; 0]) -> [S; 1] {
        [x - y]
    }
}
static LESS: Kernel = Kernel::number::<Less, 2, 0, 1>();

#[test]
fn without_parameters_a_number_needs_no_tile() {
    for n in [0, 1, 16, 17, 600, 3000, 3 * GRAIN + 5] {
        let mut own: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let want: Vec<f32> = own.iter().map(|x| x - 3.0).collect();
        let mut out = vec![-1.0; n + 1];
        let x = own.as_mut_ptr().cast::<u8>();
        for place in [out.as_mut_ptr().cast(), x] {
            let pointers = [place, x, std::ptr::null_mut()];
            let numbers = [(2, Constant::F(3.0))];
            // SAFETY: both have n values; they are the same or apart.
            unsafe { execute_dense(&LESS, Compute::F32, &[], n, &pointers, &numbers) };
        }
        assert_eq!((&out[..n], out[n]), (&want[..], -1.0), "{n} elements");
        assert_eq!(own, want, "{n} elements in place");
    }
}

#[test]
fn large_results_go_past_the_caches_to_their_places() {
    assert!(LESS.is_light() && !SCALED.is_light());
    let n = (8 << 20) + 5;
    assert!(is_beyond(4 * n));
    let mut x: Vec<f32> = (0..n).map(|i| (i % 1001) as f32).collect();
    let mut y: Vec<f32> = (0..n).map(|i| (i % 7) as f32).collect();
    let (x, y) = (x.as_mut_ptr().cast::<u8>(), y.as_mut_ptr().cast::<u8>());
    // Not at a boundary of what is stored at once, too.
    for start in [0, 3] {
        let mut out = vec![-1f32; n + 8];
        let to = out[start..].as_mut_ptr().cast::<u8>();
        for numbers in [&[][..], &[(2, Constant::F(3.0))]] {
            let other = if numbers.is_empty() { y } else { std::ptr::null_mut() };
            // SAFETY: all have n values, apart from each other.
            unsafe { execute_dense(&LESS, Compute::F32, &[], n, &[to, x, other], numbers) };
            let want = |i: usize| {
                (i % 1001) as f32 - if numbers.is_empty() { (i % 7) as f32 } else { 3.0 }
            };
            assert!((0..n).all(|i| out[start + i] == want(i)), "{start} {numbers:?}");
            assert!(out[..start].iter().chain(&out[start + n..]).all(|&v| v == -1.0));
        }
    }
}

/// `y` where `x` is less than it, `z` where it is more than that.
struct Between;
impl<S: Number> Formula<S, 3, 0, 1> for Between {
    #[inline(always)]
    fn eval([x, y, z]: [S; 3], []: [S; 0]) -> [S; 1] {
        [z.minimum(y.maximum(x))]
    }
}
static BETWEEN: Kernel = Kernel::number::<Between, 3, 0, 1>();

#[test]
fn two_numbers_need_no_tile_either() {
    for n in [1, 16, 17, 3000, 3 * GRAIN + 5] {
        let mut own: Vec<f32> = (0..n).map(|i| (i % 100) as f32).collect();
        own[n / 2] = f32::NAN;
        let limited = |x: &f32| if x.is_nan() { *x } else { x.clamp(20.0, 60.0) };
        let want: Vec<u32> = own.iter().map(|x| limited(x).to_bits()).collect();
        let mut out = vec![-1.0; n];
        let x = own.as_mut_ptr().cast::<u8>();
        for place in [out.as_mut_ptr().cast(), x] {
            let pointers = [place, x, std::ptr::null_mut(), std::ptr::null_mut()];
            let numbers = [(2, Constant::F(20.0)), (3, Constant::F(60.0))];
            // SAFETY: both have n values; they are the same or apart.
            unsafe { execute_dense(&BETWEEN, Compute::F32, &[], n, &pointers, &numbers) };
        }
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!((bits(&out), bits(&own)), (want.clone(), want), "{n} elements");
    }
}
