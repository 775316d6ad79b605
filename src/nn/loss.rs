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

macro_rules! distances {
    ($(
        $(#[$doc:meta])* $name:ident ($($field:ident: $default:literal)?) =
            |$x:ident, $t:ident, $reduction:ident| $body:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug)]
        pub struct $name {
            $($field: f64,)?
            reduction: Reduction,
        }

        impl $name {
            /// With PyTorch's defaults.
            pub fn new() -> Self {
                $name { $($field: $default,)? reduction: Reduction::Mean }
            }

            $(
                #[doc = concat!("With another `", stringify!($field), "`.")]
                #[must_use]
                pub fn $field(mut self, $field: f64) -> Self {
                    self.$field = $field;
                    self
                }
            )?

            /// With another reduction.
            #[must_use]
            pub fn reduction(mut self, reduction: Reduction) -> Self {
                self.reduction = reduction;
                self
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl Loss for $name {
            #[track_caller]
            fn forward(&self, $x: &Tensor, $t: &Tensor) -> Tensor {
                $(let $field = self.$field;)?
                let $reduction = self.reduction;
                $body
            }
        }
    )*};
}

distances! {
    /// Squared differences (`torch.nn.MSELoss`).
    MSELoss() = |x, t, reduction| F::mse_loss_with(x, t, reduction);
    /// Absolute differences (`torch.nn.L1Loss`).
    L1Loss() = |x, t, reduction| F::l1_loss_with(x, t, reduction);
    /// Squared differences below `delta`, then linear (`torch.nn.HuberLoss`).
    HuberLoss(delta: 1.0) = |x, t, reduction| F::huber_loss(x, t, delta, reduction);
    /// [`HuberLoss`] divided by `beta` (`torch.nn.SmoothL1Loss`).
    SmoothL1Loss(beta: 1.0) = |x, t, reduction| F::smooth_l1_loss(x, t, beta, reduction);
    /// log(1 + e^(-y x)) for y of 1 or -1 (`torch.nn.SoftMarginLoss`).
    SoftMarginLoss() = |x, t, reduction| F::soft_margin_loss(x, t, reduction);
    /// x, or how far it is below a margin, for y of 1 and -1 (`torch.nn.HingeEmbeddingLoss`).
    HingeEmbeddingLoss(margin: 1.0) = |x, t, reduction|
        F::hinge_embedding_loss(x, t, margin, reduction);
    /// The scores of a sample's classes above all others by 1 (`torch.nn.MultiLabelMarginLoss`).
    MultiLabelMarginLoss() = |x, t, reduction| F::multilabel_margin_loss(x, t, reduction);
}
