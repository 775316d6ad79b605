//! Files of comma-separated values.

use std::fs::File;
use std::io::BufReader;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::files::{ShardFiles, check_row_begins, open_text, shorter};
use crate::data::shared::Shared;
use crate::data::stream::counts::counted;
use crate::data::stream::sharded::{ShardReader, ShardedSource};
use crate::error::{Context, Error, Result};

/// Files of comma-separated values, each row read as `T`: a struct by the names in the file's first row, a tuple or a
/// `Vec` by the order of columns. Values in quotes may hold commas and ends of lines.
///
/// ```
/// use torchrs::data::stream::{Csv, IterableDataset, Part, StreamReader};
/// #[derive(serde::Deserialize)]
/// struct Iris { species: String, petal: f32 }
/// # let file = tempfile::NamedTempFile::new().unwrap();
/// # let path = file.path();
/// std::fs::write(path, "petal,species\n1.4,setosa\n5.1,\"virginica, old\"\n").unwrap();
/// let rows = Csv::<Iris>::new(path)?.map(|row| Ok((row.petal, row.species)));
/// let mut reader = rows.open(Part::new(0, 1)?, None)?;
/// reader.next()?;
/// assert_eq!(reader.next()?, Some((5.1, "virginica, old".to_owned())));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Csv<T> {
    files: Shared<Vec<PathBuf>>,
    delimiter: u8,
    has_headers: bool,
    row: PhantomData<fn() -> T>,
}

impl<T> Clone for Csv<T> {
    fn clone(&self) -> Self {
        Csv { files: self.files.clone(), row: PhantomData, ..*self }
    }
}

impl<T: DeserializeOwned + Send + 'static> Csv<T> {
    /// The rows of some files, each of which has the names of the columns in its first row.
    ///
    /// # Errors
    /// [`Error::Os`] when a file is missing, [`Error::Argument`] when there is none.
    pub fn new(files: impl Into<ShardFiles>) -> Result<Self> {
        let files = Shared::new(files.into().existing("Csv::new")?);
        Ok(Csv { files, delimiter: b',', has_headers: true, row: PhantomData })
    }

    /// What stands between values (default: a comma).
    #[must_use]
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        self.delimiter = delimiter;
        self
    }

    /// Whether the first row of a file has the columns' names (default: true). Else rows are read by order.
    #[must_use]
    pub fn has_headers(mut self, has_headers: bool) -> Self {
        self.has_headers = has_headers;
        self
    }
}

impl<T: DeserializeOwned + Send + 'static> ShardedSource for Csv<T> {
    type Sample = T;
    type Shard = Rows<T>;

    fn shards(&self) -> usize {
        self.files.len()
    }

    fn open_shard(&self, shard: usize, cursor: u64) -> Result<Rows<T>> {
        let path = &self.files[shard];
        let mut builder = csv::ReaderBuilder::new();
        builder.delimiter(self.delimiter).has_headers(self.has_headers);
        let mut reader = builder.from_reader(open_text(path, 0)?);
        let fault = |error| fault(path, error);
        let headers = match self.has_headers {
            true => Some(reader.headers().map_err(fault)?.clone()),
            false => None,
        };
        if cursor > 0 {
            let what = || format!("look at {}", path.display());
            let len = path.metadata().context(what)?.len();
            if cursor > len {
                return Err(shorter(path, cursor, len));
            }
            // The crate's places are behind a carriage return, before its line feed.
            check_row_begins(path, cursor, b"\r\n")?;
            let mut position = csv::Position::new();
            position.set_byte(cursor);
            reader.seek(position).map_err(fault)?;
        }
        Ok(Rows {
            path: path.clone(),
            reader,
            headers,
            record: csv::StringRecord::new(),
            row: PhantomData,
        })
    }

    fn count_shard(&self, shard: usize) -> Result<Option<u64>> {
        let count = || {
            let mut rows = self.open_shard(shard, 0)?;
            let mut count = 0;
            while rows.skip()? {
                count += 1;
            }
            Ok(count)
        };
        counted(&self.files[shard], count).map(Some)
    }
}

fn fault(path: &Path, error: csv::Error) -> Error {
    Error::file(path, error.to_string())
}

/// The rows of a file.
pub struct Rows<T> {
    path: PathBuf,
    reader: csv::Reader<BufReader<File>>,
    headers: Option<csv::StringRecord>,
    record: csv::StringRecord,
    row: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned + Send + 'static> ShardReader for Rows<T> {
    type Sample = T;

    fn next(&mut self) -> Result<Option<T>> {
        let start = self.cursor();
        if !self.skip()? {
            return Ok(None);
        }
        self.record.deserialize(self.headers.as_ref()).map(Some).map_err(|error| {
            // After a jump the crate does not know the line.
            Error::file(&self.path, format!("the row at byte {start}: {error}"))
        })
    }

    fn skip(&mut self) -> Result<bool> {
        self.reader.read_record(&mut self.record).map_err(|error| fault(&self.path, error))
    }

    fn cursor(&self) -> u64 {
        self.reader.position().byte()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_within_a_row_is_that_of_another_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let put = |text: &str| std::fs::write(file.path(), text).unwrap();
        let rows = Csv::<(String, u32)>::new(file.path()).unwrap();
        for end in ["\n", "\r\n"] {
            put(&["name,size", "a,1", "\"b\nc\",23", "d,4"].join(end));
            let mut reader = rows.open_shard(0, 0).unwrap();
            let mut all = Vec::new();
            let mut cursors = vec![reader.cursor()];
            while let Some((_, size)) = reader.next().unwrap() {
                all.push(size);
                cursors.push(reader.cursor());
            }
            assert_eq!(all, [1, 23, 4]);
            for (read, cursor) in cursors.iter().enumerate() {
                let mut rest = rows.open_shard(0, *cursor).unwrap();
                let sizes = std::iter::from_fn(|| rest.next().unwrap().map(|(_, size)| size));
                assert_eq!(sizes.collect::<Vec<_>>(), all[read..], "{end:?}, {read} rows read");
            }
            // A row more in front.
            put(&["name,size", "aaaa,1", "d,4", "e,5"].join(end));
            let error =
                rows.open_shard(0, cursors[1]).err().expect("it is within a row").to_string();
            assert!(error.contains("in the middle of a row"), "{error}");
        }
    }
}
