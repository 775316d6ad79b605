//! Reads every byte and compares it with its checksum.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use parking_lot::Mutex;

use super::super::fetch::{BLOCK, Of, Stream};
use super::super::index::Piece;
use super::CheckpointFiles;
use crate::error::{Error, Result};
use crate::tensor::Dtype;

/// More threads than this bring no more of one disk.
const MOST_THREADS: usize = 16;

/// What [`CheckpointFiles::verify`] has found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Verified {
    /// The tensors that are damaged, cut off, or in a file that is missing, by name, and what is wrong with them.
    pub damaged: Vec<(String, Error)>,
    /// Bytes of tensors that agree with their checksums.
    pub checked: u64,
    /// Bytes of tensors that could be read, but have no checksum.
    pub unchecked: u64,
}

impl CheckpointFiles {
    /// Reads every byte of all tensors, on several threads, and compares what has a checksum with it.
    ///
    /// ```
    /// use torchrs::{Tensor, checkpoint::{CheckpointFiles, TensorMap, save_file}};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("model.safetensors");
    /// let tensors = TensorMap::from([("weight".to_owned(), Tensor::from([1f32, 2.]))]);
    /// save_file(&tensors, &Default::default(), &path)?;
    /// assert_eq!(CheckpointFiles::open(&path)?.verify().checked, 8);
    /// let mut bytes = std::fs::read(&path).unwrap();
    /// *bytes.last_mut().unwrap() ^= 1;
    /// std::fs::write(&path, bytes).unwrap();
    /// assert_eq!(CheckpointFiles::open(&path)?.verify().damaged[0].0, "weight");
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn verify(&self) -> Verified {
        let of_tensor = |(name, entry)| {
            let entry: &super::Entry = entry;
            let of = Of { name, dtype: entry.dtype };
            entry.pieces.iter().map(move |piece| (of, piece))
        };
        let all = self.index.tensors.iter().map(|(name, entry)| (name.as_str(), entry));
        let pieces: Vec<(Of<'_>, &Piece)> = all.flat_map(of_tensor).collect();
        let largest = pieces.iter().map(|(of, piece)| piece.nbytes(of.dtype)).max().unwrap_or(0);
        let (next, found) = (AtomicUsize::new(0), Mutex::new(Verified::default()));
        let threads = thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
        thread::scope(|scope| {
            for _ in 0..threads.min(pieces.len()) {
                scope.spawn(|| {
                    let mut buffer = vec![0; BLOCK.min(largest)];
                    while let Some((of, piece)) = pieces.get(next.fetch_add(1, Relaxed)) {
                        let outcome = self.read_through(*of, piece, &mut buffer);
                        let nbytes = piece.nbytes(of.dtype) as u64;
                        let mut found = found.lock();
                        match outcome {
                            Ok(true) => found.checked += nbytes,
                            Ok(false) => found.unchecked += nbytes,
                            Err(error) => found.damaged.push((of.name.to_owned(), error)),
                        }
                    }
                });
            }
        });
        let mut found = found.into_inner();
        found.damaged.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    /// Whether the piece has a checksum, with which it then agrees.
    fn read_through(&self, of: Of<'_>, piece: &Piece, buffer: &mut [u8]) -> Result<bool> {
        let mut stream = Stream::open(piece, of, &self.files)?;
        while stream.rest() > 0 {
            let length = buffer.len().min(stream.rest());
            let block = &mut buffer[..length];
            stream.fill(block)?;
            if of.dtype == Dtype::Bool && block.iter().any(|byte| *byte > 1) {
                let what =
                    format!("tensor `{}` is bool but holds bytes other than 0 and 1", of.name);
                return Err(Error::file(&self.index.path, what));
            }
        }
        Ok(stream.is_checked() || self.is_archive)
    }
}
