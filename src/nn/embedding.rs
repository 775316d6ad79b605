//! Tables of vectors looked up by index (`torch/nn/modules/sparse.py`).

use super::{Forward, Module, Parameter, init};
use crate::error::{Error, throw};
use crate::{Dtype, Tensor, no_grad};

/// A vector for each index (`torch.nn.Embedding`). The table starts as a standard normal.
///
/// ```
/// use torchrs::{Tensor, nn::{Embedding, Forward}};
/// let words = Embedding::new(100, 8);
/// assert_eq!(words.forward(&Tensor::from([[1i64, 2, 3], [4, 5, 6]])).shape(), &[2, 3, 8]);
/// ```
#[derive(Module, Clone)]
#[module(extra_repr = Self::settings)]
pub struct Embedding {
    /// `[num_embeddings, embedding_dim]`.
    pub weight: Parameter,
    padding_idx: Option<i64>,
}

impl Embedding {
    /// A table of `num_embeddings` vectors of size `embedding_dim`.
    #[track_caller]
    pub fn new(num_embeddings: usize, embedding_dim: usize) -> Self {
        let weight = Parameter::new(Tensor::empty([num_embeddings, embedding_dim], Dtype::F32));
        init::normal_(&weight, 0.0, 1.0);
        Embedding { weight, padding_idx: None }
    }

    /// With an index, negative from the end, whose vector is 0 and stays so.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when it is out of range.
    #[track_caller]
    #[must_use]
    pub fn padding_idx(mut self, index: i64) -> Self {
        let rows = self.weight.shape()[0] as i64;
        if !(-rows..rows).contains(&index) {
            let message = format!("{index} is not a row of a table of {rows} rows");
            throw(Error::argument("Embedding", "padding_idx", message));
        }
        let index = index.rem_euclid(rows);
        no_grad(|| _ = self.weight.select(0, index).fill_(0.0));
        self.padding_idx = Some(index);
        self
    }

    fn settings(&self) -> String {
        let (rows, width) = (self.weight.shape()[0], self.weight.shape()[1]);
        match self.padding_idx {
            Some(index) => format!("{rows}, {width}, padding_idx={index}"),
            None => format!("{rows}, {width}"),
        }
    }
}

impl Forward for Embedding {
    #[track_caller]
    fn forward(&self, indices: &Tensor) -> Tensor {
        self.weight.embedding(indices, self.padding_idx)
    }
}
