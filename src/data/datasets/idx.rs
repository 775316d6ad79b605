//! The IDX format of MNIST and its relatives: four bytes of magic (0, 0, element type, number of
//! dimensions), big-endian `u32` sizes, then the elements. Files may be gzipped. Only unsigned
//! bytes, which is what images and labels come as, are read.
//!
//! ```
//! use torchrs::data::datasets::idx::Idx;
//! let file = [0u8, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6];
//! let idx = Idx::parse(&file[..], "an array".as_ref())?;
//! assert_eq!((idx.shape, idx.bytes), (vec![2, 3], vec![1, 2, 3, 4, 5, 6]));
//! # Ok::<(), torchrs::Error>(())
//! ```

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

use crate::error::{Context, Error, Result};

/// The element types that the format knows, by their code.
const ELEMENT_TYPES: [(u8, &str); 6] = [
    (0x08, "unsigned bytes"),
    (0x09, "signed bytes"),
    (0x0B, "16-bit integers"),
    (0x0C, "32-bit integers"),
    (0x0D, "32-bit floats"),
    (0x0E, "64-bit floats"),
];
const UNSIGNED_BYTE: u8 = 0x08;

/// An array of unsigned bytes.
///
/// ```
/// use torchrs::data::datasets::idx::Idx;
/// let file = [0u8, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6];
/// let idx: Idx = Idx::parse(&file[..], "an array".as_ref())?;
/// assert_eq!(idx, Idx { shape: vec![2, 3], bytes: vec![1, 2, 3, 4, 5, 6] });
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idx {
    /// Sizes, outermost first.
    pub shape: Vec<usize>,
    /// The elements in row-major order.
    pub bytes: Vec<u8>,
}

impl Idx {
    /// Reads a file, gzipped or not.
    ///
    /// # Errors
    /// [`Error::Os`] when it cannot be opened; [`Error::File`] when it is not IDX, holds other
    /// elements than unsigned bytes, or is shorter or longer than its header says.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::parse(open(path)?, path)
    }

    /// Reads a shape alone, without the elements.
    ///
    /// ```
    /// use torchrs::data::datasets::idx::Idx;
    /// # let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("labels-idx1-ubyte");
    /// std::fs::write(&path, [0u8, 0, 8, 1, 0, 0, 0, 2, 7, 3]).unwrap();
    /// assert_eq!(Idx::read_shape(&path)?, [2]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Idx::read`], except for the number of elements.
    pub fn read_shape(path: impl AsRef<Path>) -> Result<Vec<usize>> {
        let path = path.as_ref();
        let mut reader = decompressed(open(path)?).map_err(|e| unreadable(&e, path))?;
        parse_shape(&mut reader, path)
    }

    /// Parses a stream, gzipped or not; `path` is only named in errors.
    ///
    /// ```
    /// use torchrs::data::datasets::idx::Idx;
    /// let file = [0u8, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6];
    /// assert_eq!(Idx::parse(&file[..], "x".as_ref())?.shape, [2, 3]);
    /// let short = Idx::parse(&file[..17], "x".as_ref()).unwrap_err();
    /// assert!(short.to_string().contains("needs 6 bytes, but the file ends after 5"));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::File`] as for [`Idx::read`].
    pub fn parse(reader: impl Read, path: &Path) -> Result<Self> {
        let mut reader = decompressed(reader).map_err(|e| unreadable(&e, path))?;
        let shape = parse_shape(&mut reader, path)?;
        let expected = shape.iter().try_fold(1u64, |n, &size| n.checked_mul(size as u64));
        let Some(expected) = expected.filter(|&n| n < isize::MAX as u64) else {
            return Err(Error::file(path, format!("IDX header: shape {shape:?} is too large")));
        };
        // Grows with what is there, so that a header which promises 4 GiB costs nothing.
        let mut bytes = Vec::new();
        let read = reader.take(expected + 1).read_to_end(&mut bytes);
        read.map_err(|e| unreadable(&e, path))?;
        if bytes.len() as u64 != expected {
            let found = if bytes.len() as u64 > expected {
                "has more".to_owned()
            } else {
                format!("ends after {}", bytes.len())
            };
            return Err(Error::file(
                path,
                format!("IDX header: shape {shape:?} needs {expected} bytes, but the file {found}"),
            ));
        }
        Ok(Idx { shape, bytes })
    }
}

