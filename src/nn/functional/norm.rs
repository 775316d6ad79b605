//! Normalisation.

use crate::error::{Error, throw};
use crate::ops::{Norm, NormOptions};
use crate::tensor::Tensor;

methods! {
    group_norm(x, num_groups: usize, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64);
    layer_norm(x, normalized_shape: &[usize], weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64);
    rms_norm(x, normalized_shape: &[usize], weight: Option<&Tensor>, eps: Option<f64>);
}

/// Statistics, scale and shift of [`batch_norm`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let (x, bias) = (Tensor::from([[1f64], [3.]]), Tensor::from([10f64]));
/// let options = F::BatchNormOptions { bias: Some(&bias), training: true, ..Default::default() };
/// assert!((F::batch_norm(&x, options) - Tensor::from([[9f64], [11.]])).abs().max().item() < 1e-4);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BatchNormOptions<'a> {
    /// Means by channel: training moves them, evaluation subtracts them.
    pub running_mean: Option<&'a Tensor>,
    /// Variances by channel: training moves them, evaluation divides by their roots.
    pub running_var: Option<&'a Tensor>,
    /// A factor per channel.
    pub weight: Option<&'a Tensor>,
    /// What is added to a channel.
    pub bias: Option<&'a Tensor>,
    /// Normalises by the batch's statistics, which enter the running ones.
    pub training: bool,
    /// The batch's part in the running statistics.
    pub momentum: f64,
    /// Added to variances.
    pub eps: f64,
}

impl Default for BatchNormOptions<'_> {
    fn default() -> Self {
        BatchNormOptions {
            running_mean: None,
            running_var: None,
            weight: None,
            bias: None,
            training: false,
            momentum: 0.1,
            eps: 1e-5,
        }
    }
}

/// Each channel (dimension 1) shifted and scaled to mean 0 and variance 1, then times `weight` plus `bias`
/// (`torch.nn.functional.batch_norm`). With `training` by the batch's statistics, which are then added to the running
/// ones in place; otherwise by the running ones.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let (x, mean, var) = (Tensor::from([[3f64], [5.]]), Tensor::from([1f64]), Tensor::from([4f64]));
/// let (running_mean, running_var) = (Some(&mean), Some(&var));
/// let y = F::batch_norm(&x, F::BatchNormOptions { running_mean, running_var, ..Default::default() });
/// assert!((y - Tensor::from([[1f64], [2.]])).abs().max().item() < 1e-4);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`](crate::Error::Shape) when a parameter is not of shape `[C]` or when training with one number
/// per channel, [`Error::Argument`](crate::Error::Argument) when not training without running statistics, or for an `eps`
/// below 0 or of 0 in training, and [`Error::Dtype`](crate::Error::Dtype) when the input is not floating-point.
#[track_caller]
pub fn batch_norm(input: &Tensor, options: BatchNormOptions<'_>) -> Tensor {
    let BatchNormOptions { running_mean, running_var, weight, bias, training, momentum, eps } =
        options;
    check_eps("batch_norm", eps, training);
    input.batch_norm(running_mean, running_var, weight, bias, training, momentum, eps)
}

/// Refuses an `eps` that is not added to a variance as it should: 0 only where variances are known.
#[track_caller]
pub(in crate::nn) fn check_eps(op: &str, eps: f64, training: bool) {
    let bound = if training { "must be positive in training" } else { "must be at least 0" };
    if eps < 0.0 || (training && eps == 0.0) {
        throw(Error::argument(op, "eps", format!("{eps}; {bound}")));
    }
}

/// `relu` of [`batch_norm`], or of its sum with a `residual`: what stands behind most convolutions.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let (x, shortcut) = (Tensor::from([[1f64], [3.]]), Tensor::from([[2f64], [-5.]]));
/// let options = F::BatchNormOptions { training: true, ..Default::default() };
/// let y = F::batch_norm_relu(&x, options, None);
/// assert!(y.equal(&F::batch_norm(&x, options).relu()));
/// let y = F::batch_norm_relu(&x, options, Some(&shortcut));
/// assert!(y.equal(&(F::batch_norm(&x, options) + shortcut).relu()));
/// ```
///
/// The numbers are those of the three ops, to the bit, and so are the gradients. On a GPU one pass over the elements does
/// it, forward and in each half of backward, where the input is floating-point and the residual has its shape and type:
/// half the traffic of the three ops. Backward keeps the input and a bit per element, not the result. On the CPU, and for
/// other residuals, the three ops are called.
///
/// # Panics
/// As [`batch_norm`]; and as an addition for a residual whose shape does not broadcast, or on another device.
#[track_caller]
pub fn batch_norm_relu(
    input: &Tensor,
    options: BatchNormOptions<'_>,
    residual: Option<&Tensor>,
) -> Tensor {
    let BatchNormOptions { running_mean, running_var, weight, bias, training, momentum, eps } =
        options;
    check_eps("batch_norm_relu", eps, training);
    let norm = Norm {
        running: [running_mean, running_var],
        affine: [weight, bias],
        batches: None,
        options: NormOptions { training, momentum, eps },
    };
    input.batch_norm_relu(&norm, residual)
}

