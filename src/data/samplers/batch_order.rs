//! Orders of whole batches: for a loader whose batches are not just the next so many samples.

use crate::error::{Error, Result};

use super::share::Share;
use super::weighted::shuffled;

/// An order of batches (`batch_sampler` of `torch.utils.data.DataLoader`).
///
/// ```
/// use torchrs::data::{BatchOrder, DataLoader, datasets::Synthetic};
///
/// struct Pairs;
/// impl BatchOrder for Pairs {
///     fn len(&self) -> usize { 2 }
///     fn batch_size(&self) -> usize { 2 }
///     fn batches(&self, _: u64, _: u64) -> Vec<Vec<usize>> { vec![vec![3, 0], vec![2]] }
/// }
/// let loader = DataLoader::builder(Synthetic::new(4)).batch_sampler(Pairs).build()?;
/// let labels: Vec<Vec<i64>> = loader.iter().map(|batch| batch.unwrap().1.to_vec()).collect();
/// assert_eq!(labels, [vec![3, 0], vec![2]]);
/// # Ok::<(), torchrs::Error>(())
/// ```
pub trait BatchOrder: Send + Sync + 'static {
    /// How many batches one epoch has on this rank: the same in every epoch.
    fn len(&self) -> usize;

    /// The most samples of a batch.
    fn batch_size(&self) -> usize;

    /// This epoch's batches, none of them empty: a pure function of `seed` and `epoch`.
    fn batches(&self, seed: u64, epoch: u64) -> Vec<Vec<usize>>;

    /// The seed of the order where it is the order's own: then `batches` ignores the loader's.
    fn own_seed(&self) -> Option<u64> {
        None
    }

    /// Among how many ranks an epoch's batches are dealt.
    fn num_replicas(&self) -> usize {
        1
    }

    /// True when an epoch has no batch.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Batches of samples of similar length (bucketing), so that little of a padded batch is padding.
///
/// A sample is in the bucket of the first boundary that its length does not exceed; what is longer than all
/// boundaries has a bucket of its own. Each epoch shuffles every bucket, cuts it into batches, and shuffles these.
///
/// ```
/// use torchrs::data::{BatchOrder, BucketBatchSampler};
/// let lengths = [3, 90, 5, 80, 4, 70, 2];
/// let batches = BucketBatchSampler::new(&lengths, &[10, 100], 2)?;
/// for batch in batches.batches(0, 0) {
///     let long = batch.iter().filter(|&&i| lengths[i] > 10).count();
///     assert!(long == 0 || long == batch.len());
/// }
/// assert_eq!(batches.len(), 4);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct BucketBatchSampler {
    /// The indices of each bucket, and how many of them are a batch.
    buckets: Vec<(Vec<usize>, usize)>,
    longest: Vec<usize>,
    shuffle: bool,
    drop_last: bool,
}

impl BucketBatchSampler {
    /// Batches of `batch_size` of the samples with these `lengths`.
    ///
    /// # Errors
    /// [`Error::Argument`] when `batch_size` is 0 or `boundaries` do not rise.
    pub fn new(lengths: &[usize], boundaries: &[usize], batch_size: usize) -> Result<Self> {
        let wrong = |argument, message: String| {
            Err(Error::argument("BucketBatchSampler::new", argument, message))
        };
        if batch_size == 0 {
            return wrong("batch_size", "is 0, must be at least 1".to_owned());
        }
        if let Some(place) = boundaries.windows(2).position(|pair| pair[0] >= pair[1]) {
            let (a, b) = (boundaries[place], boundaries[place + 1]);
            return wrong("boundaries", format!("{b} follows {a}; they must rise"));
        }
        let mut buckets = vec![(Vec::new(), batch_size); boundaries.len() + 1];
        let mut longest = vec![0; boundaries.len() + 1];
        for (index, &length) in lengths.iter().enumerate() {
            let bucket = boundaries.partition_point(|&boundary| boundary < length);
            buckets[bucket].0.push(index);
            longest[bucket] = longest[bucket].max(length);
        }
        Ok(BucketBatchSampler { buckets, longest, shuffle: true, drop_last: false })
    }

