//! Brings pieces of a checkpoint from where they lie, each byte checked where the file says what it must be.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::index::{Checksum, Entry, Index, Location, Piece};
use super::region::Region;
use crate::checkpoint::archive::Part;
use crate::checkpoint::pt::item::{self, Found};
use crate::checkpoint::raw::{Bytes, bytes_mut, check_bools, error_of, zeros};
use crate::checkpoint::safetensors::type_checksum;
use crate::error::{Context, Error, Result};
use crate::tensor::{Dtype, Tensor};

/// Bytes that are read at once where they do not go straight to their place.
pub(super) const BLOCK: usize = 4 << 20;

/// The files of a checkpoint, each opened once.
#[derive(Debug, Default)]
pub(crate) struct Files {
    open: Mutex<HashMap<PathBuf, Arc<File>>>,
}

impl Files {
    fn get(&self, path: &Path) -> Result<Arc<File>> {
        let mut open = self.open.lock();
        if let Some(file) = open.get(path) {
            return Ok(file.clone());
        }
        let file = File::open(path).context(|| format!("open {}", path.display()))?;
        let file = Arc::new(file);
        open.insert(path.to_owned(), file.clone());
        Ok(file)
    }
}

/// A tensor's name and dtype, for messages and checks.
#[derive(Clone, Copy)]
pub(super) struct Of<'a> {
    pub name: &'a str,
    pub dtype: Dtype,
}

impl Piece {
    /// Bytes of its elements.
    pub(super) fn nbytes(&self, dtype: Dtype) -> usize {
        self.region.numel() * dtype.size()
    }

    /// Where an item of PyTorch's has the bytes.
    fn found(&self, of: Of, files: &Files) -> Result<Option<Location>> {
        let Location::Item { path, start, length } = &self.at else { return Ok(None) };
        let part = Part { file: files.get(path)?, start: *start, length: *length };
        let found = item::tensor(path, part, of.dtype, &self.region.shape);
        Ok(Some(match found.map_err(|error| of.named(error))? {
            Found::Read(tensor) => Location::Memory(tensor),
            Found::At(start, crc32) => {
                let checksum = crc32.map(|crc32| Checksum { crc32, has_type: false });
                Location::File { path: path.clone(), start, checksum }
            }
        }))
    }
}

impl Of<'_> {
    /// An error that says of which tensor it is.
    fn named(&self, error: Error) -> Error {
        match error {
            Error::File { path, message } => {
                Error::File { path, message: format!("tensor `{}`: {message}", self.name) }
            }
            other => other,
        }
    }
}

/// A piece's bytes, one after the other.
pub(super) struct Stream {
    source: Source,
    name: String,
    offsets: Vec<usize>,
    expected: Option<u32>,
    /// It was read from an archive, which has a checksum of everything.
    was_checked: bool,
    crc: flate2::Crc,
    done: usize,
    nbytes: usize,
}

enum Source {
    Held(Bytes),
    File { file: Arc<File>, path: PathBuf, start: u64 },
}

impl Stream {
    /// Begins to read a piece.
    pub fn open(piece: &Piece, of: Of, files: &Files) -> Result<Self> {
        let (mut crc, mut expected) = (flate2::Crc::new(), None);
        let found = piece.found(of, files)?;
        let source = match found.as_ref().unwrap_or(&piece.at) {
            Location::Memory(tensor) => Source::Held(Bytes::new(tensor)?),
            Location::Item { path, start, .. } => {
                let what = format!("tensor `{}`: the item at byte {start} is none", of.name);
                return Err(Error::file(path, what));
            }
            Location::File { path, start, checksum } => {
                if let Some(Checksum { crc32, has_type }) = *checksum {
                    expected = Some(crc32);
                    if has_type {
                        crc = type_checksum(of.dtype, &piece.region.shape);
                    }
                }
                Source::File { file: files.get(path)?, path: path.clone(), start: *start }
            }
        };
        let (name, offsets) = (of.name.to_owned(), piece.region.offsets.clone());
        let nbytes = piece.nbytes(of.dtype);
        let was_checked = matches!(found, Some(Location::Memory(_)));
        Ok(Stream { source, name, offsets, expected, was_checked, crc, done: 0, nbytes })
    }

    /// Bytes that are still to come.
    pub fn rest(&self) -> usize {
        self.nbytes - self.done
    }

