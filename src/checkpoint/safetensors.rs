//! Tensors in a safetensors file. Our files also hold a CRC-32 per tensor (in `__metadata__`, key
//! `crc32`, a JSON object), over dtype, shape and bytes; files without one are loaded unchecked.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ::safetensors::tensor::{Dtype as FileDtype, Metadata, TensorInfo};

use super::TensorMap;
use super::header::{METADATA, parsed, written};
use super::raw::{Bytes, buffer, error_of, read_tensor, room_for};
use super::replacing::write_file;
use crate::error::{Context, Error, Result};
use crate::tensor::{Dtype, Tensor};

pub(super) const CHECKSUMS: &str = "crc32";
/// A parsed header takes at most this of one byte of its text.
const PARSED: usize = 32;
/// The format's own limit.
pub(super) const MAX_HEADER: u64 = 100_000_000;

/// `None` for c128, which the format lacks.
pub(super) fn file_dtype(dtype: Dtype) -> Option<FileDtype> {
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

fn checksum(dtype: FileDtype, shape: &[usize], bytes: &[u8]) -> u32 {
    let mut crc = begun_checksum(dtype, shape);
    crc.update(bytes);
    crc.sum()
}

/// The checksum of a tensor whose bytes are still to come.
fn begun_checksum(dtype: FileDtype, shape: &[usize]) -> flate2::Crc {
    let mut crc = flate2::Crc::new();
    crc.update(format!("{dtype:?} {shape:?}").as_bytes());
    crc
}

/// The same of one of our dtypes. That of c128 is never compared.
pub(super) fn type_checksum(dtype: Dtype, shape: &[usize]) -> flate2::Crc {
    file_dtype(dtype).map_or_else(flate2::Crc::new, |dtype| begun_checksum(dtype, shape))
}

/// The checksums by name, if the header has any.
pub(super) fn checksums(path: &Path, header: &Metadata) -> Result<Option<BTreeMap<String, u32>>> {
    let text = header.metadata().as_ref().and_then(|metadata| metadata.get(CHECKSUMS));
    text.map(|text| serde_json::from_str(text)).transpose().map_err(|e| {
        Error::file(path, format!("the table of checksums in its header is damaged: {e}"))
    })
}

/// Writes tensors to a safetensors file and syncs it to disk. `metadata` goes into the header. Equal
/// tensors and metadata give equal bytes. A file that was there is replaced by the finished one, or stays
/// when that cannot be written.
///
/// ```
/// use torchrs::{Tensor, checkpoint::{TensorMap, load_file, save_file}};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("model.safetensors");
/// let tensors = TensorMap::from([("weight".to_owned(), Tensor::from([1f32, 2.]))]);
/// let metadata = [("format".to_owned(), "pt".to_owned())].into();
/// save_file(&tensors, &metadata, &path)?;
/// assert_eq!(load_file(&path)?["weight"].to_vec::<f32>(), [1.0, 2.0]);
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Os`] when the file cannot be written, [`Error::File`] for a c128 tensor: the format has no
/// such type; [`Error::Argument`] for what readers would take for something else: a tensor
/// `__metadata__`, metadata `crc32`; the device's error when a tensor cannot be brought to the host.
pub fn save_file(
    tensors: &TensorMap,
    metadata: &BTreeMap<String, String>,
    path: impl AsRef<Path>,
) -> Result<()> {
    let listed: Vec<Written<'_>> = tensors
        .iter()
        .map(|(name, t)| Written { name, dtype: t.dtype(), shape: t.shape() })
        .collect();
    write_tensors("save_file", &listed, metadata, path.as_ref(), &|name| Ok(tensors[name].clone()))
}

/// A tensor that is about to be written.
#[derive(Clone, Copy)]
pub(super) struct Written<'a> {
    pub(super) name: &'a str,
    pub(super) dtype: Dtype,
    pub(super) shape: &'a [usize],
}

/// Refuses what a safetensors file cannot hold, or what its readers would take for something else.
///
/// # Errors
/// As [`save_file`], named `function` in messages.
pub(super) fn check_writable(
    function: &'static str,
    tensors: &[Written<'_>],
    metadata: &BTreeMap<String, String>,
    path: &Path,
) -> Result<()> {
    if let Some(Written { name, dtype, .. }) =
        tensors.iter().find(|t| file_dtype(t.dtype).is_none())
    {
        let why =
            format!("tensor `{name}` is {dtype}, which safetensors lacks; save its `view_as_real`");
        return Err(Error::file(path, why));
    }
    let taken = |argument, name| {
        let what = format!("`{name}` has a meaning of its own in such files");
        Err(Error::argument(function, argument, what))
    };
    if tensors.iter().any(|t| t.name == METADATA) {
        return taken("tensors", METADATA);
    }
    if metadata.contains_key(CHECKSUMS) {
        return taken("metadata", CHECKSUMS);
    }
    Ok(())
}

/// [`save_file`] of tensors that `get` brings, each twice, so that they are not held all at once.
///
/// # Errors
/// As `save_file`, named `function` in messages; those of `get`.
pub(super) fn write_tensors(
    function: &'static str,
    tensors: &[Written<'_>],
    metadata: &BTreeMap<String, String>,
    path: &Path,
    get: &dyn Fn(&str) -> Result<Tensor>,
) -> Result<()> {
    check_writable(function, tensors, metadata, path)?;
    // The widest elements first, so that all are aligned.
    let mut order: Vec<(Written<'_>, FileDtype)> =
        tensors.iter().filter_map(|t| Some((*t, file_dtype(t.dtype)?))).collect();
    order.sort_by_key(|(t, _)| std::cmp::Reverse(t.dtype.size()));
    let mut sums = BTreeMap::new();
    let mut infos = Vec::new();
    let mut end = 0;
    for &(t, dtype) in &order {
        let tensor = get(t.name)?;
        let bytes = Bytes::new(&tensor)?;
        sums.insert(t.name, checksum(dtype, t.shape, bytes.as_slice()));
        let data_offsets = (end, end + bytes.as_slice().len());
        end = data_offsets.1;
        infos.push((t.name, TensorInfo { dtype, shape: t.shape.to_vec(), data_offsets }));
    }
    let mut metadata = metadata.clone();
    metadata.insert(CHECKSUMS.into(), serde_json::to_string(&sums).expect("a map of numbers"));
    let header = written(&metadata, &infos);
    if header.len() as u64 > MAX_HEADER {
        let size = header.len();
        return Err(Error::file(
            path,
            format!("a header of {size} bytes is too large for readers"),
        ));
    }
    write_file(path, |file| {
        let what = || format!("write {}", path.display());
        file.write_all(&(header.len() as u64).to_le_bytes()).context(what)?;
        file.write_all(header.as_bytes()).context(what)?;
        for (t, _) in &order {
            file.write_all(Bytes::new(&get(t.name)?)?.as_slice()).context(what)?;
        }
        Ok(())
    })
}

/// Reads all tensors of a safetensors file. A checksum in the file is checked.
///
/// ```
/// use torchrs::{Tensor, checkpoint::{TensorMap, load_file, save_file}};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("model.safetensors");
/// let tensors = TensorMap::from([("weight".to_owned(), Tensor::from([1f32, 2.]))]);
/// save_file(&tensors, &Default::default(), &path)?;
/// assert_eq!(load_file(&path)?["weight"].to_vec::<f32>(), [1.0, 2.0]);
/// let mut bytes = std::fs::read(&path).unwrap();
/// *bytes.last_mut().unwrap() ^= 1; // a bit of the 2
/// std::fs::write(&path, bytes).unwrap();
/// assert!(load_file(&path).unwrap_err().to_string().contains("weight"));
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::File`] naming the file and, where one can be made out, the tensor that is cut off, damaged
/// or there twice; [`Error::OutOfMemory`] for a tensor that memory does not suffice for; [`Error::Os`]
/// when the file cannot be opened.
pub fn load_file(path: impl AsRef<Path>) -> Result<TensorMap> {
    let path = path.as_ref();
    let file = File::open(path).context(|| format!("open {}", path.display()))?;
    let length = file.metadata().context(|| format!("open {}", path.display()))?.len();
    let (start, header) = read_header(path, &file, length)?;
    let sums = checksums(path, &header)?;
    let mut out = TensorMap::new();
    for name in header.offset_keys() {
        let info = header.info(&name).expect("one of its own names");
        let tensor = to_tensor(path, &name, info, &file, start)?;
        if let Some(sums) = &sums {
            let found = checksum(info.dtype, &info.shape, Bytes::new(&tensor)?.as_slice());
            let wrong = |what: String| Err(Error::file(path, format!("tensor `{name}` {what}")));
            match sums.get(&name) {
                Some(&expected) if expected == found => {}
                Some(expected) => {
                    return wrong(format!(
                        "is damaged: its checksum is {found:08x}, {expected:08x} was written"
                    ));
                }
                None => return wrong("has no checksum: the header is damaged".into()),
            }
        }
        out.insert(name, tensor);
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

/// The header, checked against the file's length, and where the data begins. It is read and not mapped:
/// a file that another process cuts off meanwhile is an error, and no signal.
pub(super) fn read_header(path: &Path, file: &File, length: u64) -> Result<(u64, Metadata)> {
    let read = |bytes: &mut [u8], at: u64| {
        file.read_exact_at(bytes, at).context(|| format!("read {}", path.display()))
    };
    let wrong = |why: String| {
        Error::file(path, format!("is not an intact safetensors file ({length} bytes): {why}"))
    };
    let mut size = [0; 8];
    if length < 8 {
        return Err(wrong("there is no header".into()));
    }
    read(&mut size, 0)?;
    let size = u64::from_le_bytes(size);
    if size > MAX_HEADER.min(length - 8) {
        return Err(wrong(format!("a header of {size} bytes is too large")));
    }
    let scarce = |why: String| error_of(path, format!("its header: {why}"));
    let mut text = buffer(size as usize).map_err(scarce)?;
    read(&mut text, 8)?;
    room_for(text.len().saturating_mul(PARSED)).map_err(scarce)?;
    let (start, available) = (8 + size, length - 8 - size);
    let header = parsed(&text).map_err(|why| wrong(cut_off(&text, available).unwrap_or(why)))?;
    match header.data_len() as u64 {
        needed if needed == available => Ok((start, header)),
        needed if needed > available => Err(match cut_off(&text, available) {
            Some(why) => Error::file(path, why),
            None => wrong(format!("truncated: {needed} bytes of data, {available} are there")),
        }),
        needed => Err(wrong(format!("{available} bytes of data, the header has {needed}"))),
    }
}

/// The dtype of a tensor in a file.
pub(super) fn known_dtype(path: &Path, name: &str, dtype: FileDtype) -> Result<Dtype> {
    Dtype::ALL.into_iter().find(|d| file_dtype(*d) == Some(dtype)).ok_or_else(|| {
        let known = Dtype::ALL.map(|d| d.name()).join(", ");
        Error::file(path, format!("tensor `{name}` has dtype {dtype:?}; known are {known}"))
    })
}

fn to_tensor(
    path: &Path,
    name: &str,
    info: &TensorInfo,
    file: &File,
    start: u64,
) -> Result<Tensor> {
    let dtype = known_dtype(path, name, info.dtype)?;
    read_tensor(path, &format!("tensor `{name}`"), &info.shape, dtype, |bytes| {
        file.read_exact_at(bytes, start + info.data_offsets.0 as u64)
            .context(|| format!("read {}", path.display()))
    })
}

/// Names the first tensor whose bytes are cut off, if there is one.
fn cut_off(header: &[u8], available: u64) -> Option<String> {
    let header: serde_json::Value = serde_json::from_slice(header).ok()?;
    let end = |info: &serde_json::Value| info["data_offsets"][1].as_u64();
    let tensors = header.as_object()?.iter().filter_map(|(name, info)| Some((end(info)?, name)));
    let (end, name) = tensors.filter(|(end, _)| *end > available).min()?;
    Some(format!(
        "truncated: tensor `{name}` ends at byte {end} of the data, {available} bytes are there"
    ))
}
