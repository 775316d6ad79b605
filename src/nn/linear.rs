//! Linear layers (`torch/nn/modules/linear.py`).

use std::sync::OnceLock;

use super::display::python_bool;
use super::functional::{LinearCrossEntropyOptions, linear_cross_entropy};
use super::lora::Adapter;
use super::{Field, Forward, Module, Parameter, Visitor, VisitorMut, calls, init};
use crate::error::{Error, Result, throw};
use crate::onnx::{Graph, Value};
use crate::ops::{Activation, Layer, fused_feed_forward, linear_each};
use crate::tensor::{Dtype, Tensor};

/// `y = x A^T + b` on the last dimension (`torch.nn.Linear`). Weight and bias start uniform within
/// 1 / sqrt(in_features).
///
/// ```
/// use torchrs::{Tensor, Dtype::F32, nn::{Forward, Linear}};
/// let layer = Linear::new(3, 2);
/// assert_eq!(layer.forward(&Tensor::ones([5, 3], F32)).shape(), &[5, 2]);
/// ```
#[derive(Clone)]
pub struct Linear {
    /// `[out_features, in_features]`.
    pub weight: Parameter,
    /// `[out_features]`.
    pub bias: Option<Parameter>,
    /// What [`lora`](super::lora) adds.
    pub(super) adapter: OnceLock<Box<Adapter>>,
}

impl Module for Linear {
    fn visit<'a>(&'a self, visitor: &mut dyn Visitor<'a>) {
        self.weight.visit_field("weight", visitor);
        self.bias.visit_field("bias", visitor);
        if let Some(adapter) = self.adapter.get() {
            adapter.visit(visitor);
        }
    }
    fn visit_mut(&mut self, visitor: &mut dyn VisitorMut) {
        self.weight.visit_field_mut("weight", visitor);
        self.bias.visit_field_mut("bias", visitor);
        if let Some(adapter) = self.adapter.get_mut() {
            adapter.visit_mut(visitor);
        }
    }
    fn name(&self) -> &str {
        "Linear"
    }
    fn extra_repr(&self) -> String {
        self.settings()
    }
    fn as_linear(&self) -> Option<&Linear> {
        Some(self)
    }
    fn as_linear_mut(&mut self) -> Option<&mut Linear> {
        Some(self)
    }
}

impl Linear {
    /// With a bias.
    #[track_caller]
    pub fn new(in_features: usize, out_features: usize) -> Self {
        let (weight, bias) = init::default_parameters(&[out_features, in_features], out_features);
        Linear { weight, bias: Some(bias), adapter: OnceLock::new() }
    }

    /// Without a bias.
    #[track_caller]
    pub fn no_bias(in_features: usize, out_features: usize) -> Self {
        let weight = Parameter::new(Tensor::empty([out_features, in_features], Dtype::F32));
        init::default_weight_(&weight);
        Linear { weight, bias: None, adapter: OnceLock::new() }
    }