/// The file named `stem` in `folder`, plain or with `.gz`; `train-images-idx3-ubyte` may also be
/// spelt `train-images.idx3-ubyte`, as some archives unpack.
///
/// ```
/// use torchrs::data::datasets::idx;
/// # let folder = tempfile::tempdir().unwrap();
/// std::fs::write(folder.path().join("t10k-labels-idx1-ubyte.gz"), "").unwrap();
/// let found = idx::find(folder.path(), "t10k-labels-idx1-ubyte")?;
/// assert_eq!(found.file_name().unwrap(), "t10k-labels-idx1-ubyte.gz");
/// assert!(idx::find(folder.path(), "train-labels-idx1-ubyte").is_err());
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::File`] naming what was looked for.
pub fn find(folder: &Path, stem: &str) -> Result<PathBuf> {
    let dotted = stem.replacen("-idx", ".idx", 1);
    let names = [stem.to_owned(), format!("{stem}.gz"), dotted.clone(), format!("{dotted}.gz")];
    let found = names.iter().map(|name| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| Error::file(folder, format!("has none of the files {}", names.join(", "))))
}

fn open(path: &Path) -> Result<BufReader<File>> {
    Ok(BufReader::new(File::open(path).context(|| format!("open {}", path.display()))?))
}

/// Undoes gzip if the stream begins with its magic.
fn decompressed<'a>(mut reader: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut start = Vec::with_capacity(2);
    reader.by_ref().take(2).read_to_end(&mut start)?;
    let gzipped = start == [0x1F, 0x8B];
    let whole = io::Cursor::new(start).chain(reader);
    Ok(if gzipped { Box::new(GzDecoder::new(whole)) } else { Box::new(whole) })
}

fn parse_shape(reader: &mut impl Read, path: &Path) -> Result<Vec<usize>> {
    let mut word = |what: &str| {
        let mut bytes = [0; 4];
        match reader.read_exact(&mut bytes) {
            Ok(()) => Ok(bytes),
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Err(Error::file(path, format!("IDX header: the file ends before its {what}")))
            }
            Err(e) => Err(unreadable(&e, path)),
        }
    };
    let [zero0, zero1, code, dims] = word("magic number")?;
    let element = ELEMENT_TYPES.iter().find(|(c, _)| *c == code);
    let (true, Some((code, element))) = ([zero0, zero1] == [0, 0], element) else {
        return Err(Error::file(
            path,
            format!(
                "is not an IDX file: begins with {zero0:02x} {zero1:02x} {code:02x} {dims:02x}"
            ),
        ));
    };
    if *code != UNSIGNED_BYTE {
        return Err(Error::file(path, format!("holds {element}; only unsigned bytes are read")));
    }
    (0..dims).map(|d| Ok(u32::from_be_bytes(word(&format!("size {d}"))?) as usize)).collect()
}

fn unreadable(error: &io::Error, path: &Path) -> Error {
    Error::file(path, format!("cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use proptest::prelude::*;
    use std::io::Write;

    fn encode(shape: &[u32], bytes: &[u8]) -> Vec<u8> {
        let mut file = vec![0, 0, UNSIGNED_BYTE, shape.len() as u8];
        shape.iter().for_each(|size| file.extend(size.to_be_bytes()));
        file.extend(bytes);
        file
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn parse(bytes: &[u8]) -> Result<Idx> {
        Idx::parse(bytes, Path::new("some-file"))
    }

    #[track_caller]
    fn fails_with(bytes: &[u8], expected: &str) {
        let error = parse(bytes).unwrap_err().to_string();
        assert!(error.starts_with("some-file: ") && error.contains(expected), "{error}");
    }

    #[test]
    fn errors_name_the_file_and_what_is_wrong() {
        fails_with(b"", "ends before its magic number");
        fails_with(b"hello world", "not an IDX file: begins with 68 65 6c 6c");
        fails_with(&[0, 0, 0x0D, 1, 0, 0, 0, 0], "holds 32-bit floats");
        fails_with(&encode(&[2, 3], &[0; 6])[..10], "ends before its size 1");
        fails_with(&encode(&[2, 3], &[0; 5]), "needs 6 bytes, but the file ends after 5");
        fails_with(&encode(&[2, 3], &[0; 7]), "needs 6 bytes, but the file has more");
        fails_with(&encode(&[u32::MAX; 4], &[0; 7]), "too large");
        let incompressible: Vec<u8> = (0..500u32).map(|i| (i * i * i % 251) as u8).collect();
        let cut = gzip(&encode(&[500], &incompressible));
        fails_with(&cut[..cut.len() / 2], "cannot be read");
    }

    #[test]
    fn a_missing_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = Idx::read(folder.path().join("absent")).unwrap_err().to_string();
        assert!(error.contains("open") && error.contains("absent"), "{error}");
        let error = find(folder.path(), "train-images-idx3-ubyte").unwrap_err().to_string();
        assert!(error.contains("train-images.idx3-ubyte.gz"), "{error}");
        std::fs::write(folder.path().join("train-images.idx3-ubyte"), encode(&[1], &[5])).unwrap();
        let found = find(folder.path(), "train-images-idx3-ubyte").unwrap();
        assert_eq!(Idx::read(&found).unwrap(), Idx { shape: vec![1], bytes: vec![5] });
        assert_eq!(Idx::read_shape(&found).unwrap(), [1]);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(shape in prop::collection::vec(0u32..6, 0..4), zipped: bool) {
            let size = shape.iter().product::<u32>() as usize;
            let bytes: Vec<u8> = (0..size).map(|i| i as u8).collect();
            let file = encode(&shape, &bytes);
            let idx = parse(&if zipped { gzip(&file) } else { file }).unwrap();
            prop_assert_eq!(idx.shape, shape.iter().map(|&s| s as usize).collect::<Vec<_>>());
            prop_assert_eq!(idx.bytes, bytes);
        }

        /// Garbage, with a plausible beginning in half of the cases, is an error or a well-formed
        /// array; it never panics and never allocates what a header only promises.
        #[test]
        fn garbage_is_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..64), start in 0..4) {
            match start {
                1 => bytes.splice(0..0, [0, 0, 8, 2]).for_each(drop),
                2 => bytes.splice(0..0, [0x1F, 0x8B, 8, 0]).for_each(drop),
                3 => bytes = gzip(&bytes),
                _ => {}
            }
            match parse(&bytes) {
                Ok(idx) => prop_assert_eq!(idx.bytes.len(), idx.shape.iter().product::<usize>()),
                Err(e) => prop_assert!(matches!(e, Error::File { .. }), "{}", e),
            }
        }

        /// One changed or missing byte of a valid file never panics.
        #[test]
        fn damaged_files_do_not_panic(at in 0usize..60, with: u8, cut: bool, zipped: bool) {
            let file = encode(&[3, 4, 4], &[9; 48]);
            let mut file = if zipped { gzip(&file) } else { file };
            let at = at.min(file.len() - 1);
            if cut { file.truncate(at) } else { file[at] = with }
            if let Err(e) = parse(&file) {
                prop_assert!(e.to_string().starts_with("some-file: "), "{}", e);
            }
        }
    }
}
