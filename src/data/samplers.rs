//! In which order a dataset is read. A sampler gives its indices as a pure function of
//! (seed, epoch), which is what lets a [`DataLoader`](super::DataLoader) resume in mid-epoch with
//! any number of workers, and every rank of a job know the order of all the others.
//!
//! ```
//! use torchrs::data::{RandomSampler, Sampler};
//! let order = RandomSampler::new(100);
//! assert_eq!(order.indices(0, 7), order.indices(0, 7));
//! assert_ne!(order.indices(0, 7), order.indices(0, 8));
//! ```

mod batch_order;
mod share;
mod weighted;

use std::borrow::Cow;

use self::share::Share;
pub use batch_order::{BatchOrder, BucketBatchSampler, DistributedBatchSampler};
pub use weighted::{DistributedSamplerWrapper, WeightedRandomSampler};

use crate::cpu::numbers::philox::PhiloxStream;
use crate::error::{Error, Result};

/// An order over a dataset's indices (`torch.utils.data.Sampler`).
///
/// ```
/// use std::borrow::Cow;
/// use torchrs::data::{DataLoader, Sampler, datasets::Synthetic};
///
/// struct Backwards(usize);
/// impl Sampler for Backwards {
///     fn len(&self) -> usize { self.0 }
///     fn indices(&self, _: u64, _: u64) -> Cow<'_, [usize]> { (0..self.0).rev().collect() }
/// }
/// let options = DataLoader::builder(Synthetic::new(3)).batch_size(3);
/// let (_, labels) = options.sampler(Backwards(3)).build()?.iter().next().unwrap()?;
/// assert_eq!(labels.to_vec::<i64>(), [2, 1, 0]);
/// # Ok::<(), torchrs::Error>(())
/// ```
pub trait Sampler: Send + Sync + 'static {
    /// How many indices one epoch has on this rank.
    fn len(&self) -> usize;

    /// This epoch's indices, a pure function of `seed` and `epoch`. A `DataLoader` passes its own
    /// (`DataLoaderBuilder::seed`, `DataLoader::set_epoch`). A sampler that deals an order out to ranks
    /// has a seed of its own instead: loaders' seeds may differ from rank to rank.
    fn indices(&self, seed: u64, epoch: u64) -> Cow<'_, [usize]>;

    /// The seed of the order where it is the sampler's own: then `indices` ignores the loader's.
    fn own_seed(&self) -> Option<u64> {
        None
    }

    /// Among how many ranks an epoch is split, sample by sample in turn: 1 unless it is a
    /// distributed sampler.
    fn num_replicas(&self) -> usize {
        1
    }

    /// True when an epoch has no index.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// `0..len` as it stands (`torch.utils.data.SequentialSampler`).
///
/// ```
/// use torchrs::data::{Sampler, SequentialSampler};
/// let sampler = SequentialSampler::new(4);
/// assert_eq!((sampler.len(), &*sampler.indices(0, 5)), (4, &[0, 1, 2, 3][..]));
/// ```
#[derive(Debug, Clone)]
pub struct SequentialSampler {
    len: usize,
}

impl SequentialSampler {
    /// An order over a dataset of `len` samples.
    pub fn new(len: usize) -> Self {
        SequentialSampler { len }
    }
}

impl Sampler for SequentialSampler {
    fn len(&self) -> usize {
        self.len
    }
    fn indices(&self, _seed: u64, _epoch: u64) -> Cow<'_, [usize]> {
        Cow::Owned((0..self.len).collect())
    }
}

/// A new permutation of `0..len` every epoch, or draws with replacement
/// (`torch.utils.data.RandomSampler`).
///
/// ```
/// use torchrs::data::{RandomSampler, Sampler};
/// let sampler = RandomSampler::new(50);
/// let (one, two) = (sampler.indices(0, 1).into_owned(), sampler.indices(0, 2).into_owned());
/// assert_ne!(one, two);
/// assert_eq!(one.iter().sum::<usize>(), (0..50).sum::<usize>());
/// ```
#[derive(Debug, Clone)]
pub struct RandomSampler {
    len: usize,
    draws: Option<usize>,
}

