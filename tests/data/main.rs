//! What lies outside of the program's memory: files of tensors, checkpoints, datasets and their loaders.

mod audio;
mod checkpoint;
mod compose;
mod files;
mod formats;
mod loader;
mod loader_faults;
#[cfg(feature = "parquet")]
mod parquet;
mod stream;
mod stream_kills;
#[cfg(feature = "tokenizers")]
mod text;
mod transforms;
