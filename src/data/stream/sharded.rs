//! Streams whose data lies in files (shards) of records: how shards and records are dealt out to parts.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::iterable::{IterableDataset, Part, StreamReader};
use crate::data::samplers::permutation;
use crate::error::{Error, Result};

/// Shards of records. Whoever implements this has an [`IterableDataset`]:
///
/// - With at least as many shards as parts, shard `i` of the pass's order belongs to part `i % parts`.
/// - With fewer, every part reads all shards and keeps each `parts`-th record.
///
/// A clone is made for each reader, so it should be cheap.
pub trait ShardedSource: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    /// What a record is read as.
    type Sample: Send + 'static;
    /// Reads a shard from front to end.
    type Shard: ShardReader<Sample = Self::Sample>;

    /// How many shards there are.
    fn shards(&self) -> usize;

    /// A reader of a shard, from where another was: 0 is its beginning.
    ///
    /// # Errors
    /// When it cannot be opened, or has no such place.
    fn open_shard(&self, shard: usize, cursor: u64) -> Result<Self::Shard>;

    /// How many records a shard has, where that can be found without making samples of them.
    ///
    /// # Errors
    /// When it cannot be read.
    fn count_shard(&self, shard: usize) -> Result<Option<u64>>;
}

/// Reads a shard of a [`ShardedSource`].
pub trait ShardReader: Send + 'static {
    /// What a record is read as.
    type Sample;

    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// When it is damaged.
    fn next(&mut self) -> Result<Option<Self::Sample>>;

    /// Passes over the next record; false at the end.
    ///
    /// # Errors
    /// When it is damaged.
    fn skip(&mut self) -> Result<bool>;

    /// Where the next record begins.
    fn cursor(&self) -> u64;
}

/// Where a [`ShardedReader`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardPosition {
    /// The shard's place in the part's order.
    place: usize,
    /// Where in the shard.
    cursor: u64,
    /// Records passed, others' too.
    passed: u64,
    /// Records given.
    number: u64,
}

/// The shards of a part in order, and which of their records: all, or of `of` each one whose number leaves `index`.
struct Share {
    shards: Vec<usize>,
    records: Option<(u64, u64)>,
}

fn share(shards: usize, part: Part) -> Share {
    let order = match part.shuffle_shards {
        true => permutation(shards, part.seed, part.pass),
        false => (0..shards).collect(),
    };
    if shards >= part.of {
        let shards = order.into_iter().skip(part.index).step_by(part.of).collect();
        return Share { shards, records: None };
    }
    Share { shards: order, records: Some((part.index as u64, part.of as u64)) }
}

impl<S: ShardedSource> IterableDataset for S {
    type Sample = S::Sample;
    type Position = ShardPosition;
    type Reader = ShardedReader<S>;

    fn open(&self, part: Part, from: Option<&ShardPosition>) -> Result<ShardedReader<S>> {
        let share = share(self.shards(), part);
        let at =
            from.copied().unwrap_or(ShardPosition { place: 0, cursor: 0, passed: 0, number: 0 });
        if at.place > share.shards.len() {
            let message = format!("the state is in shard {} of {}", at.place, share.shards.len());
            return Err(Error::config("IterableDataset::open", message));
        }
        let mut reader = ShardedReader { source: self.clone(), share, at, shard: None };
        if at.cursor > 0 {
            reader.open_shard()?;
        }
        Ok(reader)
    }

    fn count(&self, part: Part) -> Result<Option<u64>> {
        let Share { shards, records } = share(self.shards(), part);
        let mut sum = 0;
        for shard in shards {
            let Some(count) = self.count_shard(shard)? else { return Ok(None) };
            sum += count;
        }
        Ok(Some(match records {
            None => sum,
            Some((index, of)) => (sum + of - 1).saturating_sub(index) / of,
        }))
    }

    fn num_shards(&self) -> Option<usize> {
        Some(self.shards())
    }
}

/// Reads a part's shards one after the other.
pub struct ShardedReader<S: ShardedSource> {
    source: S,
    share: Share,
    /// Its cursor is where the shard was opened.
    at: ShardPosition,
    shard: Option<S::Shard>,
}

impl<S: ShardedSource> ShardedReader<S> {
    /// Opens the current shard; false when there is no more.
    fn open_shard(&mut self) -> Result<bool> {
        let Some(&shard) = self.share.shards.get(self.at.place) else { return Ok(false) };
        self.shard = Some(self.source.open_shard(shard, self.at.cursor)?);
        Ok(true)
    }
}

impl<S: ShardedSource> StreamReader for ShardedReader<S> {
    type Sample = S::Sample;
    type Position = ShardPosition;

