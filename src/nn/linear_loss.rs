//! A last layer and its loss in one (`torch/nn/modules/loss.py`).

use super::functional::{LinearCrossEntropyOptions, linear_cross_entropy};
use super::{Buffer, Linear, Loss, Module};
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// Options of [`LinearCrossEntropyLoss`].
#[derive(Clone, Debug, Default)]
pub struct LinearCrossEntropyLossOptions {
    /// Dimensions of each sample's loss, none for one number.
    pub out_features: Vec<usize>,
    /// Whether the scores have a bias.
    pub bias: bool,
    /// Of the function; its `linear_bias` is the layer's.
    pub loss: LinearCrossEntropyOptions,
}

/// Cross entropy of a linear layer's scores, not all of which are in memory at once
/// (`torch.nn.LinearCrossEntropyLoss`); see [`linear_cross_entropy`].
///
/// ```
/// use torchrs::{Dtype, Tensor, nn::{LinearCrossEntropyLoss, Loss, Module}};
/// let loss = LinearCrossEntropyLoss::new(5, 10);
/// let (x, target) = (Tensor::randn([2, 5], Dtype::F32), Tensor::from([3i64, 9]));
/// assert_eq!(loss.forward(&x, &target).shape(), &[] as &[usize]);
/// assert_eq!(loss.named_parameters()[0].0, "linear.weight");
/// ```
#[derive(Module, Clone)]
pub struct LinearCrossEntropyLoss {
    /// To the scores: all those of a class lie together.
    pub linear: Linear,
    weight: Option<Buffer>,
    #[module(skip)]
    num_classes: usize,
    #[module(skip)]
    options: LinearCrossEntropyLossOptions,
}

impl LinearCrossEntropyLoss {
    /// Without a bias.
    #[track_caller]
    pub fn new(in_features: usize, num_classes: usize) -> Self {
        Self::with_options(in_features, num_classes, Default::default())
    }

    /// With options.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for a `linear_bias` in the options: `bias` asks for one.
    #[track_caller]
    pub fn with_options(
        in_features: usize,
        num_classes: usize,
        mut options: LinearCrossEntropyLossOptions,
    ) -> Self {
        if options.loss.linear_bias.is_some() {
            let message = "is the layer's own; ask for one with `bias: true`";
            throw(Error::argument("LinearCrossEntropyLoss", "linear_bias", message));
        }
        let outputs = num_classes * options.out_features.iter().product::<usize>();
        let linear = match options.bias {
            true => Linear::new(in_features, outputs),
            false => Linear::no_bias(in_features, outputs),
        };
        let weight = options.loss.weight.take().map(Buffer::new);
        LinearCrossEntropyLoss { linear, weight, num_classes, options }
    }
}

impl Loss for LinearCrossEntropyLoss {
    #[track_caller]
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor, target: &Tensor) -> Tensor {
        let outputs = &self.options.out_features;
        let shape = |last: &[usize]| [&[self.num_classes], &outputs[..], last].concat();
        let weight = self.linear.weight.reshape_to(&shape(&[self.linear.in_features()]));
        let options = LinearCrossEntropyOptions {
            linear_bias: self.linear.bias.as_ref().map(|bias| bias.reshape_to(&shape(&[]))),
            weight: self.weight.as_deref().cloned(),
            ..self.options.loss.clone()
        };
        linear_cross_entropy(input, &weight, target, options)
    }
}
