//! Where a loader is in its sequence of samples: within an epoch, and in a checkpoint.

use serde::{Deserialize, Serialize};

use super::samplers::{BatchSampler, Sampler};
use crate::error::{Error, Result};

/// A position in a loader's sequence of samples: what a checkpoint keeps to resume in mid-epoch.
///
/// ```
/// use torchrs::data::{DataLoader, LoaderState, datasets::Synthetic};
/// let loader = DataLoader::builder(Synthetic::new(10)).batch_size(4).seed(7).build()?;
/// loader.iter().next().unwrap()?;
/// let state = loader.state_dict();
/// assert_eq!((state.seed, state.epoch, state.position, state.finished), (7, 0, 4, false));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderState {
    /// Seed of the order.
    pub seed: u64,
    /// The epoch.
    pub epoch: u64,
    /// How many of the epoch's samples were yielded, on all ranks together.
    pub position: usize,
    /// Whether the epoch's iteration ran to its end.
    pub finished: bool,
    /// Length of the dataset, to notice that it is another one.
    pub dataset_len: usize,
    /// The sampler's own seed, if it has one, to notice that its order is another one.
    #[serde(default)]
    pub sampler_seed: Option<u64>,
}

impl LoaderState {
    /// Where a loader over `len` samples goes on, in samples of this rank.
    ///
    /// # Errors
    /// [`Error::Config`] when the state belongs to another dataset or another order, or lies between two
    /// of this rank's samples.
    pub(super) fn start(&self, len: usize, sampler: &dyn Sampler) -> Result<Start> {
        let wrong = |message| Err(Error::config("DataLoader::load_state_dict", message));
        let replicas = sampler.num_replicas();
        if self.dataset_len != len {
            return wrong(format!(
                "the state is of a dataset of {} samples, this one has {len}",
                self.dataset_len
            ));
        }
        // States of loaders whose sampler took the loader's seed have no other.
        let ordered_by = self.sampler_seed.unwrap_or(self.seed);
        if let Some(seed) = sampler.own_seed().filter(|seed| *seed != ordered_by) {
            return wrong(format!(
                "the state is of an order with seed {ordered_by}, this sampler's seed is {seed}"
            ));
        }
        if !self.position.is_multiple_of(replicas) {
            return wrong(format!(
                "position {} of the epoch does not divide among {replicas} ranks",
                self.position
            ));
        }
        let position = self.position / replicas;
        if position > sampler.len() {
            return wrong(format!(
                "position {} is behind the epoch's end at {}",
                self.position,
                sampler.len() * replicas
            ));
        }
        Ok(Start { epoch: self.epoch, position })
    }
}

/// Where an iteration starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub epoch: u64,
    /// In samples of this rank.
    pub position: usize,
}

impl Start {
    pub(super) fn of_epoch(epoch: u64) -> Self {
        Start { epoch, position: 0 }
    }
}

/// One pass over an epoch.
pub(super) struct Run {
    pub id: u64,
    pub epoch: u64,
    /// The rest of the epoch from where the pass started.
    pub order: Vec<usize>,
    /// Position of `order`'s first sample in the epoch.
    pub offset: usize,
    /// Samples of `order` that workers were told to read.
    pub published: usize,
    /// Samples of `order` that were yielded.
    pub yielded: usize,
    /// Its iterator was not dropped and did not end.
    pub live: bool,
    pub finished: bool,
    /// A failure before the first batch.
    pub failed: Option<Error>,
}

impl Run {
    /// A pass that starts at `start`, over the `order` from there on.
    pub(super) fn new(id: u64, start: Start, order: Vec<usize>, failed: Option<Error>) -> Self {
        Run {
            id,
            epoch: start.epoch,
            order,
            offset: start.position,
            published: 0,
            yielded: 0,
            live: true,
            finished: false,
            failed,
        }
    }

    /// How far it is.
    pub(super) fn position(&self) -> Start {
        Start { epoch: self.epoch, position: self.offset + self.yielded }
    }
}

/// The indices of the batch that starts at place `from` of an order.
pub(super) fn next_batch(order: &[usize], from: usize, batches: BatchSampler) -> &[usize] {
    &order[from..order.len().min(from.saturating_add(batches.batch_size()))]
}
