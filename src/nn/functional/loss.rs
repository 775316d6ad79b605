//! Losses of classes, and of elements: pointwise rows and their mean or sum.

use crate::amp::cast_op;
use crate::error::{Error, throw};
use crate::ops::{
    CrossEntropyOptions, NLLLossOptions, Reduction, limits::assert_probabilities,
    pointwise::absolute_error, pointwise::divergence, pointwise::huber_error,
    pointwise::log_divergence, pointwise::logit_error, pointwise::probability_error,
    pointwise::squared_error,
};
use crate::tensor::{Tensor, broadcast_shapes};

/// `input` and `target` of a loss: of one shape, or one broadcasts to the other's. Shapes like `[4]`
/// and `[4, 1]`, which would make `[4, 4]`, are what a forgotten `squeeze` gives.
#[track_caller]
fn check_shapes(op: &str, input: &Tensor, target: &Tensor) {
    let (x, t) = (input.shape(), target.shape());
    let common = broadcast_shapes(x, t).ok();
    if !common.is_some_and(|shape| shape[..] == *x || shape[..] == *t) {
        differ(op, x, t);
    }
}

/// As [`check_shapes`], where none may broadcast.
#[track_caller]
fn check_equal(op: &str, input: &Tensor, target: &Tensor) {
    if input.shape() != target.shape() {
        differ(op, input.shape(), target.shape());
    }
}

#[track_caller]
fn differ(op: &str, x: &[usize], t: &[usize]) -> ! {
    throw(Error::shape(
        op,
        format!("input has shape {x:?} and target {t:?}; they must be the same"),
    ))
}

/// The losses times their weights, if there are any.
#[track_caller]
pub(super) fn weighted(losses: Tensor, weight: Option<&Tensor>) -> Tensor {
    weight.map_or_else(|| losses.clone(), |weight| &losses * weight)
}

/// The losses reduced.
#[track_caller]
pub(super) fn reduce(losses: Tensor, reduction: Reduction) -> Tensor {
    match reduction {
        Reduction::None => losses,
        Reduction::Mean => losses.mean(),
        Reduction::Sum => losses.sum(),
    }
}

/// Mean of the squared differences (`torch.nn.functional.mse_loss`).
///
/// # Panics
/// Throws [`Error::Shape`] when the shapes differ and neither broadcasts to the other.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// assert_eq!(F::mse_loss(&Tensor::from([1f32, 4.]), &Tensor::from([1f32, 2.])).item(), 2.0);
/// ```
#[track_caller]
pub fn mse_loss(input: &Tensor, target: &Tensor) -> Tensor {
    mse_loss_with(input, target, Reduction::Mean)
}

/// [`mse_loss`] with another reduction.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::Reduction};
/// let (x, target) = (Tensor::from([1f32, 4.]), Tensor::from([1f32, 2.]));
/// assert_eq!(F::mse_loss_with(&x, &target, Reduction::Sum).item(), 4.0);
/// ```
///
/// # Panics
/// As [`mse_loss`].
#[track_caller]
pub fn mse_loss_with(input: &Tensor, target: &Tensor, reduction: Reduction) -> Tensor {
    cast_op!("mse_loss", [x = input, t = target] => mse_loss_with(&x, &t, reduction));
    check_shapes("mse_loss", input, target);
    reduce(squared_error(input, target), reduction)
}

/// Mean of the absolute differences (`torch.nn.functional.l1_loss`).
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// assert_eq!(F::l1_loss(&Tensor::from([1f32, 4.]), &Tensor::from([1f32, 2.])).item(), 1.0);
/// ```
///
/// # Panics
/// As [`mse_loss`].
#[track_caller]
pub fn l1_loss(input: &Tensor, target: &Tensor) -> Tensor {
    l1_loss_with(input, target, Reduction::Mean)
}