impl RandomSampler {
    /// Permutations of a dataset of `len` samples.
    pub fn new(len: usize) -> Self {
        RandomSampler { len, draws: None }
    }

    /// `num_samples` independent draws from a dataset of `len` samples: indices can repeat.
    ///
    /// ```
    /// use torchrs::data::{RandomSampler, Sampler};
    /// let sampler = RandomSampler::with_replacement(3, 10)?;
    /// assert!(sampler.len() == 10 && sampler.indices(0, 0).iter().all(|&index| index < 3));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when there is nothing to draw from.
    pub fn with_replacement(len: usize, num_samples: usize) -> Result<Self> {
        if len == 0 && num_samples > 0 {
            return Err(Error::argument(
                "RandomSampler::with_replacement",
                "len",
                format!("cannot draw {num_samples} samples from a dataset of 0"),
            ));
        }
        Ok(RandomSampler { len, draws: Some(num_samples) })
    }
}

impl Sampler for RandomSampler {
    fn len(&self) -> usize {
        self.draws.unwrap_or(self.len)
    }
    fn indices(&self, seed: u64, epoch: u64) -> Cow<'_, [usize]> {
        Cow::Owned(match self.draws {
            None => permutation(self.len, seed, epoch),
            Some(draws) => {
                let mut random = PhiloxStream::new(seed, epoch);
                (0..draws).map(|_| random.below(self.len as u64) as usize).collect()
            }
        })
    }
}

/// Given indices, as they stand or in a new random order every epoch
/// (`torch.utils.data.SubsetRandomSampler`).
///
/// ```
/// use torchrs::data::{Sampler, SubsetSampler};
/// let sampler = SubsetSampler::new((10..60).collect());
/// assert_eq!(sampler.indices(0, 0)[..3], [10, 11, 12]);
/// let shuffled = sampler.clone().shuffle(true);
/// assert_ne!(shuffled.indices(0, 0), sampler.indices(0, 0));
/// ```
#[derive(Debug, Clone)]
pub struct SubsetSampler {
    indices: Vec<usize>,
    shuffle: bool,
}

impl SubsetSampler {
    /// These indices in this order.
    pub fn new(indices: Vec<usize>) -> Self {
        SubsetSampler { indices, shuffle: false }
    }

    /// A rank's share of `len` samples: every `num_replicas`-th from `rank` on. Ranks may have one more or less than
    /// others, and no sample is there twice: for validation, where each has to count once. Training, where ranks take
    /// equal numbers of batches, has [`DistributedSampler`].
    ///
    /// ```
    /// use torchrs::data::{Sampler, SubsetSampler};
    /// let shares = [0, 1].map(|rank| SubsetSampler::share(5, 2, rank).unwrap().indices(0, 0).to_vec());
    /// assert_eq!(shares, [vec![0, 2, 4], vec![1, 3]]);
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] unless `rank` is below `num_replicas`.
    pub fn share(len: usize, num_replicas: usize, rank: usize) -> Result<Self> {
        if rank >= num_replicas {
            let message = format!("{rank}; must be below num_replicas, {num_replicas}");
            return Err(Error::argument("SubsetSampler::share", "rank", message));
        }
        Ok(Self::new((rank..len).step_by(num_replicas).collect()))
    }

    /// Whether every epoch has its own random order.
    #[must_use]
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }
}

impl Sampler for SubsetSampler {
    fn len(&self) -> usize {
        self.indices.len()
    }
    fn indices(&self, seed: u64, epoch: u64) -> Cow<'_, [usize]> {
        if !self.shuffle {
            return Cow::Borrowed(&self.indices);
        }
        let order = permutation(self.indices.len(), seed, epoch);
        Cow::Owned(order.into_iter().map(|i| self.indices[i]).collect())
    }
}

