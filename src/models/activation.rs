//! Functions within feed-forward layers, by Hugging Face's names.

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::onnx::{Graph, Value};
use crate::ops::Activation;
use crate::tensor::Tensor;

/// Functions within the feed-forward layers (`transformers.activations.ACT2FN`).
///
/// ```
/// use torchrs::models::HiddenActivation;
/// let read = |name: &str| serde_json::from_str::<HiddenActivation>(name);
/// assert_eq!(read("\"gelu_pytorch_tanh\"").unwrap(), HiddenActivation::GeluNew);
/// assert!(read("\"mish\"").unwrap_err().to_string().contains("mish"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HiddenActivation {
    /// [`Tensor::gelu_tanh`].
    #[default]
    #[serde(alias = "gelu_pytorch_tanh", alias = "gelu_python_tanh", alias = "gelu_fast")]
    GeluNew,
    /// [`Tensor::gelu`].
    #[serde(alias = "gelu_python")]
    Gelu,
    /// [`Tensor::relu`].
    Relu,
    /// [`Tensor::silu`].
    #[serde(alias = "swish")]
    Silu,
    /// [`Tensor::tanh`].
    Tanh,
}

impl HiddenActivation {
    #[track_caller]
    pub(in crate::models) fn apply(self, x: &Tensor) -> Tensor {
        Activation::from(self).apply(x)
    }

    /// The function as nodes of ONNX.
    pub(in crate::models) fn onnx(self, graph: &mut Graph, x: &Value) -> Result<Value> {
        Ok(match self {
            HiddenActivation::GeluNew => graph.gelu(x, true),
            HiddenActivation::Gelu => graph.gelu(x, false),
            HiddenActivation::Relu => graph.unary("Relu", x),
            HiddenActivation::Silu => graph.silu(x)?,
            HiddenActivation::Tanh => graph.unary("Tanh", x),
        })
    }
}

impl From<HiddenActivation> for Activation {
    fn from(activation: HiddenActivation) -> Activation {
        match activation {
            HiddenActivation::GeluNew => Activation::GeluTanh,
            HiddenActivation::Gelu => Activation::Gelu,
            HiddenActivation::Relu => Activation::Relu,
            HiddenActivation::Silu => Activation::Silu,
            HiddenActivation::Tanh => Activation::Tanh,
        }
    }
}
