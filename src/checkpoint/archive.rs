//! Zip archives, as `.pt` and `.npz` files are: where each entry lies, its bytes, and writing. What a
//! hostile archive could do is refused here: entries that overlap or share a name, sizes that the file
//! cannot hold, contents that grow when unpacked beyond what is asked for.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::read::DeflateDecoder;
use rawzip::path::EntryPath;
use rawzip::{CompressionMethod, ReaderAt, ZipArchive, ZipArchiveWriter};

use super::raw::{buffer, error_of, shown};
use crate::error::{Context, Error, Result};

/// Deflate makes at most this of one byte.
const LARGEST_RATIO: u64 = 1032;
/// An archive's end is looked for in this many bytes: those of its record and its longest comment.
const END: u64 = 22 + 65_535;

/// A stretch of a file, as if it were one of its own.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) file: Arc<File>,
    pub(super) start: u64,
    pub(super) length: u64,
}

impl ReaderAt for Part {
    fn read_at(&self, into: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let left = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let most = into.len().min(left);
        self.file.read_at(&mut into[..most], self.start.saturating_add(offset))
    }
}

/// An open archive.
pub(super) struct Archive {
    part: Part,
    path: PathBuf,
    entries: BTreeMap<String, Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    start: u64,
    /// Bytes in the file, and unpacked.
    packed: u64,
    size: u64,
    deflated: bool,
    crc: u32,
}

impl Archive {
    /// Reads the table of contents.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).context(|| format!("open {}", path.display()))?;
        let length = file.metadata().context(|| format!("open {}", path.display()))?.len();
        Self::within(path, Part { file: Arc::new(file), start: 0, length })
    }

    /// Reads the table of contents of an archive that is a part of a file. `path` is only named in errors.
    pub(super) fn within(path: &Path, part: Part) -> Result<Self> {
        let damaged =
            |e: rawzip::Error| Error::file(path, format!("is no intact zip archive: {e}"));
        let wrong = |what: String| Error::file(path, what);
        let mut buffer = vec![0; rawzip::RECOMMENDED_BUFFER_SIZE];
        let archive = ZipArchive::with_max_search_space(END)
            .locate_in_reader(part.clone(), &mut buffer, part.length)
            .map_err(|(_, e)| damaged(e))?;
        let mut entries = BTreeMap::new();
        let mut spans = Vec::new();
        let mut list = archive.entries(&mut buffer);
        while let Some(record) = list.next_entry().map_err(damaged)? {
            if record.is_dir() {
                continue;
            }
            let path_bytes = record.file_path();
            let name = match std::str::from_utf8(path_bytes.as_bytes()) {
                Ok(name) => name.to_owned(),
                Err(_) => {
                    let name = shown(path_bytes.as_bytes());
                    return Err(wrong(format!("has an entry whose name is not UTF-8: `{name}`")));
                }
            };
            let deflated = match record.compression_method() {
                CompressionMethod::STORE => false,
                CompressionMethod::DEFLATE => true,
                other => {
                    return Err(wrong(format!(
                        "entry `{name}` is packed by method {other:?}; stored and deflated ones are read"
                    )));
                }
            };
            let (size, crc) = (record.uncompressed_size_hint(), record.crc32());
            let found = archive.get_entry(record.wayfinder()).map_err(damaged)?;
            let (start, end) = found.compressed_data_range();
            let packed = end.saturating_sub(start);
            if (!deflated && size != packed) || size > packed.saturating_mul(LARGEST_RATIO) {
                return Err(wrong(format!(
                    "entry `{name}` says it has {size} bytes, packed in {packed}"
                )));
            }
            if end > part.length {
                return Err(wrong(format!("entry `{name}` is cut off")));
            }
            spans.push((start, end));
            let entry = Entry { start, packed, size, deflated, crc };
            if entries.insert(name.clone(), entry).is_some() {
                return Err(wrong(format!("has two entries `{name}`")));
            }
        }
        spans.sort_unstable();
        if spans.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return Err(wrong("has entries that overlap".into()));
        }
        Ok(Archive { part, path: path.to_owned(), entries })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The entries' names, sorted.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    fn entry(&self, name: &str) -> Result<&Entry> {
        let missing = || Error::file(&self.path, format!("has no entry `{name}`"));
        self.entries.get(name).ok_or_else(missing)
    }

    /// An entry's size, unpacked.
    pub(super) fn size(&self, name: &str) -> Result<u64> {
        self.entry(name).map(|entry| entry.size)
    }

    /// From which byte of the file on an entry lies, and its checksum, if it has one; nothing of one that is packed.
    pub(super) fn stored(&self, name: &str) -> Result<Option<(u64, Option<u32>)>> {
        let entry = self.entry(name)?;
        let checksum = (entry.crc != 0).then_some(entry.crc);
        let start = self.part.start.saturating_add(entry.start);
        Ok((!entry.deflated).then_some((start, checksum)))
    }

    /// A whole entry, unless it is larger than `limit`.
    pub(super) fn read(&self, name: &str, limit: u64) -> Result<Vec<u8>> {
        let size = self.size(name)?;
        if size > limit {
            let what = format!("entry `{name}` has {size} bytes; at most {limit} are read");
            return Err(Error::file(&self.path, what));
        }
        let mut bytes = buffer(size as usize)
            .map_err(|why| error_of(&self.path, format!("entry `{name}`: {why}")))?;
        self.read_into(name, &mut bytes)?;
        Ok(bytes)
    }

    /// A whole entry, which must have the size of `bytes`. Its checksum is checked; 0 is that of
    /// archives without one.
    pub(super) fn read_into(&self, name: &str, bytes: &mut [u8]) -> Result<()> {
        let mut contents = self.contents(name)?;
        if contents.entry.size != bytes.len() as u64 {
            let (found, wanted) = (contents.entry.size, bytes.len());
            return Err(contents.wrong(format!("has {found} bytes, must have {wanted}")));
        }
        contents.read_exact(bytes).map_err(|e| contents.unreadable(&e))?;
        contents.finish()
    }

    /// An entry from its start on, unpacked.
    pub(super) fn contents<'a>(&'a self, name: &'a str) -> Result<Contents<'a>> {
        let entry = *self.entry(name)?;
        let stored = Range { part: &self.part, at: entry.start, left: entry.packed };
        let stream: Box<dyn Read + 'a> = match entry.deflated {
            true => Box::new(DeflateDecoder::new(stored)),
            false => Box::new(stored),
        };
        Ok(Contents { path: &self.path, name, entry, stream, crc: flate2::Crc::new() })
    }
}

