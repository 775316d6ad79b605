//! Tensors in a safetensors file. Our files also hold a CRC-32 per tensor (in `__metadata__`, key
//! `crc32`, a JSON object), over dtype, shape and bytes; files without one are loaded unchecked.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::Write;
use std::path::Path;

use ::safetensors::tensor::{Dtype as FileDtype, SafeTensors, View};

use super::TensorMap;
use crate::error::{Context, Error, Result};
use crate::{Dtype, Tensor};

const CHECKSUMS: &str = "crc32";

/// `None` for c128, which the format lacks.
fn file_dtype(dtype: Dtype) -> Option<FileDtype> {
    Some(match dtype {
        Dtype::F64 => FileDtype::F64,
        Dtype::F32 => FileDtype::F32,
        Dtype::F16 => FileDtype::F16,
        Dtype::BF16 => FileDtype::BF16,
        Dtype::I64 => FileDtype::I64,
        Dtype::I32 => FileDtype::I32,
        Dtype::I16 => FileDtype::I16,
        Dtype::I8 => FileDtype::I8,
        Dtype::U8 => FileDtype::U8,
        Dtype::Bool => FileDtype::BOOL,
        Dtype::C64 => FileDtype::C64,
        Dtype::C128 => return None,
    })
}

/// A contiguous tensor as the writer wants it.
struct Bytes {
    tensor: Tensor,
    dtype: FileDtype,
}

impl Bytes {
    fn new(path: &Path, name: &str, tensor: &Tensor) -> Result<Self> {
        let Some(dtype) = file_dtype(tensor.dtype()) else {
            let dtype = tensor.dtype();
            let why = format!(
                "tensor `{name}` is {dtype}, which safetensors lacks; save its `view_as_real`"
            );
            return Err(Error::file(path, why));
        };
        let tensor = crate::no_grad(|| tensor.detach().contiguous());
        Ok(Bytes { dtype, tensor })
    }

    fn as_slice(&self) -> &[u8] {
        let t = &self.tensor;
        // SAFETY: contiguous, so `numel * size` bytes from `data_ptr` on are the elements; the
        // caller of `save_file` does not write to them meanwhile.
        unsafe { std::slice::from_raw_parts(t.data_ptr(), t.numel() * t.dtype().size()) }
    }
}

impl View for &Bytes {
    fn dtype(&self) -> FileDtype {
        self.dtype
    }
    fn shape(&self) -> &[usize] {
        self.tensor.shape()
    }
    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_slice())
    }
    fn data_len(&self) -> usize {
        self.as_slice().len()
    }
}

fn checksum(dtype: FileDtype, shape: &[usize], bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(format!("{dtype:?} {shape:?}").as_bytes());
    crc.update(bytes);
    crc.sum()
}

/// Writes tensors to a safetensors file and syncs it to disk. `metadata` goes into the header.
///
/// # Errors
/// [`Error::Os`] when the file cannot be written, [`Error::File`] for a c128 tensor: the format has no
/// such type.
pub fn save_file(
    tensors: &TensorMap,
    metadata: &BTreeMap<String, String>,
    path: impl AsRef<Path>,
) -> Result<()> {
    let path = path.as_ref();
    let view = |(name, t): (&'_ String, &'_ Tensor)| Ok((name.clone(), Bytes::new(path, name, t)?));
    let views: BTreeMap<String, Bytes> = tensors.iter().map(view).collect::<Result<_>>()?;
    let sums: BTreeMap<&str, u32> = views
        .iter()
        .map(|(name, b)| (name.as_str(), checksum(b.dtype, b.tensor.shape(), b.as_slice())))
        .collect();
    let mut header: HashMap<String, String> =
        metadata.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    header.insert(CHECKSUMS.into(), serde_json::to_string(&sums).expect("a map of numbers"));
    let failed = |e: ::safetensors::SafeTensorError| match e {
        ::safetensors::SafeTensorError::IoError(e) => {
            Error::os(format!("write {}", path.display()), e)
        }
        e => Error::file(path, format!("cannot be written: {e}")),
    };
    ::safetensors::serialize_to_file(views.iter(), Some(header), path).map_err(failed)?;
    sync(path)
}

/// Writes `bytes` to `path` and syncs.
pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::create(path).context(|| format!("create {}", path.display()))?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .context(|| format!("write {}", path.display()))
}

