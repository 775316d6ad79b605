//! Halves against those of the `half` crate.

use half::{bf16, f16};
use torchrs_cpu::numbers::widen::Widen;

#[test]
fn every_half_is_widened_as_by_the_half_crate() {
    for bits in 0..=u16::MAX {
        let (h, b) = (f16::from_bits(bits), bf16::from_bits(bits));
        let same =
            |got: f32, want: f32| got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
        assert!(same(h.widen(), h.to_f32()), "f16 {bits:#x}");
        assert!(same(b.widen(), b.to_f32()), "bf16 {bits:#x}");
        assert!(f16::narrow(h.widen()) == h || h.is_nan());
        assert!(bf16::narrow(b.widen()) == b || b.is_nan());
    }
}

#[test]
fn f32_is_narrowed_as_by_the_half_crate() {
    // A step that is not a power of two walks through all exponents and roundings; a finer one through
    // the subnormal halves.
    for bits in (0..=u32::MAX).step_by(977).chain((0x3300_0000..0x3900_0000).step_by(13)) {
        let x = f32::from_bits(bits);
        if x.is_nan() {
            assert!(f16::narrow(x).is_nan() && bf16::narrow(x).is_nan());
            continue;
        }
        assert_eq!(f16::narrow(x).to_bits(), f16::from_f32(x).to_bits(), "{x}");
        assert_eq!(bf16::narrow(x).to_bits(), bf16::from_f32(x).to_bits(), "{x}");
    }
}