/// [`l1_loss`] with another reduction.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::Reduction};
/// let (x, target) = (Tensor::from([1f32, 4.]), Tensor::from([1f32, 2.]));
/// assert_eq!(F::l1_loss_with(&x, &target, Reduction::None).to_vec::<f32>(), [0.0, 2.0]);
/// ```
///
/// # Panics
/// As [`mse_loss`].
#[track_caller]
pub fn l1_loss_with(input: &Tensor, target: &Tensor, reduction: Reduction) -> Tensor {
    cast_op!("l1_loss", [x = input, t = target] => l1_loss_with(&x, &t, reduction));
    check_shapes("l1_loss", input, target);
    reduce(absolute_error(input, target), reduction)
}

/// Half the square below a difference of `delta`, above it linear with slope `delta`
/// (`torch.nn.functional.huber_loss`); PyTorch's defaults are 1 and the mean.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::Reduction};
/// let (x, target) = (Tensor::from([0.5f32, 3.]), Tensor::from([0f32, 0.]));
/// assert_eq!(F::huber_loss(&x, &target, 1.0, Reduction::None).to_vec::<f32>(), [0.125, 2.5]);
/// ```
///
/// # Panics
/// As [`mse_loss`], and throws [`Error::Argument`] unless `delta` is above 0.
#[track_caller]
pub fn huber_loss(input: &Tensor, target: &Tensor, delta: f64, reduction: Reduction) -> Tensor {
    cast_op!("huber_loss", [x = input, t = target] => huber_loss(&x, &t, delta, reduction));
    check_shapes("huber_loss", input, target);
    if delta.is_nan() || delta <= 0.0 {
        throw(Error::argument("huber_loss", "delta", format!("{delta}; must be above 0")));
    }
    reduce(huber_error(input, target, delta), reduction)
}

/// [`huber_loss`] divided by its `beta`, so that the slope is 1; with `beta` 0 that is [`l1_loss`]
/// (`torch.nn.functional.smooth_l1_loss`); PyTorch's defaults are 1 and the mean.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::Reduction};
/// let (x, target) = (Tensor::from([1f32, 4.]), Tensor::from([0f32, 0.]));
/// assert_eq!(F::smooth_l1_loss(&x, &target, 2.0, Reduction::None).to_vec::<f32>(), [0.25, 3.0]);
/// ```
///
/// # Panics
/// As [`mse_loss`], and throws [`Error::Argument`] when `beta` is negative.
#[track_caller]
pub fn smooth_l1_loss(input: &Tensor, target: &Tensor, beta: f64, reduction: Reduction) -> Tensor {
    cast_op!("smooth_l1_loss", [x = input, t = target] => smooth_l1_loss(&x, &t, beta, reduction));
    if beta == 0.0 {
        return l1_loss_with(input, target, reduction);
    }
    check_shapes("smooth_l1_loss", input, target);
    if beta.is_nan() || beta < 0.0 {
        throw(Error::argument("smooth_l1_loss", "beta", format!("{beta}; must be at least 0")));
    }
    reduce(huber_error(input, target, beta) / beta, reduction)
}

/// Options of [`binary_cross_entropy_with_logits_with`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::Reduction};
/// let pos_weight = Some(Tensor::from([3f64]));
/// let options = F::BCEWithLogitsOptions { pos_weight, reduction: Reduction::Sum, ..Default::default() };
/// let (x, target) = (Tensor::from([0f64, 0.]), Tensor::from([1f64, 0.]));
/// let loss = F::binary_cross_entropy_with_logits_with(&x, &target, options);
/// assert!((loss.item() - 4.0 * 2f64.ln()).abs() < 1e-9);
/// ```
#[derive(Clone, Debug, Default)]
pub struct BCEWithLogitsOptions {
    /// A factor per element; broadcasts to the input.
    pub weight: Option<Tensor>,
    /// A factor of positive targets, per class; broadcasts to the input.
    pub pos_weight: Option<Tensor>,
    /// What is returned.
    pub reduction: Reduction,
}

