//! NumPy's scalars and arrays as a pickle describes them: a dtype, a shape and bytes.

use super::raw::{PtRaw, raw_array};
use super::value::PtValue;
use crate::checkpoint::{
    npy::dtype_named, raw::bytes_mut, raw::bytes_within, raw::swap_bytes, raw::zeros,
};
use crate::tensor::{Complex, Dtype, Tensor};

/// What `numpy.dtype` was called with, and the byte order it was given then.
#[derive(Clone, Debug)]
pub(super) struct ArrayType {
    /// Such as `f8`, `U5`.
    pub(super) name: String,
    pub(super) big_endian: bool,
    /// With fields or parts; its name alone does not say what it is.
    pub(super) compound: bool,
}

/// What an array or scalar is here.
pub(super) enum Array {
    Tensor(Tensor),
    Raw(PtRaw),
}

impl ArrayType {
    /// The array of that shape, if its elements are numbers.
    ///
    /// # Errors
    /// When the bytes are not as many as the shape says.
    pub(super) fn array(
        &self,
        shape: &[usize],
        fortran_order: bool,
        bytes: &[u8],
    ) -> Result<Option<Array>, String> {
        if self.compound {
            return Ok(None);
        }
        let fits = |size| match bytes_within(shape, size, u64::MAX) == Some(bytes.len()) {
            true => Ok(()),
            false => Err(format!(
                "has an array of shape {shape:?} of `{}` with {} bytes",
                self.name,
                bytes.len()
            )),
        };
        if let Some(dtype) = dtype_named(&self.name) {
            fits(dtype.size())?;
            let stored: Vec<usize> = match fortran_order {
                true => shape.iter().rev().copied().collect(),
                false => shape.to_vec(),
            };
            let mut tensor = zeros(&stored, dtype)?;
            let own = bytes_mut(&mut tensor);
            own.copy_from_slice(bytes);
            if self.big_endian {
                swap_bytes(own, dtype);
            }
            if dtype == Dtype::Bool && bytes.iter().any(|b| *b > 1) {
                return Err("has an array of bool with bytes other than 0 and 1".into());
            }
            let turned: Vec<i64> = (0..stored.len() as i64).rev().collect();
            let tensor = if fortran_order { tensor.permute(&turned).detach() } else { tensor };
            return Ok(Some(Array::Tensor(tensor)));
        }
        let Some((dtype, size)) = raw_array(&self.name) else { return Ok(None) };
        // Raw elements are in the order of rows; others stay an object.
        if fortran_order && shape.len() > 1 {
            return Ok(None);
        }
        fits(size)?;
        let mut bytes = bytes.to_vec();
        if self.big_endian {
            bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        Ok(Some(Array::Raw(PtRaw { dtype: dtype.to_owned(), shape: shape.to_vec(), bytes })))
    }

    /// The plain value of a scalar, if it has one.
    ///
    /// # Errors
    /// When the bytes are not as many as its type has.
    pub(super) fn scalar(&self, bytes: &[u8]) -> Result<Option<PtValue>, String> {
        if let (Some(("U", length)), false) = (self.name.split_at_checked(1), self.compound) {
            return self.text(length, bytes).map(|text| text.map(PtValue::Str));
        }
        if let (Some(("S", _)), false) = (self.name.split_at_checked(1), self.compound) {
            return Ok(Some(PtValue::Bytes(bytes.to_vec())));
        }
        Ok(match self.array(&[], false, bytes)? {
            None => None,
            Some(Array::Raw(raw)) => Some(match i64::from_str_radix(&hex(&raw.bytes), 16) {
                Ok(n) => PtValue::Int(n),
                Err(_) => PtValue::Raw(Box::new(raw)),
            }),
            Some(Array::Tensor(t)) => Some(match t.dtype() {
                Dtype::Bool => PtValue::Bool(t.item_i64() != 0),
                Dtype::C64 | Dtype::C128 => {
                    let z: Complex<f64> = t.item_complex();
                    PtValue::Complex(z)
                }
                d if d.is_floating_point() => PtValue::Float(t.item()),
                _ => PtValue::Int(t.item_i64()),
            }),
        })
    }

    /// Characters of four bytes, filled up with zeros.
    fn text(&self, length: &str, bytes: &[u8]) -> Result<Option<String>, String> {
        let wrong = || format!("has a text of {length} characters with {} bytes", bytes.len());
        if length.parse().ok().and_then(|n: usize| n.checked_mul(4)) != Some(bytes.len()) {
            return Err(wrong());
        }
        let character = |b: &[u8]| {
            let b: [u8; 4] = b.try_into().expect("four bytes");
            let code = if self.big_endian { u32::from_be_bytes(b) } else { u32::from_le_bytes(b) };
            char::from_u32(code).ok_or_else(wrong)
        };
        let text: String = bytes.chunks_exact(4).map(character).collect::<Result<_, _>>()?;
        Ok(Some(text.trim_end_matches('\0').to_owned()))
    }
}

/// The digits of a little-endian number.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().rev().map(|b| format!("{b:02x}")).collect()
}
