//! The limits of types (`torch.finfo`, `torch.iinfo`).

use crate::error::{Error, throw};
use crate::tensor::Dtype;

/// Limits of a floating-point type (`torch.finfo`); of a complex one those of its parts.
///
/// ```
/// use torchrs::Dtype;
/// let limits = Dtype::F16.finfo();
/// assert_eq!((limits.max, limits.eps, limits.bits), (65504.0, 0.0009765625, 16));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finfo {
    /// Bits of a number.
    pub bits: usize,
    /// The distance of 1 from the next number above it.
    pub eps: f64,
    /// The largest number.
    pub max: f64,
    /// The lowest number, `-max`.
    pub min: f64,
    /// The smallest positive number with a full mantissa (`smallest_normal`, `tiny`).
    pub smallest_normal: f64,
    /// The decimal step that numbers near 1 are told apart by.
    pub resolution: f64,
}

/// Limits of an integer type (`torch.iinfo`).
///
/// ```
/// use torchrs::Dtype;
/// assert_eq!(Dtype::I8.iinfo().min, -128);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iinfo {
    /// Bits of a number.
    pub bits: usize,
    /// The largest number.
    pub max: i64,
    /// The lowest number.
    pub min: i64,
}

impl Dtype {
    /// The limits of a floating-point type (`torch.finfo`).
    ///
    /// ```
    /// use torchrs::Dtype;
    /// assert_eq!(Dtype::F32.finfo().max, f64::from(f32::MAX));
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for integers and bools.
    #[track_caller]
    pub fn finfo(self) -> Finfo {
        let power = |exponent: i32| 2f64.powi(exponent);
        // Bits of the mantissa, the greatest and the least exponent, decimal digits.
        let (bits, mantissa, greatest, least, digits) = match self.to_real() {
            Dtype::F64 => (64, 52, 1023, -1022, 15),
            Dtype::F32 => (32, 23, 127, -126, 6),
            Dtype::F16 => (16, 10, 15, -14, 3),
            Dtype::BF16 => (16, 7, 127, -126, 2),
            other => {
                throw(Error::dtype("finfo", format!("takes floating-point types, got {other}")))
            }
        };
        let max = (2.0 - power(-mantissa)) * power(greatest);
        Finfo {
            bits,
            eps: power(-mantissa),
            max,
            min: -max,
            smallest_normal: power(least),
            resolution: 10f64.powi(-digits),
        }
    }

    /// The limits of an integer type (`torch.iinfo`).
    ///
    /// ```
    /// use torchrs::Dtype;
    /// assert_eq!((Dtype::U8.iinfo().min, Dtype::U8.iinfo().max), (0, 255));
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for other types, bool among them.
    #[track_caller]
    pub fn iinfo(self) -> Iinfo {
        let (bits, min, max) = match self {
            Dtype::I64 => (64, i64::MIN, i64::MAX),
            Dtype::I32 => (32, i64::from(i32::MIN), i64::from(i32::MAX)),
            Dtype::I16 => (16, i64::from(i16::MIN), i64::from(i16::MAX)),
            Dtype::I8 => (8, i64::from(i8::MIN), i64::from(i8::MAX)),
            Dtype::U8 => (8, 0, i64::from(u8::MAX)),
            other => throw(Error::dtype("iinfo", format!("takes integer types, got {other}"))),
        };
        Iinfo { bits, max, min }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::catch;

    #[test]
    fn limits_are_those_of_the_rust_types() {
        let f64s = Dtype::F64.finfo();
        assert_eq!((f64s.max, f64s.eps), (f64::MAX, f64::EPSILON));
        assert_eq!((f64s.min, f64s.smallest_normal), (f64::MIN, f64::MIN_POSITIVE));
        let (f16s, bf16s) = (Dtype::F16.finfo(), Dtype::BF16.finfo());
        assert_eq!((f16s.max, f16s.eps), (half::f16::MAX.to_f64(), half::f16::EPSILON.to_f64()));
        assert_eq!(
            (bf16s.max, bf16s.eps),
            (half::bf16::MAX.to_f64(), half::bf16::EPSILON.to_f64())
        );
        assert_eq!(bf16s.smallest_normal, half::bf16::MIN_POSITIVE.to_f64());
        assert_eq!(Dtype::C64.finfo(), Dtype::F32.finfo());
        assert!(catch(|| Dtype::I64.finfo()).is_err() && catch(|| Dtype::Bool.iinfo()).is_err());
    }
}
