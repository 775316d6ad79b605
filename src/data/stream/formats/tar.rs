//! webdataset's shards: tar files in which the members of a sample stand next to each other.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::files::{ShardFiles, shorter};
use crate::data::shared::Shared;
use crate::data::stream::counts::counted;
use crate::data::stream::sharded::{ShardReader, ShardedSource};
use crate::data::{Blob, Columns, Sample, SampleWriter};
use crate::error::{Context, Error, Result};

/// Members start at multiples of this.
const BLOCK: u64 = 512;

/// Shards of webdataset's format: tar files whose members `KEY.FIELD` with one key are one sample.
///
/// The key is the path up to the first dot of the file name, the field what follows, in lower case. Members without
/// a dot, folders and links are passed over, and so is what is called `__NAME__` at the top.
///
/// ```
/// use torchrs::data::stream::{IterableDataset, Part, StreamReader, WebDataset};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("a-0.tar");
/// # let mut tar = tar::Builder::new(std::fs::File::create(&path).unwrap());
/// # for (name, text) in [("000.cls", "3"), ("000.txt", "three"), ("001.cls", "1"), ("001.txt", "one")] {
/// #     let mut header = tar::Header::new_gnu();
/// #     header.set_size(text.len() as u64);
/// #     header.set_cksum();
/// #     tar.append_data(&mut header, name, text.as_bytes()).unwrap();
/// # }
/// # tar.into_inner().unwrap();
/// // a-0.tar: 000.cls, 000.txt, 001.cls, 001.txt
/// let mut reader = WebDataset::new(path.to_str().unwrap())?.open(Part::new(0, 1)?, None)?;
/// let sample = reader.next()?.unwrap();
/// assert_eq!((sample.key.as_str(), sample.text("txt")?), ("000", "three"));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Clone, Serialize, Deserialize)]
pub struct WebDataset {
    files: Shared<Vec<PathBuf>>,
}

impl WebDataset {
    /// The samples of some shards: `WebDataset::new("train-{000000..000146}.tar")`.
    ///
    /// # Errors
    /// [`Error::Os`] when a file is missing, [`Error::Argument`] when there is none.
    pub fn new(files: impl Into<ShardFiles>) -> Result<Self> {
        Ok(WebDataset { files: Shared::new(files.into().existing("WebDataset::new")?) })
    }
}

/// A sample of a [`WebDataset`]. A batch of them is (keys, fields).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TarSample {
    /// What its members' names have in common.
    pub key: String,
    /// The contents of each member, by the rest of its name.
    pub fields: BTreeMap<String, Vec<u8>>,
}

impl TarSample {
    /// The bytes of a field.
    ///
    /// # Errors
    /// [`Error::Argument`] that lists the fields that are there.
    pub fn bytes(&self, field: &str) -> Result<&[u8]> {
        self.fields.get(field).map(Vec::as_slice).ok_or_else(|| {
            let names: Vec<&str> = self.fields.keys().map(String::as_str).collect();
            let message = format!("`{field}`: sample `{}` has {}", self.key, names.join(", "));
            Error::argument("TarSample", "field", message)
        })
    }

    /// The text of a field.
    ///
    /// # Errors
    /// As [`bytes`](Self::bytes), and when it is not UTF-8.
    pub fn text(&self, field: &str) -> Result<&str> {
        std::str::from_utf8(self.bytes(field)?).map_err(|error| {
            let message = format!("`{field}` of sample `{}` is no text: {error}", self.key);
            Error::argument("TarSample::text", "field", message)
        })
    }
}

impl Sample for TarSample {
    type Batch = (Vec<String>, BTreeMap<String, Vec<Blob>>);
    fn write(&self, out: &mut SampleWriter) {
        self.key.write(out);
        out.list(self.fields.len());
        for (name, bytes) in &self.fields {
            out.name(name);
            out.bytes(bytes);
        }
    }
    fn batch(columns: &mut Columns) -> Self::Batch {
        let keys = String::batch(columns);
        (keys, (0..columns.list()).map(|_| (columns.name(), Blob::batch(columns))).collect())
    }
}

