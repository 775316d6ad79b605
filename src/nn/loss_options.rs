//! Losses that are a function in [`functional`](super::functional) with its settings, a row each.

use std::sync::Arc;

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

/// As the inherent methods: of an input and a target.
macro_rules! of_input_and_target {
    ($($name:ident)*) => {$(
        impl Loss for $name {
            #[track_caller]
            fn forward(&self, input: &Tensor, target: &Tensor) -> Tensor {
                $name::forward(self, input, target)
            }
        }
    )*};
}
of_input_and_target! { KLDivLoss PoissonNLLLoss }

/// Options of losses with a margin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MarginOptions {
    /// How far apart is far enough.
    pub margin: f64,
    /// What becomes of the losses of the samples.
    pub reduction: Reduction,
}

macro_rules! simple_losses {
    ($(
        $(#[$doc:meta])* $name:ident
            ($([$weight:ident])? $($field:ident: $t:ty = $default:literal),*) =
            |$x:ident, $y:ident, $reduction:ident| $body:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Debug)]
        pub struct $name {
            $($weight: Option<Buffer>,)?
            reduction: Reduction,
            $($field: $t,)*
        }

        impl $name {
            /// With PyTorch's defaults.
            pub fn new() -> Self {
                $name {
                    $($weight: None,)?
                    reduction: Reduction::Mean,
                    $($field: $default,)*
                }
            }

            $(
                /// With weights, of the classes or elements.
                #[must_use]
                pub fn $weight(mut self, $weight: Tensor) -> Self {
                    self.$weight = Some(Buffer::new($weight));
                    self
                }
            )?

            /// With another reduction.
            #[must_use]
            pub fn reduction(mut self, reduction: Reduction) -> Self {
                self.reduction = reduction;
                self
            }

            $(
                #[doc = concat!("With another `", stringify!($field), "`.")]
                #[must_use]
                pub fn $field(mut self, $field: $t) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl Loss for $name {
            #[track_caller]
            fn forward(&self, $x: &Tensor, $y: &Tensor) -> Tensor {
                $(let $weight = self.$weight.as_deref();)?
                $(let $field = self.$field;)*
                let $reduction = self.reduction;
                $body
            }
        }
    )*};
}

simple_losses! {
    /// Squared differences (`torch.nn.MSELoss`).
    MSELoss() = |x, y, reduction| F::mse_loss_with(x, y, reduction);
    /// Absolute differences (`torch.nn.L1Loss`).
    L1Loss() = |x, y, reduction| F::l1_loss_with(x, y, reduction);
    /// Squared differences below `delta`, then linear (`torch.nn.HuberLoss`).
    HuberLoss(delta: f64 = 1.0) = |x, y, reduction| F::huber_loss(x, y, delta, reduction);
    /// [`HuberLoss`] divided by `beta` (`torch.nn.SmoothL1Loss`).
    SmoothL1Loss(beta: f64 = 1.0) = |x, y, reduction| F::smooth_l1_loss(x, y, beta, reduction);
    /// log(1 + e^(-y x)) for y of 1 or -1 (`torch.nn.SoftMarginLoss`).
    SoftMarginLoss() = |x, y, reduction| F::soft_margin_loss(x, y, reduction);
    /// x, or how far it is below a margin, for y of 1 and -1 (`torch.nn.HingeEmbeddingLoss`).
    HingeEmbeddingLoss(margin: f64 = 1.0) =
        |x, y, reduction| F::hinge_embedding_loss(x, y, margin, reduction);
    /// The scores of a sample's classes above all others by 1 (`torch.nn.MultiLabelMarginLoss`).
    MultiLabelMarginLoss() = |x, y, reduction| F::multilabel_margin_loss(x, y, reduction);
    /// Cross entropy of probabilities (`torch.nn.BCELoss`); see [`F::binary_cross_entropy`].
    BCELoss([weight]) = |x, y, reduction| F::binary_cross_entropy(x, y, weight, reduction);
    /// Several classes per sample, by logits (`torch.nn.MultiLabelSoftMarginLoss`); see
    /// [`F::multilabel_soft_margin_loss`].
    MultiLabelSoftMarginLoss([weight]) =
        |x, y, reduction| F::multilabel_soft_margin_loss(x, y, weight, reduction);
    /// The right class's score above the others by a margin (`torch.nn.MultiMarginLoss`); see
    /// [`F::multi_margin_loss`].
    MultiMarginLoss([weight] p: u32 = 1, margin: f64 = 1.0) = |x, y, reduction| {
        let options = MultiMarginOptions { p, margin, weight: weight.cloned(), reduction };
        F::multi_margin_loss(x, y, &options)
    };
}

/// How far apart two batches of vectors are, a number per pair.
type Distance = Arc<dyn Fn(&Tensor, &Tensor) -> Tensor + Send + Sync>;

/// [`TripletMarginLoss`] with a distance of your own (`torch.nn.TripletMarginWithDistanceLoss`); at
/// first [`F::pairwise_distance`].
#[derive(Module, Clone)]
pub struct TripletMarginWithDistanceLoss {
    distance: Option<Distance>,
    #[module(skip)]
    options: TripletMarginOptions,
}

impl TripletMarginWithDistanceLoss {
    /// With options, of which `p` and `eps` do not count.
    pub fn new(options: TripletMarginOptions) -> Self {
        TripletMarginWithDistanceLoss { distance: None, options }
    }

    /// With another distance.
    #[must_use]
    pub fn distance(
        mut self,
        distance: impl Fn(&Tensor, &Tensor) -> Tensor + Send + Sync + 'static,
    ) -> Self {
        self.distance = Some(Arc::new(distance));
        self
    }

    /// Computes the loss.
    ///
    /// # Panics
    /// As [`F::triplet_margin_with_distance_loss`].
    #[track_caller]
    pub fn forward(&self, anchor: &Tensor, positive: &Tensor, negative: &Tensor) -> Tensor {
        let distance = |a: &Tensor, b: &Tensor| match &self.distance {
            Some(distance) => distance(a, b),
            None => F::pairwise_distance(a, b, 2.0, 1e-6, false),
        };
        let options = self.options;
        F::triplet_margin_with_distance_loss(anchor, positive, negative, distance, options)
    }
}
