//! Datasets, samplers and the `DataLoader` with its worker processes.

mod arena;
mod assemble;
mod builder;
mod control;
mod dataset;
pub mod datasets;
mod layout;
mod loader;
mod panics;
mod pool;
mod sample;
pub mod samplers;
mod worker;

pub use builder::DataLoaderBuilder;
pub use dataset::{Batch, Dataset, SampleRandom, Subset, WorkerInfo, sample_random, worker_info};
pub use loader::{DataLoader, Iter, LoaderState};
pub use sample::{Blob, Columns, Sample, SampleWriter};
pub use samplers::{
    BatchSampler, DistributedSampler, RandomSampler, Sampler, SequentialSampler, SubsetSampler,
};