/// Waits until a file or folder is on disk.
pub(super) fn sync(path: &Path) -> Result<()> {
    File::open(path).and_then(|f| f.sync_all()).context(|| format!("sync {}", path.display()))
}

/// Reads all tensors of a safetensors file. A checksum in the file is checked.
///
/// # Errors
/// [`Error::File`] naming the file and, where one can be made out, the tensor that is cut off or
/// damaged; [`Error::Os`] when the file cannot be opened.
pub fn load_file(path: impl AsRef<Path>) -> Result<TensorMap> {
    let path = path.as_ref();
    let file = File::open(path).context(|| format!("open {}", path.display()))?;
    // SAFETY: the mapping is private to this function; a checkpoint is not changed once it has its
    // name (it is written under another one), so the bytes stay as they are.
    let map = unsafe { memmap2::Mmap::map(&file) }.context(|| format!("map {}", path.display()))?;
    let parsed =
        SafeTensors::deserialize(&map).map_err(|e| Error::file(path, explain(&map, &e)))?;
    let (_, header) = SafeTensors::read_metadata(&map).expect("parsed above");
    let sums: Option<BTreeMap<String, u32>> =
        match header.metadata().as_ref().and_then(|m| m.get(CHECKSUMS)) {
            Some(text) => Some(serde_json::from_str(text).map_err(|e| {
                Error::file(path, format!("the table of checksums in its header is damaged: {e}"))
            })?),
            None => None,
        };
    let mut out = TensorMap::new();
    for (name, view) in parsed.tensors() {
        if let Some(sums) = &sums {
            let found = checksum(view.dtype(), view.shape(), view.data());
            match sums.get(&name) {
                Some(&expected) if expected == found => {}
                Some(expected) => {
                    return Err(Error::file(
                        path,
                        format!(
                            "tensor `{name}` is damaged: its checksum is {found:08x}, {expected:08x} was written"
                        ),
                    ));
                }
                None => {
                    return Err(Error::file(
                        path,
                        format!("tensor `{name}` has no checksum: the header is damaged"),
                    ));
                }
            }
        }
        out.insert(name.clone(), to_tensor(path, &name, view.dtype(), view.shape(), view.data())?);
    }
    if let Some(lost) =
        sums.iter().flatten().map(|(name, _)| name).find(|name| !out.contains_key(*name))
    {
        return Err(Error::file(
            path,
            format!("tensor `{lost}` is missing: the header is damaged"),
        ));
    }
    Ok(out)
}

fn to_tensor(
    path: &Path,
    name: &str,
    dtype: FileDtype,
    shape: &[usize],
    bytes: &[u8],
) -> Result<Tensor> {
    let dtype =
        Dtype::ALL.into_iter().find(|d| file_dtype(*d) == Some(dtype)).ok_or_else(|| {
            let known = Dtype::ALL.map(|d| d.name()).join(", ");
            Error::file(path, format!("tensor `{name}` has dtype {dtype:?}; known are {known}"))
        })?;
    if dtype == Dtype::Bool && bytes.iter().any(|b| *b > 1) {
        return Err(Error::file(
            path,
            format!("tensor `{name}` is bool but holds bytes other than 0 and 1"),
        ));
    }
    let t = Tensor::empty(shape, dtype);
    // SAFETY: `t` is new and contiguous with exactly `bytes.len()` bytes: the parser has checked that
    // shape and dtype give that length.
    unsafe { t.data_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Ok(t)
}

/// What is wrong with a file that does not parse; names the first tensor whose bytes are cut off.
fn explain(bytes: &[u8], error: &::safetensors::SafeTensorError) -> String {
    let cut_off = || -> Option<String> {
        let n = usize::try_from(u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?)).ok()?;
        let header: serde_json::Value =
            serde_json::from_slice(bytes.get(8..8usize.checked_add(n)?)?).ok()?;
        let available = bytes.len() - 8 - n;
        let end = |info: &serde_json::Value| info["data_offsets"][1].as_u64();
        let tensors =
            header.as_object()?.iter().filter_map(|(name, info)| Some((end(info)?, name)));
        let (end, name) = tensors.filter(|(end, _)| *end > available as u64).min()?;
        Some(format!(
            "truncated: tensor `{name}` ends at byte {end} of the data, {available} bytes are there"
        ))
    };
    cut_off().unwrap_or_else(|| {
        format!("is not an intact safetensors file ({} bytes): {error}", bytes.len())
    })
}
