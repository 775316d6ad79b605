//! JSON Lines: a value on each line.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::files::{ShardFiles, check_row_begins, open_text};
use crate::data::shared::Shared;
use crate::data::stream::counts::counted;
use crate::data::stream::sharded::{ShardReader, ShardedSource};
use crate::error::{Context, Error, Result};

/// Files of JSON values, one on each line, read as `T`. Empty lines are passed over.
///
/// ```
/// use torchrs::data::stream::{IterableDataset, JsonLines, Part, StreamReader};
/// #[derive(serde::Deserialize)]
/// struct Row { text: String, label: i64 }
/// # let file = tempfile::NamedTempFile::new().unwrap();
/// # let path = file.path();
/// std::fs::write(path, "{\"text\": \"ja\", \"label\": 1}\n{\"text\": \"nein\", \"label\": 0}\n").unwrap();
/// let rows = JsonLines::<Row>::new(path)?.map(|row| Ok((row.text, row.label)));
/// let mut reader = rows.open(Part::new(0, 1)?, None)?;
/// assert_eq!(reader.next()?, Some(("ja".to_owned(), 1)));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct JsonLines<T> {
    files: Shared<Vec<PathBuf>>,
    row: PhantomData<fn() -> T>,
}

impl<T> Clone for JsonLines<T> {
    fn clone(&self) -> Self {
        JsonLines { files: self.files.clone(), row: PhantomData }
    }
}

impl<T: DeserializeOwned + Send + 'static> JsonLines<T> {
    /// The rows of some files.
    ///
    /// # Errors
    /// [`Error::Os`] when a file is missing, [`Error::Argument`] when there is none.
    pub fn new(files: impl Into<ShardFiles>) -> Result<Self> {
        let files = Shared::new(files.into().existing("JsonLines::new")?);
        Ok(JsonLines { files, row: PhantomData })
    }
}

impl<T: DeserializeOwned + Send + 'static> ShardedSource for JsonLines<T> {
    type Sample = T;
    type Shard = Lines<T>;

    fn shards(&self) -> usize {
        self.files.len()
    }

    fn open_shard(&self, shard: usize, cursor: u64) -> Result<Lines<T>> {
        Lines::open(&self.files[shard], cursor)
    }

    fn count_shard(&self, shard: usize) -> Result<Option<u64>> {
        let count = || {
            let mut lines = Lines::<T>::open(&self.files[shard], 0)?;
            let mut count = 0;
            while lines.skip()? {
                count += 1;
            }
            Ok(count)
        };
        counted(&self.files[shard], count).map(Some)
    }
}

/// The lines of a file.
pub struct Lines<T> {
    path: PathBuf,
    file: BufReader<File>,
    line: Vec<u8>,
    cursor: u64,
    row: PhantomData<fn() -> T>,
}

impl<T> Lines<T> {
    fn open(path: &Path, cursor: u64) -> Result<Self> {
        let file = open_text(path, cursor)?;
        check_row_begins(path, cursor, b"\n")?;
        Ok(Lines { path: path.to_owned(), file, line: Vec::new(), cursor, row: PhantomData })
    }

    /// Reads the next line that is not empty; where it begins.
    fn line(&mut self) -> Result<Option<u64>> {
        loop {
            self.line.clear();
            let what = || format!("read {}", self.path.display());
            let read = self.file.read_until(b'\n', &mut self.line).context(what)?;
            let start = self.cursor;
            self.cursor += read as u64;
            if read == 0 {
                return Ok(None);
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(Some(start));
            }
        }
    }
}

impl<T: DeserializeOwned + Send + 'static> ShardReader for Lines<T> {
    type Sample = T;

    fn next(&mut self) -> Result<Option<T>> {
        let Some(start) = self.line()? else { return Ok(None) };
        serde_json::from_slice(&self.line).map(Some).map_err(|error| {
            let line: String = String::from_utf8_lossy(&self.line).chars().take(60).collect();
            let message = format!("the line at byte {start}, `{}`: {error}", line.trim_end());
            Error::file(&self.path, message)
        })
    }

    fn skip(&mut self) -> Result<bool> {
        Ok(self.line()?.is_some())
    }

    fn cursor(&self) -> u64 {
        self.cursor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_within_a_line_is_that_of_another_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let put = |text: &str| std::fs::write(file.path(), text).unwrap();
        let rows = JsonLines::<u32>::new(file.path()).unwrap();
        put("1\n23\n4");
        let mut lines = rows.open_shard(0, 0).unwrap();
        let mut cursors = vec![lines.cursor()];
        while lines.next().unwrap().is_some() {
            cursors.push(lines.cursor());
        }
        assert_eq!(cursors, [0, 2, 5, 6]);
        let rest = |cursor| {
            let mut lines = rows.open_shard(0, cursor)?;
            Ok(std::iter::from_fn(|| lines.next().unwrap()).collect::<Vec<u32>>())
        };
        let all: Vec<Vec<u32>> =
            cursors.iter().map(|cursor| rest(*cursor)).collect::<Result<_>>().unwrap();
        assert_eq!(all, [vec![1, 23, 4], vec![23, 4], vec![4], vec![]]);
        // The same length, and numbers that would have been read.
        put("123\n45");
        let error = rest(2).unwrap_err().to_string();
        assert!(error.contains("changed: the state is at 2, in the middle of a row"), "{error}");
        assert_eq!(rest(4).unwrap(), [45]);
    }
}
