//! Text for language models, byte by byte or as tokens: windows of a file, which is mapped and not read, so that
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
use crate::data::stream::TokenType;
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
    /// How a token lies in it, if it is no byte.
    token: Option<TokenType>,
    /// The number of different tokens, where it is known.
    vocabulary: Option<usize>,
    /// The part of the file that is used, in tokens.
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
        Self::open("TextWindows::new", path.as_ref(), None, length)
    }

    /// The same of a file of tokens of two or four bytes, as a tokenizer's program writes it.
    ///
    /// ```
    /// use torchrs::data::{Dataset, datasets::TextWindows, stream::TokenType};
    /// # let file = tempfile::NamedTempFile::new().unwrap();
    /// let tokens: Vec<u8> = (1000..1008u16).flat_map(u16::to_le_bytes).collect();
    /// std::fs::write(file.path(), tokens).unwrap();
    /// let windows = TextWindows::of_tokens(file.path(), TokenType::U16, 3)?;
    /// assert_eq!((windows.len(), windows.get(1)?.0), (2, vec![1003, 1004, 1005]));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`Error::File`] for a file that ends within a token.
    pub fn of_tokens(path: impl AsRef<Path>, token: TokenType, length: usize) -> Result<Self> {
        Self::open("TextWindows::of_tokens", path.as_ref(), Some(token), length)
    }

    fn open(call: &str, path: &Path, token: Option<TokenType>, length: usize) -> Result<Self> {
        if length == 0 {
            return Err(Error::argument(call, "length", "is 0, must be >= 1"));
        }
        let what = || format!("open {}", path.display());
        let file_len = File::open(path).and_then(|f| f.metadata()).context(what)?.len();
        let width = width(token);
        if !(file_len as usize).is_multiple_of(width) {
            let message = format!("{file_len} bytes are no whole tokens of {width} bytes");
            return Err(Error::file(path, message));
        }
        let (path, end) = (path.to_owned(), file_len as usize / width);
        let (start, stride, map) = (0, length, OnceLock::new());
        let vocabulary = None;
        TextWindows { path, file_len, token, vocabulary, start, end, length, stride, map }.checked()
    }

    /// Has a sample with a token that is not below `size` be an error, which names the file and the place.
    ///
    /// ```
    /// use torchrs::data::{Dataset, datasets::TextWindows};
    /// # let file = tempfile::NamedTempFile::new().unwrap();
    /// std::fs::write(file.path(), "abcdefgh").unwrap();
    /// let windows = TextWindows::new(file.path(), 3)?.vocabulary(102);
    /// assert!(windows.get(0).is_ok());
    /// let error = windows.get(1).unwrap_err().to_string();
    /// assert!(error.contains("token 5 is 102; a vocabulary of 102"), "{error}");
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    #[must_use]
    pub fn vocabulary(mut self, size: usize) -> Self {
        self.vocabulary = Some(size);
        self
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

    /// How far the starts of neighbouring windows are apart, in tokens (default: a window's length).
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
            let (count, needed) = (self.end - self.start, self.length + 1);
            let unit = if self.token.is_some() { "tokens" } else { "bytes" };
            let message = format!("a part of {count} {unit} is too short: a window needs {needed}");
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
        let (width, first) = (width(self.token), self.start + index * self.stride);
        let window = &self.bytes()?[first * width..][..(self.length + 1) * width];
        let tokens: Vec<i64> = match self.token {
            None => window.iter().map(|&byte| i64::from(byte)).collect(),
            Some(token) => token.values(window),
        };
        let is_too_large =
            |&token: &i64| self.vocabulary.is_some_and(|size| token as usize >= size);
        if let Some(place) = tokens.iter().position(is_too_large) {
            let message = format!(
                "token {} is {}; a vocabulary of {} has none such: it is another's, or has tokens of another type",
                first + place,
                tokens[place],
                self.vocabulary.unwrap_or(0)
            );
            return Err(Error::file(&self.path, message));
        }
        Ok((tokens[..self.length].to_vec(), tokens[1..].to_vec()))
    }
}

/// Bytes of a token.
fn width(token: Option<TokenType>) -> usize {
    token.map_or(1, TokenType::size)
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
        let error =
            TextWindows::of_tokens(short.path(), TokenType::U16, 1).unwrap_err().to_string();
        assert!(error.contains("3 bytes are no whole tokens of 2 bytes"), "{error}");
        let data = TextWindows::new(short.path(), 2).unwrap();
        short.as_file().set_len(0).unwrap();
        let error = data.get(0).unwrap_err().to_string();
        assert!(error.contains("changed") || error.contains("map"), "{error}");
    }
}
