//! Brings pieces of a checkpoint from where they lie, each byte checked where the file says what it must be.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::index::{Checksum, Entry, Index, Location, Piece};
use super::region::Region;
use crate::checkpoint::raw::{Bytes, bytes_mut, check_bools, error_of, zeros};
use crate::checkpoint::safetensors::type_checksum;
use crate::error::{Context, Error, Result};
use crate::tensor::{Dtype, Tensor};

/// Bytes that are read at once where they do not go straight to their place.
pub(super) const BLOCK: usize = 4 << 20;

/// The files of a checkpoint, each opened once.
#[derive(Default)]
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

    /// Reads all of it into `into`, which has its size.
    ///
    /// # Errors
    /// [`Error::File`] for bytes that are missing or damaged.
    pub(super) fn read_into(&self, of: Of, files: &Files, into: &mut [u8]) -> Result<()> {
        self.blocks(of, files, into.len().max(1), &mut |start, block| {
            block.fill(&mut into[start..])
        })
    }

    /// Reads all of it, at most `most` bytes at once, and has `see` take each block and where it begins.
    ///
    /// # Errors
    /// [`Error::File`] for bytes that are missing or damaged: damage is known when all have been seen.
    pub(super) fn blocks(
        &self,
        of: Of,
        files: &Files,
        most: usize,
        see: &mut dyn FnMut(usize, Block) -> Result<()>,
    ) -> Result<()> {
        let nbytes = self.nbytes(of.dtype);
        let lengths = |start: usize| most.min(nbytes - start);
        match &self.at {
            Location::Memory(tensor) => {
                let bytes = Bytes::new(tensor)?;
                let bytes = bytes.as_slice();
                let mut start = 0;
                while start < nbytes {
                    let length = lengths(start);
                    let mut crc = flate2::Crc::new();
                    see(
                        start,
                        Block::new(Origin::Held(&bytes[start..start + length]), length, &mut crc),
                    )?;
                    start += length;
                }
                Ok(())
            }
            Location::File { path, start: first, checksum } => {
                let file = files.get(path)?;
                let mut crc = match checksum {
                    Some(Checksum { has_type: true, .. }) => {
                        type_checksum(of.dtype, &self.region.shape)
                    }
                    _ => flate2::Crc::new(),
                };
                let mut start = 0;
                while start < nbytes {
                    let length = lengths(start);
                    let origin =
                        Origin::File { file: &file, path, of: of.name, at: first + start as u64 };
                    see(start, Block::new(origin, length, &mut crc))?;
                    start += length;
                }
                match checksum {
                    Some(Checksum { crc32, .. }) if *crc32 != crc.sum() => {
                        let found = crc.sum();
                        let what = format!(
                            "tensor `{}` is damaged: the checksum of its piece at {:?} is {found:08x}, \
                             {crc32:08x} was written",
                            of.name, self.region.offsets
                        );
                        Err(Error::file(path, what))
                    }
                    _ => Ok(()),
                }
            }
        }
    }
}

/// Bytes that are about to be read, to be put where they belong.
pub(super) struct Block<'a> {
    origin: Origin<'a>,
    length: usize,
    crc: &'a mut flate2::Crc,
}

enum Origin<'a> {
    Held(&'a [u8]),
    File { file: &'a File, path: &'a Path, of: &'a str, at: u64 },
}

impl<'a> Block<'a> {
    fn new(origin: Origin<'a>, length: usize, crc: &'a mut flate2::Crc) -> Self {
        Block { origin, length, crc }
    }

    pub fn len(&self) -> usize {
        self.length
    }

    /// Reads them. Each block is read once, or its bytes would not be counted.
    pub fn fill(self, into: &mut [u8]) -> Result<()> {
        match self.origin {
            Origin::Held(bytes) => into.copy_from_slice(bytes),
            Origin::File { file, path, of, at } => {
                // Checked while it is in the processor's cache.
                for (number, part) in into.chunks_mut(CACHED).enumerate() {
                    let at = at + (number * CACHED) as u64;
                    file.read_exact_at(part, at).map_err(|error| match error.kind() {
                        std::io::ErrorKind::UnexpectedEof => Error::file(
                            path,
                            format!(
                                "is cut off in tensor `{of}`, before byte {}",
                                at + part.len() as u64
                            ),
                        ),
                        _ => Error::os(format!("read {}", path.display()), error),
                    })?;
                    self.crc.update(part);
                }
            }
        }
        Ok(())
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
        if let Some(run) = common.runs(&piece.region, self.region, size).only()
            && run.len == nbytes
        {
            return piece.read_into(of, files, &mut self.bytes[run.to..run.to + nbytes]);
        }
        let mut buffer = vec![0; BLOCK.min(nbytes)];
        piece.blocks(of, files, BLOCK, &mut |start, block| {
            let read = &mut buffer[..block.len()];
            block.fill(read)?;
            self.take(&common, &piece.region, size, start, read);
            Ok(())
        })
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
