//! The options of a `DataLoader`.

use std::time::Duration;

use super::dataset::Dataset;
use super::loader::DataLoader;
use super::samplers::{BatchSampler, Sampler};
use crate::error::{Error, Result};

/// Options of a [`DataLoader`]; made by [`DataLoader::builder`].
pub struct DataLoaderBuilder<D: Dataset> {
    pub(super) dataset: D,
    pub(super) batch_size: usize,
    pub(super) shuffle: bool,
    pub(super) sampler: Option<Box<dyn Sampler>>,
    pub(super) workers: usize,
    pub(super) prefetch_factor: usize,
    pub(super) drop_last: bool,
    pub(super) seed: u64,
    pub(super) timeout: Option<Duration>,
}

impl<D: Dataset> DataLoaderBuilder<D> {
    pub(super) fn new(dataset: D) -> Self {
        DataLoaderBuilder {
            dataset,
            batch_size: 1,
            shuffle: false,
            sampler: None,
            workers: 0,
            prefetch_factor: 2,
            drop_last: false,
            seed: 0,
            timeout: None,
        }
    }

    /// Samples in a batch (default: 1).
    #[must_use]
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = batch_size;
        self
    }

    /// Whether every epoch has its own random order (default: false).
    #[must_use]
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// The order of the samples, instead of `shuffle`.
    #[must_use]
    pub fn sampler(mut self, sampler: impl Sampler) -> Self {
        self.sampler = Some(Box::new(sampler));
        self
    }

    /// How many processes read samples; 0 (the default) reads them in this process, when the batch
    /// is asked for. A program with workers calls [`torchrs::init`](crate::init) first of all, or has
    /// [`#[torchrs::main]`](macro@crate::main) on its `main`. Each worker computes with one thread.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// How many batches per worker are made ahead (default: 2).
    #[must_use]
    pub fn prefetch_factor(mut self, prefetch_factor: usize) -> Self {
        self.prefetch_factor = prefetch_factor;
        self
    }

    /// Whether a last batch that would be smaller is left out (default: false).
    #[must_use]
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// Seed of the order and of [`sample_random`](super::sample_random) (default: 0).
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The longest wait for a batch of the workers (default: for ever, as in PyTorch; a worker that
    /// dies ends the wait in any case).
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// The loader. Workers start with the first iteration.
    ///
    /// # Errors
    /// [`Error::Argument`] when an option has a value that cannot be.
    pub fn build(self) -> Result<DataLoader<D>> {
        let wrong =
            |argument: &str, message: &str| Err(Error::argument("DataLoader", argument, message));
        if self.batch_size == 0 {
            return wrong("batch_size", "is 0, must be at least 1");
        }
        let batches = BatchSampler::new(self.batch_size, self.drop_last)?;
        if self.prefetch_factor == 0 {
            return wrong("prefetch_factor", "is 0, must be at least 1");
        }
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return wrong("timeout", "is 0, must be positive; leave it out to wait for ever");
        }
        if self.shuffle && self.sampler.is_some() {
            return wrong(
                "shuffle",
                "is true although a sampler, which has its own order, is given",
            );
        }
        Ok(DataLoader::new(self, batches))
    }
}