/// Mean cross entropy of logits with probabilities of the same shape
/// (`torch.nn.functional.binary_cross_entropy_with_logits`).
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let (x, target) = (Tensor::from([0f64, 0.]), Tensor::from([1f64, 0.]));
/// assert!((F::binary_cross_entropy_with_logits(&x, &target).item() - 2f64.ln()).abs() < 1e-9);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] when the shapes differ, and [`Error::Dtype`] for a target that is not of floating-point
/// numbers.
#[track_caller]
pub fn binary_cross_entropy_with_logits(input: &Tensor, target: &Tensor) -> Tensor {
    binary_cross_entropy_with_logits_with(input, target, BCEWithLogitsOptions::default())
}

/// [`binary_cross_entropy_with_logits`] with options.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let (x, target) = (Tensor::from([0f64, 0.]), Tensor::from([1f64, 0.]));
/// let options = F::BCEWithLogitsOptions { weight: Some(Tensor::from([2f64, 0.])), ..Default::default() };
/// let loss = F::binary_cross_entropy_with_logits_with(&x, &target, options);
/// assert!((loss.item() - 2f64.ln()).abs() < 1e-9);
/// ```
///
/// # Panics
/// As there.
#[track_caller]
pub fn binary_cross_entropy_with_logits_with(
    input: &Tensor,
    target: &Tensor,
    options: BCEWithLogitsOptions,
) -> Tensor {
    cast_op!("binary_cross_entropy_with_logits", [x = input, t = target] => {
        binary_cross_entropy_with_logits_with(&x, &t, options)
    });
    let options = &options;
    let op = "binary_cross_entropy_with_logits";
    check_equal(op, input, target);
    if !target.dtype().is_floating_point() {
        let (x, t) = (input.dtype(), target.dtype());
        let message = format!("the target holds {t}; convert it with `.to_dtype({x:?})`");
        throw(Error::dtype(op, message));
    }
    let losses = match &options.pos_weight {
        Some(weight) => logit_error(input, target, weight),
        None => logit_error(input, target, 1.0),
    };
    reduce(weighted(losses, options.weight.as_ref()), options.reduction)
}

/// Cross entropy of probabilities with probabilities of the same shape
/// (`torch.nn.functional.binary_cross_entropy`): `-w (t log(x) + (1 - t) log(1 - x))`, with logarithms
/// of at least -100. `weight` broadcasts to the input.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::Reduction};
/// let (p, target) = (Tensor::from([0.5f64, 0.5, 0.]), Tensor::from([1f64, 0., 1.]));
/// let losses = F::binary_cross_entropy(&p, &target, None, Reduction::None).to_vec::<f64>();
/// assert!((losses[0] - 2f64.ln()).abs() < 1e-9 && losses[2] == 100.0);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] or [`Error::Dtype`] when shapes or types differ, and [`Error::Argument`] for numbers
/// outside [0, 1]; on a GPU the next call that waits for it throws that, and the process must be restarted.
#[track_caller]
pub fn binary_cross_entropy(
    input: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    reduction: Reduction,
) -> Tensor {
    cast_op!("binary_cross_entropy", [x = input, t = target, w = weight] => {
        binary_cross_entropy(&x, &t, w.as_ref(), reduction)
    });
    check_equal("binary_cross_entropy", input, target);
    if input.dtype() != target.dtype() {
        let (x, t) = (input.dtype(), target.dtype());
        throw(Error::dtype(
            "binary_cross_entropy",
            format!("input holds {x} and target {t}; convert the target with `.to_dtype({x:?})`"),
        ));
    }
    assert_probabilities("binary_cross_entropy", "input", input);
    assert_probabilities("binary_cross_entropy", "target", target);
    reduce(weighted(probability_error(input, target), weight), reduction)
}

