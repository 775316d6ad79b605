//! Functions of `torch.nn.functional`: the tensor methods of that name as functions, and those that
//! are made of several ops.

/// A tensor, where nothing else is said.
macro_rules! result {
    () => {
        Tensor
    };
    ($t:ty) => {
        $t
    };
}

/// Methods of tensors as functions, a row each.
macro_rules! methods {
    ($($name:ident($x:ident $(, $argument:ident: $t:ty)* $(,)?) $(-> $r:ty)?;)*) => {$(
        #[doc = concat!("[`Tensor::", stringify!($name), "`] as a function, as in `torch.nn.functional`.")]
        #[track_caller]
        #[allow(clippy::too_many_arguments, reason = "PyTorch's signature")]
        pub fn $name($x: &Tensor $(, $argument: $t)*) -> result!($($r)?) {
            $x.$name($($argument),*)
        }
    )*};
}

mod activation;
mod conv;
mod distance;
mod gate;
mod image;
mod linear;
mod loss;
mod margin;
mod norm;
mod pool;

pub use crate::ops::{CTCLossOptions, ctc_loss};
pub use activation::*;
pub use conv::{
    conv_transpose1d, conv_transpose2d, conv_transpose3d, conv1d, conv2d, conv3d, fold, unfold,
};
pub use distance::{
    PairwiseDistanceOptions, cosine_similarity, normalize, pairwise_distance, pdist,
};
pub use gate::{
    alpha_dropout, dropout1d, dropout2d, dropout3d, feature_alpha_dropout, glu, gumbel_softmax,
    relu6, rrelu, softmin,
};
pub use image::{
    affine_grid, channel_shuffle, grid_sample, interpolate, pad, pixel_shuffle, pixel_unshuffle,
};
pub use linear::{
    EmbeddingOptions, bilinear, embedding, embedding_bag, embedding_with, linear, one_hot,
    scaled_dot_product_attention,
};
pub use loss::{
    BCEWithLogitsOptions, GaussianNLLOptions, KLDivOptions, PoissonNLLOptions,
    binary_cross_entropy, binary_cross_entropy_with_logits, binary_cross_entropy_with_logits_with,
    cross_entropy, cross_entropy_with, gaussian_nll_loss, huber_loss, kl_div, l1_loss,
    l1_loss_with, mse_loss, mse_loss_with, nll_loss, nll_loss_with, poisson_nll_loss,
    smooth_l1_loss, soft_margin_loss,
};
pub use margin::{
    MultiMarginOptions, TripletMarginOptions, cosine_embedding_loss, hinge_embedding_loss,
    margin_ranking_loss, multi_margin_loss, multilabel_margin_loss, multilabel_soft_margin_loss,
    triplet_margin_loss, triplet_margin_with_distance_loss,
};
pub use norm::{
    BatchNormOptions, InstanceNormOptions, LocalResponseNormOptions, batch_norm, group_norm,
    instance_norm, layer_norm, local_response_norm, rms_norm,
};
pub use pool::{
    adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, adaptive_max_pool1d,
    adaptive_max_pool2d, adaptive_max_pool3d, avg_pool1d, avg_pool2d, avg_pool3d, lp_pool1d,
    lp_pool2d, lp_pool3d, max_pool1d, max_pool1d_with_indices, max_pool2d, max_pool2d_with_indices,
    max_pool3d, max_pool3d_with_indices, max_unpool1d, max_unpool2d, max_unpool3d,
};
