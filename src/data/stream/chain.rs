//! Streams one after the other.

use serde::{Deserialize, Serialize};

use super::iterable::{IterableDataset, Part, StreamReader};
use crate::data::shared::Shared;
use crate::error::{Error, Result};

/// Streams one after the other (`torch.utils.data.ChainDataset`). Each part has a part of every stream.
#[derive(Serialize, Deserialize)]
#[serde(bound = "S: IterableDataset")]
pub struct ChainDataset<S> {
    datasets: Shared<Vec<S>>,
}

impl<S: IterableDataset> ChainDataset<S> {
    /// The first stream, then the second, ...
    ///
    /// # Errors
    /// [`Error::Argument`] when there is none.
    pub fn new(datasets: Vec<S>) -> Result<Self> {
        if datasets.is_empty() {
            return Err(Error::argument("ChainDataset::new", "datasets", "are none, must be some"));
        }
        Ok(ChainDataset { datasets: Shared::new(datasets) })
    }
}

/// Where a [`ChainReader`] is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChainPosition<P> {
    which: usize,
    reader: P,
    /// Samples of the streams before.
    before: u64,
}

impl<S: IterableDataset> IterableDataset for ChainDataset<S> {
    type Sample = S::Sample;
    type Position = ChainPosition<S::Position>;
    type Reader = ChainReader<S>;

    fn open(&self, part: Part, from: Option<&Self::Position>) -> Result<ChainReader<S>> {
        let (which, before) = from.map_or((0, 0), |from| (from.which, from.before));
        let Some(dataset) = self.datasets.get(which) else {
            let message = format!("the state is in stream {which} of {}", self.datasets.len());
            return Err(Error::config("ChainDataset", message));
        };
        let reader = dataset.open(part, from.map(|from| &from.reader))?;
        Ok(ChainReader { datasets: self.datasets.clone(), part, which, before, reader })
    }

    fn count(&self, part: Part) -> Result<Option<u64>> {
        let counts = self.datasets.iter().map(|dataset| dataset.count(part));
        let counts: Vec<Option<u64>> = counts.collect::<Result<_>>()?;
        Ok(counts.into_iter().sum())
    }

    fn num_shards(&self) -> Option<usize> {
        self.datasets.iter().map(S::num_shards).sum()
    }
}

/// The reader of a [`ChainDataset`].
pub struct ChainReader<S: IterableDataset> {
    datasets: Shared<Vec<S>>,
    part: Part,
    which: usize,
    before: u64,
    reader: S::Reader,
}

impl<S: IterableDataset> StreamReader for ChainReader<S> {
    type Sample = S::Sample;
    type Position = ChainPosition<S::Position>;

    fn next(&mut self) -> Result<Option<S::Sample>> {
        loop {
            if let Some(sample) = self.reader.next()? {
                return Ok(Some(sample));
            }
            let Some(dataset) = self.datasets.get(self.which + 1) else { return Ok(None) };
            let before = self.number();
            self.reader = dataset.open(self.part, None)?;
            (self.which, self.before) = (self.which + 1, before);
        }
    }

    fn position(&self) -> Self::Position {
        ChainPosition { which: self.which, reader: self.reader.position(), before: self.before }
    }

    fn number(&self) -> u64 {
        self.before + self.reader.number()
    }
}