    /// Makes batches as large as `max_tokens` allows when all of their samples are padded to the longest of
    /// the bucket, in place of a batch size.
    ///
    /// ```
    /// use torchrs::data::{BatchOrder, BucketBatchSampler};
    /// let lengths = [10, 10, 10, 10, 100, 100];
    /// let batches = BucketBatchSampler::new(&lengths, &[10, 100], 1)?.max_tokens(100)?;
    /// assert_eq!((batches.len(), batches.batch_size()), (3, 10));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when a sample alone is longer.
    pub fn max_tokens(mut self, max_tokens: usize) -> Result<Self> {
        let longest = self.longest.iter().copied().max().unwrap_or_default();
        if longest > max_tokens || max_tokens == 0 {
            let message = format!("is {max_tokens}, the longest sample has {longest}");
            let op = "BucketBatchSampler::max_tokens";
            return Err(Error::argument(op, "max_tokens", message));
        }
        for (bucket, longest) in self.buckets.iter_mut().zip(&self.longest) {
            bucket.1 = max_tokens / (*longest).max(1);
        }
        Ok(self)
    }

    /// Whether every epoch has its own random batches (default: true). Else they are in the order of the
    /// buckets and the indices.
    #[must_use]
    pub fn shuffle(mut self, shuffle: bool) -> Self {
        self.shuffle = shuffle;
        self
    }

    /// Whether each bucket's last batch is left out where it is smaller (default: false).
    #[must_use]
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }
}

impl BatchOrder for BucketBatchSampler {
    fn len(&self) -> usize {
        let count = |(bucket, size): &(Vec<usize>, usize)| match self.drop_last {
            true => bucket.len() / size,
            false => bucket.len().div_ceil(*size),
        };
        self.buckets.iter().map(count).sum()
    }

    fn batch_size(&self) -> usize {
        let used = self.buckets.iter().filter(|(bucket, _)| !bucket.is_empty());
        used.map(|(_, size)| *size).max().unwrap_or(1)
    }

    fn batches(&self, seed: u64, epoch: u64) -> Vec<Vec<usize>> {
        let mut batches = Vec::with_capacity(self.len());
        for (number, (bucket, size)) in self.buckets.iter().enumerate() {
            let order = match self.shuffle {
                true => shuffled(bucket, seed ^ (number as u64 + 1) << 40, epoch),
                false => bucket.clone(),
            };
            let whole = order.chunks(*size).filter(|b| !self.drop_last || b.len() == *size);
            batches.extend(whole.map(<[usize]>::to_vec));
        }
        if self.shuffle { shuffled(&batches, seed, epoch) } else { batches }
    }
}

/// One rank's share of an order of batches: rank r takes batches r, r + num_replicas, ..., so that the samples of
/// a batch stay together (as bucketing wants). All ranks get equally many batches.
///
/// ```
/// use torchrs::data::{BatchOrder, BucketBatchSampler, DistributedBatchSampler};
/// let share = |rank| {
///     let batches = BucketBatchSampler::new(&[1; 10], &[], 2).unwrap();
///     DistributedBatchSampler::new(batches, 2, rank).unwrap()
/// };
/// // Five batches: the second rank gets one of the first's again.
/// assert_eq!((share(0).len(), share(1).len()), (3, 3));
/// assert_eq!(share(1).batches(0, 0)[2], share(0).batches(0, 0)[0]);
/// assert_eq!(share(1).drop_last(true).len(), 2);
/// ```
pub struct DistributedBatchSampler {
    batches: Box<dyn BatchOrder>,
    share: Share,
    seed: u64,
}

