//! NumPy's files: one array (`.npy`), or several by name in a zip archive (`.npz`).
//!
//! ```text
//! \x93NUMPY  version  header's length  {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }  elements
//! ```

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use super::TensorMap;
use super::archive::{Archive, ArchiveWriter};
use super::raw::{Bytes, read_tensor, shown, size_within, swap_bytes};
use super::replacing::write_file;
use crate::error::{Context, Error, Result};
use crate::tensor::{Dtype, Tensor};

const MAGIC: &[u8] = b"\x93NUMPY";
/// NumPy itself refuses longer headers.
const MAX_HEADER: usize = 10_000;

/// NumPy's names of types, without the byte order.
const TYPES: [(&str, Dtype); 11] = [
    ("f8", Dtype::F64),
    ("f4", Dtype::F32),
    ("f2", Dtype::F16),
    ("i8", Dtype::I64),
    ("i4", Dtype::I32),
    ("i2", Dtype::I16),
    ("i1", Dtype::I8),
    ("u1", Dtype::U8),
    ("b1", Dtype::Bool),
    ("c8", Dtype::C64),
    ("c16", Dtype::C128),
];

/// The dtype of NumPy's name of a type, without the byte order.
pub(super) fn dtype_named(name: &str) -> Option<Dtype> {
    TYPES.iter().find(|(n, _)| *n == name || (name == "?" && *n == "b1")).map(|t| t.1)
}

/// What the head of an array says.
struct Header {
    dtype: Dtype,
    big_endian: bool,
    fortran_order: bool,
    shape: Vec<usize>,
    /// Where the elements begin.
    start: usize,
}

/// Reads an array (`numpy.load`). One in Fortran's order becomes a tensor with such strides.
///
/// ```
/// use torchrs::{Tensor, checkpoint::{load_npy, save_npy}};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("x.npy");
/// save_npy(&Tensor::from([1i64, 2, 3]), &path)?;
/// assert_eq!(load_npy(&path)?.to_vec::<i64>(), [1, 2, 3]);
/// std::fs::write(&path, "no array").unwrap();
/// assert!(load_npy(&path).is_err());
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::File`] for a file that is damaged or has elements that no tensor has (unsigned integers of
/// more than a byte, text, objects); [`Error::OutOfMemory`] for an array that memory does not suffice
/// for; [`Error::Os`] when it cannot be opened.
pub fn load_npy(path: impl AsRef<Path>) -> Result<Tensor> {
    let path = path.as_ref();
    let mut file = File::open(path).context(|| format!("open {}", path.display()))?;
    let length = file.metadata().context(|| format!("open {}", path.display()))?.len();
    array(path, "", &mut file, length)
}

/// Reads all arrays of an archive (`numpy.load`), packed or not.
///
/// ```
/// use torchrs::{Tensor, checkpoint::{load_npz, save_npz}};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("arrays.npz");
/// let arrays = [("x", Tensor::from([1f64])), ("y", Tensor::from([2i32, 3]))];
/// save_npz(&arrays.map(|(name, t)| (name.to_owned(), t)).into(), &path)?;
/// let back = load_npz(&path)?;
/// assert_eq!((back["x"].item(), back["y"].to_vec::<i32>()), (1.0, vec![2, 3]));
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// As [`load_npy`].
pub fn load_npz(path: impl AsRef<Path>) -> Result<TensorMap> {
    let path = path.as_ref();
    let archive = Archive::open(path)?;
    let mut arrays = TensorMap::new();
    for entry in archive.names() {
        let Some(name) = entry.strip_suffix(".npy") else {
            return Err(Error::file(path, format!("entry `{entry}` is no array")));
        };
        let mut contents = archive.contents(entry)?;
        let what = format!("array `{name}`: ");
        let tensor = array(path, &what, &mut contents, archive.size(entry)?)?;
        contents.finish()?;
        arrays.insert(name.to_owned(), tensor);
    }
    Ok(arrays)
}

