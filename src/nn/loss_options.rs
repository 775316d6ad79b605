//! Losses whose settings are the options of a function in [`functional`](super::functional).

use super::functional::{
    self as F, GaussianNllOptions, KlDivOptions, MultiMarginOptions, PoissonNllOptions,
    TripletMarginOptions,
};
use super::{Buffer, Loss, Module};
use crate::Tensor;
use crate::ops::{CtcLossOptions, Reduction, ctc_loss};

macro_rules! losses {
    ($(
        $(#[$doc:meta])* $name:ident($options:ty) = |$($x:ident),+; $o:ident| $body:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug, Default)]
        pub struct $name {
            #[module(skip)]
            options: $options,
        }

        impl $name {
            /// With PyTorch's defaults.
            pub fn new() -> Self {
                Self::default()
            }

            /// With options.
            pub fn with_options(options: $options) -> Self {
                $name { options }
            }

            /// Computes the loss.
            ///
            /// # Panics
            /// As the function.
            #[track_caller]
            pub fn forward(&self, $($x: &Tensor),+) -> Tensor {
                let $o = self.options;
                $body
            }
        }
    )*};
}

losses! {
    /// Kullback-Leibler divergence (`torch.nn.KLDivLoss`); see [`F::kl_div`].
    KLDivLoss(KlDivOptions) = |input, target; options| F::kl_div(input, target, options);
    /// Negative log likelihood of Poisson rates (`torch.nn.PoissonNLLLoss`); see
    /// [`F::poisson_nll_loss`].
    PoissonNLLLoss(PoissonNllOptions) =
        |input, target; options| F::poisson_nll_loss(input, target, options);
    /// Negative log likelihood of normal distributions (`torch.nn.GaussianNLLLoss`); see
    /// [`F::gaussian_nll_loss`].
    GaussianNLLLoss(GaussianNllOptions) =
        |input, target, var; options| F::gaussian_nll_loss(input, target, var, options);
    /// An anchor nearer to a positive than to a negative (`torch.nn.TripletMarginLoss`); see
    /// [`F::triplet_margin_loss`].
    TripletMarginLoss(TripletMarginOptions) =
        |anchor, positive, negative; options| F::triplet_margin_loss(anchor, positive, negative, options);
    /// Connectionist temporal classification (`torch.nn.CTCLoss`); see [`ctc_loss`].
    CTCLoss(CtcLossOptions) = |log_probs, targets, input_lengths, target_lengths; options|
        ctc_loss(log_probs, targets, input_lengths, target_lengths, options);
    /// Whether the first of two scores is the higher (`torch.nn.MarginRankingLoss`); see
    /// [`F::margin_ranking_loss`].
    MarginRankingLoss(MarginOptions) = |input1, input2, target; o|
        F::margin_ranking_loss(input1, input2, target, o.margin, o.reduction);
    /// Whether two vectors point the same way (`torch.nn.CosineEmbeddingLoss`); see
    /// [`F::cosine_embedding_loss`].
    CosineEmbeddingLoss(MarginOptions) = |input1, input2, target; o|
        F::cosine_embedding_loss(input1, input2, target, o.margin, o.reduction);
}

/// Options of losses with a margin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MarginOptions {
    /// How far apart is far enough.
    pub margin: f64,
    /// What becomes of the losses of the samples.
    pub reduction: Reduction,
}

macro_rules! weighted_losses {
    ($(
        $(#[$doc:meta])* $name:ident $({ $($field:ident: $t:ty = $default:literal),+ })? =
            |$x:ident, $y:ident, $weight:ident, $reduction:ident| $body:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone)]
        pub struct $name {
            weight: Option<Buffer>,
            reduction: Reduction,
            $($($field: $t,)+)?
        }

        impl $name {
            /// With PyTorch's defaults.
            pub fn new() -> Self {
                $name { weight: None, reduction: Reduction::Mean, $($($field: $default,)+)? }
            }

            /// With weights, of the classes or elements.
            #[must_use]
            pub fn weight(mut self, weight: Tensor) -> Self {
                self.weight = Some(Buffer::new(weight));
                self
            }

            /// With another reduction.
            #[must_use]
            pub fn reduction(mut self, reduction: Reduction) -> Self {
                self.reduction = reduction;
                self
            }

            $($(
                #[doc = concat!("With another `", stringify!($field), "`.")]
                #[must_use]
                pub fn $field(mut self, $field: $t) -> Self {
                    self.$field = $field;
                    self
                }
            )+)?
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl Loss for $name {
            #[track_caller]
            fn forward(&self, $x: &Tensor, $y: &Tensor) -> Tensor {
                let ($weight, $reduction) = (self.weight.as_deref(), self.reduction);
                $($(let $field = self.$field;)+)?
                $body
            }
        }
    )*};
}

weighted_losses! {
    /// Cross entropy of probabilities (`torch.nn.BCELoss`); see [`F::binary_cross_entropy`].
    BCELoss = |x, y, weight, reduction| F::binary_cross_entropy(x, y, weight, reduction);
    /// Several classes per sample, by logits (`torch.nn.MultiLabelSoftMarginLoss`); see
    /// [`F::multilabel_soft_margin_loss`].
    MultiLabelSoftMarginLoss = |x, y, weight, reduction|
        F::multilabel_soft_margin_loss(x, y, weight, reduction);
    /// The right class's score above the others by a margin (`torch.nn.MultiMarginLoss`); see
    /// [`F::multi_margin_loss`].
    MultiMarginLoss { p: u32 = 1, margin: f64 = 1.0 } = |x, y, weight, reduction| {
        let options = MultiMarginOptions { p, margin, weight: weight.cloned(), reduction };
        F::multi_margin_loss(x, y, &options)
    };
}
