//! Datasets side by side.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::data::{Dataset, Sample};
use crate::error::{Error, Result};

/// Datasets side by side (`torch.utils.data.StackDataset`): sample `i` is the tuple of their samples `i`.
///
/// ```
/// use torchrs::data::{Dataset, StackDataset, Subset, datasets::Synthetic};
/// let backwards = Subset::new(Synthetic::new(3), vec![2, 1, 0])?;
/// let pairs = StackDataset::new((Synthetic::new(3), backwards))?;
/// let ((_, a), (_, b)) = pairs.get(0)?;
/// assert_eq!((pairs.len(), a, b), (3, 0, 2));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StackDataset<T> {
    datasets: T,
    len: usize,
}

impl<T: DatasetTuple> StackDataset<T> {
    /// Of a tuple of two to four datasets of one length.
    ///
    /// # Errors
    /// [`Error::Argument`] when their lengths differ.
    pub fn new(datasets: T) -> Result<Self> {
        let lens = datasets.lens();
        if let Some(place) = lens.iter().position(|len| *len != lens[0]) {
            let message = format!(
                "dataset {place} has {} samples, dataset 0 has {}; they must be as many",
                lens[place], lens[0]
            );
            return Err(Error::argument("StackDataset::new", "datasets", message));
        }
        Ok(StackDataset { datasets, len: lens[0] })
    }
}

impl<T: DatasetTuple> Dataset for StackDataset<T> {
    type Sample = T::Sample;
    fn len(&self) -> usize {
        self.len
    }
    fn get(&self, index: usize) -> Result<T::Sample> {
        self.datasets.get(index)
    }
}

/// A tuple of datasets, as [`StackDataset`] takes it.
pub trait DatasetTuple: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The tuple of samples.
    type Sample: Sample;
    /// The length of each.
    fn lens(&self) -> Vec<usize>;
    /// The tuple of samples `index`.
    ///
    /// # Errors
    /// Those of the datasets.
    fn get(&self, index: usize) -> Result<Self::Sample>;
}

macro_rules! dataset_tuples {
    ($(($($name:ident $place:tt),+))*) => {$(
        impl<$($name: Dataset),+> DatasetTuple for ($($name,)+) {
            type Sample = ($($name::Sample,)+);
            fn lens(&self) -> Vec<usize> {
                vec![$(self.$place.len()),+]
            }
            fn get(&self, index: usize) -> Result<Self::Sample> {
                Ok(($(self.$place.get(index)?,)+))
            }
        }
    )*};
}
dataset_tuples! { (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) }
