//! Where a loader is in its sequence of samples: within an epoch, and in a checkpoint.

use serde::{Deserialize, Serialize};

use crate::error::Error;

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
    /// How many of the epoch's samples were yielded, on all ranks together; with a `batch_sampler` it counts
    /// batches.
    pub position: usize,
    /// Whether the epoch's iteration ran to its end.
    pub finished: bool,
    /// Length of the dataset, to notice that it is another one.
    pub dataset_len: usize,
    /// The sampler's own seed, if it has one, to notice that its order is another one.
    #[serde(default)]
    pub sampler_seed: Option<u64>,
    /// Whether `position` counts batches.
    #[serde(default)]
    pub counts_batches: bool,
}

/// Where an iteration starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub epoch: u64,
    /// In samples of this rank, or in batches where these are ordered.
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
    /// Where batches end in `order`.
    cuts: Cuts,
    /// Where in the epoch `order` starts.
    offset: usize,
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
    pub(super) fn new(
        id: u64,
        start: Start,
        order: Vec<usize>,
        cuts: Cuts,
        failed: Option<Error>,
    ) -> Self {
        Run {
            id,
            epoch: start.epoch,
            order,
            cuts,
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
        let done = match &self.cuts {
            Cuts::Every(_) => self.yielded,
            Cuts::At(ends) => ends.partition_point(|&end| end <= self.yielded),
        };
        Start { epoch: self.epoch, position: self.offset + done }
    }

    /// The indices of the batch that starts at place `from` of the order.
    pub(super) fn batch_at(&self, from: usize) -> &[usize] {
        let end = match &self.cuts {
            Cuts::Every(size) => from.saturating_add(*size),
            Cuts::At(ends) => {
                ends.get(ends.partition_point(|&end| end <= from)).copied().unwrap_or(from)
            }
        };
        &self.order[from..self.order.len().min(end)]
    }

    /// How many batches are left to be yielded.
    pub(super) fn left(&self) -> usize {
        match &self.cuts {
            Cuts::Every(size) => (self.order.len() - self.yielded).div_ceil(*size),
            Cuts::At(ends) => ends.len() - ends.partition_point(|&end| end <= self.yielded),
        }
    }
}

/// Where batches end in an order.
pub(super) enum Cuts {
    /// Behind every so many samples, and at the order's end.
    Every(usize),
    /// At these places.
    At(Vec<usize>),
}
