//! Functions of `torch.nn.functional`: the tensor methods of that name as functions, and the losses
//! that are made of pointwise rows.

use crate::Tensor;
use crate::error::{Error, throw};
use crate::ops::pointwise::{absolute_error, huber_error, logit_error, squared_error};
use crate::ops::{
    Conv1dOptions, Conv2dOptions, Conv3dOptions, ConvTransposeOptions, CrossEntropyOptions,
    GridSampleOptions, InterpolateOptions, NllLossOptions, PadMode, Pool1dOptions, Pool2dOptions,
    Pool3dOptions, Reduction, UnfoldOptions,
};
use crate::tensor::broadcast_shapes;

macro_rules! methods {
    ($($(#[$doc:meta])+ $name:ident($x:ident $(, $argument:ident: $t:ty)*);)*) => {$(
        $(#[$doc])+
        #[track_caller]
        pub fn $name($x: &Tensor $(, $argument: $t)*) -> Tensor {
            $x.$name($($argument),*)
        }
    )*};
}

methods! {
    /// See [`Tensor::relu`].
    relu(x);
    /// See [`Tensor::leaky_relu`].
    leaky_relu(x, negative_slope: f64);
    /// See [`Tensor::elu`].
    elu(x, alpha: f64);
    /// See [`Tensor::gelu`].
    gelu(x);
    /// See [`Tensor::gelu_tanh`].
    gelu_tanh(x);
    /// See [`Tensor::silu`].
    silu(x);
    /// See [`Tensor::tanh`].
    tanh(x);
    /// See [`Tensor::sigmoid`].
    sigmoid(x);
    /// See [`Tensor::softmax`].
    softmax(x, dim: i64);
    /// See [`Tensor::log_softmax`].
    log_softmax(x, dim: i64);
    /// See [`Tensor::linear`].
    linear(x, weight: &Tensor, bias: Option<&Tensor>);
    /// See [`Tensor::conv1d`].
    conv1d(x, weight: &Tensor, bias: Option<&Tensor>, options: Conv1dOptions);
    /// See [`Tensor::conv2d`].
    conv2d(x, weight: &Tensor, bias: Option<&Tensor>, options: Conv2dOptions);
    /// See [`Tensor::max_pool2d`].
    max_pool2d(x, options: Pool2dOptions);
    /// See [`Tensor::avg_pool2d`].
    avg_pool2d(x, options: Pool2dOptions);
    /// See [`Tensor::adaptive_avg_pool2d`].
    adaptive_avg_pool2d(x, output_size: [Option<usize>; 2]);
    /// See [`Tensor::conv3d`].
    conv3d(x, weight: &Tensor, bias: Option<&Tensor>, options: Conv3dOptions);
    /// See [`Tensor::conv_transpose1d`].
    conv_transpose1d(x, weight: &Tensor, bias: Option<&Tensor>, options: ConvTransposeOptions<1>);
    /// See [`Tensor::conv_transpose2d`].
    conv_transpose2d(x, weight: &Tensor, bias: Option<&Tensor>, options: ConvTransposeOptions<2>);
    /// See [`Tensor::conv_transpose3d`].
    conv_transpose3d(x, weight: &Tensor, bias: Option<&Tensor>, options: ConvTransposeOptions<3>);
    /// See [`Tensor::fold`].
    fold(x, output_size: [usize; 2], options: UnfoldOptions);
    /// See [`Tensor::max_pool1d`].
    max_pool1d(x, options: Pool1dOptions);
    /// See [`Tensor::max_pool3d`].
    max_pool3d(x, options: Pool3dOptions);
    /// See [`Tensor::avg_pool1d`].
    avg_pool1d(x, options: Pool1dOptions);
    /// See [`Tensor::avg_pool3d`].
    avg_pool3d(x, options: Pool3dOptions);
    /// See [`Tensor::adaptive_avg_pool1d`].
    adaptive_avg_pool1d(x, output_size: usize);
    /// See [`Tensor::adaptive_avg_pool3d`].
    adaptive_avg_pool3d(x, output_size: [Option<usize>; 3]);
    /// See [`Tensor::lp_pool1d`].
    lp_pool1d(x, norm_type: f64, options: Pool1dOptions);
    /// See [`Tensor::lp_pool2d`].
    lp_pool2d(x, norm_type: f64, options: Pool2dOptions);
    /// See [`Tensor::lp_pool3d`].
    lp_pool3d(x, norm_type: f64, options: Pool3dOptions);
    /// See [`Tensor::pad`].
    pad(x, padding: &[i64], mode: PadMode);
    /// See [`Tensor::interpolate`].
    interpolate(x, options: &InterpolateOptions);
    /// See [`Tensor::grid_sample`].
    grid_sample(x, grid: &Tensor, options: GridSampleOptions);
    /// See [`Tensor::affine_grid`].
    affine_grid(x, size: &[usize], align_corners: bool);
    /// See [`Tensor::pixel_shuffle`].
    pixel_shuffle(x, upscale_factor: usize);
    /// See [`Tensor::pixel_unshuffle`].
    pixel_unshuffle(x, downscale_factor: usize);
    /// See [`Tensor::channel_shuffle`].
    channel_shuffle(x, groups: usize);
    /// See [`Tensor::group_norm`].
    group_norm(x, num_groups: usize, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64);
    /// See [`Tensor::local_response_norm`].
    local_response_norm(x, size: usize, alpha: f64, beta: f64, k: f64);
    /// See [`Tensor::layer_norm`].
    layer_norm(x, normalized_shape: &[usize], weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64);
    /// See [`Tensor::rms_norm`].
    rms_norm(x, normalized_shape: &[usize], weight: Option<&Tensor>, eps: Option<f64>);
    /// See [`Tensor::scaled_dot_product_attention`].
    scaled_dot_product_attention(
        x, key: &Tensor, value: &Tensor, attn_mask: Option<&Tensor>, is_causal: bool,
        scale: Option<f64>
    );
    /// See [`Tensor::dropout`].
    dropout(x, p: f64, training: bool);
    /// See [`Tensor::cross_entropy`].
    cross_entropy(x, target: &Tensor);
    /// See [`Tensor::cross_entropy_with`].
    cross_entropy_with(x, target: &Tensor, options: &CrossEntropyOptions);
    /// See [`Tensor::nll_loss`].
    nll_loss(x, target: &Tensor);
    /// See [`Tensor::nll_loss_with`].
    nll_loss_with(x, target: &Tensor, options: &NllLossOptions);
}

/// The rows of `weight` named by `indices`; see [`Tensor::embedding`].
#[track_caller]
pub fn embedding(indices: &Tensor, weight: &Tensor, padding_idx: Option<i64>) -> Tensor {
    weight.embedding(indices, padding_idx)
}

/// `input` and `target` of a loss: of one shape, or one broadcasts to the other's. Shapes like `[4]`
/// and `[4, 1]`, which would make `[4, 4]`, are what a forgotten `squeeze` gives.
#[track_caller]
fn check_shapes(op: &str, input: &Tensor, target: &Tensor) {
    let (x, t) = (input.shape(), target.shape());
    let common = broadcast_shapes(x, t).ok();
    if !common.is_some_and(|shape| shape[..] == *x || shape[..] == *t) {
        throw(Error::shape(
            op,
            format!("input has shape {x:?} and target {t:?}; they must be the same"),
        ));
    }
}

fn reduce(losses: Tensor, reduction: Reduction) -> Tensor {
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
/// # Panics
/// As [`mse_loss`].
#[track_caller]
pub fn mse_loss_with(input: &Tensor, target: &Tensor, reduction: Reduction) -> Tensor {
    check_shapes("mse_loss", input, target);
    reduce(squared_error(input, target), reduction)
}

/// Mean of the absolute differences (`torch.nn.functional.l1_loss`).
///
/// # Panics
/// As [`mse_loss`].
#[track_caller]
pub fn l1_loss(input: &Tensor, target: &Tensor) -> Tensor {
    l1_loss_with(input, target, Reduction::Mean)
}

/// [`l1_loss`] with another reduction.
///
/// # Panics
/// As [`mse_loss`].
#[track_caller]
pub fn l1_loss_with(input: &Tensor, target: &Tensor, reduction: Reduction) -> Tensor {
    check_shapes("l1_loss", input, target);
    reduce(absolute_error(input, target), reduction)
}

/// Half the square below a difference of `delta`, above it linear with slope `delta`
/// (`torch.nn.functional.huber_loss`); PyTorch's defaults are 1 and the mean.
///
/// # Panics
/// As [`mse_loss`], and throws [`Error::Argument`] unless `delta` is above 0.
#[track_caller]
pub fn huber_loss(input: &Tensor, target: &Tensor, delta: f64, reduction: Reduction) -> Tensor {
    check_shapes("huber_loss", input, target);
    if delta.is_nan() || delta <= 0.0 {
        throw(Error::argument("huber_loss", "delta", format!("{delta}; must be above 0")));
    }
    reduce(huber_error(input, target, delta), reduction)
}

/// [`huber_loss`] divided by its `beta`, so that the slope is 1; with `beta` 0 that is [`l1_loss`]
/// (`torch.nn.functional.smooth_l1_loss`); PyTorch's defaults are 1 and the mean.
///
/// # Panics
/// As [`mse_loss`], and throws [`Error::Argument`] when `beta` is negative.
#[track_caller]
pub fn smooth_l1_loss(input: &Tensor, target: &Tensor, beta: f64, reduction: Reduction) -> Tensor {
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
#[derive(Clone, Debug, Default)]
pub struct BceWithLogitsOptions {
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
/// # Panics
/// Throws [`Error::Shape`] when the shapes differ.
#[track_caller]
pub fn binary_cross_entropy_with_logits(input: &Tensor, target: &Tensor) -> Tensor {
    binary_cross_entropy_with_logits_with(input, target, &BceWithLogitsOptions::default())
}

/// [`binary_cross_entropy_with_logits`] with options.
///
/// # Panics
/// As there.
#[track_caller]
pub fn binary_cross_entropy_with_logits_with(
    input: &Tensor,
    target: &Tensor,
    options: &BceWithLogitsOptions,
) -> Tensor {
    let op = "binary_cross_entropy_with_logits";
    if input.shape() != target.shape() {
        let (x, t) = (input.shape(), target.shape());
        let message = format!("input has shape {x:?} and target {t:?}; they must be the same");
        throw(Error::shape(op, message));
    }
    let losses = match &options.pos_weight {
        Some(weight) => logit_error(input, target, weight),
        None => logit_error(input, target, 1.0),
    };
    let losses = match &options.weight {
        Some(weight) => losses * weight,
        None => losses,
    };
    reduce(losses, options.reduction)
}
