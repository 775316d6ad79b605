//! A stream in random order, through a buffer whose contents are part of its position.
//!
//! The position has, for each sample in the buffer, where it was read: opening there reads it again. So a state
//! holds no samples, and a stream that goes on from it gives what it would have given.

use serde::{Deserialize, Serialize};

use super::iterable::{IterableDataset, Part, StreamReader};
use crate::cpu::numbers::philox::{PhiloxStream, philox4x32_10};
use crate::data::dataset::with_generator;
use crate::data::shared::Shared;
use crate::error::{Error, Result};

/// A stream's samples, each drawn at random from a buffer; made by [`IterableDataset::shuffle`].
///
/// Place it before costly maps: whoever goes on from a saved position reads the buffer's samples again. A state has
/// some ten bytes for each of them.
#[derive(Serialize, Deserialize)]
#[serde(bound = "S: IterableDataset")]
pub struct ShuffleDataset<S> {
    dataset: Shared<S>,
    buffer_size: usize,
}

impl<S: IterableDataset> ShuffleDataset<S> {
    pub(super) fn new(dataset: S, buffer_size: usize) -> Result<Self> {
        if buffer_size == 0 {
            let message = "is 0, must be at least 1 (which keeps the order)";
            return Err(Error::argument("shuffle", "buffer_size", message));
        }
        Ok(ShuffleDataset { dataset: Shared::new(dataset), buffer_size })
    }
}

/// Where a [`ShuffleReader`] is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShufflePosition<P> {
    /// Where the stream behind the buffer is.
    reader: P,
    /// Where each sample in the buffer was.
    buffer: Vec<P>,
    /// How many samples were drawn.
    drawn: u64,
}

impl<S: IterableDataset> IterableDataset for ShuffleDataset<S> {
    type Sample = S::Sample;
    type Position = ShufflePosition<S::Position>;
    type Reader = ShuffleReader<S>;

    fn open(&self, part: Part, from: Option<&Self::Position>) -> Result<ShuffleReader<S>> {
        let reader = self.dataset.open(part, from.map(|from| &from.reader))?;
        let mut opened = ShuffleReader {
            // Parts and passes draw numbers of their own.
            key: {
                let counter =
                    [part.pass as u32, (part.pass >> 32) as u32, part.index as u32, 0x5F1E];
                let key = philox4x32_10(counter, [part.seed as u32, (part.seed >> 32) as u32]);
                u64::from(key[0]) | u64::from(key[1]) << 32
            },
            part,
            reader,
            buffer: Vec::new(),
            buffer_size: self.buffer_size,
            drawn: from.map_or(0, |from| from.drawn),
        };
        for position in from.map_or(&[][..], |from| &from.buffer) {
            let mut reader = self.dataset.open(part, Some(position))?;
            let Some(sample) = read::<S>(&mut reader, part)? else {
                let message = "a sample of the shuffle buffer is gone: the data has changed";
                return Err(Error::Other(message.to_owned()));
            };
            opened.buffer.push((position.clone(), sample));
        }
        Ok(opened)
    }

    fn count(&self, part: Part) -> Result<Option<u64>> {
        self.dataset.count(part)
    }

    fn num_shards(&self) -> Option<usize> {
        self.dataset.num_shards()
    }
}

/// The next sample, whose random numbers are its own whenever it is read.
fn read<S: IterableDataset>(reader: &mut S::Reader, part: Part) -> Result<Option<S::Sample>> {
    with_generator(part.key(reader.number()), || reader.next())
}

/// The reader of a [`ShuffleDataset`].
pub struct ShuffleReader<S: IterableDataset> {
    key: u64,
    part: Part,
    reader: S::Reader,
    buffer: Vec<(S::Position, S::Sample)>,
    buffer_size: usize,
    drawn: u64,
}

impl<S: IterableDataset> StreamReader for ShuffleReader<S> {
    type Sample = S::Sample;
    type Position = ShufflePosition<S::Position>;

    fn next(&mut self) -> Result<Option<S::Sample>> {
        while self.buffer.len() < self.buffer_size {
            let position = self.reader.position();
            match read::<S>(&mut self.reader, self.part)? {
                Some(sample) => self.buffer.push((position, sample)),
                None => break,
            }
        }
        if self.buffer.is_empty() {
            return Ok(None);
        }
        let place = PhiloxStream::new(self.key, self.drawn).below(self.buffer.len() as u64);
        self.drawn += 1;
        Ok(Some(self.buffer.swap_remove(place as usize).1))
    }

    fn position(&self) -> Self::Position {
        ShufflePosition {
            reader: self.reader.position(),
            buffer: self.buffer.iter().map(|(position, _)| position.clone()).collect(),
            drawn: self.drawn,
        }
    }

    fn number(&self) -> u64 {
        self.drawn
    }
}
