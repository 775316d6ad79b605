//! Tensors as bytes of a file.

use std::borrow::Cow;
use std::path::Path;

use crate::error::{Error, Result};
use crate::{Dtype, Tensor};

/// Bytes of a tensor, contiguous, in host memory.
pub(super) struct Bytes {
    tensor: Tensor,
}

impl Bytes {
    pub(super) fn new(tensor: &Tensor) -> Self {
        Bytes { tensor: crate::no_grad(|| tensor.detach().cpu().contiguous()) }
    }

    pub(super) fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        let t = &self.tensor;
        // SAFETY: contiguous, so `numel * size` bytes from `data_ptr` on are the elements; whoever
        // writes a file does not write to its tensors meanwhile.
        unsafe { std::slice::from_raw_parts(t.data_ptr(), t.numel() * t.dtype().size()) }
    }
}

/// The bytes of a contiguous tensor that nobody else has yet, to be filled.
pub(super) fn bytes_mut(tensor: &mut Tensor) -> &mut [u8] {
    assert!(tensor.is_contiguous() && tensor.storage().is_unique());
    let len = tensor.numel() * tensor.dtype().size();
    // SAFETY: contiguous and made by `zeros`, so these are initialised bytes of this tensor; its
    // storage has no other owner, and the borrow keeps new ones from being made.
    unsafe { std::slice::from_raw_parts_mut(tensor.data_ptr(), len) }
}

/// A new tensor whose bytes `read` writes. The caller has made sure that the size is plausible.
pub(super) fn read_tensor(
    path: &Path,
    what: &str,
    shape: &[usize],
    dtype: Dtype,
    read: impl FnOnce(&mut [u8]) -> Result<()>,
) -> Result<Tensor> {
    let mut tensor = Tensor::zeros(shape, dtype);
    read(bytes_mut(&mut tensor))?;
    check_bools(path, what, &Bytes::new(&tensor))?;
    Ok(tensor)
}

/// Refuses bools that are neither 0 nor 1.
pub(super) fn check_bools(path: &Path, what: &str, bytes: &Bytes) -> Result<()> {
    let broken = |b: &u8| *b > 1;
    if bytes.tensor.dtype() == Dtype::Bool && bytes.as_slice().iter().any(broken) {
        return Err(Error::file(
            path,
            format!("{what} is bool but holds bytes other than 0 and 1"),
        ));
    }
    Ok(())
}

/// The number of bytes of so many elements, unless that is more than `limit`.
pub(super) fn size_within(shape: &[usize], dtype: Dtype, limit: u64) -> Option<usize> {
    let count = shape.iter().try_fold(dtype.size(), |n, &size| n.checked_mul(size))?;
    (count as u64 <= limit).then_some(count)
}

/// Reverses the bytes of every number; a complex one is two.
pub(super) fn swap_bytes(bytes: &mut [u8], dtype: Dtype) {
    let size = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
    if size > 1 {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
}

/// A CRC-32.
pub(super) fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// A piece of a file's text for a message: short, and printable.
pub(super) fn shown(text: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(&text[..text.len().min(80)]);
    match text.chars().any(char::is_control) {
        true => text.escape_debug().to_string().into(),
        false => text,
    }
}