    fn next(&mut self) -> Result<Option<S::Sample>> {
        loop {
            let Some(shard) = &mut self.shard else {
                if !self.open_shard()? {
                    return Ok(None);
                }
                continue;
            };
            let wanted = self.share.records.is_none_or(|(index, of)| self.at.passed % of == index);
            let found = match wanted {
                true => shard.next()?.map(Some),
                false => shard.skip()?.then_some(None),
            };
            match found {
                Some(sample) => {
                    self.at.passed += 1;
                    if let Some(sample) = sample {
                        self.at.number += 1;
                        return Ok(Some(sample));
                    }
                }
                None => {
                    self.shard = None;
                    self.at = ShardPosition { place: self.at.place + 1, cursor: 0, ..self.at };
                }
            }
        }
    }

    fn position(&self) -> ShardPosition {
        let cursor = self.shard.as_ref().map_or(self.at.cursor, S::Shard::cursor);
        ShardPosition { cursor, ..self.at }
    }

    fn number(&self) -> u64 {
        self.at.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shard `s` has `s + 1` records, `100 s`, `100 s + 1`, ...
    #[derive(Clone, Serialize, Deserialize)]
    struct Steps(usize);

    struct Step {
        shard: u64,
        next: u64,
    }

    impl ShardedSource for Steps {
        type Sample = u64;
        type Shard = Step;
        fn shards(&self) -> usize {
            self.0
        }
        fn open_shard(&self, shard: usize, cursor: u64) -> Result<Step> {
            Ok(Step { shard: shard as u64, next: cursor })
        }
        fn count_shard(&self, shard: usize) -> Result<Option<u64>> {
            Ok(Some(shard as u64 + 1))
        }
    }

    impl ShardReader for Step {
        type Sample = u64;
        fn next(&mut self) -> Result<Option<u64>> {
            self.next += 1;
            Ok((self.next <= self.shard + 1).then_some(100 * self.shard + self.next - 1))
        }
        fn skip(&mut self) -> Result<bool> {
            Ok(self.next()?.is_some())
        }
        fn cursor(&self) -> u64 {
            self.next
        }
    }

    fn drain<R: StreamReader>(mut reader: R) -> Vec<R::Sample> {
        std::iter::from_fn(|| reader.next().unwrap()).collect()
    }

    /// For more shards than parts, as many, and fewer, shuffled or not: parts are disjoint and complete, counts are
    /// right, and from each position a reader goes on as the first did.
    #[test]
    fn parts_have_each_record_once_and_go_on_from_every_position() {
        for (shards, of, buffer) in [(7, 3, 1), (3, 3, 4), (2, 5, 3), (1, 1, 100), (6, 1, 5)] {
            let mut all = Vec::new();
            for index in 0..of {
                let part = Part {
                    shuffle_shards: index % 2 == 0 || shards != 7,
                    pass: 3,
                    seed: 9,
                    ..Part::new(index, of).unwrap()
                };
                // Parts of one pass share the order.
                let part = Part { shuffle_shards: true, ..part };
                let stream = Steps(shards).shuffle(buffer).unwrap();
                let whole = drain(stream.open(part, None).unwrap());
                assert_eq!(stream.count(part).unwrap(), Some(whole.len() as u64));
                let mut reader = stream.open(part, None).unwrap();
                for done in 0..=whole.len() {
                    let at = postcard::to_allocvec(&reader.position()).unwrap();
                    let at = postcard::from_bytes(&at).unwrap();
                    let resumed = stream.open(part, Some(&at)).unwrap();
                    assert_eq!(resumed.number(), done as u64);
                    assert_eq!(drain(resumed), whole[done..], "{shards} shards, part {index}");
                    reader.next().unwrap();
                }
                all.extend(whole);
            }
            all.sort_unstable();
            let expected: Vec<u64> =
                (0..shards as u64).flat_map(|s| (0..=s).map(move |r| 100 * s + r)).collect();
            assert_eq!(all, expected, "{shards} shards in {of} parts");
        }
    }

    #[test]
    fn a_buffer_shuffles_and_every_pass_in_its_own_way() {
        let stream = Steps(20).shuffle(50).unwrap();
        let pass = |pass| {
            let part = Part { pass, ..Part::new(0, 1).unwrap() };
            drain(stream.open(part, None).unwrap())
        };
        let mut sorted = pass(0);
        assert_ne!(pass(0), pass(1));
        assert_eq!(pass(0), pass(0));
        sorted.sort_unstable();
        assert_ne!(pass(0), sorted);
        assert!(Steps(1).shuffle(0).err().unwrap().to_string().contains("buffer_size"));
    }

    #[test]
    fn maps_filters_and_chains_keep_positions() {
        let even = || Steps(6).filter(|n| n % 2 == 0).map(|n| Ok(n * 10));
        let stream = super::super::ChainDataset::new(vec![even(), even()]).unwrap();
        let part = Part::new(1, 2).unwrap();
        let whole = drain(stream.open(part, None).unwrap());
        assert!(!whole.is_empty() && whole.iter().all(|n| n % 20 == 0));
        let mut reader = stream.open(part, None).unwrap();
        for done in 0..=whole.len() {
            let at = reader.position();
            assert_eq!(drain(stream.open(part, Some(&at)).unwrap()), whole[done..]);
            reader.next().unwrap();
        }
        assert_eq!(stream.count(part).unwrap(), None, "a filter does not know");
    }
}
