//! Functions of `torch.nn.functional`: the tensor methods of that name as functions, and those that
//! are made of several ops.

mod distance;
mod gate;
mod loss;
mod margin;

use crate::Tensor;
use crate::error::{Error, throw};
use crate::ops::{
    Conv1dOptions, Conv2dOptions, Conv3dOptions, ConvTransposeOptions, CrossEntropyOptions,
    EmbeddingBagOptions, GridSampleOptions, InterpolateOptions, NllLossOptions, PadMode,
    Pool1dOptions, Pool2dOptions, Pool3dOptions, PoolOptions, UnfoldOptions,
};

pub use crate::ops::{CtcLossOptions, ctc_loss};
pub use distance::{cosine_similarity, normalize, pairwise_distance, pdist};
pub use gate::{
    alpha_dropout, dropout1d, dropout2d, dropout3d, feature_alpha_dropout, glu, gumbel_softmax,
    relu6, rrelu, softmin,
};
pub use loss::{
    BceWithLogitsOptions, GaussianNllOptions, KlDivOptions, PoissonNllOptions,
    binary_cross_entropy, binary_cross_entropy_with_logits, binary_cross_entropy_with_logits_with,
    gaussian_nll_loss, huber_loss, kl_div, l1_loss, l1_loss_with, mse_loss, mse_loss_with,
    poisson_nll_loss, smooth_l1_loss, soft_margin_loss,
};
pub use margin::{
    MultiMarginOptions, TripletMarginOptions, cosine_embedding_loss, hinge_embedding_loss,
    margin_ranking_loss, multi_margin_loss, multilabel_margin_loss, multilabel_soft_margin_loss,
    triplet_margin_loss, triplet_margin_with_distance_loss,
};

/// A tensor, where nothing else is said.
macro_rules! result {
    () => {
        Tensor
    };
    ($t:ty) => {
        $t
    };
}

macro_rules! methods {
    ($($(#[$doc:meta])+ $name:ident($x:ident $(, $argument:ident: $t:ty)*) $(-> $r:ty)?;)*) => {$(
        $(#[$doc])+
        #[track_caller]
        #[allow(clippy::too_many_arguments, reason = "PyTorch's signature")]
        pub fn $name($x: &Tensor $(, $argument: $t)*) -> result!($($r)?) {
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
    /// See [`Tensor::selu`].
    selu(x);
    /// See [`Tensor::celu`].
    celu(x, alpha: f64);
    /// See [`Tensor::mish`].
    mish(x);
    /// See [`Tensor::softplus`].
    softplus(x, beta: f64, threshold: f64);
    /// See [`Tensor::softsign`].
    softsign(x);
    /// See [`Tensor::tanhshrink`].
    tanhshrink(x);
    /// See [`Tensor::logsigmoid`].
    logsigmoid(x);
    /// See [`Tensor::hardsigmoid`].
    hardsigmoid(x);
    /// See [`Tensor::hardswish`].
    hardswish(x);
    /// See [`Tensor::hardshrink`].
    hardshrink(x, lambd: f64);
    /// See [`Tensor::softshrink`].
    softshrink(x, lambd: f64);
    /// See [`Tensor::hardtanh`].
    hardtanh(x, min_val: f64, max_val: f64);
    /// See [`Tensor::threshold`].
    threshold(x, threshold: f64, value: f64);
    /// See [`Tensor::prelu`].
    prelu(x, weight: &Tensor);
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
    /// See [`Tensor::max_pool1d_with_indices`].
    max_pool1d_with_indices(x, options: Pool1dOptions) -> (Tensor, Tensor);
    /// See [`Tensor::max_pool2d_with_indices`].
    max_pool2d_with_indices(x, options: Pool2dOptions) -> (Tensor, Tensor);
    /// See [`Tensor::max_pool3d_with_indices`].
    max_pool3d_with_indices(x, options: Pool3dOptions) -> (Tensor, Tensor);
    /// See [`Tensor::adaptive_max_pool1d`].
    adaptive_max_pool1d(x, output_size: usize) -> (Tensor, Tensor);
    /// See [`Tensor::adaptive_max_pool2d`].
    adaptive_max_pool2d(x, output_size: [Option<usize>; 2]) -> (Tensor, Tensor);
    /// See [`Tensor::adaptive_max_pool3d`].
    adaptive_max_pool3d(x, output_size: [Option<usize>; 3]) -> (Tensor, Tensor);
    /// See [`Tensor::batch_norm`].
    batch_norm(
        x, running_mean: Option<&Tensor>, running_var: Option<&Tensor>, weight: Option<&Tensor>,
        bias: Option<&Tensor>, training: bool, momentum: f64, eps: f64
    );
    /// See [`Tensor::instance_norm`].
    instance_norm(
        x, running_mean: Option<&Tensor>, running_var: Option<&Tensor>, weight: Option<&Tensor>,
        bias: Option<&Tensor>, use_input_stats: bool, momentum: f64, eps: f64
    );
    /// See [`Tensor::bilinear`].
    bilinear(x, other: &Tensor, weight: &Tensor, bias: Option<&Tensor>);
    /// See [`Tensor::one_hot`].
    one_hot(x, num_classes: usize);
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

/// Sliding windows of images as columns (`torch.nn.functional.unfold`); see [`Tensor::unfold2d`].
///
/// # Panics
/// As there.
#[track_caller]
pub fn unfold(x: &Tensor, options: UnfoldOptions) -> Tensor {
    x.unfold2d(options)
}

macro_rules! unpool {
    ($($name:ident $dims:literal;)*) => {$(
        #[doc = concat!("The reverse of max pooling (`torch.nn.functional.", stringify!($name), "`): zeros, with the numbers")]
        /// of `x` at `indices`. The sizes are `output_size`, or those that `options` would have pooled
        /// without rest; see [`Tensor::max_unpool`].
        ///
        /// # Panics
        /// As there.
        #[track_caller]
        pub fn $name(
            x: &Tensor,
            indices: &Tensor,
            options: PoolOptions<$dims>,
            output_size: Option<[usize; $dims]>,
        ) -> Tensor {
            let sizes = output_size.unwrap_or_else(|| {
                if x.dim() < $dims {
                    let message = format!("{:?} is no image of {} dimensions", x.shape(), $dims);
                    throw(Error::shape(stringify!($name), message));
                }
                options.unpooled(std::array::from_fn(|d| x.size(d as i64 - $dims)))
            });
            x.max_unpool(indices, sizes)
        }
    )*};
}
unpool! {
    max_unpool1d 1;
    max_unpool2d 2;
    max_unpool3d 3;
}

/// Sums, means or maxima of the rows of `weight` that bags of indices name; see
/// [`Tensor::embedding_bag`].
///
/// # Panics
/// As there.
#[track_caller]
pub fn embedding_bag(
    indices: &Tensor,
    weight: &Tensor,
    offsets: Option<&Tensor>,
    options: EmbeddingBagOptions,
) -> Tensor {
    weight.embedding_bag(indices, offsets, options)
}

/// The rows of `weight` named by `indices`; see [`Tensor::embedding`].
#[track_caller]
pub fn embedding(indices: &Tensor, weight: &Tensor, padding_idx: Option<i64>) -> Tensor {
    weight.embedding(indices, padding_idx)
}
