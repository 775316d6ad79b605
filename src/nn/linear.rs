//! Linear layers (`torch/nn/modules/linear.py`).

use super::display::python_bool;
use super::{Forward, Module, Parameter, init};
use crate::tensor::{Dtype, Tensor};

/// `y = x A^T + b` on the last dimension (`torch.nn.Linear`). Weight and bias start uniform within
/// 1 / sqrt(in_features).
///
/// ```
/// use torchrs::{Tensor, Dtype::F32, nn::{Forward, Linear}};
/// let layer = Linear::new(3, 2);
/// assert_eq!(layer.forward(&Tensor::ones([5, 3], F32)).shape(), &[5, 2]);
/// ```
#[derive(Module, Clone)]
#[module(extra_repr = Self::settings)]
pub struct Linear {
    /// `[out_features, in_features]`.
    pub weight: Parameter,
    /// `[out_features]`.
    pub bias: Option<Parameter>,
}

impl Linear {
    /// With a bias.
    #[track_caller]
    pub fn new(in_features: usize, out_features: usize) -> Self {
        let (weight, bias) = init::default_parameters(&[out_features, in_features], out_features);
        Linear { weight, bias: Some(bias) }
    }

    /// Without a bias.
    #[track_caller]
    pub fn no_bias(in_features: usize, out_features: usize) -> Self {
        let weight = Parameter::new(Tensor::empty([out_features, in_features], Dtype::F32));
        init::default_weight_(&weight);
        Linear { weight, bias: None }
    }

    /// Size of the last dimension of the input.
    pub fn in_features(&self) -> usize {
        self.weight.shape()[1]
    }

    /// Size of the last dimension of the output.
    pub fn out_features(&self) -> usize {
        self.weight.shape()[0]
    }

    fn settings(&self) -> String {
        format!(
            "in_features={}, out_features={}, bias={}",
            self.in_features(),
            self.out_features(),
            python_bool(self.bias.is_some())
        )
    }
}

impl Forward for Linear {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor) -> Tensor {
        input.linear(&self.weight, self.bias.as_deref())
    }
}

/// Gives back its input (`torch.nn.Identity`).
///
/// ```
/// use torchrs::{Tensor, nn::{Forward, Identity}};
/// let x = Tensor::from([1f32, 2.]);
/// assert!(Identity.forward(&x).ptr_eq(&x));
/// ```
#[derive(Module, Clone, Copy, Debug, Default)]
pub struct Identity;

impl Forward for Identity {
    fn forward(&self, input: &Tensor) -> Tensor {
        input.clone()
    }
}
