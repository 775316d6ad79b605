//! Losses as modules (`torch/nn/modules/loss.py`). A tensor among the settings is a buffer, so it
//! moves and is saved with the model.

use super::functional::{self as F, BceWithLogitsOptions};
use super::{Buffer, Module};
use crate::Tensor;
use crate::ops::{CrossEntropyOptions, NllLossOptions, Reduction};

/// A module that compares an output with a target.
pub trait Loss: Module {
    /// Computes the loss.
    #[track_caller]
    fn forward(&self, input: &Tensor, target: &Tensor) -> Tensor;
}

/// Cross entropy of class scores (`torch.nn.CrossEntropyLoss`); see [`Tensor::cross_entropy`].
///
/// ```
/// use torchrs::{Tensor, nn::{CrossEntropyLoss, Loss}};
/// let scores = Tensor::from([[0f32, 0., 0., 0.]]);
/// let loss = CrossEntropyLoss::new().forward(&scores, &Tensor::from([2i64]));
/// assert!((loss.item() - 4f64.ln()).abs() < 1e-6);
/// ```
#[derive(Module, Clone)]
pub struct CrossEntropyLoss {
    weight: Option<Buffer>,
    ignore_index: i64,
    reduction: Reduction,
    label_smoothing: f64,
}

impl CrossEntropyLoss {
    /// With PyTorch's defaults.
    pub fn new() -> Self {
        Self::with_options(CrossEntropyOptions::default())
    }

    /// With options.
    pub fn with_options(options: CrossEntropyOptions) -> Self {
        let CrossEntropyOptions { weight, ignore_index, reduction, label_smoothing } = options;
        let weight = weight.map(Buffer::new);
        CrossEntropyLoss { weight, ignore_index, reduction, label_smoothing }
    }
}

impl Default for CrossEntropyLoss {
    fn default() -> Self {
        Self::new()
    }
}

impl Loss for CrossEntropyLoss {
    #[track_caller]
    fn forward(&self, input: &Tensor, target: &Tensor) -> Tensor {
        let options = CrossEntropyOptions {
            weight: self.weight.as_deref().cloned(),
            ignore_index: self.ignore_index,
            reduction: self.reduction,
            label_smoothing: self.label_smoothing,
        };
        input.cross_entropy_with(target, &options)
    }
}

/// Negative log likelihood of log-probabilities (`torch.nn.NLLLoss`); see [`Tensor::nll_loss`].
#[derive(Module, Clone)]
pub struct NLLLoss {
    weight: Option<Buffer>,
    ignore_index: i64,
    reduction: Reduction,
}

impl NLLLoss {
    /// With PyTorch's defaults.
    pub fn new() -> Self {
        Self::with_options(NllLossOptions::default())
    }

    /// With options.
    pub fn with_options(options: NllLossOptions) -> Self {
        let NllLossOptions { weight, ignore_index, reduction } = options;
        NLLLoss { weight: weight.map(Buffer::new), ignore_index, reduction }
    }
}

impl Default for NLLLoss {
    fn default() -> Self {
        Self::new()
    }
}

impl Loss for NLLLoss {
    #[track_caller]
    fn forward(&self, input: &Tensor, target: &Tensor) -> Tensor {
        let options = NllLossOptions {
            weight: self.weight.as_deref().cloned(),
            ignore_index: self.ignore_index,
            reduction: self.reduction,
        };
        input.nll_loss_with(target, &options)
    }
}

/// Cross entropy of logits with probabilities (`torch.nn.BCEWithLogitsLoss`); see
/// [`binary_cross_entropy_with_logits`](F::binary_cross_entropy_with_logits).
#[derive(Module, Clone)]
pub struct BCEWithLogitsLoss {
    weight: Option<Buffer>,
    pos_weight: Option<Buffer>,
    reduction: Reduction,
}

impl BCEWithLogitsLoss {
    /// With PyTorch's defaults.
    pub fn new() -> Self {
        Self::with_options(BceWithLogitsOptions::default())
    }

    /// With options.
    pub fn with_options(options: BceWithLogitsOptions) -> Self {
        let BceWithLogitsOptions { weight, pos_weight, reduction } = options;
        let (weight, pos_weight) = (weight.map(Buffer::new), pos_weight.map(Buffer::new));
        BCEWithLogitsLoss { weight, pos_weight, reduction }
    }
}

impl Default for BCEWithLogitsLoss {
    fn default() -> Self {
        Self::new()
    }
}

impl Loss for BCEWithLogitsLoss {
    #[track_caller]
    fn forward(&self, input: &Tensor, target: &Tensor) -> Tensor {
        let options = BceWithLogitsOptions {
            weight: self.weight.as_deref().cloned(),
            pos_weight: self.pos_weight.as_deref().cloned(),
            reduction: self.reduction,
        };
        F::binary_cross_entropy_with_logits_with(input, target, &options)
    }
}