    /// Whether its file has a checksum of it, with which it agrees when all has been read.
    pub fn is_checked(&self) -> bool {
        self.expected.is_some() || self.was_checked
    }

    /// Reads the next bytes. With the last of all it is known whether they were damaged.
    ///
    /// # Errors
    /// [`Error::File`] for bytes that are missing or damaged.
    pub fn fill(&mut self, into: &mut [u8]) -> Result<()> {
        match &self.source {
            Source::Held(bytes) => {
                into.copy_from_slice(&bytes.as_slice()[self.done..self.done + into.len()]);
            }
            Source::File { file, path, start } => {
                let mut at = start + self.done as u64;
                // Counted while they are in the processor's cache.
                for part in into.chunks_mut(CACHED) {
                    file.read_exact_at(part, at).map_err(|error| self.failure(path, at, error))?;
                    at += part.len() as u64;
                    if self.expected.is_some() {
                        self.crc.update(part);
                    }
                }
            }
        }
        self.done += into.len();
        match (&self.source, self.expected) {
            (Source::File { path, .. }, Some(expected))
                if self.done == self.nbytes && self.crc.sum() != expected =>
            {
                let what = format!(
                    "tensor `{}` is damaged: the checksum of its piece at {:?} is {:08x}, {expected:08x} was written",
                    self.name,
                    self.offsets,
                    self.crc.sum()
                );
                Err(Error::file(path, what))
            }
            _ => Ok(()),
        }
    }

    fn failure(&self, path: &Path, at: u64, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Error::file(
                path,
                format!("is cut off in tensor `{}`, at byte {at} or soon after", self.name),
            ),
            _ => Error::os(format!("read {}", path.display()), error),
        }
    }
}

const CACHED: usize = 256 << 10;

/// Memory of a part of a tensor that pieces are read into.
pub(super) struct Target<'a> {
    pub region: &'a Region,
    pub bytes: &'a mut [u8],
}

impl Target<'_> {
    /// Reads what a piece has of it.
    pub fn read(&mut self, piece: &Piece, of: Of, files: &Files) -> Result<()> {
        let Some(common) = piece.region.intersect(self.region) else { return Ok(()) };
        let size = of.dtype.size();
        let nbytes = piece.nbytes(of.dtype);
        let mut stream = Stream::open(piece, of, files)?;
        if let Some(run) = common.runs(&piece.region, self.region, size).only()
            && run.len == nbytes
        {
            return stream.fill(&mut self.bytes[run.to..run.to + nbytes]);
        }
        let mut buffer = vec![0; BLOCK.min(nbytes)];
        while stream.rest() > 0 {
            let (start, length) = (nbytes - stream.rest(), BLOCK.min(stream.rest()));
            stream.fill(&mut buffer[..length])?;
            self.take(&common, &piece.region, size, start, &buffer[..length]);
        }
        Ok(())
    }

    /// Takes from bytes of a piece, which begin at its byte `start`, what it has in common with it.
    pub fn take(
        &mut self,
        common: &Region,
        piece: &Region,
        size: usize,
        start: usize,
        bytes: &[u8],
    ) {
        let runs = common.runs(piece, self.region, size);
        for run in runs.between(start, start + bytes.len()) {
            let from = run.from - start;
            self.bytes[run.to..run.to + run.len].copy_from_slice(&bytes[from..from + run.len]);
        }
    }
}

impl Index {
    /// A tensor, whole.
    ///
    /// # Errors
    /// [`Error::File`] when it is not there, cut off or damaged; [`Error::OutOfMemory`].
    pub fn read(&self, name: &str, files: &Files) -> Result<Tensor> {
        let entry = self.entry(name)?;
        self.read_region(name, entry, &Region::whole(&entry.shape), files)
    }

    /// A part of a tensor.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_region(
        &self,
        name: &str,
        entry: &Entry,
        region: &Region,
        files: &Files,
    ) -> Result<Tensor> {
        let what = format!("tensor `{name}`");
        let scarce = |why: String| error_of(&self.path, format!("{what}: {why}"));
        let mut tensor = zeros(&region.shape, entry.dtype).map_err(scarce)?;
        let of = Of { name, dtype: entry.dtype };
        let mut target = Target { region, bytes: bytes_mut(&mut tensor) };
        for piece in &entry.pieces {
            target.read(piece, of, files)?;
        }
        check_bools(&self.path, &what, &tensor)?;
        Ok(tensor)
    }
}
