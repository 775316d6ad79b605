//! Floating-point types of 8 and 16 bits, by way of f32.

/// A format: bits of the exponent and of the mantissa, and how it ends.
#[derive(Clone, Copy)]
pub struct Format {
    /// Bits of the exponent.
    pub exponent: u32,
    /// Bits of the mantissa.
    pub mantissa: u32,
    /// The bits of infinity; a format without one has its only NaN there.
    pub end: u32,
    /// Whether what is too large becomes the largest number rather than infinity.
    pub saturates: bool,
}

/// IEEE's half precision.
pub const F16: Format = Format { exponent: 5, mantissa: 10, end: 0x7c00, saturates: false };
/// The upper half of an f32.
pub const BF16: Format = Format { exponent: 8, mantissa: 7, end: 0x7f80, saturates: false };
/// Four bits of exponent, three of mantissa, no infinity.
pub const E4M3: Format = Format { exponent: 4, mantissa: 3, end: 0x7f, saturates: true };
/// Five bits of exponent, two of mantissa.
pub const E5M2: Format = Format { exponent: 5, mantissa: 2, end: 0x7c, saturates: true };

impl Format {
    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    fn sign(self) -> u32 {
        1 << (self.exponent + self.mantissa)
    }

    /// The number that bits stand for.
    pub fn decode(self, bits: u32) -> f32 {
        let magnitude = bits & (self.sign() - 1);
        let sign = if bits & self.sign() != 0 { -1.0 } else { 1.0 };
        if magnitude >= self.end {
            let infinite = magnitude == self.end && self.end & ((1 << self.mantissa) - 1) == 0;
            return if infinite { sign * f32::INFINITY } else { f32::NAN };
        }
        let fraction = magnitude & ((1 << self.mantissa) - 1);
        let exponent = (magnitude >> self.mantissa) as i32;
        let (whole, exponent) = match exponent {
            0 => (fraction, 1),
            _ => (fraction | 1 << self.mantissa, exponent),
        };
        let scale = 2f64.powi(exponent - self.bias() - self.mantissa as i32);
        sign * (f64::from(whole) * scale) as f32
    }

    /// The nearest number's bits; of two that are as near, the even one's.
    pub fn encode(self, value: f32) -> u32 {
        let sign = if value.is_sign_negative() { self.sign() } else { 0 };
        if value.is_nan() {
            let quiet = 1 << (self.mantissa - 1);
            return sign | self.end | quiet;
        }
        let magnitude = f64::from(value.abs());
        let largest = if self.saturates { self.end - 1 } else { self.end };
        if magnitude.is_infinite() {
            return sign | largest;
        }
        let exponent = match magnitude {
            0.0 => return sign,
            _ => ((magnitude.to_bits() >> 52) as i32 - 1023).max(1 - self.bias()),
        };
        let steps = (magnitude * 2f64.powi(self.mantissa as i32 - exponent)).round_ties_even();
        let bits = (((exponent + self.bias() - 1) as i64) << self.mantissa) + steps as i64;
        sign | (bits as u32).min(largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_comes_back() {
        for format in [F16, BF16, E4M3, E5M2] {
            for bits in 0..format.end {
                for bits in [bits, bits | format.sign()] {
                    assert_eq!(format.encode(format.decode(bits)), bits);
                }
            }
            assert!(format.decode(format.encode(f32::NAN)).is_nan());
        }
    }

    #[test]
    fn numbers_between_are_rounded() {
        assert_eq!(F16.decode(F16.encode(0.1)), 0.099_975_586);
        assert_eq!(BF16.decode(BF16.encode(1.003)), 1.0);
        assert_eq!(BF16.encode(3.4e38), 0x7f80);
        assert_eq!(E4M3.decode(E4M3.encode(1000.0)), 448.0);
        assert_eq!(F16.decode(F16.encode(1e6)), f32::INFINITY);
    }
}
