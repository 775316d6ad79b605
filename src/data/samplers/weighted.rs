//! Draws in proportion to weights.

use std::borrow::Cow;

use super::share::Share;
use super::{Sampler, permutation};
use crate::cpu::numbers::philox::PhiloxStream;
use crate::error::{Error, Result};

/// Indices drawn in proportion to weights (`torch.utils.data.WeightedRandomSampler`), anew in every epoch.
///
/// ```
/// use torchrs::data::{Sampler, WeightedRandomSampler};
/// let rare_first = WeightedRandomSampler::new(&[9.0, 0.0, 1.0], 1000, true)?;
/// let drawn = rare_first.indices(0, 0).into_owned();
/// let share = |index| drawn.iter().filter(|&&i| i == index).count();
/// assert!(share(0) > 850 && share(1) == 0 && share(2) > 50);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct WeightedRandomSampler {
    weights: Vec<f64>,
    /// Sums of the weights up to each, with replacement.
    sums: Vec<f64>,
    num_samples: usize,
    replacement: bool,
}

impl WeightedRandomSampler {
    /// `num_samples` draws from `0..weights.len()`. The weights need not sum to 1. Without `replacement` no
    /// index is drawn twice.
    ///
    /// ```
    /// use torchrs::data::{Sampler, WeightedRandomSampler};
    /// let each_once = WeightedRandomSampler::new(&[1.0, 5.0, 2.0], 3, false)?;
    /// let mut drawn = each_once.indices(0, 0).into_owned();
    /// drawn.sort();
    /// assert_eq!(drawn, [0, 1, 2]);
    /// let error = WeightedRandomSampler::new(&[1.0, -5.0], 2, true).unwrap_err().to_string();
    /// assert!(error.contains("weight 1 is -5"));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when a weight is negative or not finite, when all are 0, when `num_samples` is 0, and
    /// without `replacement` when fewer than `num_samples` weights are positive.
    pub fn new(weights: &[f64], num_samples: usize, replacement: bool) -> Result<Self> {
        let wrong = |argument, message: String| {
            Err(Error::argument("WeightedRandomSampler::new", argument, message))
        };
        if let Some(place) = weights.iter().position(|w| !w.is_finite() || *w < 0.0) {
            let message =
                format!("weight {place} is {}, must be finite and at least 0", weights[place]);
            return wrong("weights", message);
        }
        let positive = weights.iter().filter(|w| **w > 0.0).count();
        if positive == 0 {
            return wrong("weights", format!("none of the {} is above 0", weights.len()));
        }
        if num_samples == 0 {
            return wrong("num_samples", "is 0, must be at least 1".to_owned());
        }
        if !replacement && num_samples > positive {
            let message = format!(
                "is {num_samples}; without replacement at most {positive} can be drawn, the positive weights"
            );
            return wrong("num_samples", message);
        }
        let mut sum = 0.0;
        let sums = weights.iter().map(|w| {
            sum += w;
            sum
        });
        let sums: Vec<f64> = if replacement { sums.collect() } else { Vec::new() };
        if sums.last().is_some_and(|sum| !sum.is_finite()) {
            return wrong("weights", "their sum is not finite".to_owned());
        }
        Ok(WeightedRandomSampler { weights: weights.to_vec(), sums, num_samples, replacement })
    }
}

impl Sampler for WeightedRandomSampler {
    fn len(&self) -> usize {
        self.num_samples
    }

    fn indices(&self, seed: u64, epoch: u64) -> Cow<'_, [usize]> {
        // Numbers of their own, away from those of `permutation`.
        let mut random = PhiloxStream::new(seed ^ 0x57E1_6417_ED00_0001, epoch);
        let mut uniform = || (random.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64);
        if self.replacement {
            let total = self.sums.last().copied().unwrap_or_default();
            let draw = |_| {
                let at = uniform() * total;
                let place = self.sums.partition_point(|&sum| sum <= at);
                // Rounding can reach the total: then it is the last that has a weight.
                let last = || self.weights.iter().rposition(|&w| w > 0.0).unwrap_or_default();
                if place < self.sums.len() { place } else { last() }
            };
            return Cow::Owned((0..self.num_samples).map(draw).collect());
        }
        // Efraimidis and Spirakis: an exponential waiting time at each index, the shortest come first.
        let mut key = |w: f64| if w > 0.0 { -(1.0 - uniform()).ln() / w } else { f64::INFINITY };
        let mut keys: Vec<(f64, usize)> = self.weights.iter().map(|&w| key(w)).zip(0..).collect();
        keys.sort_by(|a, b| a.0.total_cmp(&b.0));
        Cow::Owned(keys[..self.num_samples].iter().map(|&(_, index)| index).collect())
    }
}