/// One rank's share of a dataset (`torch.utils.data.DistributedSampler`, with its rule): all ranks
/// order the dataset alike, and rank r takes places r, r + num_replicas, r + 2 num_replicas, ...
///
/// So that all ranks have the same number of samples, the order is first padded with its own
/// beginning (repeated as often as needed) to a multiple of `num_replicas`; with
/// [`drop_last`](Self::drop_last) it is cut to one instead.
///
/// The order's seed is the sampler's own ([`seed`](Self::seed)), as in PyTorch: ranks that give their
/// loaders seeds of their own still share one order.
///
/// ```
/// use torchrs::data::{DistributedSampler, Sampler};
/// let share = |rank| DistributedSampler::new(5, 2, rank).unwrap().shuffle(false);
/// assert_eq!(*share(0).indices(0, 0), [0, 2, 4]);
/// assert_eq!(*share(1).indices(0, 0), [1, 3, 0]);
/// assert_eq!(*share(1).drop_last(true).indices(0, 0), [1, 3]);
/// ```
#[derive(Debug, Clone)]
pub struct DistributedSampler {
    len: usize,
    share: Share,
    shuffle: bool,
    seed: u64,
}

impl DistributedSampler {
    /// Rank `rank`'s share of a dataset of `len` samples among `num_replicas` ranks, shuffled, with
    /// padding.
    ///
    /// ```
    /// use torchrs::data::{DistributedSampler, Sampler};
    /// assert_eq!(DistributedSampler::new(1438, 4, 3)?.len(), 360);
    /// assert!(DistributedSampler::new(1438, 4, 4).is_err());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] unless `rank < num_replicas`.
    pub fn new(len: usize, num_replicas: usize, rank: usize) -> Result<Self> {
        let share = Share::new("DistributedSampler::new", num_replicas, rank)?;
        Ok(DistributedSampler { len, share, shuffle: true, seed: 0 })
    }

    /// Whether every epoch has its own random order (default: true).
    ///
    /// ```
    /// use torchrs::data::{DistributedSampler, Sampler};
    /// let shares = [0, 1].map(|rank| DistributedSampler::new(40, 2, rank).unwrap());
    /// let mut both = shares.map(|share| share.indices(3, 0).into_owned()).concat();
    /// assert_ne!(both[..3], [0, 2, 4]);
    /// both.sort();
    /// assert!(both.into_iter().eq(0..40));
    /// ```
    #[must_use]
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// The seed of the order (default: 0), the same on all ranks.
    ///
    /// ```
    /// use torchrs::data::{DistributedSampler, Sampler};
    /// let share = |rank, seed| DistributedSampler::new(40, 2, rank).unwrap().seed(seed);
    /// assert_ne!(share(0, 1).indices(0, 0), share(0, 2).indices(0, 0));
    /// let both = [share(0, 1).indices(0, 0), share(1, 1).indices(9, 0)].concat();
    /// assert!((0..40).all(|index| both.contains(&index))); // whatever the loaders' seeds
    /// ```
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Whether the tail that does not divide among the ranks is dropped rather than padded
    /// (default: false).
    ///
    /// ```
    /// use torchrs::data::{DistributedSampler, Sampler};
    /// let sampler = DistributedSampler::new(10, 4, 1)?.shuffle(false).drop_last(true);
    /// assert_eq!(*sampler.indices(0, 0), [1, 5]);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    #[must_use]
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.share.drop_last = drop_last;
        self
    }
}

impl Sampler for DistributedSampler {
    fn len(&self) -> usize {
        self.share.len(self.len)
    }
    fn indices(&self, _seed: u64, epoch: u64) -> Cow<'_, [usize]> {
        let order = match self.shuffle {
            true => permutation(self.len, self.seed, epoch),
            false => (0..self.len).collect(),
        };
        Cow::Owned(self.share.places(self.len).map(|place| order[place]).collect())
    }
    fn own_seed(&self) -> Option<u64> {
        Some(self.seed)
    }
    fn num_replicas(&self) -> usize {
        self.share.num_replicas
    }
}

