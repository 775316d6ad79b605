//! What a stream of samples is: a description that is opened at a part, and a reader that knows where it is.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::map::{FilterDataset, Function, MapDataset, Mapping};
use super::shuffle::ShuffleDataset;
use crate::error::{Error, Result};

/// A dataset that is read in a stream (`torch.utils.data.IterableDataset`): a serialisable description that can be
/// opened at any [`Part`] of it and at any position where a reader was.
///
/// The parts with one `of` share no sample and together have all. A [`StreamLoader`](super::StreamLoader) gives each
/// rank and worker parts of its own, so nothing comes twice.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use torchrs::{Result, data::stream::{IterableDataset, Part, StreamReader}};
///
/// #[derive(Serialize, Deserialize)]
/// struct Squares { end: i64 }
///
/// struct Reader { next: i64, step: i64, end: i64, number: u64 }
///
/// impl IterableDataset for Squares {
///     type Sample = i64;
///     type Position = (i64, u64);
///     type Reader = Reader;
///     fn open(&self, part: Part, from: Option<&(i64, u64)>) -> Result<Reader> {
///         let (next, number) = from.copied().unwrap_or((part.index as i64, 0));
///         Ok(Reader { next, step: part.of as i64, end: self.end, number })
///     }
/// }
///
/// impl StreamReader for Reader {
///     type Sample = i64;
///     type Position = (i64, u64);
///     fn next(&mut self) -> Result<Option<i64>> {
///         let number = self.next;
///         if number >= self.end {
///             return Ok(None);
///         }
///         (self.next, self.number) = (number + self.step, self.number + 1);
///         Ok(Some(number * number))
///     }
///     fn position(&self) -> (i64, u64) { (self.next, self.number) }
///     fn number(&self) -> u64 { self.number }
/// }
///
/// let mut reader = Squares { end: 10 }.open(Part::new(1, 4)?, None)?;
/// assert_eq!((reader.next()?, reader.next()?), (Some(1), Some(25)));
/// # Ok::<(), torchrs::Error>(())
/// ```
pub trait IterableDataset: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What a reader gives. A loader wants a [`Sample`](crate::data::Sample); before a map it may be anything.
    type Sample: Send + 'static;
    /// Where a reader is. It is saved with a loader's state, so it should be small.
    type Position: Serialize + DeserializeOwned + Clone + Send + 'static;
    /// Reads a part from front to end.
    type Reader: StreamReader<Sample = Self::Sample, Position = Self::Position>;

    /// A reader of `part`, from its beginning or from where a reader of the same part was. What it gives is a pure
    /// function of the part and the position.
    ///
    /// # Errors
    /// When a file cannot be opened, or the position is not one of this part.
    fn open(&self, part: Part, from: Option<&Self::Position>) -> Result<Self::Reader>;

    /// How many samples `part` has, where that can be found without reading them all; else `None`.
    ///
    /// # Errors
    /// When a file cannot be read.
    fn count(&self, part: Part) -> Result<Option<u64>> {
        let _ = part;
        Ok(None)
    }

    /// How many pieces (files) it has, which a state remembers to notice another dataset.
    fn num_shards(&self) -> Option<usize> {
        None
    }

    /// All samples in their order, in memory: for a table that is small enough.
    ///
    /// ```
    /// use torchrs::data::stream::{Csv, IterableDataset};
    /// #[derive(serde::Deserialize)]
    /// struct Iris { petal: f32, class: i64 }
    /// # let file = tempfile::NamedTempFile::new().unwrap();
    /// # let path = file.path();
    /// std::fs::write(path, "petal,class\n1.4,0\n5.1,1\n").unwrap();
    /// let rows = Csv::<Iris>::new(path)?.read_all()?;
    /// assert_eq!((rows.len(), rows[1].petal, rows[1].class), (2, 5.1, 1));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// When a file or a sample cannot be read.
    fn read_all(&self) -> Result<Vec<Self::Sample>> {
        let mut reader = self.open(Part::new(0, 1)?, None)?;
        let mut samples = Vec::new();
        while let Some(sample) = reader.next()? {
            samples.push(sample);
        }
        Ok(samples)
    }

    /// The same samples in random order: each is drawn from a buffer of `buffer_size`.
    ///
    /// # Errors
    /// [`Error::Argument`] when it is 0.
    fn shuffle(self, buffer_size: usize) -> Result<ShuffleDataset<Self>>
    where
        Self: Sized,
    {
        ShuffleDataset::new(self, buffer_size)
    }

    /// Each sample through `f`: a function, or a closure that captures nothing, since it runs in worker processes.
    /// What needs data of its own is a [`Mapping`] ([`apply`](Self::apply)).
    fn map<F, T>(self, f: F) -> MapDataset<Self, Function<F>>
    where
        Self: Sized,
        F: Fn(Self::Sample) -> Result<T> + Copy + Send + Sync + 'static,
        T: Send + 'static,
    {
        MapDataset::new(self, Function::new(f))
    }

    /// Each sample through a mapping that is serialised with the dataset.
    fn apply<M: Mapping<Self::Sample>>(self, mapping: M) -> MapDataset<Self, M>
    where
        Self: Sized,
    {
        MapDataset::new(self, mapping)
    }

    /// The samples for which `f`, a function or a closure that captures nothing, gives true.
    fn filter<F>(self, f: F) -> FilterDataset<Self, F>
    where
        Self: Sized,
        F: Fn(&Self::Sample) -> bool + Copy + Send + Sync + 'static,
    {
        FilterDataset::new(self, f)
    }
}

/// Reads a part of an [`IterableDataset`].
pub trait StreamReader: Send + 'static {
    /// What it gives.
    type Sample;
    /// Where it is.
    type Position;

    /// The next sample; `None` at the end, and from then on.
    ///
    /// # Errors
    /// When a sample cannot be read. The loader's iteration is over then.
    fn next(&mut self) -> Result<Option<Self::Sample>>;

    /// Where it is: before the next sample.
    fn position(&self) -> Self::Position;

    /// The number of the next sample in the part: random numbers are drawn by it, so it must not depend on where the
    /// reader was opened.
    fn number(&self) -> u64;
}

/// Part `index` of `of` parts of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Part {
    /// Which part.
    pub index: usize,
    /// How many there are.
    pub of: usize,
    /// Seed of the order.
    pub seed: u64,
    /// How often all was read before: every pass has an order of its own.
    pub pass: u64,
    /// Whether files are in random order.
    pub shuffle_shards: bool,
}

impl Part {
    /// Part `index` of `of`: first pass, seed 0, files in their order.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `index < of`.
    pub fn new(index: usize, of: usize) -> Result<Self> {
        if index >= of {
            let message = format!("is {index}, must be below `of`, which is {of}");
            return Err(Error::argument("Part::new", "index", message));
        }
        Ok(Part { index, of, seed: 0, pass: 0, shuffle_shards: false })
    }

    /// The number by which sample `number` of this part draws random numbers: another for each sample of a pass.
    pub(super) fn key(&self, number: u64) -> usize {
        number.wrapping_mul(self.of as u64).wrapping_add(self.index as u64) as usize
    }
}