/// Options of [`kl_div`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::{Tensor, nn::functional::{KLDivOptions, kl_div}};
/// let (x, target) = (Tensor::from([[0.5f64, 0.5]]).log(), Tensor::from([[1f64, 0.]]));
/// let options = KLDivOptions { batch_mean: true, ..Default::default() };
/// assert!((kl_div(&x, &target, options).item() - 2f64.ln()).abs() < 1e-9);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct KLDivOptions {
    /// What is returned.
    pub reduction: Reduction,
    /// Returns the sum divided by the size of dimension 0, which is the mathematical mean, whatever
    /// `reduction` says (PyTorch's `reduction="batchmean"`).
    pub batch_mean: bool,
    /// The target has logarithms too.
    pub log_target: bool,
}

/// Kullback-Leibler divergence of log-probabilities from probabilities
/// (`torch.nn.functional.kl_div`): `t (log(t) - x)`.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// let (x, target) = (Tensor::from([0.5f64, 0.5]).log(), Tensor::from([1f64, 0.]));
/// let loss = F::kl_div(&x, &target, Default::default());
/// assert!((loss.item() - 0.5 * 2f64.ln()).abs() < 1e-9);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] when the shapes do not broadcast.
#[track_caller]
pub fn kl_div(input: &Tensor, target: &Tensor, options: KLDivOptions) -> Tensor {
    cast_op!("kl_div", [x = input, t = target] => kl_div(&x, &t, options));
    let losses = match options.log_target {
        true => log_divergence(input, target),
        false => divergence(input, target),
    };
    if options.batch_mean {
        let samples = input.shape().first().copied().unwrap_or(1);
        return losses.sum() / samples as f64;
    }
    reduce(losses, options.reduction)
}

/// `log(1 + e^(-t x))` for targets of -1 and 1 (`torch.nn.functional.soft_margin_loss`).
///
/// ```
/// use torchrs::{Tensor, nn::functional as F, ops::Reduction};
/// let loss = F::soft_margin_loss(&Tensor::from([0f64, 0.]), &Tensor::from([1f64, -1.]), Reduction::Sum);
/// assert!((loss.item() - 2.0 * 2f64.ln()).abs() < 1e-9);
/// ```
///
/// # Panics
/// As [`mse_loss`].
#[track_caller]
pub fn soft_margin_loss(input: &Tensor, target: &Tensor, reduction: Reduction) -> Tensor {
    cast_op!("soft_margin_loss", [x = input, t = target] => soft_margin_loss(&x, &t, reduction));
    check_shapes("soft_margin_loss", input, target);
    reduce(-(input * target).logsigmoid(), reduction)
}

/// Options of [`poisson_nll_loss`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::{Tensor, nn::functional::{PoissonNLLOptions, poisson_nll_loss}};
/// let (rate, count) = (Tensor::from([2f64]), Tensor::from([1f64]));
/// let options = PoissonNLLOptions { log_input: false, ..Default::default() };
/// assert!((poisson_nll_loss(&rate, &count, options).item() - (2.0 - 2f64.ln())).abs() < 1e-6);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PoissonNLLOptions {
    /// The input is the logarithm of the rate.
    pub log_input: bool,
    /// Adds Stirling's approximation of `log(t!)` for targets above 1.
    pub full: bool,
    /// Added to the rate before its logarithm is taken.
    pub eps: f64,
    /// What is returned.
    pub reduction: Reduction,
}

impl Default for PoissonNLLOptions {
    fn default() -> Self {
        let (log_input, full, eps) = (true, false, 1e-8);
        PoissonNLLOptions { log_input, full, eps, reduction: Reduction::Mean }
    }
}

