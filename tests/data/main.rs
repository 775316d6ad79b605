//! What lies outside of the program's memory: files of tensors, checkpoints, datasets and their loaders.

mod checkpoint;
mod compose;
mod files;
mod loader;
mod loader_faults;
mod stream;
mod stream_kills;
mod transforms;
