//! Datasets, samplers and the [`DataLoader`] with its worker processes.
//!
//! Knows nothing of `nn`, `optim` and `distributed`: a sampler takes ranks as numbers.
//!
//! A [`Dataset`] is a serialisable description with `get(index)`. A [`Sampler`] gives an epoch's
//! order. The loader cuts the order into batches; a [`Sample`] says how it becomes a row of a batch.
//!
//! With workers, a batch goes this way:
//!
//! 1. The training process publishes the batch's indices in a ring in shared memory (`control`,
//!    `pool`); whichever worker is free takes them (`worker`).
//! 2. The worker reads the samples and writes each into its row of a slot of its own arena
//!    (`assemble`, `sample`, `layout`, `arena`), then marks the task as done.
//! 3. The training process takes the tasks in the order of publishing and wraps the slot's columns
//!    as tensors, without a copy. When the last of these is dropped, a word in the arena tells the
//!    worker that the slot is free again. If no slot is free the worker adds some, so that nobody
//!    ever waits for memory.
//!
//! A side that has to wait says so in shared memory and sleeps on its socket; as long as nobody has
//! to, a batch costs no system call. Without workers the same code runs in the training process.
//!
//! ```
//! use torchrs::data::{DataLoader, Dataset, datasets::Synthetic};
//!
//! let dataset = Synthetic::new(6);
//! assert_eq!((dataset.len(), dataset.get(5)?.1), (6, 5));
//! let loader = DataLoader::builder(dataset).batch_size(3).build()?;
//! let (images, labels) = loader.iter().nth(1).unwrap()?;
//! assert_eq!((images.shape(), labels.to_vec::<i64>()), (&[3, 1, 28, 28][..], vec![3, 4, 5]));
//! # Ok::<(), torchrs::Error>(())
//! ```

mod arena;
mod assemble;
pub mod audio;
mod builder;
mod collate;
mod columns;
mod compose;
mod control;
mod dataset;
pub mod datasets;
mod layout;
mod loader;
mod panics;
mod plan;
mod pool;
mod position;
mod ragged;
mod sample;
pub mod samplers;
mod shared;
pub mod stream;
#[cfg(feature = "tokenizers")]
pub mod text;
pub mod transforms;
mod upload;
mod worker;
mod writer;

pub use builder::DataLoaderBuilder;
pub use collate::default_collate;
pub use columns::Columns;
pub use compose::{
    ConcatDataset, DatasetList, DatasetTuple, Lengths, StackDataset, Subset, TensorDataset,
    TensorTuple, TransformDataset, random_split,
};
pub use dataset::{
    Batch, Dataset, SampleRandom, WorkerInfo, sample_random, sample_seed, worker_info,
};
pub use loader::{DataLoader, Iter};
pub use position::LoaderState;
pub use ragged::{Ragged, RaggedBatch};
pub use sample::{Blob, Sample};
pub use samplers::{
    BatchOrder, BatchSampler, BucketBatchSampler, DistributedBatchSampler, DistributedSampler,
    DistributedSamplerWrapper, RandomSampler, Sampler, SequentialSampler, SubsetSampler,
    WeightedRandomSampler,
};
pub use stream::{ChainDataset, IterableDataset, StreamLoader, StreamState};
pub use writer::SampleWriter;