/// The array of `length` bytes that `reader` gives.
fn array(path: &Path, what: &str, reader: &mut impl Read, length: u64) -> Result<Tensor> {
    let unreadable = |e: std::io::Error| match e.raw_os_error() {
        Some(_) => Error::os(format!("read {}", path.display()), e),
        None => Error::file(path, format!("{what}cannot be read: {e}")),
    };
    let most = (MAGIC.len() + 6 + MAX_HEADER) as u64;
    let mut head = Vec::new();
    reader.take(most).read_to_end(&mut head).map_err(unreadable)?;
    let wrong = |message: String| Error::file(path, format!("{what}{message}"));
    let header = Header::parse(&head).map_err(wrong)?;
    let Header { dtype, big_endian, fortran_order, shape, start } = header;
    let there = length.saturating_sub(start as u64);
    if size_within(&shape, dtype, there).map(|n| n as u64) != Some(there) {
        return Err(wrong(format!("has {there} bytes of elements for shape {shape:?} of {dtype}")));
    }
    let stored: Vec<usize> =
        if fortran_order { shape.iter().rev().copied().collect() } else { shape };
    let tensor = read_tensor(path, &format!("{what}the array"), &stored, dtype, |bytes| {
        let begun = head.get(start..).unwrap_or_default();
        let begun = &begun[..begun.len().min(bytes.len())];
        bytes[..begun.len()].copy_from_slice(begun);
        reader.read_exact(&mut bytes[begun.len()..]).map_err(unreadable)?;
        if big_endian {
            swap_bytes(bytes, dtype);
        }
        Ok(())
    })?;
    let turned: Vec<i64> = (0..stored.len() as i64).rev().collect();
    Ok(if fortran_order { tensor.permute(&turned) } else { tensor })
}

impl Header {
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let cut_off = || "is cut off in its header".to_owned();
        let rest = bytes.strip_prefix(MAGIC).ok_or("is no array of NumPy")?;
        let (&[major, _], rest) = rest.split_first_chunk().ok_or_else(cut_off)?;
        let (length, rest) = match major {
            1 => {
                let (n, rest) = rest.split_first_chunk().ok_or_else(cut_off)?;
                (u16::from_le_bytes(*n) as usize, rest)
            }
            2 | 3 => {
                let (n, rest) = rest.split_first_chunk().ok_or_else(cut_off)?;
                (u32::from_le_bytes(*n) as usize, rest)
            }
            _ => return Err(format!("is of version {major}; 1 to 3 are read")),
        };
        if length > MAX_HEADER {
            return Err(format!("has a header of {length} bytes; at most {MAX_HEADER} are read"));
        }
        let start = bytes.len() - rest.len() + length;
        let text = rest.get(..length).ok_or_else(cut_off)?;
        let text =
            std::str::from_utf8(text).map_err(|_| format!("has the header `{}`", shown(text)))?;
        let mut fields = Fields { rest: text };
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        fields.expect("{")?;
        while !fields.skip("}") {
            let key = fields.text()?;
            fields.expect(":")?;
            match key {
                "descr" => descr = Some(fields.text()?),
                "fortran_order" => fortran_order = Some(fields.truth()?),
                "shape" => shape = Some(fields.sizes()?),
                _ => return Err(format!("has an unknown field `{}`", shown(key.as_bytes()))),
            }
            fields.skip(",");
        }
        let (Some(descr), Some(fortran_order), Some(shape)) = (descr, fortran_order, shape) else {
            return Err("lacks one of `descr`, `fortran_order` and `shape`".into());
        };
        let (order, name) = match descr.as_bytes().first() {
            Some(b'<' | b'>' | b'|' | b'=') => descr.split_at(1),
            _ => ("", descr),
        };
        let Some(dtype) = dtype_named(name) else {
            let known: Vec<&str> = TYPES.iter().map(|t| t.0).collect();
            return Err(format!(
                "has elements of type `{}`; known are {}",
                shown(descr.as_bytes()),
                known.join(", ")
            ));
        };
        Ok(Header { dtype, big_endian: order == ">", fortran_order, shape, start })
    }
}

/// The Python literal of a header, read from the left.
struct Fields<'a> {
    rest: &'a str,
}

impl<'a> Fields<'a> {
    fn skip(&mut self, token: &str) -> bool {
        match self.rest.trim_start().strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn wrong(&self, wanted: &str) -> String {
        format!("has a header with `{}` where {wanted} must be", shown(self.rest.as_bytes()))
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.skip(token) { Ok(()) } else { Err(self.wrong(&format!("`{token}`"))) }
    }

    fn text(&mut self) -> Result<&'a str, String> {
        let quote = ["'", "\""].into_iter().find(|quote| self.skip(quote));
        let quote = quote.ok_or_else(|| self.wrong("a text (of plain elements, not fields)"))?;
        let (text, rest) = self.rest.split_once(quote).ok_or_else(|| self.wrong("a quote"))?;
        self.rest = rest;
        Ok(text)
    }