/// A sampler's indices in groups (`torch.utils.data.BatchSampler`).
///
/// ```
/// use torchrs::data::BatchSampler;
/// let batches = |drop_last| BatchSampler::new(3, drop_last).unwrap().batches(&[5, 6, 7, 8]);
/// assert_eq!(batches(false).collect::<Vec<_>>(), [&[5, 6, 7][..], &[8]]);
/// assert_eq!(batches(true).collect::<Vec<_>>(), [[5, 6, 7]]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchSampler {
    batch_size: usize,
    drop_last: bool,
}

impl BatchSampler {
    /// Groups of `batch_size`; the last one is smaller, or is left out with `drop_last`.
    ///
    /// ```
    /// use torchrs::data::BatchSampler;
    /// assert_eq!(BatchSampler::new(4, true)?.num_batches(10), 2);
    /// assert!(BatchSampler::new(0, true).is_err());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when `batch_size` is 0.
    pub fn new(batch_size: usize, drop_last: bool) -> Result<Self> {
        if batch_size == 0 {
            return Err(Error::argument("BatchSampler::new", "batch_size", "is 0, must be >= 1"));
        }
        Ok(BatchSampler { batch_size, drop_last })
    }

    /// Samples in a full batch.
    pub fn batch_size(&self) -> usize {
        self.batch_size
    }

    /// How many batches `samples` make.
    ///
    /// ```
    /// use torchrs::data::BatchSampler;
    /// assert_eq!(BatchSampler::new(4, false)?.num_batches(9), 3);
    /// assert_eq!(BatchSampler::new(4, true)?.num_batches(9), 2);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn num_batches(&self, samples: usize) -> usize {
        if self.drop_last { samples / self.batch_size } else { samples.div_ceil(self.batch_size) }
    }

    /// The batches of an order.
    pub fn batches<'a>(&self, indices: &'a [usize]) -> impl Iterator<Item = &'a [usize]> + use<'a> {
        indices.chunks(self.batch_size).take(self.num_batches(indices.len()))
    }
}

