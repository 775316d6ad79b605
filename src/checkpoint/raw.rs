//! Tensors as bytes of a file, and memory for what a file holds.

use std::borrow::Cow;
use std::path::Path;

use crate::error::{Error, Result, catch};
use crate::tensor::{Dtype, Layout, Tensor};

/// Bytes of a tensor, contiguous, in host memory.
pub(super) struct Bytes {
    tensor: Tensor,
}

impl Bytes {
    /// # Errors
    /// When there is no memory for a copy, or a device fails.
    pub(super) fn new(tensor: &Tensor) -> Result<Self> {
        let contiguous = || crate::autograd::no_grad(|| tensor.detach().cpu().contiguous());
        Ok(Bytes { tensor: catch(contiguous)? })
    }

    /// Those of the tensor's whole storage, of which a last part of an element is left out.
    pub(super) fn of_storage(tensor: &Tensor) -> Result<Self> {
        let layout = Layout::contiguous(&[tensor.storage().nbytes() / tensor.dtype().size()]);
        Self::new(&Tensor::from_parts(tensor.storage().clone(), layout, tensor.dtype()))
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        slice(&self.tensor)
    }
}

/// The bytes of a contiguous tensor in host memory.
fn slice(t: &Tensor) -> &[u8] {
    assert!(t.is_contiguous());
    // SAFETY: contiguous, so `numel * size` bytes from `data_ptr` on are the elements; whoever
    // reads or writes a file does not write to its tensors meanwhile.
    unsafe { std::slice::from_raw_parts(t.data_ptr(), t.numel() * t.dtype().size()) }
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
    let mut tensor = zeros(shape, dtype).map_err(|why| error_of(path, format!("{what}: {why}")))?;
    read(bytes_mut(&mut tensor))?;
    check_bools(path, what, &tensor)?;
    Ok(tensor)
}

/// Zeros, where there is memory for them.
///
/// # Errors
/// [How much is wanted](SCARCE).
pub(super) fn zeros(shape: &[usize], dtype: Dtype) -> Result<Tensor, String> {
    catch(|| Tensor::zeros(shape, dtype.on_host())).map_err(|error| match error {
        Error::Device(message) => {
            let bytes = shape.iter().fold(dtype.size(), |n, &size| n.saturating_mul(size));
            format!("{bytes} {SCARCE} ({message})")
        }
        other => other.to_string(),
    })
}

/// In what is said when memory does not suffice, after the number.
const SCARCE: &str = "bytes of memory are needed and not there";

/// The same where the number is not known.
pub(super) fn scarce() -> String {
    format!("more {SCARCE}")
}

/// The error for a file of which something `what` is wrong, or that memory does not suffice for.
pub(super) fn error_of(path: &Path, what: String) -> Error {
    match what.contains(SCARCE) {
        true => Error::OutOfMemory(format!("{}: {what}", path.display())),
        false => Error::file(path, what),
    }
}

/// Makes sure that there is memory for many small things that together have about so many bytes and
/// cannot be asked for one by one: what a file says, parsed.
///
/// # Errors
/// How much is wanted.
pub(super) fn room_for(bytes: usize) -> Result<(), String> {
    let mut room = Vec::<u8>::new();
    let there = room.try_reserve_exact(bytes);
    // Else the compiler may leave both out.
    std::hint::black_box(&mut room);
    there.map_err(|_| format!("about {bytes} {SCARCE}"))
}

/// [`room_for`] JSON of so many bytes, parsed.
///
/// # Errors
/// How much is wanted.
pub(super) fn room_for_json(bytes: usize) -> Result<(), String> {
    /// Parsed JSON takes at most this of one byte of its text.
    const PARSED: usize = 64;
    room_for(bytes.saturating_mul(PARSED))
}

/// Makes room for more items, where there is memory for them.
///
/// # Errors
/// How much is wanted.
pub(super) fn reserve<T>(list: &mut Vec<T>, more: usize) -> Result<(), String> {
    let wanted = list.len().saturating_add(more).saturating_mul(size_of::<T>());
    list.try_reserve(more).map_err(|_| format!("{wanted} {SCARCE}"))
}

/// `length` zeros, where there is memory for them.
///
/// # Errors
/// How much is wanted.
pub(super) fn buffer(length: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let there = bytes.try_reserve_exact(length);
    there.map_err(|_| format!("{length} {SCARCE}"))?;
    bytes.resize(length, 0);
    Ok(bytes)
}

/// Refuses bools that are neither 0 nor 1, of a contiguous tensor.
pub(super) fn check_bools(path: &Path, what: &str, tensor: &Tensor) -> Result<()> {
    let broken = |b: &u8| *b > 1;
    if tensor.dtype() == Dtype::Bool && slice(tensor).iter().any(broken) {
        return Err(Error::file(
            path,
            format!("{what} is bool but holds bytes other than 0 and 1"),
        ));
    }
    Ok(())
}

/// The number of bytes of so many elements, unless that is more than `limit`.
pub(super) fn size_within(shape: &[usize], dtype: Dtype, limit: u64) -> Option<usize> {
    bytes_within(shape, dtype.size(), limit)
}

/// The number of bytes of so many elements of `size` bytes, unless that is more than `limit`.
pub(super) fn bytes_within(shape: &[usize], size: usize, limit: u64) -> Option<usize> {
    let count = shape.iter().try_fold(size, |n, &size| n.checked_mul(size))?;
    (count as u64 <= limit).then_some(count)
}

/// Reverses the bytes of every number; a complex one is two.
pub(super) fn swap_bytes(bytes: &mut [u8], dtype: Dtype) {
    let size = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
    if size > 1 {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
}

/// A piece of a file's text for a message: short, and printable.
pub(super) fn shown(text: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(&text[..text.len().min(80)]);
    match text.chars().any(char::is_control) {
        true => text.escape_debug().to_string().into(),
        false => text,
    }
}
