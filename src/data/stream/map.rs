//! Functions on the samples of a stream.

use std::marker::PhantomData;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::iterable::{IterableDataset, Part, StreamReader};
use crate::data::shared::Shared;
use crate::error::Result;
use crate::multiprocessing::conjure;

/// A function on samples with data of its own (a vocabulary, sizes), which worker processes get serialised.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use torchrs::{Result, data::stream::Mapping};
/// #[derive(Serialize, Deserialize)]
/// struct Plus(i64);
/// impl Mapping<i64> for Plus {
///     type Output = i64;
///     fn map(&self, sample: i64) -> Result<i64> { Ok(sample + self.0) }
/// }
/// assert_eq!(Plus(2).map(40)?, 42);
/// # Ok::<(), torchrs::Error>(())
/// ```
pub trait Mapping<T>: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What it makes of a sample.
    type Output: Send + 'static;
    /// What it makes of this sample.
    ///
    /// # Errors
    /// When it cannot: the loader's iteration ends with this.
    fn map(&self, sample: T) -> Result<Self::Output>;
}

/// A function without data, which is known by its type alone.
#[derive(Serialize, Deserialize)]
#[serde(bound = "")]
pub struct Function<F>(PhantomData<fn() -> F>);

impl<F: Copy + 'static> Function<F> {
    pub(super) fn new(_: F) -> Self {
        Function(PhantomData)
    }
}

impl<A: 'static, B: Send + 'static, F> Mapping<A> for Function<F>
where
    F: Fn(A) -> Result<B> + Copy + Send + Sync + 'static,
{
    type Output = B;
    fn map(&self, sample: A) -> Result<B> {
        // `new` took a value of F.
        conjure::<F>()(sample)
    }
}

/// A stream whose samples go through a mapping; made by [`IterableDataset::map`] and [`IterableDataset::apply`].
#[derive(Serialize, Deserialize)]
#[serde(bound = "S: IterableDataset, M: Serialize + DeserializeOwned")]
pub struct MapDataset<S, M> {
    dataset: S,
    mapping: Shared<M>,
}

impl<S: IterableDataset, M: Mapping<S::Sample>> MapDataset<S, M> {
    pub(super) fn new(dataset: S, mapping: M) -> Self {
        MapDataset { dataset, mapping: Shared::new(mapping) }
    }
}

impl<S: IterableDataset, M: Mapping<S::Sample>> IterableDataset for MapDataset<S, M> {
    type Sample = M::Output;
    type Position = S::Position;
    type Reader = MapReader<S::Reader, M>;

    fn open(&self, part: Part, from: Option<&S::Position>) -> Result<Self::Reader> {
        Ok(MapReader { reader: self.dataset.open(part, from)?, mapping: self.mapping.clone() })
    }

    fn count(&self, part: Part) -> Result<Option<u64>> {
        self.dataset.count(part)
    }

    fn num_shards(&self) -> Option<usize> {
        self.dataset.num_shards()
    }
}

/// The reader of a [`MapDataset`].
pub struct MapReader<R, M> {
    reader: R,
    mapping: Shared<M>,
}

impl<R: StreamReader, M: Mapping<R::Sample>> StreamReader for MapReader<R, M> {
    type Sample = M::Output;
    type Position = R::Position;

    fn next(&mut self) -> Result<Option<M::Output>> {
        self.reader.next()?.map(|sample| self.mapping.map(sample)).transpose()
    }

    fn position(&self) -> R::Position {
        self.reader.position()
    }

    fn number(&self) -> u64 {
        self.reader.number()
    }
}

/// The samples of a stream that pass a test; made by [`IterableDataset::filter`]. Nobody knows beforehand how many.
#[derive(Serialize, Deserialize)]
#[serde(bound = "S: IterableDataset")]
pub struct FilterDataset<S, F> {
    dataset: S,
    test: PhantomData<fn() -> F>,
}

impl<S: IterableDataset, F> FilterDataset<S, F> {
    pub(super) fn new(dataset: S, _: F) -> Self {
        FilterDataset { dataset, test: PhantomData }
    }
}

impl<S, F> IterableDataset for FilterDataset<S, F>
where
    S: IterableDataset,
    F: Fn(&S::Sample) -> bool + Copy + Send + Sync + 'static,
{
    type Sample = S::Sample;
    type Position = S::Position;
    type Reader = FilterReader<S::Reader, F>;

    fn open(&self, part: Part, from: Option<&S::Position>) -> Result<Self::Reader> {
        Ok(FilterReader { reader: self.dataset.open(part, from)?, test: PhantomData })
    }

    fn num_shards(&self) -> Option<usize> {
        self.dataset.num_shards()
    }
}

/// The reader of a [`FilterDataset`].
pub struct FilterReader<R, F> {
    reader: R,
    test: PhantomData<fn() -> F>,
}

impl<R, F> StreamReader for FilterReader<R, F>
where
    R: StreamReader,
    F: Fn(&R::Sample) -> bool + Copy + Send + Sync + 'static,
{
    type Sample = R::Sample;
    type Position = R::Position;

    fn next(&mut self) -> Result<Option<R::Sample>> {
        while let Some(sample) = self.reader.next()? {
            // `FilterDataset::new` took a value of F.
            if conjure::<F>()(&sample) {
                return Ok(Some(sample));
            }
        }
        Ok(None)
    }

    fn position(&self) -> R::Position {
        self.reader.position()
    }

    fn number(&self) -> u64 {
        self.reader.number()
    }
}