/// Another sampler's order, dealt out to ranks as [`DistributedSampler`](super::DistributedSampler) deals out a
/// dataset: rank r takes places r, r + num_replicas, ... of it. So weights and subsets work with several ranks.
///
/// ```
/// use torchrs::data::{DistributedSamplerWrapper, Sampler, WeightedRandomSampler};
/// let weighted = || WeightedRandomSampler::new(&[1.0, 2.0, 3.0], 8, true).unwrap();
/// let share = |rank| DistributedSamplerWrapper::new(weighted(), 2, rank).unwrap().indices(0, 0).into_owned();
/// let all = weighted().indices(0, 0).into_owned();
/// assert_eq!((share(0)[1], share(1)[1]), (all[2], all[3]));
/// ```
pub struct DistributedSamplerWrapper {
    sampler: Box<dyn Sampler>,
    share: Share,
    seed: u64,
}

impl DistributedSamplerWrapper {
    /// Rank `rank`'s share of `sampler`'s order among `num_replicas` ranks. All ranks get equally many: the
    /// order's beginning is repeated to fill up.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `rank < num_replicas`, and when `sampler` is dealt out already.
    pub fn new(sampler: impl Sampler, num_replicas: usize, rank: usize) -> Result<Self> {
        let (op, ranks) = ("DistributedSamplerWrapper::new", (num_replicas, rank));
        let share = Share::of_whole(op, ranks, "sampler", sampler.num_replicas())?;
        Ok(DistributedSamplerWrapper { sampler: Box::new(sampler), share, seed: 0 })
    }

    /// Whether the tail that does not divide among the ranks is dropped rather than filled up (default: false).
    #[must_use]
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.share.drop_last = drop_last;
        self
    }

    /// The seed of the order (default: 0), the same on all ranks. Loaders' seeds do not change it.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }
}

impl Sampler for DistributedSamplerWrapper {
    fn len(&self) -> usize {
        self.share.len(self.sampler.len())
    }

    fn indices(&self, _seed: u64, epoch: u64) -> Cow<'_, [usize]> {
        let order = self.sampler.indices(self.seed, epoch);
        Cow::Owned(self.share.places(order.len()).map(|place| order[place]).collect())
    }

    fn own_seed(&self) -> Option<u64> {
        Some(self.sampler.own_seed().unwrap_or(self.seed))
    }

    fn num_replicas(&self) -> usize {
        self.share.num_replicas
    }
}

/// The order of `items`, shuffled by `permutation`.
pub(super) fn shuffled<T: Clone>(items: &[T], seed: u64, epoch: u64) -> Vec<T> {
    permutation(items.len(), seed, epoch).into_iter().map(|i| items[i].clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The probability that index 0 comes first is its share of the weights, with and without replacement.
    #[test]
    fn shares_are_those_of_the_weights() {
        let weights = [4.0, 1.0, 0.0, 3.0];
        for replacement in [true, false] {
            let sampler = WeightedRandomSampler::new(&weights, 2, replacement).unwrap();
            let mut first = [0usize; 4];
            for epoch in 0..8000 {
                let drawn = sampler.indices(3, epoch);
                first[drawn[0]] += 1;
                assert!(replacement || drawn[0] != drawn[1]);
            }
            for (count, weight) in first.iter().zip(weights) {
                let expected = 8000.0 * weight / 8.0;
                assert!((*count as f64 - expected).abs() < 200.0, "{first:?}");
            }
        }
    }

    #[test]
    fn wrong_weights_are_named() {
        let fails = |weights: &[f64], n, replacement, expected: &str| {
            let error = WeightedRandomSampler::new(weights, n, replacement).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        };
        fails(&[1.0, f64::NAN], 1, true, "weight 1 is NaN");
        fails(&[0.0, 0.0], 1, true, "none of the 2 is above 0");
        fails(&[], 1, true, "none of the 0");
        fails(&[1.0], 0, true, "is 0");
        fails(&[1.0, 0.0, 1.0], 3, false, "at most 2");
        fails(&[f64::MAX, f64::MAX], 3, true, "sum is not finite");
    }

    #[test]
    fn the_wrapper_deals_out_each_place_once() {
        let shares: Vec<Vec<usize>> = (0..3)
            .map(|rank| {
                let all = super::super::SubsetSampler::new((10..21).collect()).shuffle(true);
                let share = DistributedSamplerWrapper::new(all, 3, rank).unwrap().seed(4);
                share.indices(rank as u64, 1).into_owned()
            })
            .collect();
        assert!(shares.iter().all(|share| share.len() == 4));
        let mut all = shares.concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all, (10..21).collect::<Vec<_>>());
        let twice = DistributedSamplerWrapper::new(super::super::SequentialSampler::new(4), 2, 0);
        let error = DistributedSamplerWrapper::new(twice.unwrap(), 2, 1).err().unwrap();
        assert!(error.to_string().contains("dealt out to 2 ranks already"), "{error}");
    }
}
