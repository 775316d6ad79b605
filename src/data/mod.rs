//! Datasets, samplers and the `DataLoader` with its worker processes.

mod arena;
mod assemble;
mod dataset;
pub mod datasets;
mod layout;
mod sample;
pub mod samplers;

pub use dataset::{Batch, Dataset, SampleRandom, Subset, WorkerInfo, sample_random, worker_info};
pub use sample::{Blob, Columns, Sample, SampleWriter};
pub use samplers::{
    BatchSampler, DistributedSampler, RandomSampler, Sampler, SequentialSampler, SubsetSampler,
};
