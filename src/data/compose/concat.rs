//! Datasets one after the other.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::data::{Dataset, Sample};
use crate::error::{Error, Result};

/// Datasets one after the other (`torch.utils.data.ConcatDataset`): a `Vec` of one type, or a tuple of up to four
/// types with one type of sample.
///
/// ```
/// use torchrs::data::{ConcatDataset, Dataset, Subset, datasets::Synthetic};
/// let two = ConcatDataset::new(vec![Synthetic::new(3), Synthetic::new(5)])?;
/// assert_eq!((two.len(), two.get(4)?.1), (8, 1));
/// let some = Subset::new(Synthetic::new(9), vec![8])?;
/// assert_eq!(ConcatDataset::new((Synthetic::new(2), some))?.get(2)?.1, 8);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConcatDataset<L> {
    datasets: L,
    /// Where each dataset ends.
    cumulative_sizes: Vec<usize>,
}

impl<L: DatasetList> ConcatDataset<L> {
    /// All samples of the first dataset, then of the second, ...
    ///
    /// # Errors
    /// [`Error::Argument`] when there is no dataset.
    pub fn new(datasets: L) -> Result<Self> {
        let mut end = 0;
        let ends = datasets.lens().into_iter().map(|len| {
            end += len;
            end
        });
        let cumulative_sizes: Vec<usize> = ends.collect();
        if cumulative_sizes.is_empty() {
            return Err(Error::argument(
                "ConcatDataset::new",
                "datasets",
                "are none, must be some",
            ));
        }
        Ok(ConcatDataset { datasets, cumulative_sizes })
    }

    /// Where each dataset ends.
    pub fn cumulative_sizes(&self) -> &[usize] {
        &self.cumulative_sizes
    }
}

impl<L: DatasetList> Dataset for ConcatDataset<L> {
    type Sample = L::Sample;
    fn len(&self) -> usize {
        self.cumulative_sizes.last().copied().unwrap_or_default()
    }
    fn get(&self, index: usize) -> Result<L::Sample> {
        let which = self.cumulative_sizes.partition_point(|&end| end <= index);
        let start = which.checked_sub(1).map_or(0, |before| self.cumulative_sizes[before]);
        self.datasets.get(which, index - start)
    }
}

/// Several datasets with one type of sample.
pub trait DatasetList: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What each gives.
    type Sample: Sample;
    /// The length of each.
    fn lens(&self) -> Vec<usize>;
    /// Sample `index` of dataset `which`.
    ///
    /// # Errors
    /// The dataset's own.
    fn get(&self, which: usize, index: usize) -> Result<Self::Sample>;
}

impl<D: Dataset> DatasetList for Vec<D> {
    type Sample = D::Sample;
    fn lens(&self) -> Vec<usize> {
        self.iter().map(D::len).collect()
    }
    fn get(&self, which: usize, index: usize) -> Result<D::Sample> {
        self[which].get(index)
    }
}

macro_rules! dataset_lists {
    ($(($($name:ident $place:tt),+))*) => {$(
        impl<T: Sample, $($name: Dataset<Sample = T>),+> DatasetList for ($($name,)+) {
            type Sample = T;
            fn lens(&self) -> Vec<usize> {
                vec![$(self.$place.len()),+]
            }
            fn get(&self, which: usize, index: usize) -> Result<T> {
                match which {
                    $($place => self.$place.get(index),)+
                    _ => unreachable!("dataset {which} of the list"),
                }
            }
        }
    )*};
}
dataset_lists! { (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) }
