//! Numbers of two bytes.

/// The value of an f16's bits.
pub fn from_f16(bits: u16) -> f32 {
    let sign = u32::from(bits & 0x8000) << 16;
    let (exponent, fraction) = (u32::from(bits >> 10 & 31), u32::from(bits & 1023));
    match exponent {
        // A subnormal is a multiple of 2^-24.
        0 => f32::from_bits(sign | (fraction as f32 * f32::from_bits(0x3380_0000)).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | fraction << 13),
        _ => f32::from_bits(sign | (exponent + 112) << 23 | fraction << 13),
    }
}

/// The nearest f16, ties to even.
pub fn to_f16(x: f32) -> u16 {
    let sign = (x.to_bits() >> 16 & 0x8000) as u16;
    let magnitude = x.to_bits() & 0x7fff_ffff;
    sign | match magnitude {
        0x7f80_0001.. => 0x7e00,
        0x477f_f000.. => 0x7c00,
        // The sum with a half leaves the multiple of 2^-24 in its lowest bits.
        ..0x3880_0000 => ((f32::from_bits(magnitude) + 0.5).to_bits() - 0x3f00_0000) as u16,
        _ => ((magnitude + 0xfff + (magnitude >> 13 & 1) - 0x3800_0000) >> 13) as u16,
    }
}

/// The value of a bf16's bits.
pub fn from_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The nearest bf16, ties to even.
pub fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() { 0x7fc0 } else { ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_there_and_back() {
        for bits in 0..=u16::MAX {
            let (x, y) = (from_f16(bits), from_bf16(bits));
            assert!(x.is_nan() || to_f16(x) == bits, "{bits:#x}");
            assert!(y.is_nan() || to_bf16(y) == bits, "{bits:#x}");
        }
        assert_eq!((to_f16(1e6), to_f16(2049.0), to_f16(1e-9)), (0x7c00, to_f16(2048.0), 0));
    }
}
