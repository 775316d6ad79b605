//! Samples of different lengths in one batch: all rows in one tensor, and where each sample's begin.

use super::columns::Columns;
use super::sample::Sample;
use super::writer::SampleWriter;
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Element, Scalar, Tensor};

/// A sample whose number of rows differs from others': tokens `[t]`, sound `[t, channels]`. Dtype and the shape of
/// a row are the same in all samples of a batch.
///
/// ```
/// use torchrs::data::{Ragged, default_collate};
/// let batch = default_collate(&[Ragged::from(vec![1i64, 2, 3]), Ragged::from(vec![4i64])])?;
/// assert_eq!(batch.values().to_vec::<i64>(), [1, 2, 3, 4]);
/// assert_eq!(batch.padded(0).to_vec::<i64>(), [1, 2, 3, 4, 0, 0]);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Ragged(Tensor);

impl Ragged {
    /// The rows of a tensor.
    ///
    /// # Errors
    /// [`Error::Shape`] when it has no dimension, or rows without elements.
    pub fn new(tensor: Tensor) -> Result<Self> {
        let shape = tensor.shape();
        if shape.is_empty() || shape[1..].contains(&0) {
            let message = format!("a tensor of shape {shape:?} has no rows with elements");
            return Err(Error::shape("Ragged::new", message));
        }
        Ok(Ragged(tensor))
    }

    /// The tensor.
    pub fn tensor(&self) -> &Tensor {
        &self.0
    }
}

impl<T: Element> From<Vec<T>> for Ragged {
    fn from(values: Vec<T>) -> Self {
        Ragged(Tensor::from_slice(&values, [values.len()]))
    }
}

impl Sample for Ragged {
    type Batch = RaggedBatch;
    fn write(&self, out: &mut SampleWriter) {
        out.rows(&self.0);
    }
    fn batch(columns: &mut Columns) -> RaggedBatch {
        columns.rows()
    }
}

/// A batch of [`Ragged`] samples: sample `i` is rows `offsets[i]..offsets[i + 1]` of the values.
#[derive(Debug, Clone)]
pub struct RaggedBatch {
    values: Tensor,
    offsets: Tensor,
}

impl RaggedBatch {
    pub(super) fn new(values: Tensor, offsets: Tensor) -> Self {
        RaggedBatch { values, offsets }
    }

    /// How many samples the batch has.
    pub fn len(&self) -> usize {
        self.offsets.shape()[0] - 1
    }

    /// True when it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All rows, `[total, ..]`.
    pub fn values(&self) -> &Tensor {
        &self.values
    }

    /// Where each sample begins, and the end: i64 `[n + 1]`.
    pub fn offsets(&self) -> &Tensor {
        &self.offsets
    }

    /// The rows of each sample: i64 `[n]`.
    pub fn lengths(&self) -> Tensor {
        let n = self.len();
        self.offsets.narrow(0, 1, n) - self.offsets.narrow(0, 0, n)
    }

    /// Sample `index`, `[rows, ..]`, a view.
    ///
    /// # Panics
    /// When there is no such sample.
    #[track_caller]
    pub fn get(&self, index: usize) -> Tensor {
        assert!(index < self.len(), "RaggedBatch::get: sample {index} of {}", self.len());
        let bounds = self.offsets.narrow(0, index as i64, 2).to_vec::<i64>();
        self.values.narrow(0, bounds[0], (bounds[1] - bounds[0]) as usize)
    }

    /// The samples filled up with `padding_value` to the longest: `[n, longest, ..]`
    /// (`torch.nn.utils.rnn.pad_sequence` with `batch_first`).
    pub fn padded(&self, padding_value: impl Into<Scalar>) -> Tensor {
        let offsets = self.offsets.to_vec::<i64>();
        let longest = offsets.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
        let mut shape = vec![self.len(), longest as usize];
        shape.extend_from_slice(&self.values.shape()[1..]);
        let options = (self.values.dtype(), self.values.device());
        let padded = Tensor::full(&shape[..], padding_value, options);
        for (row, pair) in offsets.windows(2).enumerate() {
            let rows = (pair[1] - pair[0]) as usize;
            if rows > 0 {
                let place = padded.select(0, row as i64).narrow(0, 0, rows);
                place.copy_(&self.values.narrow(0, pair[0], rows));
            }
        }
        padded
    }

    /// Where [`padded`](Self::padded) has rows of the samples: bool `[n, longest]`.
    pub fn mask(&self) -> Tensor {
        let ones = Tensor::ones([self.values.shape()[0]], (Dtype::Bool, self.values.device()));
        RaggedBatch { values: ones, offsets: self.offsets.clone() }.padded(false)
    }
}
