//! Every operation, defined once: pointwise rows in tables, everything else one file each.

mod attention;
mod avg_pool;
mod batch_norm;
mod cat;
#[cfg(test)]
mod checks;
mod compute;
mod conv;
mod cross_entropy;
mod diagonal;
mod embedding;
mod embedding_bag;
mod gather;
mod index;
mod index_select;
mod joining;
mod layer_norm;
mod lookup;
mod masked;
mod matmul;
mod max_pool;
mod numbers;
pub mod pointwise;
pub mod random;
mod reduce;
#[cfg(test)]
mod samples;
mod scan;
mod scatter_reduce;
mod softmax;
mod sort;
mod statistics;
mod triangular;
pub mod views;

pub use conv::{Conv1dOptions, Conv2dOptions, ConvOptions};
pub use cross_entropy::{CrossEntropyOptions, NllLossOptions, Reduction};
pub use embedding_bag::{BagMode, EmbeddingBagOptions};
pub use joining::Indexing;
pub use max_pool::Pool2dOptions;
pub use reduce::MatrixNorm;
pub use scatter_reduce::ScatterReduce;
pub use sort::{Interpolation, Unique};

/// The samples of all ops that have a file of their own, for [`checks`].
#[cfg(test)]
fn all_samples() -> Vec<samples::OpSample> {
    let files: [fn() -> _; _] = [
        attention::samples,
        avg_pool::samples,
        batch_norm::samples,
        cat::samples,
        conv::samples,
        cross_entropy::samples,
        diagonal::samples,
        embedding::samples,
        embedding_bag::samples,
        gather::samples,
        index::samples,
        index_select::samples,
        layer_norm::samples,
        masked::samples,
        matmul::samples,
        max_pool::samples,
        random::samples,
        reduce::samples,
        scan::samples,
        scatter_reduce::samples,
        softmax::samples,
        sort::samples,
        triangular::samples,
    ];
    files.iter().flat_map(|samples| samples()).collect()
}
