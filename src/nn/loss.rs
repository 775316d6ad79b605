//! Losses as modules (`torch/nn/modules/loss.py`). A tensor among the settings is a buffer, so it
//! moves and is saved with the model.

use super::functional::{self as F, BCEWithLogitsOptions};
use super::{Buffer, Module};
use crate::ops::{CrossEntropyOptions, NLLLossOptions, Reduction};
use crate::tensor::Tensor;

/// A module that compares an output with a target.
///
/// ```
/// use torchrs::{Tensor, nn::{L1Loss, Loss, MSELoss}};
/// let losses: [Box<dyn Loss>; 2] = [Box::new(MSELoss::new()), Box::new(L1Loss::new())];
/// let (x, target) = (Tensor::from([3f32]), Tensor::from([0f32]));
/// assert_eq!(losses.map(|loss| loss.forward(&x, &target).item()), [9.0, 3.0]);
/// ```
pub trait Loss: Module {
    /// Computes the loss.
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Loss, MSELoss}};
    /// assert_eq!(MSELoss::new().forward(&Tensor::from([1f32, 4.]), &Tensor::from([1f32, 2.])).item(), 2.0);
    /// ```
    // Not `#[track_caller]`; see `Forward`.
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
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor, target: &Tensor) -> Tensor {
        let options = CrossEntropyOptions {
            weight: self.weight.as_deref().cloned(),
            ignore_index: self.ignore_index,
            reduction: self.reduction,
            label_smoothing: self.label_smoothing,
        };
        input.cross_entropy_with(target, options.clone())
    }
}

/// Negative log likelihood of log-probabilities (`torch.nn.NLLLoss`); see [`Tensor::nll_loss`].
///
/// ```
/// use torchrs::{Tensor, nn::{Loss, NLLLoss}};
/// let log_probs = Tensor::from([[-1f32, -2.], [-3., -4.]]);
/// assert_eq!(NLLLoss::new().forward(&log_probs, &Tensor::from([0i64, 1])).item(), 2.5);
/// ```
#[derive(Module, Clone)]
pub struct NLLLoss {
    weight: Option<Buffer>,
    ignore_index: i64,
    reduction: Reduction,
}

impl NLLLoss {
    /// With PyTorch's defaults.
    pub fn new() -> Self {
        Self::with_options(NLLLossOptions::default())
    }

    /// With options.
    pub fn with_options(options: NLLLossOptions) -> Self {
        let NLLLossOptions { weight, ignore_index, reduction } = options;
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
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor, target: &Tensor) -> Tensor {
        let options = NLLLossOptions {
            weight: self.weight.as_deref().cloned(),
            ignore_index: self.ignore_index,
            reduction: self.reduction,
        };
        input.nll_loss_with(target, options.clone())
    }
}

/// Cross entropy of logits with probabilities (`torch.nn.BCEWithLogitsLoss`); see
/// [`binary_cross_entropy_with_logits`](F::binary_cross_entropy_with_logits).
///
/// ```
/// use torchrs::{Tensor, nn::{BCEWithLogitsLoss, Loss}};
/// let loss = BCEWithLogitsLoss::new().forward(&Tensor::from([0f64, 0.]), &Tensor::from([1f64, 0.]));
/// assert!((loss.item() - 2f64.ln()).abs() < 1e-9);
/// ```
#[derive(Module, Clone)]
pub struct BCEWithLogitsLoss {
    weight: Option<Buffer>,
    pos_weight: Option<Buffer>,
    reduction: Reduction,
}

impl BCEWithLogitsLoss {
    /// With PyTorch's defaults.
    pub fn new() -> Self {
        Self::with_options(BCEWithLogitsOptions::default())
    }

    /// With options.
    pub fn with_options(options: BCEWithLogitsOptions) -> Self {
        let BCEWithLogitsOptions { weight, pos_weight, reduction } = options;
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
    #[crate::nn::forward]
    fn forward(&self, input: &Tensor, target: &Tensor) -> Tensor {
        let options = BCEWithLogitsOptions {
            weight: self.weight.as_deref().cloned(),
            pos_weight: self.pos_weight.as_deref().cloned(),
            reduction: self.reduction,
        };
        F::binary_cross_entropy_with_logits_with(input, target, options.clone())
    }
}
