//! Files of tokens, mapped into memory: what language models are pre-trained on.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memmap2::Mmap;
use serde::{Deserialize, Serialize};

use super::files::{ShardFiles, shorter};
use crate::data::shared::Shared;
use crate::data::stream::sharded::{ShardReader, ShardedSource};
use crate::error::{Context, Error, Result};

/// How a token lies in a file, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum TokenType {
    /// Two bytes: vocabularies of up to 65,536 (nanoGPT's and llm.c's files).
    U16,
    /// Four bytes.
    U32,
}

impl TokenType {
    /// Bytes of a token.
    pub(in crate::data) fn size(self) -> usize {
        match self {
            TokenType::U16 => 2,
            TokenType::U32 => 4,
        }
    }

    /// The tokens in these bytes.
    pub(in crate::data) fn values(self, bytes: &[u8]) -> Vec<i64> {
        match self {
            TokenType::U16 => {
                bytes.as_chunks().0.iter().map(|&b| u16::from_le_bytes(b).into()).collect()
            }
            TokenType::U32 => {
                bytes.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b).into()).collect()
            }
        }
    }
}

/// Windows of files of tokens; a sample is (tokens `[length]`, the tokens that follow each `[length]`), both i64. A
/// window starts where the one before ended; a file's last tokens that fill none are left out.
///
/// Files are mapped, so that all workers share their pages; they must not shrink while in use.
///
/// ```
/// use torchrs::data::stream::{IterableDataset, Part, StreamReader, TokenFiles, TokenType};
/// # let file = tempfile::NamedTempFile::new().unwrap();
/// # let path = file.path();
/// let tokens: Vec<u8> = (0..10u16).flat_map(u16::to_le_bytes).collect();
/// std::fs::write(path, tokens).unwrap();
/// let windows = TokenFiles::new(path, TokenType::U16, 4)?;
/// assert_eq!(windows.count(Part::new(0, 1)?)?, Some(2));
/// let (tokens, next) = windows.open(Part::new(0, 1)?, None)?.next()?.unwrap();
/// assert_eq!((tokens, next), (vec![0, 1, 2, 3], vec![1, 2, 3, 4]));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Clone, Serialize, Deserialize)]
pub struct TokenFiles {
    files: Shared<Vec<PathBuf>>,
    token: TokenType,
    length: usize,
    header: usize,
}

impl TokenFiles {
    /// Windows of `length` tokens.
    ///
    /// # Errors
    /// [`Error::Os`] when a file is missing, [`Error::Argument`] when `length` is 0.
    pub fn new(files: impl Into<ShardFiles>, token: TokenType, length: usize) -> Result<Self> {
        if length == 0 {
            return Err(Error::argument("TokenFiles::new", "length", "is 0, must be at least 1"));
        }
        let files = Shared::new(files.into().existing("TokenFiles::new")?);
        Ok(TokenFiles { files, token, length, header: 0 })
    }

    /// How many bytes each file begins with that are no tokens (default: 0; llm.c's have 1,024).
    #[must_use]
    pub fn header(mut self, bytes: usize) -> Self {
        self.header = bytes;
        self
    }

    /// How many windows a file of `len` bytes has.
    fn windows(&self, path: &Path, len: u64) -> Result<u64> {
        let size = self.token.size() as u64;
        let bytes = len.checked_sub(self.header as u64).filter(|bytes| bytes.is_multiple_of(size));
        let Some(bytes) = bytes else {
            let header = self.header;
            let message = format!("{len} bytes are not a header of {header} and tokens of {size}");
            return Err(Error::file(path, message));
        };
        Ok((bytes / size).saturating_sub(1) / self.length as u64)
    }
}

impl ShardedSource for TokenFiles {
    type Sample = (Vec<i64>, Vec<i64>);
    type Shard = Windows;

    fn shards(&self) -> usize {
        self.files.len()
    }

    fn open_shard(&self, shard: usize, cursor: u64) -> Result<Windows> {
        let path = &self.files[shard];
        let what = || format!("map {}", path.display());
        let file = File::open(path).context(what)?;
        let end = self.windows(path, file.metadata().context(what)?.len())?;
        if cursor > end {
            return Err(shorter(path, cursor, end));
        }
        // SAFETY: the mapping is only read. That nobody shrinks the file meanwhile is the documented condition of
        // this dataset, as of any mapped file.
        let map = Arc::new(unsafe { Mmap::map(&file) }.context(what)?);
        if self.windows(path, map.len() as u64)? != end {
            return Err(Error::file(path, "changed while it was opened"));
        }
        let (token, length, header) = (self.token, self.length, self.header);
        Ok(Windows { map, token, length, header, next: cursor, end })
    }

    fn count_shard(&self, shard: usize) -> Result<Option<u64>> {
        let path = &self.files[shard];
        let len = path.metadata().context(|| format!("look at {}", path.display()))?.len();
        self.windows(path, len).map(Some)
    }
}

/// The windows of a file.
pub struct Windows {
    map: Arc<Mmap>,
    token: TokenType,
    length: usize,
    header: usize,
    next: u64,
    end: u64,
}

impl ShardReader for Windows {
    type Sample = (Vec<i64>, Vec<i64>);

    fn next(&mut self) -> Result<Option<Self::Sample>> {
        let window = self.next as usize;
        if !self.skip()? {
            return Ok(None);
        }
        let size = self.token.size();
        let bytes =
            &self.map[self.header + window * self.length * size..][..(self.length + 1) * size];
        let tokens = self.token.values(bytes);
        Ok(Some((tokens[..self.length].to_vec(), tokens[1..].to_vec())))
    }

    fn skip(&mut self) -> Result<bool> {
        let more = self.next < self.end;
        self.next += u64::from(more);
        Ok(more)
    }

    fn cursor(&self) -> u64 {
        self.next
    }
}
