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
mod einsum;
mod embedding;
mod gather;
mod index;
mod index_select;
mod layer_norm;
mod masked;
mod matmul;
mod max_pool;
pub mod pointwise;
mod products;
pub mod random;
mod reduce;
#[cfg(test)]
mod samples;
mod scan;
mod softmax;
mod sort;
mod triangular;
pub mod views;

pub use conv::{Conv1dOptions, Conv2dOptions, ConvOptions};
pub use cross_entropy::{CrossEntropyOptions, NllLossOptions, Reduction};
pub use max_pool::Pool2dOptions;

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
        einsum::samples,
        embedding::samples,
        gather::samples,
        index::samples,
        index_select::samples,
        layer_norm::samples,
        masked::samples,
        matmul::samples,
        max_pool::samples,
        products::samples,
        random::samples,
        reduce::samples,
        scan::samples,
        softmax::samples,
        sort::samples,
        triangular::samples,
    ];
    files.iter().flat_map(|samples| samples()).collect()
}
