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
        let weight = self.linear.adapted_weight().reshape_to(&shape(&[self.linear.in_features()]));
        let options = LinearCrossEntropyOptions {
            linear_bias: self.linear.bias.as_ref().map(|bias| bias.reshape_to(&shape(&[]))),
            weight: self.weight.as_deref().cloned(),
            ..self.options.loss.clone()
        };
        linear_cross_entropy(input, &weight, target, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::Forward;
    use crate::nn::functional::{Chunks, cross_entropy_with};
    use crate::ops::{CrossEntropyOptions, Reduction};
    use crate::tensor::Dtype;

    /// With several losses for each sample, a bias, and a weight for each class.
    #[test]
    fn the_layer_and_its_loss_are_those_of_two_modules() {
        let weight = Tensor::from([1f64, 0.5, 2.0]);
        let of = |out_features: Vec<usize>, chunks| {
            let loss = LinearCrossEntropyOptions {
                weight: Some(weight.clone()),
                reduction: Reduction::Sum,
                chunks,
                ..Default::default()
            };
            let options = LinearCrossEntropyLossOptions { out_features, bias: true, loss };
            let mut module = LinearCrossEntropyLoss::with_options(4, 3, options);
            module.double();
            module
        };
        let x =
            Tensor::arange(0i64, 20i64, 1i64, Dtype::I64).to_dtype(Dtype::F64).sin().view([5, 4]);
        let options = CrossEntropyOptions {
            weight: Some(weight.clone()),
            reduction: Reduction::Sum,
            ..Default::default()
        };
        let flat = Tensor::from([0i64, 2, 1, 1, 0]);
        let deep = Tensor::from([[0i64, 1], [2, 2], [1, 0], [0, 0], [1, 2]]);
        for (out_features, target, chunks) in
            [(vec![], &flat, Chunks::Rows(2)), (vec![2], &deep, Chunks::Auto)]
        {
            let module = of(out_features.clone(), chunks);
            let scores = module.linear.forward(&x);
            let scores = match out_features[..] {
                [] => scores,
                _ => scores.view([5, 3, 2]),
            };
            let want = cross_entropy_with(&scores, target, options.clone());
            let found = module.forward(&x, target);
            assert!((found.item() - want.item()).abs() < 1e-12, "{found:?} {want:?}");
        }
        let loss = LinearCrossEntropyOptions { linear_bias: Some(weight), ..Default::default() };
        let options = LinearCrossEntropyLossOptions { loss, ..Default::default() };
        let error = crate::catch(|| LinearCrossEntropyLoss::with_options(4, 3, options).linear);
        assert!(error.err().expect("two biases").to_string().contains("linear_bias"));
    }
}
