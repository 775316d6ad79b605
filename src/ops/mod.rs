//! Every operation, defined once: pointwise rows in tables, everything else one file each.
//!
//! ```
//! use torchrs::Tensor;
//! let x = Tensor::from([[1f32, 2.], [3., 4.]]);
//! assert_eq!(x.mul(2.0).matmul(&x).sum_dim(&[1], false).to_vec::<f32>(), [34.0, 74.0]);
//! ```

mod attention;
mod avg_pool;
mod batch_norm;
mod cat;
pub mod catalogue;
#[cfg(test)]
mod checks;
#[cfg(test)]
mod checks_on_gpu;
pub(crate) mod complex;
mod compute;
mod conv;
mod conv_transpose;
mod cross_entropy;
mod ctc_loss;
mod diagonal;
mod distinct;
#[cfg(test)]
mod edges;
mod einsum;
mod embedding;
mod embedding_bag;
pub mod fft;
mod gather;
mod gpu;
pub(crate) mod gradients;
mod grid_sample;
mod group_norm;
mod index;
mod index_select;
mod indexing;
mod interpolate;
mod joining;
mod layer_norm;
pub mod linalg;
mod lookup;
mod masked;
mod matmul;
mod max_pool;
mod memory_format;
mod numbers;
mod pad;
pub mod pointwise;
mod pooling;
mod products;
pub mod random;
mod reduce;
mod resample;
pub(crate) mod rnn;
#[cfg(test)]
mod samples;
mod scan;
mod scatter_reduce;
mod searching;
mod shuffle;
mod softmax;
mod sort;
mod statistics;
mod to;
mod to_device;
mod triangular;
mod typed;
mod unfold;
pub mod views;
mod windows;

pub use attention::AttentionOptions;
pub use conv::{Conv1dOptions, Conv2dOptions, Conv3dOptions, ConvOptions};
pub use conv_transpose::ConvTransposeOptions;
pub use cross_entropy::{CrossEntropyOptions, NllLossOptions, Reduction};
pub use ctc_loss::{CtcLossOptions, ctc_loss};
pub use distinct::Unique;
pub use embedding_bag::{BagMode, EmbeddingBagOptions};
pub use grid_sample::{GridSampleMode, GridSampleOptions, GridSamplePadding};
pub use interpolate::{InterpolateMode, InterpolateOptions, OneOrEach};
pub use joining::Indexing;
pub use lookup::SearchOptions;
pub use max_pool::{Pool1dOptions, Pool2dOptions, Pool3dOptions, PoolOptions};
pub use memory_format::MemoryFormat;
pub use pad::PadMode;
pub use scatter_reduce::ScatterReduce;
pub use sort::Interpolation;
pub use to::Target;
pub use unfold::UnfoldOptions;

/// The samples of all ops that have a file of their own, for [`checks`].
#[cfg(test)]
fn all_samples() -> Vec<samples::OpSample> {
    let files: [fn() -> _; _] = [
        attention::samples,
        avg_pool::samples,
        batch_norm::samples,
        cat::samples,
        complex::samples,
        conv::samples,
        conv_transpose::samples,
        cross_entropy::samples,
        ctc_loss::samples,
        einsum::samples,
        diagonal::samples,
        embedding::samples,
        embedding_bag::samples,
        fft::samples,
        gather::samples,
        group_norm::samples,
        grid_sample::samples,
        index::samples,
        index_select::samples,
        interpolate::samples,
        layer_norm::samples,
        linalg::samples,
        masked::samples,
        matmul::samples,
        max_pool::samples,
        pad::samples,
        pooling::samples,
        products::samples,
        random::samples,
        reduce::samples,
        rnn::samples,
        scan::samples,
        shuffle::samples,
        scatter_reduce::samples,
        softmax::samples,
        sort::samples,
        triangular::samples,
        unfold::samples,
    ];
    files.iter().flat_map(|samples| samples()).collect()
}
