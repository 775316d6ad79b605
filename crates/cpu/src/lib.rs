//! CPU machinery, no op: threads, instruction sets, tiles, vector math, gemm and convolution
//! drivers.
//!
//! An inside of torchrs, which alone uses it: no promise is made of what is here. Some is public for
//! `crates/cpu/tests/unit` alone.
//!
//! Knows nothing of tensors: only raw strided buffers, and what a loop is.

#![allow(
    clippy::len_without_is_empty,
    clippy::new_without_default,
    rustdoc::private_intra_doc_links,
    reason = "what the library alone uses has what it needs, and is read in its sources"
)]

pub mod arch;
pub mod attention;
pub mod convolution;
pub mod elementwise;
pub mod folds;
pub mod linalg;
pub mod numbers;
pub mod products;
pub mod recurrent;
mod small_pieces;
pub mod threads;

pub use small_pieces::take_small_pieces;