/// Statistics, scale and shift of [`instance_norm`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let (x, weight) = (Tensor::from([[[1f64, 3.]]]), Tensor::from([10f64]));
/// let options = F::InstanceNormOptions { weight: Some(&weight), ..Default::default() };
/// assert!((F::instance_norm(&x, options) - Tensor::from([[[-10f64, 10.]]])).abs().max().item() < 1e-3);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct InstanceNormOptions<'a> {
    /// Means by channel, which the samples' move.
    pub running_mean: Option<&'a Tensor>,
    /// Variances by channel, which the samples' move.
    pub running_var: Option<&'a Tensor>,
    /// A factor per channel.
    pub weight: Option<&'a Tensor>,
    /// What is added to a channel.
    pub bias: Option<&'a Tensor>,
    /// Normalises each sample by its own statistics, otherwise all by the running ones.
    pub use_input_stats: bool,
    /// The samples' part in the running statistics.
    pub momentum: f64,
    /// Added to variances.
    pub eps: f64,
}

impl Default for InstanceNormOptions<'_> {
    fn default() -> Self {
        InstanceNormOptions {
            running_mean: None,
            running_var: None,
            weight: None,
            bias: None,
            use_input_stats: true,
            momentum: 0.1,
            eps: 1e-5,
        }
    }
}

/// Each channel of each item of `[N, C, ..]` shifted and scaled to mean 0 and variance 1, then times `weight` plus `bias`
/// (`torch.nn.functional.instance_norm`). With `use_input_stats` by the item's own statistics, whose means over the items
/// are then added to the running ones in place; otherwise by the running ones.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let x = Tensor::from([[[1f64, 3.], [10., 30.]]]);
/// let y = F::instance_norm(&x, Default::default());
/// assert!((y - Tensor::from([[[-1f64, 1.], [-1., 1.]]])).abs().max().item() < 1e-4);
/// ```
///
/// # Panics
/// As [`batch_norm`].
#[track_caller]
pub fn instance_norm(input: &Tensor, options: InstanceNormOptions<'_>) -> Tensor {
    let own = options.use_input_stats;
    let InstanceNormOptions { running_mean, running_var, weight, bias, momentum, eps, .. } =
        options;
    input.instance_norm(running_mean, running_var, weight, bias, own, momentum, eps)
}

/// Numbers of [`local_response_norm`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::nn::functional::LocalResponseNormOptions;
/// assert_eq!(LocalResponseNormOptions::default().beta, 0.75);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LocalResponseNormOptions {
    /// The factor of the mean.
    pub alpha: f64,
    /// The exponent.
    pub beta: f64,
    /// What is added to the mean.
    pub k: f64,
}

impl Default for LocalResponseNormOptions {
    fn default() -> Self {
        LocalResponseNormOptions { alpha: 1e-4, beta: 0.75, k: 1.0 }
    }
}

/// Divided by (k + alpha mean(x^2 over `size` neighbouring channels))^beta
/// (`torch.nn.functional.local_response_norm`).
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let options = F::LocalResponseNormOptions { alpha: 1.0, beta: 1.0, ..Default::default() };
/// // 2 / (1 + 2^2)
/// let y = F::local_response_norm(&Tensor::from([[[2f64]]]), 1, options);
/// assert!((y.item() - 0.4).abs() < 1e-9);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`](crate::Error::Shape) for fewer than 3 dimensions,
/// [`Error::Argument`](crate::Error::Argument) for a size of 0.
#[track_caller]
pub fn local_response_norm(
    input: &Tensor,
    size: usize,
    options: LocalResponseNormOptions,
) -> Tensor {
    let LocalResponseNormOptions { alpha, beta, k } = options;
    input.local_response_norm(size, alpha, beta, k)
}