impl DistributedBatchSampler {
    /// Rank `rank`'s share among `num_replicas` ranks. So that all get equally many, the first batches are
    /// repeated; with [`drop_last`](Self::drop_last) the last ones are left out instead.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `rank < num_replicas`, and when `batches` are dealt out already.
    pub fn new(batches: impl BatchOrder, num_replicas: usize, rank: usize) -> Result<Self> {
        let (op, ranks) = ("DistributedBatchSampler::new", (num_replicas, rank));
        let share = Share::of_whole(op, ranks, "batches", batches.num_replicas())?;
        Ok(DistributedBatchSampler { batches: Box::new(batches), share, seed: 0 })
    }

    /// Whether batches that do not divide among the ranks are left out (default: false).
    #[must_use]
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.share.drop_last = drop_last;
        self
    }

    /// The seed of the order (default: 0), the same on all ranks.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

impl BatchOrder for DistributedBatchSampler {
    fn len(&self) -> usize {
        self.share.len(self.batches.len())
    }

    fn batch_size(&self) -> usize {
        self.batches.batch_size()
    }

    fn batches(&self, _seed: u64, epoch: u64) -> Vec<Vec<usize>> {
        let all = self.batches.batches(self.seed, epoch);
        self.share.places(all.len()).map(|place| all[place].clone()).collect()
    }

    fn own_seed(&self) -> Option<u64> {
        Some(self.batches.own_seed().unwrap_or(self.seed))
    }

    fn num_replicas(&self) -> usize {
        self.share.num_replicas
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_in_one_batch_of_its_bucket() {
        let lengths: Vec<usize> = (0..101).map(|i| i * 37 % 64).collect();
        let order = BucketBatchSampler::new(&lengths, &[7, 20, 40], 8).unwrap();
        let batches = order.batches(5, 2);
        assert_eq!(batches.len(), order.len());
        assert_eq!(batches, order.batches(5, 2));
        assert_ne!(batches, order.batches(5, 3));
        let bucket = |i: &usize| [7, 20, 40].iter().filter(|b| **b < lengths[*i]).count();
        for batch in &batches {
            assert!(!batch.is_empty() && batch.len() <= 8);
            assert!(batch.iter().all(|i| bucket(i) == bucket(&batch[0])));
        }
        let mut all = batches.concat();
        all.sort_unstable();
        assert_eq!(all, (0..101).collect::<Vec<_>>());
        let whole = order.clone().drop_last(true);
        assert!(whole.batches(1, 1).iter().all(|batch| batch.len() == 8));
        assert_eq!(whole.batches(1, 1).len(), whole.len());
    }

    #[test]
    fn batches_hold_as_many_tokens_as_allowed() {
        let lengths = [8, 1, 9, 30, 2, 25];
        let order = BucketBatchSampler::new(&lengths, &[10], 1).unwrap().max_tokens(60).unwrap();
        for batch in order.batches(0, 0) {
            let longest = batch.iter().map(|&i| lengths[i]).max().unwrap();
            assert!(longest * batch.len() <= 60, "{batch:?}");
        }
        assert_eq!((order.len(), order.batch_size()), (2, 6));
        let error = BucketBatchSampler::new(&lengths, &[10], 1).unwrap().max_tokens(29);
        assert!(error.unwrap_err().to_string().contains("longest sample has 30"));
        let error = BucketBatchSampler::new(&lengths, &[10, 10], 1).unwrap_err().to_string();
        assert!(error.contains("10 follows 10"), "{error}");
    }

    #[test]
    fn ranks_deal_out_batches() {
        let shares: Vec<_> = (0..3)
            .map(|rank| {
                let all = BucketBatchSampler::new(&[4; 29], &[], 4).unwrap();
                DistributedBatchSampler::new(all, 3, rank).unwrap().seed(9)
            })
            .collect();
        let mut all: Vec<usize> =
            shares.iter().flat_map(|share| share.batches(1, 6).concat()).collect();
        assert!(shares.iter().all(|share| share.len() == 3 && share.batches(0, 0).len() == 3));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all, (0..29).collect::<Vec<_>>());
    }
}