    /// Of a weight `[out_features, in_features]` and a bias `[out_features]` that are there: a layer that shares them.
    ///
    /// ```
    /// use torchrs::nn::Linear;
    /// let first = Linear::new(3, 2);
    /// let second = Linear::from_parameters(first.weight.clone(), None);
    /// assert!(second.weight.ptr_eq(&first.weight));
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Shape`] unless the weight has two dimensions and the bias as many elements as outputs.
    #[track_caller]
    pub fn from_parameters(weight: Parameter, bias: Option<Parameter>) -> Self {
        let right = weight.dim() == 2
            && bias.as_ref().is_none_or(|bias| bias.shape() == [weight.shape()[0]]);
        if !right {
            let (weight, bias) = (weight.shape(), bias.as_ref().map(|bias| bias.shape()));
            let message = format!(
                "weight is {weight:?} and bias {bias:?}; must be [out_features, in_features] and [out_features]"
            );
            throw(Error::shape("Linear", message));
        }
        Linear { weight, bias, adapter: OnceLock::new() }
    }

    /// Size of the last dimension of the input.
    pub fn in_features(&self) -> usize {
        self.weight.shape()[1]
    }

    /// Size of the last dimension of the output.
    pub fn out_features(&self) -> usize {
        self.weight.shape()[0]
    }

    /// The cross entropy of this layer's outputs, as scores of classes, against `target`, without all outputs in memory at
    /// once: [`linear_cross_entropy`] with its weight and bias. For the last layer of a model with many classes.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Forward, Linear, functional as F}};
    /// let layer = Linear::new(3, 5);
    /// let (x, target) = (Tensor::randn([2, 3], Dtype::F32), Tensor::from([4i64, 0]));
    /// let loss = layer.cross_entropy(&x, &target, Default::default());
    /// assert!((loss.item() - F::cross_entropy(&layer.forward(&x), &target).item()).abs() < 1e-5);
    /// ```
    ///
    /// # Panics
    /// As [`linear_cross_entropy`]; throws [`Error::Argument`] for a `linear_bias` in the options.
    #[track_caller]
    #[crate::nn::forward]
    pub fn cross_entropy(
        &self,
        input: &Tensor,
        target: &Tensor,
        options: LinearCrossEntropyOptions,
    ) -> Tensor {
        if options.linear_bias.is_some() {
            let message =
                "is given, but the layer has its own: call `linear_cross_entropy` with one of them";
            throw(Error::argument("Linear::cross_entropy", "linear_bias", message));
        }
        let linear_bias = self.bias.as_deref().cloned();
        let options = LinearCrossEntropyOptions { linear_bias, ..options };
        linear_cross_entropy(input, &self.adapted_weight(), target, options)
    }

    /// The weight with what an adapter adds, for those who compute with it themselves.
    #[track_caller]
    pub(crate) fn adapted_weight(&self) -> Tensor {
        match self.adapter.get() {
            Some(adapter) => adapter.added_to_weight(&self.weight),
            None => self.weight.tensor().clone(),
        }
    }

    /// `second` of a function of what this layer gives, as the position-wise feed-forward network of a transformer:
    /// [`Tensor::feed_forward`].
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Forward, Linear}, ops::Activation};
    /// let (first, second) = (Linear::new(4, 16), Linear::new(16, 4));
    /// let x = Tensor::randn([2, 4], Dtype::F32);
    /// let y = first.feed_forward(&x, Activation::Relu, &second);
    /// assert!(y.allclose(&second.forward(&first.forward(&x).relu()), Default::default()));
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::linear`], of both layers.
    #[track_caller]
    pub fn feed_forward(&self, input: &Tensor, activation: Activation, second: &Linear) -> Tensor {
        let is_adapted = self.adapter.get().is_some() || second.adapter.get().is_some();
        let fused = match is_adapted || calls::is_logged() {
            true => None,
            false => fused_feed_forward(input, self.layer(), activation, second.layer()),
        };
        fused.unwrap_or_else(|| second.forward(&activation.apply(&self.forward(input))))
    }

    /// What each of several layers makes of one input, as those to queries, keys and values. Under autocast on a GPU one
    /// product makes all of it.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::Linear};
    /// let (q, k) = (Linear::new(4, 8), Linear::no_bias(4, 2));
    /// let [x, y] = Linear::forward_each([&q, &k], &Tensor::ones([3, 4], Dtype::F32));
    /// assert_eq!((x.shape(), y.shape()), (&[3, 8][..], &[3, 2][..]));
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::linear`], of each.
    #[track_caller]
    pub fn forward_each<const N: usize>(layers: [&Linear; N], input: &Tensor) -> [Tensor; N] {
        if calls::is_logged() || layers.iter().any(|layer| layer.adapter.get().is_some()) {
            return layers.map(|layer| layer.forward(input));
        }
        linear_each(input, layers.map(Linear::layer))
    }

    fn layer(&self) -> Layer<'_> {
        Layer { weight: &self.weight, bias: self.bias.as_deref(), is_turned: false }
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
        let output = input.linear(&self.weight, self.bias.as_deref());
        match self.adapter.get() {
            Some(adapter) => adapter.added_to(output, input),
            None => output,
        }
    }

    fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
        graph.linear(input, &self.adapted_weight(), self.bias.as_deref())
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

    fn onnx(&self, _: &mut Graph, input: &Value) -> Result<Value> {
        Ok(input.clone())
    }
}