    fn truth(&mut self) -> Result<bool, String> {
        if self.skip("True") {
            return Ok(true);
        }
        if self.skip("False") { Ok(false) } else { Err(self.wrong("True or False")) }
    }

    fn sizes(&mut self) -> Result<Vec<usize>, String> {
        let mut sizes = Vec::new();
        self.expect("(")?;
        while !self.skip(")") {
            self.rest = self.rest.trim_start();
            let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
            let (digits, rest) = self.rest.split_at(end);
            sizes.push(digits.parse().map_err(|_| self.wrong("a size"))?);
            // Python 2 wrote long integers so.
            self.rest = rest.strip_prefix('L').unwrap_or(rest);
            if sizes.len() > 64 {
                return Err("has more than 64 dimensions".into());
            }
            if !self.skip(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(sizes)
    }
}

/// The head of an array, padded so that the elements begin at a multiple of 64.
fn head(tensor: &Tensor) -> Result<Vec<u8>> {
    let dtype = tensor.dtype();
    let Some((name, _)) = TYPES.iter().find(|t| t.1 == dtype) else {
        let message = format!("is {dtype}, which NumPy lacks; convert it to f32");
        return Err(Error::argument("save_npy", "tensor", message));
    };
    let order = if dtype.size() == 1 { "|" } else { "<" };
    let sizes: String = tensor.shape().iter().map(|n| format!("{n}, ")).collect();
    // Python writes (3,) and (2, 3).
    let sizes = if tensor.dim() == 1 { sizes.trim_end() } else { sizes.trim_end_matches(", ") };
    let mut text =
        format!("{{'descr': '{order}{name}', 'fortran_order': False, 'shape': ({sizes}), }}");
    let begun = MAGIC.len() + 4 + text.len() + 1;
    text.extend(std::iter::repeat_n(' ', begun.next_multiple_of(64) - begun));
    text.push('\n');
    let length = (text.len() as u16).to_le_bytes();
    Ok([MAGIC, &[1, 0], &length, text.as_bytes()].concat())
}

/// Writes an array that `numpy.load` reads (`numpy.save`), and syncs it to disk. A file that was there
/// is replaced by the finished one, or stays when that cannot be written.
///
/// ```
/// use torchrs::{Tensor, checkpoint::{load_npy, save_npy}};
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("x.npy");
/// save_npy(&Tensor::from([[1f32, 2.], [3., 4.]]), &path)?;
/// assert_eq!(load_npy(&path)?.shape(), &[2, 2]);
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for bf16, which NumPy lacks; [`Error::Os`] when the file cannot be written; the
/// device's error when a tensor cannot be brought to the host.
pub fn save_npy(tensor: &Tensor, path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let (head, elements) = (head(tensor)?, Bytes::new(tensor)?);
    write_file(path, |file| {
        file.write_all(&head)
            .and_then(|()| file.write_all(elements.as_slice()))
            .context(|| format!("write {}", path.display()))
    })
}

/// Writes arrays by name that `numpy.load` reads (`numpy.savez`), and syncs them to disk. A file that
/// was there is replaced by the finished one, or stays when that cannot be written.
///
/// ```
/// use torchrs::{Dtype, Tensor, checkpoint::{TensorMap, load_npz, save_npz}};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("arrays.npz");
/// let arrays = TensorMap::from([("mask".to_owned(), Tensor::from([true, false]))]);
/// save_npz(&arrays, &path)?;
/// assert_eq!(load_npz(&path)?["mask"].dtype(), Dtype::Bool);
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// As [`save_npy`]; [`Error::File`] for a name that no entry can have (with a zero byte in it).
pub fn save_npz(tensors: &TensorMap, path: impl AsRef<Path>) -> Result<()> {
    let heads: Vec<Vec<u8>> = tensors.values().map(head).collect::<Result<_>>()?;
    let path = path.as_ref();
    write_file(path, |file| {
        let mut writer = ArchiveWriter::new(path, file);
        for ((name, tensor), head) in tensors.iter().zip(&heads) {
            writer.add(&format!("{name}.npy"), &[head, Bytes::new(tensor)?.as_slice()])?;
        }
        writer.finish()
    })
}