impl ShardedSource for WebDataset {
    type Sample = TarSample;
    type Shard = Members;

    fn shards(&self) -> usize {
        self.files.len()
    }

    fn open_shard(&self, shard: usize, cursor: u64) -> Result<Members> {
        let path = &self.files[shard];
        let what = || format!("open {}", path.display());
        let file = File::open(path).context(what)?;
        let len = file.metadata().context(what)?.len();
        if cursor > len {
            return Err(shorter(path, cursor, len));
        }
        if len == 0 {
            let message = "is empty: a tar file without members has at least a block of zeros";
            return Err(Error::file(path, message));
        }
        Ok(Members { path: path.clone(), file, len, cursor })
    }

    fn count_shard(&self, shard: usize) -> Result<Option<u64>> {
        let count = || {
            let mut members = self.open_shard(shard, 0)?;
            let mut count = 0;
            while members.skip()? {
                count += 1;
            }
            Ok(count)
        };
        counted(&self.files[shard], count).map(Some)
    }
}

/// The samples of a tar file.
pub struct Members {
    path: PathBuf,
    file: File,
    len: u64,
    cursor: u64,
}

impl Members {
    /// The next sample; without `wanted` its members are not read.
    fn sample(&mut self, wanted: bool) -> Result<Option<TarSample>> {
        let fault = |error: io::Error| {
            Error::file(&self.path, format!("cannot be read as a tar file: {error}"))
        };
        let start = self.cursor;
        let mut section = Section { file: &self.file, start };
        section.rewind().map_err(fault)?;
        let mut archive = tar::Archive::new(section);
        let mut sample: Option<TarSample> = None;
        for entry in archive.entries_with_seek().map_err(fault)? {
            let mut entry = entry.map_err(fault)?;
            let end = start.saturating_add(entry.raw_file_position()).saturating_add(entry.size());
            // A member fills its last block. Where that is cut off, members behind it are missing.
            let filled = end.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX);
            let name = entry.path_bytes().into_owned();
            let name = String::from_utf8(name).map_err(|error| {
                let name = String::from_utf8_lossy(error.as_bytes()).into_owned();
                Error::file(&self.path, format!("the name of member `{name}` is not UTF-8"))
            })?;
            let named = split(&name).filter(|_| entry.header().entry_type().is_file());
            if let Some((key, field)) = named {
                if sample.as_ref().is_some_and(|sample| sample.key != key) {
                    return Ok(sample);
                }
                if filled > self.len {
                    let message = format!("ends in the middle of member `{name}`");
                    return Err(Error::file(&self.path, message));
                }
                let sample = sample.get_or_insert_with(|| TarSample {
                    key: key.to_owned(),
                    fields: BTreeMap::new(),
                });
                let mut bytes = Vec::new();
                if wanted {
                    entry.read_to_end(&mut bytes).map_err(fault)?;
                }
                if sample.fields.insert(field, bytes).is_some() {
                    let message = format!("has two members `{name}` next to each other");
                    return Err(Error::file(&self.path, message));
                }
            }
            self.cursor = filled;
        }
        if sample.is_none() {
            self.cursor = self.cursor.min(self.len);
        }
        Ok(sample)
    }
}

/// A file from a place on, as if it began there: an archive wants to be at its beginning.
struct Section<'a> {
    file: &'a File,
    start: u64,
}

impl Read for Section<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.file.read(bytes)
    }
}

impl Seek for Section<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => self.file.seek(SeekFrom::Start(self.start + at))?,
            other => self.file.seek(other)?,
        };
        at.checked_sub(self.start).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

impl ShardReader for Members {
    type Sample = TarSample;

    fn next(&mut self) -> Result<Option<TarSample>> {
        self.sample(true)
    }

    fn skip(&mut self) -> Result<bool> {
        Ok(self.sample(false)?.is_some())
    }

    fn cursor(&self) -> u64 {
        self.cursor
    }
}

