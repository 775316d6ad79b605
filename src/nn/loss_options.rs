//! Losses that are a function in [`functional`](super::functional) with its settings, a row each.

use std::sync::Arc;

use super::functional::{
    self as F, GaussianNLLOptions, KLDivOptions, MultiMarginOptions, PoissonNLLOptions,
    TripletMarginOptions,
};
use super::{Buffer, Loss, Module};
use crate::ops::{CTCLossOptions, Reduction, ctc_loss};
use crate::tensor::Tensor;

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
            #[crate::nn::forward]
            pub fn forward(&self, $($x: &Tensor),+) -> Tensor {
                let $o = self.options;
                $body
            }
        }
    )*};
}

losses! {
    /// Kullback-Leibler divergence (`torch.nn.KLDivLoss`); see [`F::kl_div`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{KLDivLoss, functional::KLDivOptions}};
    /// let (x, target) = (Tensor::from([[0.5f64, 0.5]]).log(), Tensor::from([[1f64, 0.]]));
    /// assert!((KLDivLoss::new().forward(&x, &target).item() - 0.5 * 2f64.ln()).abs() < 1e-9);
    /// let loss = KLDivLoss::with_options(KLDivOptions { batch_mean: true, ..Default::default() });
    /// assert!((loss.forward(&x, &target).item() - 2f64.ln()).abs() < 1e-9);
    /// ```
    KLDivLoss(KLDivOptions) = |input, target; options| F::kl_div(input, target, options);
    /// Negative log likelihood of Poisson rates (`torch.nn.PoissonNLLLoss`); see
    /// [`F::poisson_nll_loss`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{PoissonNLLLoss, functional::PoissonNLLOptions}};
    /// // 2 - 0 log(2)
    /// let loss = PoissonNLLLoss::with_options(PoissonNLLOptions { log_input: false, ..Default::default() });
    /// assert_eq!(loss.forward(&Tensor::from([2f32]), &Tensor::from([0f32])).item(), 2.0);
    /// ```
    PoissonNLLLoss(PoissonNLLOptions) =
        |input, target; options| F::poisson_nll_loss(input, target, options);
    /// Negative log likelihood of normal distributions (`torch.nn.GaussianNLLLoss`); see
    /// [`F::gaussian_nll_loss`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::GaussianNLLLoss};
    /// // (ln 1 + (3 - 1)^2 / 1) / 2
    /// let (x, target, var) = (Tensor::from([3f64]), Tensor::from([1f64]), Tensor::from([1f64]));
    /// assert_eq!(GaussianNLLLoss::new().forward(&x, &target, &var).item(), 2.0);
    /// ```
    GaussianNLLLoss(GaussianNLLOptions) =
        |input, target, var; options| F::gaussian_nll_loss(input, target, var, options);
    /// An anchor nearer to a positive than to a negative (`torch.nn.TripletMarginLoss`); see
    /// [`F::triplet_margin_loss`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{TripletMarginLoss, functional::TripletMarginOptions}};
    /// let [anchor, positive, negative] = [0f64, 3., 4.].map(|x| Tensor::from([[x]]));
    /// let options = TripletMarginOptions { margin: 2.0, ..Default::default() };
    /// let loss = TripletMarginLoss::with_options(options);
    /// assert!((loss.forward(&anchor, &positive, &negative).item() - 1.0).abs() < 1e-5);
    /// ```
    TripletMarginLoss(TripletMarginOptions) =
        |anchor, positive, negative; options| F::triplet_margin_loss(anchor, positive, negative, options);
    /// Connectionist temporal classification (`torch.nn.CTCLoss`); see [`ctc_loss`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::CTCLoss};
    /// // One step, one sample: the class is 1, not the blank.
    /// let log_probs = Tensor::from([[[0.25f64, 0.75]]]).log();
    /// let (target, one) = (Tensor::from([[1i64]]), Tensor::from([1i64]));
    /// let loss = CTCLoss::new().forward(&log_probs, &target, &one, &one);
    /// assert!((loss.item() + 0.75f64.ln()).abs() < 1e-9);
    /// ```
    CTCLoss(CTCLossOptions) = |log_probs, targets, input_lengths, target_lengths; options|
        ctc_loss(log_probs, targets, input_lengths, target_lengths, options);
    /// Whether the first of two scores is the higher (`torch.nn.MarginRankingLoss`); see
    /// [`F::margin_ranking_loss`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{MarginOptions, MarginRankingLoss}};
    /// let loss = MarginRankingLoss::with_options(MarginOptions { margin: 0.5, ..Default::default() });
    /// let (x1, x2) = (Tensor::from([3f32]), Tensor::from([1f32]));
    /// assert_eq!(loss.forward(&x1, &x2, &Tensor::from([-1f32])).item(), 2.5);
    /// ```
    MarginRankingLoss(MarginOptions) = |input1, input2, target; o|
        F::margin_ranking_loss(input1, input2, target, o.margin, o.reduction);
    /// Whether two vectors point the same way (`torch.nn.CosineEmbeddingLoss`); see
    /// [`F::cosine_embedding_loss`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::CosineEmbeddingLoss};
    /// let (x1, x2) = (Tensor::from([[1f32, 0.], [1., 0.]]), Tensor::from([[0f32, 2.], [0., 5.]]));
    /// assert_eq!(CosineEmbeddingLoss::new().forward(&x1, &x2, &Tensor::from([1f32, -1.])).item(), 0.5);
    /// ```
    CosineEmbeddingLoss(MarginOptions) = |input1, input2, target; o|
        F::cosine_embedding_loss(input1, input2, target, o.margin, o.reduction);
}

