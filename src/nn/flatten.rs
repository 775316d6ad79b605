//! Flattening between convolutions and linear layers (`torch/nn/modules/flatten.py`).

use super::{Forward, Module};
use crate::error::Result;
use crate::onnx::{Graph, Value};
use crate::tensor::Tensor;

/// Makes one dimension of several (`torch.nn.Flatten`); by default of all but the first.
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::{Flatten, Forward}};
/// assert_eq!(Flatten::new().forward(&Tensor::ones([2, 3, 4, 5], Dtype::F32)).shape(), &[2, 60]);
/// ```
#[derive(Module, Clone, Copy, Debug)]
#[module(extra_repr = Self::settings)]
pub struct Flatten {
    start_dim: i64,
    end_dim: i64,
}

impl Flatten {
    /// All dimensions but the first.
    pub fn new() -> Self {
        Self::dims(1, -1)
    }

    /// The dimensions from `start_dim` to `end_dim`, which is included; negative ones count from the
    /// end.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Flatten, Forward}};
    /// let x = Tensor::ones([2, 3, 4, 5], Dtype::F32);
    /// assert_eq!(Flatten::dims(0, 1).forward(&x).shape(), &[6, 4, 5]);
    /// ```
    pub fn dims(start_dim: i64, end_dim: i64) -> Self {
        Flatten { start_dim, end_dim }
    }

    fn settings(&self) -> String {
        format!("start_dim={}, end_dim={}", self.start_dim, self.end_dim)
    }
}

impl Default for Flatten {
    fn default() -> Self {
        Self::new()
    }
}

impl Forward for Flatten {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        input.flatten(self.start_dim, self.end_dim)
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        graph.flatten(input, self.start_dim, self.end_dim)
    }
}