/// An entry that is being read.
pub(super) struct Contents<'a> {
    path: &'a Path,
    name: &'a str,
    entry: Entry,
    stream: Box<dyn Read + 'a>,
    crc: flate2::Crc,
}

impl Contents<'_> {
    fn wrong(&self, what: String) -> Error {
        Error::file(self.path, format!("entry `{}` {what}", self.name))
    }

    fn unreadable(&self, error: &std::io::Error) -> Error {
        self.wrong(format!("cannot be read: {error}"))
    }

    /// To be called when all of it has been read: whether that was all, and as it was written.
    pub(super) fn finish(mut self) -> Result<()> {
        if self.stream.read(&mut [0]).map_err(|e| self.unreadable(&e))? != 0 {
            return Err(self.wrong(format!("has more than {} bytes", self.entry.size)));
        }
        let (found, expected) = (self.crc.sum(), self.entry.crc);
        if expected != 0 && expected != found {
            return Err(self.wrong(format!(
                "is damaged: its checksum is {found:08x}, {expected:08x} was written"
            )));
        }
        Ok(())
    }
}

impl Read for Contents<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let n = self.stream.read(into)?;
        self.crc.update(&into[..n]);
        Ok(n)
    }
}

/// A part of an archive.
struct Range<'a> {
    part: &'a Part,
    at: u64,
    left: u64,
}

impl Read for Range<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let most = into.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let n = self.part.read_at(&mut into[..most], self.at)?;
        (self.at, self.left) = (self.at + n as u64, self.left - n as u64);
        Ok(n)
    }
}

/// Writes an archive of entries as they are.
pub(super) struct ArchiveWriter<'a, W: Write> {
    path: &'a Path,
    writer: ZipArchiveWriter<W>,
}

impl<'a, W: Write> ArchiveWriter<'a, W> {
    /// `path` is only named in errors.
    pub(super) fn new(path: &'a Path, out: W) -> Self {
        ArchiveWriter { path, writer: ZipArchiveWriter::new(out) }
    }

    /// Adds an entry, whose contents are these parts one after the other.
    pub(super) fn add(&mut self, name: &str, parts: &[&[u8]]) -> Result<()> {
        let failed = |e: rawzip::Error| Error::file(self.path, format!("write `{name}`: {e}"));
        let (mut entry, config) =
            self.writer.new_file(exactly(self.path, name)?).start().map_err(failed)?;
        let mut data = config.wrap(&mut entry);
        for part in parts {
            data.write_all(part).context(|| format!("write {}", self.path.display()))?;
        }
        let (_, descriptor) = data.finish().map_err(failed)?;
        entry.finish(descriptor).map_err(failed)?;
        Ok(())
    }

    /// Writes the table of contents.
    pub(super) fn finish(self) -> Result<()> {
        let failed = |e: rawzip::Error| Error::file(self.path, format!("write: {e}"));
        self.writer.finish().map(drop).map_err(failed)
    }
}

/// A name that is written as it is: one with `..`, `//` or a backslash in it would be made another.
fn exactly<'a>(path: &Path, name: &'a str) -> Result<EntryPath<'a>> {
    let parts = || name.split('/');
    let changed = name.contains('\\') || parts().any(|part| matches!(part, "" | "." | ".."));
    if name.contains('\0') || (changed && !name.is_ascii()) || name.len() > usize::from(u16::MAX) {
        let name = shown(name.as_bytes());
        return Err(Error::file(path, format!("`{name}` cannot be the name of an entry")));
    }
    Ok(if name.is_ascii() { EntryPath::verbatim(name.as_bytes()) } else { name.into() })
}
