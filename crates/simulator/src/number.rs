//! Numbers of device memory that libraries compute with.

use crate::code::{Code, Result};
use crate::half::{from_bf16, from_f16, to_bf16, to_f16};
use crate::memory::device_range;

/// A type of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    /// Eight bytes.
    F64,
    /// Four bytes.
    F32,
    /// Two bytes, ten bits after the point.
    F16,
    /// Two bytes, seven bits after the point.
    BF16,
}

impl Number {
    /// Bytes of a number.
    pub fn bytes(self) -> usize {
        match self {
            Number::F64 => 8,
            Number::F32 => 4,
            Number::F16 | Number::BF16 => 2,
        }
    }

    /// Whether so many bytes are of one block of device memory.
    pub fn check(address: usize, bytes: usize) -> Result {
        device_range(address, bytes).map(|_| ()).map_err(|_| Code::ILLEGAL_ADDRESS)
    }

    /// The number at an address that was checked.
    pub fn read(self, at: usize) -> f64 {
        // SAFETY: within a block of device memory, which is the host's.
        unsafe {
            match self {
                Number::F64 => (at as *const f64).read_unaligned(),
                Number::F32 => (at as *const f32).read_unaligned().into(),
                Number::F16 => from_f16((at as *const u16).read_unaligned()).into(),
                Number::BF16 => from_bf16((at as *const u16).read_unaligned()).into(),
            }
        }
    }

    /// The number of this type that is nearest to x.
    pub fn rounded(self, x: f64) -> f64 {
        match self {
            Number::F64 => x,
            Number::F32 => (x as f32).into(),
            Number::F16 => from_f16(to_f16(x as f32)).into(),
            Number::BF16 => from_bf16(to_bf16(x as f32)).into(),
        }
    }

    /// Stores a number at an address that was checked.
    pub fn store(self, at: usize, x: f64) {
        // SAFETY: within a block of device memory, which is the host's.
        unsafe {
            match self {
                Number::F64 => (at as *mut f64).write_unaligned(x),
                Number::F32 => (at as *mut f32).write_unaligned(x as f32),
                Number::F16 => (at as *mut u16).write_unaligned(to_f16(x as f32)),
                Number::BF16 => (at as *mut u16).write_unaligned(to_bf16(x as f32)),
            }
        }
    }
}

/// What tensor cores make of an f32: ten bits after the point, ties away from zero. As with NVIDIA's libraries,
/// `NVIDIA_TF32_OVERRIDE=0` forbids it.
pub fn tf32(x: f64) -> f64 {
    let x = x as f32;
    if !x.is_finite() {
        return x.into();
    }
    f32::from_bits((x.to_bits() + 0x1000) & !0x1fff).into()
}

/// Whether f32 may be rounded to tf32.
pub fn is_tf32_allowed() -> bool {
    std::env::var_os("NVIDIA_TF32_OVERRIDE").is_none_or(|value| value != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensor_cores_keep_ten_bits() {
        assert_eq!(tf32(1.0 + 1.0 / 1024.0), 1.0 + 1.0 / 1024.0);
        assert_eq!(tf32(1.0 + 1.0 / 2048.0), 1.0 + 1.0 / 1024.0);
        assert_eq!(tf32(-(1.0 + 1.0 / 4096.0)), -1.0);
        assert_eq!(tf32(f64::INFINITY), f64::INFINITY);
    }
}
