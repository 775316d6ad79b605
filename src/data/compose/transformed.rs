//! A dataset's images, transformed.

use serde::{Deserialize, Serialize};

use crate::data::transforms::{Compose, Transform};
use crate::data::{Dataset, Sample};
use crate::error::Result;
use crate::tensor::Tensor;

/// A dataset of images with something beside, whose images are transformed: what [`Dataset::transform`] gives.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "D: Dataset")]
pub struct TransformDataset<D> {
    dataset: D,
    transform: Compose,
}

impl<D> TransformDataset<D> {
    pub(in crate::data) fn new(dataset: D, transform: Compose) -> Self {
        TransformDataset { dataset, transform }
    }
}

impl<D, T> Dataset for TransformDataset<D>
where
    D: Dataset<Sample = (Tensor, T)>,
    (Tensor, T): Sample,
{
    type Sample = (Tensor, T);

    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn get(&self, index: usize) -> Result<(Tensor, T)> {
        let (image, label) = self.dataset.get(index)?;
        Ok((self.transform.forward(&image)?, label))
    }
}
