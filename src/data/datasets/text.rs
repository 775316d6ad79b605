//! Text for language models, byte by byte: windows of a file, which is mapped and not read, so that
//! all workers share its pages. Any file will do.
//!
//! Debian's King James Bible (packages `bible-kjv` and `bible-kjv-text`) is stored in a format of
//! its own; its program writes it out as 4.4 MB of plain text, a verse per line:
//! `bible -f gen1:1-rev22:21 > kjv.txt`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use memmap2::Mmap;
use serde::{Deserialize, Serialize};

use crate::data::Dataset;
use crate::error::{Context, Error, Result};

/// Windows of a file; a sample is (tokens `[length]`, the tokens that follow each `[length]`), both
/// i64 from 0 to 255. The file must not shrink while it is in use.
///
/// ```
/// use torchrs::data::{Dataset, datasets::TextWindows};
/// # let file = tempfile::NamedTempFile::new().unwrap();
/// std::fs::write(file.path(), "abcdefgh").unwrap();
/// let windows = TextWindows::new(file.path(), 3)?;
/// let (tokens, next) = windows.get(1)?;
/// let text = |tokens: Vec<i64>| tokens.iter().map(|&t| t as u8 as char).collect::<String>();
/// assert_eq!((text(tokens), text(next)), ("def".to_owned(), "efg".to_owned()));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Serialize, Deserialize)]
pub struct TextWindows {
    path: PathBuf,
    file_len: u64,
    /// The part of the file that is used.
    start: usize,
    end: usize,
    length: usize,
    stride: usize,
    #[serde(skip)]
    map: OnceLock<Mmap>,
}

impl TextWindows {
    /// Number of different tokens.
    pub const VOCABULARY: usize = 256;

    /// All windows of `length` tokens, each starting where the one before ended.
    ///
    /// ```
    /// use torchrs::data::{Dataset, datasets::TextWindows};
    /// # let file = tempfile::NamedTempFile::new().unwrap();
    /// std::fs::write(file.path(), "abcdefgh").unwrap();
    /// assert_eq!(TextWindows::new(file.path(), 3)?.len(), 2);
    /// assert!(TextWindows::new(file.path(), 8).unwrap_err().to_string().contains("a window needs 9"));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when the file cannot be opened, [`Error::File`] when it has no whole window,
    /// [`Error::Argument`] when `length` is 0.
    pub fn new(path: impl AsRef<Path>, length: usize) -> Result<Self> {
        let path = path.as_ref();
        if length == 0 {
            return Err(Error::argument("TextWindows::new", "length", "is 0, must be >= 1"));
        }
        let what = || format!("open {}", path.display());
        let file_len = File::open(path).and_then(|f| f.metadata()).context(what)?.len();
        let (path, end) = (path.to_owned(), file_len as usize);
        let (start, stride, map) = (0, length, OnceLock::new());
        TextWindows { path, file_len, start, end, length, stride, map }.checked()
    }

    /// Two datasets: the beginning of the file, and its last `tail` (0 to 1) for validation.
    ///
    /// ```
    /// use torchrs::data::{Dataset, datasets::TextWindows};
    /// # let file = tempfile::NamedTempFile::new().unwrap();
    /// std::fs::write(file.path(), "abcdefghij").unwrap();
    /// let (train, validation) = TextWindows::new(file.path(), 2)?.split(0.4)?;
    /// assert_eq!((train.len(), validation.len()), (2, 1));
    /// assert_eq!(validation.get(0)?.0, [i64::from(b'g'), i64::from(b'h')]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when `tail` is not between 0 and 1, [`Error::File`] when a part has no
    /// whole window.
    pub fn split(self, tail: f64) -> Result<(Self, Self)> {
        if !(0.0..=1.0).contains(&tail) {
            let message = format!("is {tail}, must be from 0 to 1");
            return Err(Error::argument("TextWindows::split", "tail", message));
        }
        let at = self.end - ((self.end - self.start) as f64 * tail).round() as usize;
        let part = |start, end| {
            let (path, map) = (self.path.clone(), OnceLock::new());
            TextWindows { path, start, end, map, ..self }.checked()
        };
        Ok((part(self.start, at)?, part(at, self.end)?))
    }

