//! Streams: datasets that are read from front to end, in parts that ranks and workers share out, and that go on
//! exactly where they stopped.
//!
//! A stream is an [`IterableDataset`]: files of records ([`WebDataset`], [`JsonLines`], [`Csv`], [`TokenFiles`]), or
//! an own one; on it come [`shuffle`](IterableDataset::shuffle), [`map`](IterableDataset::map),
//! [`filter`](IterableDataset::filter). A [`StreamLoader`] divides it into *lanes*, a fixed number of parts. Each
//! rank reads its own lanes, each worker some of these, and a batch is of one lane. So the order does not depend on
//! the number of workers, and a state goes on with any number of workers, and of ranks among which the lanes divide.
//!
//! ```
//! use torchrs::data::stream::{IterableDataset, JsonLines, StreamLoader};
//! # let file = tempfile::NamedTempFile::new().unwrap();
//! # let path = file.path();
//! std::fs::write(path, "[1, 2]\n[3, 4]\n[5, 6]\n").unwrap();
//! let rows = JsonLines::<Vec<f32>>::new(path)?.shuffle(2)?;
//! let loader = StreamLoader::builder(rows).batch_size(2).build()?;
//! let mut rows = 0;
//! for batch in loader.iter() {
//!     rows += batch?.shape()[0];
//! }
//! assert_eq!(rows, 3);
//! # Ok::<(), torchrs::Error>(())
//! ```

mod builder;
mod chain;
mod counts;
mod formats;
mod iterable;
mod lanes;
mod loader;
mod map;
mod run;
mod sharded;
mod shuffle;
mod state;
mod worker;

pub use builder::{StreamLoaderBuilder, Uneven};
pub use chain::{ChainDataset, ChainPosition, ChainReader};
#[cfg(feature = "parquet")]
pub use formats::Parquet;
pub use formats::{Csv, JsonLines, ShardFiles, TarSample, TokenFiles, TokenType, WebDataset};
pub use iterable::{IterableDataset, Part, StreamReader};
pub use loader::{StreamIter, StreamLoader};
pub use map::{FilterDataset, FilterReader, Function, MapDataset, MapReader, Mapping};
pub use sharded::{ShardPosition, ShardReader, ShardedReader, ShardedSource};
pub use shuffle::{ShuffleDataset, ShufflePosition, ShuffleReader};
pub use state::{LaneState, StreamState};
