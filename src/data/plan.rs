//! What a loader reads in an epoch: a sampler's order cut into batches of one size, or an order of batches.

use super::position::{Cuts, LoaderState, Run, Start};
use super::samplers::{BatchOrder, BatchSampler, Sampler};
use crate::error::{Error, Result};

/// Where a loader's batches come from.
pub(super) enum Plan {
    Samples { sampler: Box<dyn Sampler>, batches: BatchSampler },
    Batches(Box<dyn BatchOrder>),
}

impl Plan {
    /// Batches of an epoch, on this rank.
    pub fn len(&self) -> usize {
        match self {
            Plan::Samples { sampler, batches } => batches.num_batches(sampler.len()),
            Plan::Batches(order) => order.len(),
        }
    }

    /// The most samples of a batch.
    pub fn batch_size(&self) -> usize {
        match self {
            // More indices than an epoch has are never in one batch.
            Plan::Samples { sampler, batches } => batches.batch_size().min(sampler.len()),
            Plan::Batches(order) => order.batch_size(),
        }
    }

    pub fn num_replicas(&self) -> usize {
        match self {
            Plan::Samples { sampler, .. } => sampler.num_replicas(),
            Plan::Batches(order) => order.num_replicas(),
        }
    }

    pub fn own_seed(&self) -> Option<u64> {
        match self {
            Plan::Samples { sampler, .. } => sampler.own_seed(),
            Plan::Batches(order) => order.own_seed(),
        }
    }

    /// What positions count of an epoch on this rank: samples, or batches.
    pub fn units(&self) -> usize {
        match self {
            Plan::Samples { sampler, .. } => sampler.len(),
            Plan::Batches(order) => order.len(),
        }
    }

    pub fn counts_batches(&self) -> bool {
        matches!(self, Plan::Batches(_))
    }

    /// An epoch without a batch, of a dataset that has samples, is an error: a loop over it does nothing.
    pub fn refuse_no_batch(&self, samples: usize) -> Result<()> {
        if self.len() > 0 || samples == 0 {
            return Ok(());
        }
        let ranks = self.num_replicas();
        let (argument, message) = match self {
            Plan::Samples { sampler, .. } if sampler.is_empty() && ranks > 1 => (
                "drop_last",
                format!("leaves no sample: {samples} samples are dealt to {ranks} ranks"),
            ),
            Plan::Samples { sampler, batches } if !sampler.is_empty() => {
                let (share, batch) = (sampler.len(), batches.batch_size());
                let message =
                    format!("leaves no batch: an epoch has {share} samples here, a batch {batch}");
                ("drop_last", message)
            }
            Plan::Samples { .. } => return Ok(()),
            Plan::Batches(_) => {
                ("batch_sampler", format!("leaves no batch of {samples} samples on {ranks} ranks"))
            }
        };
        Err(Error::argument("DataLoader", argument, message))
    }

    /// The pass number `id` over a dataset of `samples` samples from `start` on.
    pub fn run(&self, id: u64, seed: u64, start: Start, samples: usize) -> Run {
        let (mut order, mut ends) = match self {
            Plan::Samples { sampler, .. } => {
                (sampler.indices(seed, start.epoch).into_owned(), Vec::new())
            }
            Plan::Batches(batches) => {
                let batches = batches.batches(seed, start.epoch);
                let mut end = 0;
                let ends = batches.iter().map(|batch| {
                    end += batch.len();
                    end
                });
                let ends: Vec<usize> = ends.collect();
                (batches.concat(), ends)
            }
        };
        let failed = self.check(&order, &ends, samples).err();
        let cuts = match self {
            Plan::Samples { batches, .. } => {
                order.drain(..start.position.min(order.len()));
                order.truncate(batches.batches(&order).map(<[usize]>::len).sum());
                Cuts::Every(batches.batch_size())
            }
            Plan::Batches(_) => {
                let left_out =
                    ends.drain(..start.position.min(ends.len())).next_back().unwrap_or(0);
                order.drain(..left_out);
                ends.iter_mut().for_each(|end| *end -= left_out);
                Cuts::At(ends)
            }
        };
        Run::new(id, start, order, cuts, failed)
    }

    /// An order must be as long as was said, and every index one of the dataset's.
    fn check(&self, order: &[usize], ends: &[usize], samples: usize) -> Result<()> {
        let argument = if self.counts_batches() { "batch_sampler" } else { "sampler" };
        let wrong = |message| Err(Error::argument("DataLoader", argument, message));
        if let Some(place) = order.iter().position(|&index| index >= samples) {
            return wrong(format!(
                "gives index {} at place {place}, but the dataset has {samples} samples",
                order[place]
            ));
        }
        let Plan::Batches(batches) = self else {
            return match self.units() {
                len if len == order.len() => Ok(()),
                len => wrong(format!("gives {} indices, but its len() is {len}", order.len())),
            };
        };
        if ends.len() != batches.len() {
            let len = batches.len();
            return wrong(format!("gives {} batches, but its len() is {len}", ends.len()));
        }
        let starts = std::iter::once(&0).chain(ends);
        let sizes = starts.zip(ends).map(|(start, end)| end - start);
        let most = batches.batch_size();
        match sizes.enumerate().find(|(_, size)| *size == 0 || *size > most) {
            Some((place, size)) => wrong(format!(
                "gives a batch of {size} samples at place {place}; a batch has 1 to {most}"
            )),
            None => Ok(()),
        }
    }

    /// Where a loader over `samples` samples with this plan goes on.
    ///
    /// # Errors
    /// [`Error::Config`] when the state belongs to another dataset or another order, or lies between two
    /// of this rank's samples.
    pub fn start(&self, state: &LoaderState, samples: usize) -> Result<Start> {
        let wrong = |message| Err(Error::config("DataLoader::load_state_dict", message));
        let replicas = self.num_replicas();
        if state.dataset_len != samples {
            return wrong(format!(
                "the state is of a dataset of {} samples, this one has {samples}",
                state.dataset_len
            ));
        }
        if state.counts_batches != self.counts_batches() {
            let kind = |batches| if batches { "batches (batch_sampler)" } else { "samples" };
            return wrong(format!(
                "the state counts {}, this loader counts {}",
                kind(state.counts_batches),
                kind(self.counts_batches())
            ));
        }
        // States of loaders whose sampler took the loader's seed have no other.
        let ordered_by = state.sampler_seed.unwrap_or(state.seed);
        if let Some(seed) = self.own_seed().filter(|seed| *seed != ordered_by) {
            return wrong(format!(
                "the state is of an order with seed {ordered_by}, this sampler's seed is {seed}"
            ));
        }
        if !state.position.is_multiple_of(replicas) {
            return wrong(format!(
                "position {} of the epoch does not divide among {replicas} ranks",
                state.position
            ));
        }
        let position = state.position / replicas;
        if position > self.units() {
            return wrong(format!(
                "position {} is behind the epoch's end at {}",
                state.position,
                self.units() * replicas
            ));
        }
        Ok(Start { epoch: state.epoch, position })
    }
}
