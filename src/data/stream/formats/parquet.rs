//! Parquet files by rows.

use std::fs::File;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::serialized_reader::ReadOptionsBuilder;
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use serde::de::value::{Error as ValueError, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, IntoDeserializer, Visitor};
use serde::{Deserialize, Serialize, forward_to_deserialize_any};

use super::files::{ShardFiles, shorter};
use crate::data::panics::guarded;
use crate::data::shared::Shared;
use crate::data::stream::sharded::{ShardReader, ShardedSource};
use crate::error::{Context, Error, Result};

/// Rows of Parquet files, each read as `T`: a struct by the columns' names, or a tuple by their order. Times are
/// numbers of the file's unit, dates days since 1970, decimals text. Files may be compressed by snappy or gzip.
///
/// To go on within a file reads its group of rows from the group's beginning.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Parquet<T> {
    files: Shared<Vec<PathBuf>>,
    row: PhantomData<fn() -> T>,
}

impl<T> Clone for Parquet<T> {
    fn clone(&self) -> Self {
        Parquet { files: self.files.clone(), row: PhantomData }
    }
}

impl<T: DeserializeOwned + Send + 'static> Parquet<T> {
    /// The rows of some files.
    ///
    /// # Errors
    /// [`Error::Os`] when a file is missing, [`Error::Argument`] when there is none.
    pub fn new(files: impl Into<ShardFiles>) -> Result<Self> {
        let files = Shared::new(files.into().existing("Parquet::new")?);
        Ok(Parquet { files, row: PhantomData })
    }
}

fn fault(path: &Path, error: ParquetError) -> Error {
    Error::file(path, format!("cannot be read as Parquet: {error}"))
}

/// What the crate reads. Of some damaged files it panics, which is one more way to say that they are damaged.
fn read<T>(path: &Path, read: impl FnOnce() -> std::result::Result<T, ParquetError>) -> Result<T> {
    guarded(read)
        .map_err(|why| {
            // The message, without the crate's place.
            let line = why.lines().next().unwrap_or_default();
            let message = line.split_once(": ").map_or(line, |(_, message)| message);
            Error::file(path, format!("cannot be read as Parquet: it is damaged ({message})"))
        })?
        .map_err(|error| fault(path, error))
}

fn open(path: &Path) -> Result<(File, Vec<u64>)> {
    let file = File::open(path).context(|| format!("open {}", path.display()))?;
    let again = file.try_clone().context(|| format!("open {}", path.display()))?;
    let reader = read(path, || SerializedFileReader::new(again))?;
    let groups = reader.metadata().row_groups().iter();
    Ok((file, groups.map(|group| group.num_rows().max(0) as u64).collect()))
}

impl<T: DeserializeOwned + Send + 'static> ShardedSource for Parquet<T> {
    type Sample = T;
    type Shard = ParquetRows<T>;

    fn shards(&self) -> usize {
        self.files.len()
    }

    fn open_shard(&self, shard: usize, cursor: u64) -> Result<ParquetRows<T>> {
        let path = &self.files[shard];
        let (file, groups) = open(path)?;
        let total: u64 = groups.iter().sum();
        if cursor > total {
            return Err(shorter(path, cursor, total));
        }
        // The group that the cursor is in, and how far.
        let (mut first, mut within) = (0, cursor);
        while first < groups.len() && within >= groups[first] {
            within -= groups[first];
            first += 1;
        }
        let options = ReadOptionsBuilder::new();
        let options = options.with_predicate(Box::new(move |_, group| group >= first)).build();
        let rows = read(path, || {
            let reader = SerializedFileReader::new_with_options(file, options)?;
            Ok(RowIter::from_file_into(Box::new(reader)))
        })?;
        let mut rows = ParquetRows { path: path.clone(), rows, next: cursor, row: PhantomData };
        for _ in 0..within {
            rows.row()?;
        }
        rows.next = cursor;
        Ok(rows)
    }

    fn count_shard(&self, shard: usize) -> Result<Option<u64>> {
        let (_, groups) = open(&self.files[shard])?;
        Ok(Some(groups.iter().sum()))
    }
}

/// The rows of a file.
pub struct ParquetRows<T> {
    path: PathBuf,
    rows: RowIter<'static>,
    next: u64,
    row: PhantomData<fn() -> T>,
}

impl<T> ParquetRows<T> {
    fn row(&mut self) -> Result<Option<Row>> {
        let row = read(&self.path, || self.rows.next().transpose())?;
        self.next += u64::from(row.is_some());
        Ok(row)
    }
}

impl<T: DeserializeOwned + Send + 'static> ShardReader for ParquetRows<T> {
    type Sample = T;

    fn next(&mut self) -> Result<Option<T>> {
        let Some(row) = self.row()? else { return Ok(None) };
        let row = Field::Group(row);
        T::deserialize(Value(&row))
            .map(Some)
            .map_err(|error| Error::file(&self.path, format!("row {}: {error}", self.next - 1)))
    }

    fn skip(&mut self) -> Result<bool> {
        Ok(self.row()?.is_some())
    }

    fn cursor(&self) -> u64 {
        self.next
    }
}

/// A value, as what reads it wants it.
struct Value<'a>(&'a Field);

impl<'a> IntoDeserializer<'a, ValueError> for Value<'a> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'a> Value<'a> {
    fn columns(row: &'a Row) -> impl Iterator<Item = (&'a str, Value<'a>)> {
        row.get_column_iter().map(|(name, field)| (name.as_str(), Value(field)))
    }
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.0 {
            Field::Null => visitor.visit_unit(),
            Field::Bool(value) => visitor.visit_bool(*value),
            Field::Byte(value) => visitor.visit_i8(*value),
            Field::Short(value) => visitor.visit_i16(*value),
            Field::Int(value) | Field::Date(value) | Field::TimeMillis(value) => {
                visitor.visit_i32(*value)
            }
            Field::Long(value)
            | Field::TimeMicros(value)
            | Field::TimestampMillis(value)
            | Field::TimestampMicros(value) => visitor.visit_i64(*value),
            Field::UByte(value) => visitor.visit_u8(*value),
            Field::UShort(value) => visitor.visit_u16(*value),
            Field::UInt(value) => visitor.visit_u32(*value),
            Field::ULong(value) => visitor.visit_u64(*value),
            Field::Float16(value) => visitor.visit_f32(value.to_f32()),
            Field::Float(value) => visitor.visit_f32(*value),
            Field::Double(value) => visitor.visit_f64(*value),
            Field::Decimal(_) => visitor.visit_string(self.0.to_string()),
            Field::Str(text) => visitor.visit_borrowed_str(text),
            Field::Bytes(bytes) => {
                visitor.visit_seq(SeqDeserializer::new(bytes.data().iter().copied()))
            }
            Field::Group(row) => visitor.visit_map(MapDeserializer::new(Self::columns(row))),
            Field::ListInternal(list) => {
                visitor.visit_seq(SeqDeserializer::new(list.elements().iter().map(Value)))
            }
            Field::MapInternal(map) => {
                let entries = map.entries().iter().map(|(key, value)| (Value(key), Value(value)));
                visitor.visit_map(MapDeserializer::new(entries))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.0 {
            Field::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.0 {
            Field::Bytes(bytes) => visitor.visit_borrowed_bytes(bytes.data()),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.deserialize_bytes(visitor)
    }

    /// Columns by their order.
    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match self.0 {
            Field::Group(row) => {
                visitor.visit_seq(SeqDeserializer::new(Self::columns(row).map(|(_, value)| value)))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match self.0 {
            Field::Str(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string unit unit_struct seq
        tuple_struct map struct identifier ignored_any
    }
}