/// As the inherent methods: of an input and a target.
macro_rules! of_input_and_target {
    ($($name:ident)*) => {$(
        impl Loss for $name {
            #[track_caller]
            #[crate::nn::forward]
            fn forward(&self, input: &Tensor, target: &Tensor) -> Tensor {
                $name::forward(self, input, target)
            }
        }
    )*};
}
of_input_and_target! { KLDivLoss PoissonNLLLoss }

/// Options of losses with a margin.
///
/// ```
/// use torchrs::{Tensor, nn::{MarginOptions, MarginRankingLoss}, ops::Reduction};
/// let loss = MarginRankingLoss::with_options(MarginOptions { margin: 0.5, reduction: Reduction::Sum });
/// let (x1, x2) = (Tensor::from([3f32, 3.]), Tensor::from([1f32, 3.]));
/// assert_eq!(loss.forward(&x1, &x2, &Tensor::from([1f32, 1.])).item(), 0.5);
/// ```
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
            #[crate::nn::forward]
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
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Loss, MSELoss}};
    /// assert_eq!(MSELoss::new().forward(&Tensor::from([1f32, 4.]), &Tensor::from([1f32, 2.])).item(), 2.0);
    /// ```
    MSELoss() = |x, y, reduction| F::mse_loss_with(x, y, reduction);
    /// Absolute differences (`torch.nn.L1Loss`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{L1Loss, Loss}, ops::Reduction};
    /// let loss = L1Loss::new().reduction(Reduction::None);
    /// let y = loss.forward(&Tensor::from([1f32, 4.]), &Tensor::from([1f32, 2.]));
    /// assert_eq!(y.to_vec::<f32>(), [0.0, 2.0]);
    /// ```
    L1Loss() = |x, y, reduction| F::l1_loss_with(x, y, reduction);
    /// Squared differences below `delta`, then linear (`torch.nn.HuberLoss`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{HuberLoss, Loss}};
    /// // 2 * (3 - 2 / 2)
    /// let loss = HuberLoss::new().delta(2.0);
    /// assert_eq!(loss.forward(&Tensor::from([3f32]), &Tensor::from([0f32])).item(), 4.0);
    /// ```
    HuberLoss(delta: f64 = 1.0) = |x, y, reduction| F::huber_loss(x, y, delta, reduction);
    /// [`HuberLoss`] divided by `beta` (`torch.nn.SmoothL1Loss`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Loss, SmoothL1Loss}};
    /// // 3 - 2 / 2
    /// let loss = SmoothL1Loss::new().beta(2.0);
    /// assert_eq!(loss.forward(&Tensor::from([3f32]), &Tensor::from([0f32])).item(), 2.0);
    /// ```
    SmoothL1Loss(beta: f64 = 1.0) = |x, y, reduction| F::smooth_l1_loss(x, y, beta, reduction);
    /// log(1 + e^(-y x)) for y of 1 or -1 (`torch.nn.SoftMarginLoss`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Loss, SoftMarginLoss}};
    /// let loss = SoftMarginLoss::new().forward(&Tensor::from([0f64, 0.]), &Tensor::from([1f64, -1.]));
    /// assert!((loss.item() - 2f64.ln()).abs() < 1e-9);
    /// ```
    SoftMarginLoss() = |x, y, reduction| F::soft_margin_loss(x, y, reduction);
    /// x, or how far it is below a margin, for y of 1 and -1 (`torch.nn.HingeEmbeddingLoss`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{HingeEmbeddingLoss, Loss}};
    /// // The mean of 0.25 and 2 - 0.25.
    /// let loss = HingeEmbeddingLoss::new().margin(2.0);
    /// assert_eq!(loss.forward(&Tensor::from([0.25f32, 0.25]), &Tensor::from([1f32, -1.])).item(), 1.0);
    /// ```
    HingeEmbeddingLoss(margin: f64 = 1.0) =
        |x, y, reduction| F::hinge_embedding_loss(x, y, margin, reduction);
    /// The scores of a sample's classes above all others by 1 (`torch.nn.MultiLabelMarginLoss`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Loss, MultiLabelMarginLoss}};
    /// // Class 0 only: (1 - 1 + 0.5) / 2
    /// let (scores, classes) = (Tensor::from([[1f32, 0.5]]), Tensor::from([[0i64, -1]]));
    /// assert_eq!(MultiLabelMarginLoss::new().forward(&scores, &classes).item(), 0.25);
    /// ```
    MultiLabelMarginLoss() = |x, y, reduction| F::multilabel_margin_loss(x, y, reduction);
    /// Cross entropy of probabilities (`torch.nn.BCELoss`); see [`F::binary_cross_entropy`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{BCELoss, Loss}};
    /// let loss = BCELoss::new().weight(Tensor::from([2f64, 0.]));
    /// let y = loss.forward(&Tensor::from([0.5f64, 0.9]), &Tensor::from([1f64, 0.]));
    /// assert!((y.item() - 2f64.ln()).abs() < 1e-9);
    /// ```
    BCELoss([weight]) = |x, y, reduction| F::binary_cross_entropy(x, y, weight, reduction);
    /// Several classes per sample, by logits (`torch.nn.MultiLabelSoftMarginLoss`); see
    /// [`F::multilabel_soft_margin_loss`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Loss, MultiLabelSoftMarginLoss}};
    /// let (scores, target) = (Tensor::from([[0f64, 0.]]), Tensor::from([[1f64, 0.]]));
    /// let loss = MultiLabelSoftMarginLoss::new().forward(&scores, &target);
    /// assert!((loss.item() - 2f64.ln()).abs() < 1e-9);
    /// ```
    MultiLabelSoftMarginLoss([weight]) =
        |x, y, reduction| F::multilabel_soft_margin_loss(x, y, weight, reduction);
    /// The right class's score above the others by a margin (`torch.nn.MultiMarginLoss`); see
    /// [`F::multi_margin_loss`].
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Loss, MultiMarginLoss}};
    /// // 2^2 / 2
    /// let loss = MultiMarginLoss::new().p(2).margin(2.0);
    /// assert_eq!(loss.forward(&Tensor::from([[0f32, 0.]]), &Tensor::from([0i64])).item(), 2.0);
    /// ```
    MultiMarginLoss([weight] p: u32 = 1, margin: f64 = 1.0) = |x, y, reduction| {
        let options = MultiMarginOptions { p, margin, weight: weight.cloned(), reduction };
        F::multi_margin_loss(x, y, options.clone())
    };
}

