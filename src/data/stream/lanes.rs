//! The lanes of a stream that one process reads: the next batch of each, and where its reader is behind it.
//!
//! Where the reader is travels in the batch itself, as a last column: whoever holds the batch knows how to go on
//! behind it, however far workers have read ahead.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::iterable::{IterableDataset, Part, StreamReader};
use crate::data::arena::Slot;
use crate::data::assemble::{Assembly, Failure, Space};
use crate::data::columns::Columns;
use crate::data::dataset::with_generator;
use crate::data::layout::BatchLayout;
use crate::data::panics::guarded;
use crate::data::sample::Sample;
use crate::data::shared::Shared;
use crate::error::{Error, Result};

/// How a loader reads a stream: the same in all processes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Scheme {
    pub seed: u64,
    pub lanes: usize,
    pub shuffle_shards: bool,
    pub batch_size: usize,
    pub drop_last: bool,
}

impl Scheme {
    pub fn part(&self, lane: usize, pass: u64) -> Part {
        Part {
            index: lane,
            of: self.lanes,
            seed: self.seed,
            pass,
            shuffle_shards: self.shuffle_shards,
        }
    }

    /// How many batches so many samples of a lane are.
    pub fn batches(&self, samples: u64) -> u64 {
        match self.drop_last {
            true => samples / self.batch_size as u64,
            false => samples.div_ceil(self.batch_size as u64),
        }
    }
}

/// Which batch is wanted: the next one of a lane. A new generation begins at the beginning of its pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    pub lane: usize,
    pub generation: u64,
    pub pass: u64,
}

impl Wanted {
    /// Words of a task.
    pub const WORDS: usize = 3;

    pub fn words(&self) -> [usize; Self::WORDS] {
        [self.lane, self.generation as usize, self.pass as usize]
    }

    pub fn of_words(words: &[usize]) -> Option<Self> {
        let &[lane, generation, pass] = words else { return None };
        Some(Wanted { lane, generation: generation as u64, pass: pass as u64 })
    }
}

/// Where lanes begin in one generation, if not at the beginning of the pass: samples given and position.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Begin {
    pub generation: u64,
    pub lanes: BTreeMap<usize, Vec<u8>>,
}

/// The readers of some lanes.
pub(super) struct Lanes<S: IterableDataset> {
    dataset: Shared<S>,
    scheme: Scheme,
    begin: Begin,
    generation: u64,
    open: HashMap<usize, Lane<S::Reader>>,
}

struct Lane<R> {
    reader: R,
    part: Part,
    samples: u64,
    ended: bool,
}

impl<S: IterableDataset> Lanes<S>
where
    S::Sample: Sample,
{
    pub fn new(dataset: Shared<S>, scheme: Scheme, begin: Begin) -> Self {
        Lanes { dataset, scheme, begin, generation: 0, open: HashMap::new() }
    }

    /// The batch that is wanted. `None` at the lane's end, and when `space` says that nobody wants it.
    pub fn next(
        &mut self,
        wanted: Wanted,
        space: &mut impl Space,
    ) -> Result<Option<(BatchLayout, Slot)>, Failure> {
        if self.generation != wanted.generation {
            self.open.clear();
            self.generation = wanted.generation;
        }
        if !self.open.contains_key(&wanted.lane) {
            let opened = self.open_lane(wanted)?;
            self.open.insert(wanted.lane, opened);
        }
        let lane = self.open.get_mut(&wanted.lane).expect("it is open");
        let batch_size = self.scheme.batch_size;
        let mut samples = Vec::new();
        while !lane.ended && samples.len() < batch_size {
            let number = lane.part.key(lane.reader.number());
            if !space.reading(number) {
                return Ok(None);
            }
            let sample = guarded(|| with_generator(number, || lane.reader.next()))
                .and_then(|result| result.map_err(|e| e.to_string()))
                .map_err(|message| Failure::Dataset { index: number, message })?;
            match sample {
                Some(sample) => samples.push((number, sample)),
                None => lane.ended = true,
            }
        }
        if samples.is_empty() || self.scheme.drop_last && samples.len() < batch_size {
            return Ok(None);
        }
        lane.samples += samples.len() as u64;
        let state = encode(lane.samples, &lane.reader.position())?;
        let mut assembly = Assembly::new(samples.len());
        let last = samples.len() - 1;
        for (row, (number, sample)) in samples.iter().enumerate() {
            let state = if row == last { &state[..] } else { &[] };
            let write = |out: &mut crate::data::SampleWriter<'_>| {
                sample.write(out);
                out.bytes(state);
            };
            assembly.push(*number, write, space)?;
        }
        Ok(Some(assembly.finish(space)?))
    }

    fn open_lane(&self, wanted: Wanted) -> Result<Lane<S::Reader>, Failure> {
        let part = self.scheme.part(wanted.lane, wanted.pass);
        let begin = self.begin.lanes.get(&wanted.lane);
        let begin = begin.filter(|_| self.begin.generation == wanted.generation);
        let from = begin.map(|state| decode::<S::Position>(state)).transpose()?;
        let (samples, position) = from.unzip();
        // What a shuffle buffer reads again has numbers of its own.
        let reader = guarded(|| with_generator(0, || self.dataset.open(part, position.as_ref())))
            .and_then(|result| result.map_err(|e| e.to_string()))
            .map_err(|message| Failure::Dataset { index: part.index, message })?;
        Ok(Lane { reader, part, samples: samples.unwrap_or(0), ended: false })
    }
}

/// How many samples a lane has given, and where its reader is.
fn encode<P: Serialize>(samples: u64, position: &P) -> Result<Vec<u8>> {
    postcard::to_extend(&(samples, position), Vec::new()).map_err(|error| {
        let message = format!("a reader's position cannot be serialised: {error}");
        Error::Other(message)
    })
}

fn decode<P: serde::de::DeserializeOwned>(state: &[u8]) -> Result<(u64, P)> {
    postcard::from_bytes(state).map_err(|error| {
        let message = format!("a lane's position is not one of this dataset: {error}");
        Error::config("StreamLoader::load_state_dict", message)
    })
}

/// How many samples a lane had given at a state.
pub(super) fn samples_of(state: &[u8]) -> Result<u64> {
    postcard::take_from_bytes(state).map(|(samples, _)| samples).map_err(|error| {
        Error::config("StreamLoader", format!("a lane's state is damaged: {error}"))
    })
}

/// The state behind a batch.
pub(super) fn state_of(columns: &Columns) -> Vec<u8> {
    columns.last_bytes().to_vec()
}
