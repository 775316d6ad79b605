//! Parts of a dataset.

use serde::{Deserialize, Serialize};

use crate::data::Dataset;
use crate::data::samplers::permutation;
use crate::data::shared::Shared;
use crate::error::{Error, Result};

/// Some samples of a dataset, in a given order (`torch.utils.data.Subset`).
///
/// ```
/// use torchrs::data::{Dataset, Subset, datasets::Synthetic};
/// let odd = Subset::new(Synthetic::new(10), vec![1, 3, 5, 7, 9])?;
/// assert_eq!((odd.len(), odd.get(2)?.1), (5, 5));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "D: Dataset")]
pub struct Subset<D> {
    dataset: Shared<D>,
    indices: Vec<usize>,
}

/// Both share the dataset.
impl<D> Clone for Subset<D> {
    fn clone(&self) -> Self {
        Subset { dataset: self.dataset.clone(), indices: self.indices.clone() }
    }
}

impl<D: Dataset> Subset<D> {
    /// The samples of `dataset` at `indices`.
    ///
    /// ```
    /// use torchrs::data::{Dataset, Subset, datasets::Synthetic};
    /// assert_eq!(Subset::new(Synthetic::new(10), vec![7, 7])?.get(1)?.1, 7);
    /// let error = Subset::new(Synthetic::new(10), vec![7, 10]).unwrap_err();
    /// assert!(error.to_string().contains("place 1 holds 10, the dataset has 10 samples"));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when an index is out of range.
    pub fn new(dataset: D, indices: Vec<usize>) -> Result<Self> {
        let len = dataset.len();
        if let Some(place) = indices.iter().position(|&index| index >= len) {
            let message =
                format!("place {place} holds {}, the dataset has {len} samples", indices[place]);
            return Err(Error::argument("Subset::new", "indices", message));
        }
        Ok(Subset { dataset: Shared::new(dataset), indices })
    }

    /// The indices of its samples in the dataset.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    type Sample = D::Sample;
    fn len(&self) -> usize {
        self.indices.len()
    }
    fn get(&self, index: usize) -> Result<D::Sample> {
        self.dataset.get(self.indices[index])
    }
}

/// How long the parts of [`random_split`] are.
#[derive(Debug, Clone, PartialEq)]
pub enum Lengths {
    /// Samples of each part; together all of the dataset.
    Counts(Vec<usize>),
    /// Shares of the dataset; together 1. What rounding leaves over goes to the first parts, one sample to each.
    Fractions(Vec<f64>),
}

impl<const N: usize> From<[usize; N]> for Lengths {
    fn from(counts: [usize; N]) -> Self {
        Lengths::Counts(counts.into())
    }
}

impl<const N: usize> From<[f64; N]> for Lengths {
    fn from(fractions: [f64; N]) -> Self {
        Lengths::Fractions(fractions.into())
    }
}

/// A dataset in random parts that share no sample (`torch.utils.data.random_split`). Which samples a part has is a
/// pure function of `seed`.
///
/// ```
/// use torchrs::data::{Dataset, datasets::Synthetic, random_split};
/// let parts = random_split(Synthetic::new(10), [0.75, 0.25], 42)?;
/// assert_eq!((parts[0].len(), parts[1].len()), (8, 2));
/// let error = random_split(Synthetic::new(10), [7, 2], 42).unwrap_err().to_string();
/// assert!(error.contains("sum to 9, the dataset has 10 samples"));
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] when the lengths do not sum to the dataset's or to 1, or a share is negative.
pub fn random_split<D: Dataset>(
    dataset: D,
    lengths: impl Into<Lengths>,
    seed: u64,
) -> Result<Vec<Subset<D>>> {
    let wrong = |message| Err(Error::argument("random_split", "lengths", message));
    let len = dataset.len();
    let counts = match lengths.into() {
        Lengths::Counts(counts) => counts,
        Lengths::Fractions(fractions) => {
            if let Some(place) = fractions.iter().position(|f| !(0.0..=1.0).contains(f)) {
                return wrong(format!(
                    "share {place} is {}, must be from 0 to 1",
                    fractions[place]
                ));
            }
            let sum: f64 = fractions.iter().sum();
            if (sum - 1.0).abs() > 1e-6 {
                return wrong(format!("shares sum to {sum}, must sum to 1"));
            }
            let mut counts: Vec<usize> =
                fractions.iter().map(|f| (len as f64 * f).floor() as usize).collect();
            let left = len - counts.iter().sum::<usize>().min(len);
            let parts = counts.len();
            (0..left).for_each(|i| counts[i % parts] += 1);
            counts
        }
    };
    let sum: usize = counts.iter().sum();
    if sum != len {
        return wrong(format!("sum to {sum}, the dataset has {len} samples"));
    }
    let dataset = Shared::new(dataset);
    let order = permutation(len, seed, u64::MAX);
    let mut rest = &order[..];
    let part = |count| {
        let (indices, after) = rest.split_at(count);
        rest = after;
        Subset { dataset: dataset.clone(), indices: indices.to_vec() }
    };
    Ok(counts.into_iter().map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::datasets::Synthetic;

    #[test]
    fn parts_are_disjoint_complete_and_reproducible() {
        let split = |seed| random_split(Synthetic::new(103), [0.5, 0.3, 0.2], seed).unwrap();
        let parts = split(1);
        // PyTorch: floors of 51.5, 30.9, 20.6, then one more for the first two.
        assert_eq!(parts.iter().map(Subset::len).collect::<Vec<_>>(), [52, 31, 20]);
        let mut all: Vec<usize> = parts.iter().flat_map(|part| part.indices().to_vec()).collect();
        assert_ne!(all, (0..103).collect::<Vec<_>>());
        all.sort_unstable();
        assert_eq!(all, (0..103).collect::<Vec<_>>());
        assert_eq!(parts[1].indices(), split(1)[1].indices());
        assert_ne!(parts[1].indices(), split(2)[1].indices());
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let fails = |lengths: Lengths, expected: &str| {
            let error = random_split(Synthetic::new(10), lengths, 0).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        fails([5, 6].into(), "sum to 11");
        fails([0.5, 0.6].into(), "sum to 1.1");
        fails([1.5, -0.5].into(), "share 0 is 1.5");
        fails([f64::NAN, 1.0].into(), "share 0 is NaN");
    }

    #[test]
    fn subsets_map_indices() {
        let subset = Subset::new(Synthetic::new(10), vec![7, 2]).unwrap();
        assert_eq!(
            (subset.len(), subset.get(0).unwrap().1, subset.clone().get(1).unwrap().1),
            (2, 7, 2)
        );
    }
}
