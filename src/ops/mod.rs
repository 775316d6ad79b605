//! Every operation, defined once: pointwise rows in tables, everything else one file each.

mod attention;
mod avg_pool;
mod batch_norm;
mod cat;
mod compute;
mod conv;
mod cross_entropy;
mod embedding;
mod gather;
mod index;
mod index_select;
mod layer_norm;
mod masked;
mod matmul;
mod max_pool;
pub mod pointwise;
pub mod random;
mod reduce;
#[doc(hidden)]
pub mod samples;
mod scan;
mod softmax;
mod sort;
mod triangular;
pub mod views;

pub use conv::{Conv1dOptions, Conv2dOptions, ConvOptions};
pub use cross_entropy::{CrossEntropyOptions, NllLossOptions, Reduction};
pub use max_pool::Pool2dOptions;
