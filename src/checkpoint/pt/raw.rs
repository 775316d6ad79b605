//! Tensors of dtypes that the library lacks.

use crate::checkpoint::raw::bytes_within;
use crate::error::{Error, Result, catch};
use crate::tensor::{Complex, Tensor};

/// PyTorch's name, NumPy's, and the bytes of an element.
const TYPES: [(&str, &str, usize); 9] = [
    ("uint16", "u2", 2),
    ("uint32", "u4", 4),
    ("uint64", "u8", 8),
    ("float8_e4m3fn", "", 1),
    ("float8_e4m3fnuz", "", 1),
    ("float8_e5m2", "", 1),
    ("float8_e5m2fnuz", "", 1),
    ("float8_e8m0fnu", "", 1),
    ("complex32", "", 4),
];

/// The name of a dtype of which tensors are [raw](PtRaw), and its size.
pub(super) fn raw_dtype(name: &str) -> Option<(&'static str, usize)> {
    TYPES.iter().find(|t| t.0 == name).map(|t| (t.0, t.2))
}

/// The same by NumPy's name.
pub(super) fn raw_array(name: &str) -> Option<(&'static str, usize)> {
    TYPES.iter().find(|t| !t.1.is_empty() && t.1 == name).map(|t| (t.0, t.2))
}

/// A tensor of a dtype that the library lacks, as its bytes: `uint16`, `uint32`, `uint64`, `complex32`,
/// and the kinds of `float8`. [`to_tensor`](Self::to_tensor) converts it, [`save_pt`](super::save_pt)
/// writes it as it was.
///
/// ```
/// use torchrs::checkpoint::PtRaw;
/// let raw = PtRaw { dtype: "uint16".into(), shape: vec![2], bytes: vec![1, 0, 255, 255] };
/// assert_eq!(raw.to_tensor()?.to_vec::<i64>(), [1, 65535]);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtRaw {
    /// PyTorch's name, without `torch.`.
    pub dtype: String,
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// The elements in row-major order, little-endian.
    pub bytes: Vec<u8>,
}

impl PtRaw {
    /// The dtype by its static name, if it is known and `bytes` has the right length.
    ///
    /// # Errors
    /// What is wrong.
    pub(super) fn checked(&self) -> Result<&'static str, String> {
        let known = || TYPES.map(|t| t.0).join(", ");
        let (name, size) = raw_dtype(&self.dtype)
            .ok_or_else(|| format!("dtype `{}`; known are {}", self.dtype, known()))?;
        let (found, shape) = (self.bytes.len(), &self.shape);
        match bytes_within(shape, size, u64::MAX) == Some(found) {
            true => Ok(name),
            false => Err(format!("{found} bytes for shape {shape:?} of {name}")),
        }
    }

    /// A tensor of equal numbers: i32 of `uint16`, i64 of `uint32` and `uint64`, f32 of floats, c64 of
    /// `complex32`.
    ///
    /// ```
    /// use torchrs::{Dtype, checkpoint::PtRaw};
    /// let raw = PtRaw { dtype: "float8_e4m3fn".into(), shape: vec![2], bytes: vec![0x38, 0xfe] };
    /// assert_eq!(raw.to_tensor()?.to_vec::<f32>(), [1.0, -448.0]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a `uint64` of more than `i64::MAX`, an unknown dtype, or bytes that do not fit
    /// the shape.
    pub fn to_tensor(&self) -> Result<Tensor> {
        let wrong = |what: String| Error::argument("PtRaw::to_tensor", "self", what);
        let name = self.checked().map_err(wrong)?;
        let shape = &self.shape[..];
        let float = |bits: fn(u8) -> f32| {
            let numbers: Vec<f32> = self.bytes.iter().map(|&b| bits(b)).collect();
            catch(|| Tensor::from_slice(&numbers, shape))
        };
        match name {
            "uint16" => {
                let numbers: Vec<i32> =
                    self.numbers().map(|b| u16::from_le_bytes(b).into()).collect();
                catch(|| Tensor::from_slice(&numbers, shape))
            }
            "uint32" => {
                let numbers: Vec<i64> =
                    self.numbers().map(|b| u32::from_le_bytes(b).into()).collect();
                catch(|| Tensor::from_slice(&numbers, shape))
            }
            "uint64" => {
                let number = |b| {
                    let n = u64::from_le_bytes(b);
                    i64::try_from(n).map_err(|_| wrong(format!("holds {n}, which no i64 is")))
                };
                let numbers: Vec<i64> = self.numbers().map(number).collect::<Result<_>>()?;
                catch(|| Tensor::from_slice(&numbers, shape))
            }
            "float8_e4m3fn" => float(|b| match b & 0x7F {
                0x7F => f32::NAN,
                _ => small(b, 3, 7),
            }),
            "float8_e5m2" => float(|b| match b & 0x7F {
                0x7C => f32::INFINITY.copysign(small(b, 2, 15)),
                0x7D.. => f32::NAN,
                _ => small(b, 2, 15),
            }),
            "float8_e4m3fnuz" => float(|b| if b == 0x80 { f32::NAN } else { small(b, 3, 8) }),
            "float8_e5m2fnuz" => float(|b| if b == 0x80 { f32::NAN } else { small(b, 2, 16) }),
            "float8_e8m0fnu" => float(|b| match b {
                0xFF => f32::NAN,
                _ => 2f64.powi(i32::from(b) - 127) as f32,
            }),
            _ => {
                let half = |b: &[u8]| half::f16::from_le_bytes([b[0], b[1]]).to_f32();
                let number = |b: [u8; 4]| Complex::new(half(&b[..2]), half(&b[2..]));
                let numbers: Vec<Complex<f32>> = self.numbers().map(number).collect();
                catch(|| Tensor::from_slice(&numbers, shape))
            }
        }
    }

    fn numbers<const N: usize>(&self) -> impl Iterator<Item = [u8; N]> {
        self.bytes.chunks_exact(N).map(|b| b.try_into().expect("as many"))
    }
}

