//! Every operation, defined once: pointwise rows in tables, everything else one file each.

mod attention;
mod avg_pool;
mod batch_norm;
mod compute;
mod conv;
mod layer_norm;
mod matmul;
mod max_pool;
pub mod pointwise;
mod provisional;
pub mod samples;
pub mod views;

pub use conv::{Conv1dOptions, Conv2dOptions, ConvOptions};
pub use max_pool::Pool2dOptions;
