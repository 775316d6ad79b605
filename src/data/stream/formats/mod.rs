//! Files of records as streams: a shard is a file.

mod csv;
mod files;
mod json_lines;
#[cfg(feature = "parquet")]
mod parquet;
mod tar;
mod tokens;

pub use csv::Csv;
pub use files::ShardFiles;
pub use json_lines::JsonLines;
#[cfg(feature = "parquet")]
pub use parquet::Parquet;
pub use tar::{TarSample, WebDataset};
pub use tokens::{TokenFiles, TokenType};
