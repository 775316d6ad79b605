//! Safetensors files as memory: tensors that are the file's own pages.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

use super::TensorMap;
use super::raw::{bytes_mut, check_bools, error_of, zeros};
use super::safetensors::{known_dtype, read_header};
use crate::error::{Context, Result};
use crate::storage::Storage;
use crate::tensor::{Layout, Tensor};

/// The tensors of a safetensors file without reading it: they are the file's pages, which the system
/// loads when they are first used and shares with other processes that map the file
/// (`torch.load(mmap=True)`). Starting from a large file takes no time and no memory for what is not used.
///
/// The mapping is private: in-place changes stay in this process and never reach the file. Another
/// program must not cut the file off while a tensor of it lives: the next use of a page that is gone
/// would end this process (SIGBUS). [`load_file`](super::load_file) has no such condition. Checksums are
/// not compared, because that would read everything; the header is checked as there.
///
/// ```
/// use torchrs::checkpoint::{TensorMap, load_file_mapped, save_file};
/// use torchrs::{Tensor, no_grad};
/// # fn main() -> torchrs::Result<()> {
/// let folder = tempfile::tempdir().expect("a folder");
/// let path = folder.path().join("model.safetensors");
/// let tensors = TensorMap::from([("weight".to_owned(), Tensor::from([1f32, 2.0]))]);
/// save_file(&tensors, &Default::default(), &path)?;
/// let mapped = load_file_mapped(&path)?;
/// no_grad(|| _ = mapped["weight"].mul_(10.0));
/// assert_eq!(mapped["weight"].to_vec::<f32>(), [10.0, 20.0]);
/// assert_eq!(load_file_mapped(&path)?["weight"].to_vec::<f32>(), [1.0, 2.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::File`](crate::Error::File) for a file that is cut off or has another header than it may have,
/// [`Error::Os`](crate::Error::Os) when it cannot be opened or mapped,
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory) for a tensor that lies unaligned in the file and has
/// to be copied, and for a header, that memory does not suffice for.
pub fn load_file_mapped(path: impl AsRef<Path>) -> Result<TensorMap> {
    let path = path.as_ref();
    let file = File::open(path).context(|| format!("open {}", path.display()))?;
    let length = file.metadata().context(|| format!("open {}", path.display()))?.len();
    let (start, header) = read_header(path, &file, length)?;
    // SAFETY: a private mapping. What other programs do to the file meanwhile is this function's
    // documented condition; no reference into the mapping is made, tensors are read by raw pointers.
    let map = unsafe { MmapOptions::new().len(length as usize).map_copy(&file) }
        .context(|| format!("map {}", path.display()))?;
    let map = Arc::new(MmapRaw::from(map));
    let mut tensors = TensorMap::new();
    for name in header.offset_keys() {
        let info = header.info(&name).expect("one of its own names");
        let dtype = known_dtype(path, &name, info.dtype)?;
        let (from, to) = info.data_offsets;
        let storage = Storage::of_file(&map, start as usize + from, to - from);
        let aligned = storage.as_ptr().addr().is_multiple_of(dtype.size());
        let layout = Layout::contiguous(&info.shape);
        let what = format!("tensor `{name}`");
        let tensor = if aligned {
            Tensor::from_parts(storage, layout, dtype)
        } else {
            let mut own = zeros(&info.shape, dtype)
                .map_err(|why| error_of(path, format!("{what}: {why}")))?;
            let bytes = bytes_mut(&mut own);
            // SAFETY: `to - from` bytes of the mapping, which is what a tensor of this shape has, as the
            // header's check made sure; `own` is new.
            unsafe { bytes.as_mut_ptr().copy_from_nonoverlapping(storage.as_ptr(), bytes.len()) };
            own
        };
        check_bools(path, &what, &tensor)?;
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}
