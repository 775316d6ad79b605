//! Every operation, defined once: pointwise rows in tables, everything else one file each.

mod cat;
mod cross_entropy;
mod embedding;
mod gather;
mod index;
mod index_select;
mod masked;
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

pub use cross_entropy::{CrossEntropyOptions, NllLossOptions, Reduction};
