//! Tensors whose first dimension counts samples.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::data::{Dataset, Sample};
use crate::error::{Error, Result};
use crate::tensor::{Device, Tensor};

/// Samples that are rows of tensors (`torch.utils.data.TensorDataset`): sample `i` is row `i` of each.
///
/// Loader workers get the tensors by handle: their memory is shared, not copied for each.
///
/// ```
/// use torchrs::{Dtype, Tensor, data::{DataLoader, Dataset, TensorDataset}};
/// let (x, y) = (Tensor::ones([6, 2], Dtype::F32), Tensor::arange(0i64, 6i64, 1i64, Dtype::I64));
/// let pairs = TensorDataset::new((x, y))?;
/// assert_eq!((pairs.len(), pairs.get(4)?.1.item()), (6, 4.0));
/// let loader = DataLoader::builder(pairs).batch_size(4).build()?;
/// let (x, y) = loader.iter().next().unwrap()?;
/// assert_eq!((x.shape(), y.to_vec::<i64>()), (&[4, 2][..], vec![0, 1, 2, 3]));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TensorDataset<T> {
    tensors: T,
    len: usize,
}

impl<T: TensorTuple> TensorDataset<T> {
    /// Rows of a tuple of one to four tensors on the CPU.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, data::TensorDataset};
    /// let rows = |n: usize| Tensor::zeros([n, 3], Dtype::F32);
    /// let error = TensorDataset::new((rows(5), rows(6))).unwrap_err().to_string();
    /// assert!(error.contains("tensor 1 has 6 rows, tensor 0 has 5"));
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] when they have different numbers of rows or one has no dimension, [`Error::Argument`]
    /// when one is not on the CPU.
    pub fn new(tensors: T) -> Result<Self> {
        let op = "TensorDataset::new";
        let all = tensors.tensors();
        for (place, tensor) in all.iter().enumerate() {
            if tensor.device() != Device::Cpu {
                let message =
                    format!("tensor {place} is on {}, must be on the CPU", tensor.device());
                return Err(Error::argument(op, "tensors", message));
            }
            let rows = tensor.shape().first();
            let Some(&rows) = rows else {
                return Err(Error::shape(
                    op,
                    format!("tensor {place} has no dimension of samples"),
                ));
            };
            let first = all[0].shape()[0];
            if rows != first {
                let message = format!("tensor {place} has {rows} rows, tensor 0 has {first}");
                return Err(Error::shape(op, message));
            }
        }
        let len = all[0].shape()[0];
        Ok(TensorDataset { tensors: tensors.detached(), len })
    }

    /// The tensors.
    pub fn tensors(&self) -> &T {
        &self.tensors
    }
}

impl<T: TensorTuple> Dataset for TensorDataset<T> {
    type Sample = T;
    fn len(&self) -> usize {
        self.len
    }
    fn get(&self, index: usize) -> Result<T> {
        Ok(self.tensors.row(index))
    }
}

/// A tuple of tensors, as [`TensorDataset`] takes it.
pub trait TensorTuple: Sample + Serialize + DeserializeOwned + Send + Sync {
    /// The tensors in order.
    fn tensors(&self) -> Vec<&Tensor>;
    /// Row `index` of each.
    fn row(&self, index: usize) -> Self;
    /// The same without gradients.
    fn detached(&self) -> Self;
}

macro_rules! tensor_tuples {
    ($(($($place:tt)+))*) => {$(
        impl TensorTuple for ($(tensor_tuples!(@type $place),)+) {
            fn tensors(&self) -> Vec<&Tensor> {
                vec![$(&self.$place),+]
            }
            fn row(&self, index: usize) -> Self {
                ($(self.$place.select(0, index as i64),)+)
            }
            fn detached(&self) -> Self {
                ($(self.$place.detach(),)+)
            }
        }
    )*};
    (@type $place:tt) => { Tensor };
}
tensor_tuples! { (0) (0 1) (0 1 2) (0 1 2 3) }