/// How far apart two batches of vectors are, a number per pair.
type Distance = Arc<dyn Fn(&Tensor, &Tensor) -> Tensor + Send + Sync>;

/// [`TripletMarginLoss`] with a distance of your own (`torch.nn.TripletMarginWithDistanceLoss`); at
/// first [`F::pairwise_distance`].
///
/// ```
/// use torchrs::{Tensor, nn::TripletMarginWithDistanceLoss};
/// let (anchor, positive) = (Tensor::from([[0f32, 0.]]), Tensor::from([[3f32, 4.]]));
/// let loss = TripletMarginWithDistanceLoss::new(Default::default())
///     .distance(|a, b| (a - b).abs().sum_dim(&[-1], false));
/// assert_eq!(loss.forward(&anchor, &positive, &Tensor::from([[1f32, 1.]])).item(), 6.0);
/// ```
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
    #[crate::nn::forward]
    pub fn forward(&self, anchor: &Tensor, positive: &Tensor, negative: &Tensor) -> Tensor {
        let distance = |a: &Tensor, b: &Tensor| match &self.distance {
            Some(distance) => distance(a, b),
            None => F::pairwise_distance(a, b, Default::default()),
        };
        let options = self.options;
        F::triplet_margin_with_distance_loss(anchor, positive, negative, distance, options)
    }
}