    /// How far the starts of neighbouring windows are apart, in bytes (default: a window's length).
    ///
    /// ```
    /// use torchrs::data::{Dataset, datasets::TextWindows};
    /// # let file = tempfile::NamedTempFile::new().unwrap();
    /// std::fs::write(file.path(), "abcdefgh").unwrap();
    /// let windows = TextWindows::new(file.path(), 3)?.stride(1)?;
    /// assert_eq!((windows.len(), windows.get(4)?.0[0]), (5, i64::from(b'e')));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when it is 0.
    pub fn stride(mut self, stride: usize) -> Result<Self> {
        if stride == 0 {
            return Err(Error::argument("TextWindows::stride", "stride", "is 0, must be >= 1"));
        }
        self.stride = stride;
        Ok(self)
    }

    fn checked(self) -> Result<Self> {
        if self.is_empty() {
            let (bytes, needed) = (self.end - self.start, self.length + 1);
            let message = format!("a part of {bytes} bytes is too short: a window needs {needed}");
            return Err(Error::file(&self.path, message));
        }
        Ok(self)
    }

    /// The file's bytes, mapped at the first use in a process.
    fn bytes(&self) -> Result<&[u8]> {
        if let Some(map) = self.map.get() {
            return Ok(map);
        }
        let what = || format!("map {}", self.path.display());
        let file = File::open(&self.path).context(what)?;
        // SAFETY: the mapping is only read. That nobody shrinks the file meanwhile is the documented
        // condition of this dataset, as of any mapped file.
        let map = unsafe { Mmap::map(&file) }.context(what)?;
        if map.len() as u64 != self.file_len {
            let message = format!("changed: it had {} bytes and has {}", self.file_len, map.len());
            return Err(Error::file(&self.path, message));
        }
        Ok(self.map.get_or_init(|| map))
    }
}

impl Dataset for TextWindows {
    type Sample = (Vec<i64>, Vec<i64>);

    fn len(&self) -> usize {
        match (self.end - self.start).checked_sub(self.length + 1) {
            Some(last) => last / self.stride + 1,
            None => 0,
        }
    }

    fn get(&self, index: usize) -> Result<(Vec<i64>, Vec<i64>)> {
        let window = &self.bytes()?[self.start + index * self.stride..][..self.length + 1];
        let tokens = |bytes: &[u8]| bytes.iter().map(|&byte| i64::from(byte)).collect();
        Ok((tokens(&window[..self.length]), tokens(&window[1..])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    fn text(tokens: &[i64]) -> String {
        tokens.iter().map(|&t| t as u8 as char).collect()
    }

    #[test]
    fn targets_are_the_tokens_one_further() {
        let file = file("abcdefgh");
        let data = TextWindows::new(file.path(), 3).unwrap();
        assert_eq!(data.len(), 2);
        let (tokens, targets) = data.get(1).unwrap();
        assert_eq!((text(&tokens).as_str(), text(&targets).as_str()), ("def", "efg"));
        assert_eq!(data.stride(1).unwrap().len(), 5);
        assert_eq!(TextWindows::new(file.path(), 7).unwrap().len(), 1);
    }

    #[test]
    fn the_split_shares_no_byte() {
        let file = file("abcdefghij");
        let (train, tail) = TextWindows::new(file.path(), 2).unwrap().split(0.4).unwrap();
        assert_eq!((train.len(), tail.len()), (2, 1));
        assert_eq!(text(&train.get(1).unwrap().1), "de");
        assert_eq!(text(&tail.get(0).unwrap().0), "gh");
        let data = TextWindows::new(file.path(), 2).unwrap();
        assert!(data.split(0.1).unwrap_err().to_string().contains("1 bytes is too short"));
    }

    #[test]
    fn bad_files_are_named() {
        let short = file("abc");
        let error = TextWindows::new(short.path(), 3).unwrap_err().to_string();
        assert!(error.contains("3 bytes is too short: a window needs 4"), "{error}");
        assert!(TextWindows::new("/nowhere", 3).unwrap_err().to_string().contains("/nowhere"));
        let data = TextWindows::new(short.path(), 2).unwrap();
        short.as_file().set_len(0).unwrap();
        let error = data.get(0).unwrap_err().to_string();
        assert!(error.contains("changed") || error.contains("map"), "{error}");
    }
}
