//! Matrix products: register tiles, the panels that they read, products in blocks, pairs of bf16.
//!
//! Knows nothing of windows; convolution, attention and recurrent layers are built on it.

pub mod gemm;
pub mod micro;
pub mod pack;
pub mod pairs;
pub mod panels;
pub mod run;
pub mod tiled;