/// A uniformly random order of `0..len`, a pure function of its arguments: Fisher-Yates over
/// Philox with the seed as key and the epoch as stream.
///
/// ```
/// use torchrs::data::samplers::permutation;
/// let mut order = permutation(50, 0, 1);
/// assert_eq!(order, permutation(50, 0, 1));
/// assert_ne!(order, permutation(50, 0, 2));
/// order.sort();
/// assert!(order.into_iter().eq(0..50));
/// ```
pub fn permutation(len: usize, seed: u64, epoch: u64) -> Vec<usize> {
    let mut random = PhiloxStream::new(seed, epoch);
    let mut order: Vec<usize> = (0..len).collect();
    for last in (1..len).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn permutations_are_complete_uniform_and_reproducible() {
        let mut sorted = permutation(1000, 3, 5);
        assert_eq!(sorted, permutation(1000, 3, 5));
        assert_ne!(sorted, permutation(1000, 3, 6));
        assert_ne!(sorted, permutation(1000, 4, 5));
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
        // All 24 orders of 4 appear equally often (expected 500, standard deviation 22).
        let mut counts = std::collections::HashMap::new();
        for epoch in 0..12_000 {
            *counts.entry(permutation(4, 1, epoch)).or_insert(0u32) += 1;
        }
        assert_eq!(counts.len(), 24);
        assert!(counts.values().all(|c| c.abs_diff(500) < 110), "{counts:?}");
    }

    /// What `torch.utils.data.DistributedSampler(range(n), r, rank, shuffle=False, drop_last=d)`
    /// gives.
    #[test]
    fn distributed_sampler_pads_and_drops_as_pytorch_does() {
        let share = |len, replicas, rank, drop| {
            let sampler = DistributedSampler::new(len, replicas, rank).unwrap();
            let sampler = sampler.shuffle(false).drop_last(drop);
            let indices = sampler.indices(0, 0).into_owned();
            assert_eq!(indices.len(), sampler.len());
            indices
        };
        assert_eq!(share(10, 3, 0, false), [0, 3, 6, 9]);
        assert_eq!(share(10, 3, 1, false), [1, 4, 7, 0]);
        assert_eq!(share(10, 3, 2, false), [2, 5, 8, 1]);
        assert_eq!(share(10, 3, 1, true), [1, 4, 7]);
        assert_eq!(share(9, 3, 2, true), [2, 5, 8]);
        // Fewer samples than half the ranks: the beginning is repeated more than once.
        assert_eq!((0..5).flat_map(|r| share(2, 5, r, false)).collect::<Vec<_>>(), [0, 1, 0, 1, 0]);
        assert_eq!(share(2, 5, 0, true), [0usize; 0]);
        assert_eq!(share(0, 2, 1, false), [0usize; 0]);
    }

    #[test]
    fn a_rank_out_of_range_is_named() {
        let error = DistributedSampler::new(10, 2, 2).unwrap_err().to_string();
        assert!(error.contains("is 2") && error.contains("num_replicas, which is 2"), "{error}");
        assert!(BatchSampler::new(0, false).is_err());
        assert!(RandomSampler::with_replacement(0, 1).is_err());
    }

    #[test]
    fn draws_with_replacement_stay_in_range_and_repeat() {
        let sampler = RandomSampler::with_replacement(10, 100).unwrap();
        let draws = sampler.indices(0, 0);
        assert_eq!((draws.len(), sampler.len()), (100, 100));
        assert!(draws.iter().all(|&i| i < 10));
        assert_eq!(draws, sampler.indices(0, 0));
    }

    proptest! {
        /// All ranks together read the permutation in order, then its padding.
        #[test]
        fn the_ranks_interleave_to_one_order(len in 1usize..200, replicas in 1usize..9, drop: bool) {
            let shares: Vec<Vec<usize>> = (0..replicas)
                .map(|rank| {
                    let sampler = DistributedSampler::new(len, replicas, rank).unwrap();
                    sampler.drop_last(drop).seed(7).indices(rank as u64, 2).into_owned()
                })
                .collect();
            let order = permutation(len, 7, 2);
            for (k, place) in (0..shares[0].len() * replicas).map(|p| (p, p % len)) {
                prop_assert_eq!(shares[k % replicas][k / replicas], order[place]);
            }
        }

        /// Every index is in exactly one batch, in order; only a last batch is short.
        #[test]
        fn batches_cover_the_order(len in 0usize..100, size in 1usize..12, drop: bool) {
            let indices: Vec<usize> = (0..len).collect();
            let sampler = BatchSampler::new(size, drop).unwrap();
            let batches: Vec<&[usize]> = sampler.batches(&indices).collect();
            prop_assert_eq!(batches.len(), sampler.num_batches(len));
            let covered = if drop { len / size * size } else { len };
            prop_assert_eq!(batches.concat(), &indices[..covered]);
            for (k, batch) in batches.iter().enumerate() {
                prop_assert!(batch.len() == size || (!drop && k + 1 == batches.len()));
            }
        }
    }

    #[test]
    fn a_shuffled_subset_holds_just_its_indices() {
        let sampler = SubsetSampler::new(vec![9, 4, 7]).shuffle(true);
        let mut seen = sampler.indices(1, 1).into_owned();
        seen.sort_unstable();
        assert_eq!(seen, [4, 7, 9]);
        assert_eq!(*SubsetSampler::new(vec![9, 4, 7]).indices(1, 1), [9, 4, 7]);
    }
}
