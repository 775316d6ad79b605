//! Runs of halves equal the numbers one by one.

use half::f16;
use torchrs_cpu::numbers::halves::{narrow_bf16, narrow_f16};
use torchrs_cpu::numbers::widen::{Widen, widen_f16};

/// All exponents, roundings and NaN, in an order in which neighbours differ.
fn numbers() -> Vec<f32> {
    let steps = (0..=u32::MAX).step_by(9973).chain((0x3300_0000..0x3900_0000).step_by(331));
    let ties = (0..=u16::MAX)
        .flat_map(|high| [0x7fff, 0x8000, 0x8001, 0xffff].map(|low| u32::from(high) << 16 | low));
    steps.chain(ties).map(f32::from_bits).collect()
}

fn equal<T: Widen<Wide = f32> + Copy + Default + PartialEq>(
    run: unsafe fn(*const f32, *mut T, usize) -> usize,
) {
    let numbers = numbers();
    let mut got = vec![T::default(); numbers.len()];
    // SAFETY: as many on both sides; the callers looked at the processor.
    let done = unsafe { run(numbers.as_ptr(), got.as_mut_ptr(), numbers.len()) };
    assert!(done + 16 > numbers.len());
    for (x, got) in numbers.iter().zip(&got[..done]) {
        let want = T::narrow(*x);
        assert!(*got == want || x.is_nan() && got.widen().is_nan(), "{x} {:#x}", x.to_bits());
    }
}

#[test]
fn runs_equal_the_numbers_one_by_one() {
    if is_x86_feature_detected!("avx2") {
        equal(narrow_bf16);
    }
    if is_x86_feature_detected!("f16c") {
        equal(narrow_f16);
        let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
        let mut got = vec![0.0; halves.len()];
        // SAFETY: F16C is there, as just asked; as many numbers are on both sides.
        let done = unsafe { widen_f16(halves.as_ptr(), got.as_mut_ptr(), halves.len()) };
        assert_eq!(done, halves.len());
        for (half, got) in halves.iter().zip(got) {
            let want = half.widen();
            assert!(got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan());
        }
    }
}