/// Negative log likelihood of a Poisson distribution: `e^x - t x`, or `x - t log(x + eps)`
/// (`torch.nn.functional.poisson_nll_loss`).
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// // e^1 - 2 * 1
/// let (log_rate, count) = (Tensor::from([1f64]), Tensor::from([2f64]));
/// let loss = F::poisson_nll_loss(&log_rate, &count, Default::default());
/// assert!((loss.item() - (std::f64::consts::E - 2.0)).abs() < 1e-9);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] when the shapes do not broadcast.
#[track_caller]
pub fn poisson_nll_loss(input: &Tensor, target: &Tensor, options: PoissonNLLOptions) -> Tensor {
    cast_op!("poisson_nll_loss", [x = input, t = target] => poisson_nll_loss(&x, &t, options));
    let losses = match options.log_input {
        true => input.exp() - target * input,
        false => input - target * (input + options.eps).log(),
    };
    let losses = if options.full {
        let log = target.log();
        let stirling = target * log - target + (target * std::f64::consts::TAU).log() * 0.5;
        losses + stirling.masked_fill(&target.le(1i64), 0i64)
    } else {
        losses
    };
    reduce(losses, options.reduction)
}

/// Options of [`gaussian_nll_loss`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::{Tensor, nn::functional::{GaussianNLLOptions, gaussian_nll_loss}};
/// let (x, var) = (Tensor::from([3f64]), Tensor::from([1f64]));
/// let options = GaussianNLLOptions { full: true, ..Default::default() };
/// assert!((gaussian_nll_loss(&x, &x, &var, options).item() - 0.918939).abs() < 1e-6);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GaussianNLLOptions {
    /// Adds the constant `log(2 pi) / 2`.
    pub full: bool,
    /// Smallest variance.
    pub eps: f64,
    /// What is returned.
    pub reduction: Reduction,
}

impl Default for GaussianNLLOptions {
    fn default() -> Self {
        GaussianNLLOptions { full: false, eps: 1e-6, reduction: Reduction::Mean }
    }
}

/// Negative log likelihood of a normal distribution with mean `input` and variance `var`
/// (`torch.nn.functional.gaussian_nll_loss`): `(log(var) + (x - t)^2 / var) / 2`. The variance has the
/// input's shape, or its last dimension is 1 or missing.
///
/// ```
/// use torchrs::{Tensor, nn::functional as F};
/// // (ln 1 + (3 - 1)^2 / 1) / 2
/// let (x, target, var) = (Tensor::from([3f64]), Tensor::from([1f64]), Tensor::from([1f64]));
/// assert_eq!(F::gaussian_nll_loss(&x, &target, &var, Default::default()).item(), 2.0);
/// ```
///
/// # Panics
/// Throws [`Error::Shape`] for other shapes, [`Error::Argument`] when a variance is negative.
#[track_caller]
pub fn gaussian_nll_loss(
    input: &Tensor,
    target: &Tensor,
    var: &Tensor,
    options: GaussianNLLOptions,
) -> Tensor {
    let op = "gaussian_nll_loss";
    let (last, x, v) = (input.dim().saturating_sub(1), input.shape(), var.shape());
    let var = if v == x || (v.len() == x.len() && v[..last] == x[..last] && v[last] == 1) {
        var.clone()
    } else if v == &x[..last] {
        var.unsqueeze(-1)
    } else {
        throw(Error::shape(op, format!("variances of shape {v:?} for input {x:?}")))
    };
    if var.lt(0i64).any().is_true_or(false) {
        throw(Error::argument(op, "var", "a variance is negative"));
    }
    // The limit changes the value, but not the gradient.
    let var = &var + (var.clamp_min(options.eps) - &var).detach();
    let losses = (var.log() + (input - target).square() / &var) * 0.5;
    let constant = if options.full { 0.5 * std::f64::consts::TAU.ln() } else { 0.0 };
    reduce(losses + constant, options.reduction)
}

pub use crate::ops::{Chunks, LinearCrossEntropyOptions, linear_cross_entropy};

methods! {
    cross_entropy(x, target: &Tensor);
    cross_entropy_with(x, target: &Tensor, options: CrossEntropyOptions);
    nll_loss(x, target: &Tensor);
    nll_loss_with(x, target: &Tensor, options: NLLLossOptions);
}
