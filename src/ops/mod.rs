//! Every operation, defined once: pointwise rows in tables, everything else one file each.
//!
//! ```
//! use torchrs::Tensor;
//! let x = Tensor::from([[1f32, 2.], [3., 4.]]);
//! assert_eq!(x.mul(2.0).matmul(&x).sum_dim(&[1], false).to_vec::<f32>(), [34.0, 74.0]);
//! ```

mod attention;
#[doc(hidden)]
pub mod catalogue;
#[cfg(test)]
mod checks;
mod compute_type;
mod conv;
mod creation;
pub mod fft;
mod gpu;
pub(crate) mod gradients;
mod image;
mod indexing;
pub(crate) mod limits;
pub mod linalg;
mod loss;
pub mod masked;
mod names;
mod norm;
pub mod pointwise;
mod pool;
mod products;
pub mod random;
pub(crate) mod recompute;
mod reduce;
pub(crate) mod rnn;
mod shape;
pub mod special;
mod table;
pub mod warm;
mod windows;

pub use attention::{AttentionOptions, VarlenOptions};
pub use conv::transpose::ConvTransposeOptions;
pub use conv::{Conv1dOptions, Conv2dOptions, Conv3dOptions, ConvOptions};
pub use creation::memory_format::MemoryFormat;
pub use creation::to::Target;
pub use image::grid_sample::{GridSampleMode, GridSampleOptions, GridSamplePadding};
pub use image::interpolate::{InterpolateMode, InterpolateOptions, OneOrEach};
pub use image::unfold::UnfoldOptions;
pub use indexing::embedding_bag::{BagMode, EmbeddingBagOptions};
pub use indexing::reduction::ScatterReduce;
pub use indexing::search::SearchOptions;
pub use loss::cross_entropy::{
    Chunks, CrossEntropyOptions, LinearCrossEntropyOptions, NLLLossOptions, Reduction,
    linear_cross_entropy,
};
pub use loss::ctc_loss::{CTCLossOptions, ctc_loss};
pub use names::{Finfo, Iinfo};
pub(crate) use norm::batch_norm::{Norm, Options as NormOptions};
pub use pool::fractional::FractionalSize;
pub use pool::max::{Pool1dOptions, Pool2dOptions, Pool3dOptions, PoolOptions};
pub(crate) use products::matmul::each::linear_each;
pub use products::matmul::feed_forward::Activation;
pub(crate) use products::matmul::feed_forward::{Layer, fused_feed_forward};
pub use reduce::distinct::Unique;
pub use reduce::gradient::{GradientOptions, Spacing};
pub use reduce::histogram::Bins;
pub use reduce::sort::Interpolation;
pub use shape::pad::PadMode;
pub use shape::stacks::Indexing;
pub use shape::views;

table::ops! {
    attention { room }
    conv { room }
    fft { room }
    gradients { kernels: [PROGRAM] }
    image { room }
    indexing { room }
    limits { kernels: [PROGRAM] }
    linalg { room }
    loss { room }
    masked { room }
    norm { room }
    pointwise { room }
    pool { room }
    products { room }
    random { room }
    reduce { room }
    rnn { room }
    shape { room }
    special { samples }
    windows { room }
}