/// A float of eight bits with `fraction` bits of fraction.
fn small(bits: u8, fraction: u32, bias: i32) -> f32 {
    let magnitude = i32::from(bits & 0x7F);
    let (exponent, rest) = (magnitude >> fraction, magnitude & ((1 << fraction) - 1));
    let one = 1 << fraction;
    let (digits, exponent) = if exponent == 0 { (rest, 1) } else { (rest + one, exponent) };
    let value = f64::from(digits) * 2f64.powi(exponent - bias - fraction as i32);
    (if bits & 0x80 != 0 { -value } else { value }) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(dtype: &str) -> Vec<f32> {
        let raw = PtRaw { dtype: dtype.into(), shape: vec![256], bytes: (0..=255).collect() };
        raw.to_tensor().unwrap().to_vec()
    }

    /// The limits that the formats' definitions state (OCP 8-bit floating point; FNUZ).
    #[test]
    fn floats_of_eight_bits_have_their_limits() {
        let finite = |v: &[f32]| v.iter().copied().filter(|v| v.is_finite()).fold(0f32, f32::max);
        let least = |v: &[f32]| v.iter().copied().filter(|v| *v > 0.0).fold(f32::MAX, f32::min);
        for (dtype, most, smallest, nans) in [
            ("float8_e4m3fn", 448.0, 2f32.powi(-9), 2),
            ("float8_e5m2", 57344.0, 2f32.powi(-16), 6),
            ("float8_e4m3fnuz", 240.0, 2f32.powi(-10), 1),
            ("float8_e5m2fnuz", 57344.0, 2f32.powi(-17), 1),
            ("float8_e8m0fnu", 2f32.powi(127), 2f32.powi(-127), 1),
        ] {
            let all = values(dtype);
            assert_eq!((finite(&all), least(&all)), (most, smallest), "{dtype}");
            assert_eq!(all.iter().filter(|v| v.is_nan()).count(), nans, "{dtype}");
        }
        assert_eq!(values("float8_e5m2")[0xFC], f32::NEG_INFINITY);
        assert_eq!(values("float8_e4m3fn")[0xB8], -1.0);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let raw = |dtype: &str, n: usize, bytes: Vec<u8>| {
            PtRaw { dtype: dtype.into(), shape: vec![n], bytes }.to_tensor()
        };
        assert!(raw("uint64", 1, vec![255; 8]).unwrap_err().to_string().contains("no i64"));
        assert!(raw("uint64", 1, vec![0; 7]).unwrap_err().to_string().contains("7 bytes"));
        assert!(raw("float7", 1, vec![0]).unwrap_err().to_string().contains("float8_e5m2"));
    }
}