/// A member's key and field, by webdataset's pattern `^((?:.*/|)[^.]+)[.]([^/]*)$`.
fn split(name: &str) -> Option<(&str, String)> {
    let file_at = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = file_at + name[file_at..].find('.')?;
    let is_meta = file_at == 0 && name.starts_with("__") && name.ends_with("__");
    (dot > file_at && !is_meta).then(|| (&name[..dot], name[dot + 1..].to_lowercase()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn names_are_split_as_webdataset_does() {
        let is = |name, key: &'static str, field: &str| {
            assert_eq!(split(name), Some((key, field.to_owned())), "{name}");
        };
        is("train/a.b/x.seg.PNG", "train/a.b/x", "seg.png");
        is("000.cls", "000", "cls");
        is("a.", "a", "");
        assert_eq!(split("folder.d/readme"), None);
        assert_eq!(split(".hidden"), None);
        assert_eq!(split("__meta__"), None);
    }

    fn tar(path: &Path, members: &[(&str, &[u8])]) {
        let mut tar = ::tar::Builder::new(File::create(path).unwrap());
        for (name, bytes) in members {
            let mut header = ::tar::Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_cksum();
            // As webdataset's writer does.
            tar.append_pax_extensions([("mtime", &b"1700000000.5"[..])]).unwrap();
            tar.append_data(&mut header, name, *bytes).unwrap();
        }
        tar.into_inner().unwrap();
    }

    #[test]
    fn samples_are_read_from_each_cursor_and_damage_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        let long = format!("{}/x.bin", "d".repeat(150));
        let large = vec![7u8; 1500];
        tar(
            &path,
            &[("1.a", b"one"), ("1.b", &large), ("note", b"!"), ("2.a", b""), (&long, b"z")],
        );
        let source = WebDataset::new(path.as_path()).unwrap();
        let mut cursors = Vec::new();
        let mut members = source.open_shard(0, 0).unwrap();
        let mut all = Vec::new();
        loop {
            cursors.push(members.cursor());
            let Some(sample) = members.next().unwrap() else { break };
            all.push(sample);
        }
        let keys: Vec<&str> = all.iter().map(|sample| sample.key.as_str()).collect();
        assert_eq!(keys, ["1", "2", long.strip_suffix(".bin").unwrap()]);
        assert_eq!((all[0].bytes("b").unwrap(), all[0].text("a").unwrap()), (&large[..], "one"));
        let error = all[1].bytes("b").unwrap_err().to_string();
        assert!(error.contains("`b`: sample `2` has a"), "{error}");
        for (done, cursor) in cursors.iter().enumerate() {
            let mut members = source.open_shard(0, *cursor).unwrap();
            let rest: Vec<_> = std::iter::from_fn(|| members.next().unwrap()).collect();
            assert_eq!(rest, all[done..]);
        }
        assert_eq!(source.count_shard(0).unwrap(), Some(3));
        let whole = std::fs::read(&path).unwrap();
        let fails = |bytes: &[u8], expected: &str| {
            std::fs::write(&path, bytes).unwrap();
            let mut members = source.open_shard(0, 0).unwrap();
            let error = loop {
                match members.next() {
                    Ok(sample) => assert!(sample.is_some(), "no error: {expected}"),
                    Err(error) => break error.to_string(),
                }
            };
            assert!(error.contains("a.tar") && error.contains(expected), "{error}");
        };
        fails(&whole[..4000], "in the middle of member `1.b`");
        // All of its three bytes are there, but not all of its block.
        let first = whole.windows(3).position(|bytes| bytes == b"one").unwrap();
        fails(&whole[..first + 3], "in the middle of member `1.a`");
        std::fs::write(&path, b"").unwrap();
        assert!(source.open_shard(0, 0).err().unwrap().to_string().contains("a.tar: is empty"));
        std::fs::write(&path, [0; 1024]).unwrap();
        assert!(source.open_shard(0, 0).unwrap().next().unwrap().is_none());
        let mut bad = whole.clone();
        bad[2] ^= 1;
        fails(&bad, "cannot be read as a tar file");
        tar(&path, &[("1.a", b"one"), ("1.a", b"two")]);
        fails(&std::fs::read(&path).unwrap(), "two members `1.a`");
        assert!(source.open_shard(0, 1 << 40).err().unwrap().to_string().contains("changed"));
    }
}
