//! Functions of `torch.nn.functional`: the tensor methods of that name as functions, and those that
//! are made of several ops.

mod distance;
mod gate;
mod loss;
mod margin;

use crate::Tensor;
use crate::ops::{
    Conv1dOptions, Conv2dOptions, Conv3dOptions, ConvTransposeOptions, CrossEntropyOptions,
    GridSampleOptions, InterpolateOptions, NllLossOptions, PadMode, Pool1dOptions, Pool2dOptions,
    Pool3dOptions, UnfoldOptions,
};

pub use crate::ops::{CtcLossOptions, ctc_loss};
pub use distance::{cosine_similarity, normalize, pairwise_distance, pdist};
pub use gate::{alpha_dropout, dropout1d, dropout2d, dropout3d, glu, relu6, rrelu, softmin};
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
