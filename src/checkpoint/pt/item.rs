//! Items of PyTorch's distributed checkpoints: archives of `torch.save` one after the other in a file, each with one
//! tensor or one value.

use std::io::Write;
use std::path::Path;

use super::pickle::Pickle;
use super::storages::storage_dtype;
use super::value::PtValue;
use super::zipped::{self, Zipped};
use crate::checkpoint::archive::{Archive, Part};
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

/// Where an item's tensor is.
#[derive(Debug)]
pub(in crate::checkpoint) enum Found {
    /// In the file from a byte on, in row-major order, with a CRC-32 of its bytes if the archive has one.
    At(u64, Option<u32>),
    /// Read: it lies otherwise in the file.
    Read(Tensor),
}

/// What rebuilds a tensor.
struct Outline<'a> {
    dtype: Dtype,
    key: &'a str,
    offset: i64,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

/// Finds the tensor of an item.
///
/// # Errors
/// [`Error::File`] for an item that is damaged, or holds something else than a tensor of this dtype and shape.
pub(in crate::checkpoint) fn tensor(
    path: &Path,
    part: Part,
    dtype: Dtype,
    shape: &[usize],
) -> Result<Found> {
    let at = part.start;
    let item = Zipped::new(Archive::within(path, part)?)?;
    let fits = |found: Dtype, sizes: &[usize]| match (found, sizes) == (dtype, shape) {
        true => Ok(()),
        false => Err(Error::file(
            path,
            format!(
                "the item at byte {at} has a tensor {found} {sizes:?}; {dtype} {shape:?} was to be there"
            ),
        )),
    };
    let outline = item.outline()?;
    if let Some(outline) = outlined(&outline) {
        fits(outline.dtype, &outline.shape)?;
        let nbytes = shape.iter().product::<usize>() * dtype.size();
        if outline.offset == 0
            && is_row_major(&outline.shape, &outline.strides)
            && let Some((start, crc32)) = item.stored(outline.key, nbytes)?
        {
            return Ok(Found::At(start, crc32));
        }
    }
    match item.value()? {
        PtValue::Tensor(tensor) => {
            fits(tensor.dtype(), tensor.shape())?;
            Ok(Found::Read(tensor))
        }
        other => {
            let what =
                format!("the item at byte {at} is {}; a tensor was to be there", other.kind());
            Err(Error::file(path, what))
        }
    }
}

/// The value of an item.
///
/// # Errors
/// [`Error::File`] for one that is damaged.
pub(in crate::checkpoint) fn value(path: &Path, part: Part) -> Result<PtValue> {
    Zipped::new(Archive::within(path, part)?)?.value()
}

/// Writes a tensor or value as an item. `path` is only named in errors.
///
/// # Errors
/// As [`save_pt`](super::save_pt).
pub(in crate::checkpoint) fn write(value: &PtValue, path: &Path, out: impl Write) -> Result<()> {
    zipped::write(&Pickle::of(value)?, path, out)
}

/// What is said of a plain tensor; nothing of one that is more than a view of a storage.
fn outlined(value: &PtValue) -> Option<Outline<'_>> {
    let PtValue::Object(object) = value else { return None };
    let arguments = &object.arguments[..];
    match (object.class.as_str(), arguments) {
        ("torch._utils._rebuild_parameter", [inner, ..]) => outlined(inner),
        (
            "torch._utils._rebuild_tensor_v2",
            [storage, PtValue::Int(offset), shape, strides, _, PtValue::Dict(_)],
        ) => {
            let PtValue::Object(storage) = storage else { return None };
            let [PtValue::Object(class), PtValue::Str(key), ..] = &storage.arguments[..] else {
                return None;
            };
            let [PtValue::Str(class)] = &class.arguments[..] else { return None };
            let dtype = storage_dtype(class.strip_prefix("torch.")?)?;
            let (shape, strides) = (sizes(shape)?, sizes(strides)?);
            Some(Outline { dtype, key, offset: *offset, shape, strides })
        }
        _ => None,
    }
}

fn sizes(value: &PtValue) -> Option<Vec<usize>> {
    let (PtValue::Tuple(items) | PtValue::List(items)) = value else { return None };
    let size = |item: &PtValue| match item {
        PtValue::Int(n) => usize::try_from(*n).ok(),
        _ => None,
    };
    items.iter().map(size).collect()
}

fn is_row_major(shape: &[usize], strides: &[usize]) -> bool {
    let mut step = 1usize;
    let mut steps = shape.iter().zip(strides).rev();
    shape.len() == strides.len()
        && (shape.contains(&0)
            || steps.all(|(&size, &stride)| {
                let is_next = size == 1 || stride == step;
                step = step.saturating_mul(size);
                is_next
            }))
}

#[cfg(test)]
mod tests {
    use super::is_row_major;

    #[test]
    fn strides_of_sizes_of_one_do_not_matter() {
        assert!(is_row_major(&[2, 1, 3], &[3, 7, 1]) && is_row_major(&[], &[]));
        assert!(is_row_major(&[0, 3], &[9, 9]));
        assert!(!is_row_major(&[2, 3], &[1, 2]) && !is_row_major(&[2, 3], &[0, 1]));
        assert!(!is_row_major(&[2, 3], &[1]));
    }
}
