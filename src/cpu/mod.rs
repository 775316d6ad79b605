//! CPU machinery, no op: threads, instruction sets, tiles, vector math, gemm and convolution
//! drivers. It knows no tensor, only raw strided buffers.

pub mod attention;
pub mod cache;
pub mod conv;
pub mod copy;
pub mod dense;
pub mod depthwise;
pub mod extreme;
pub mod field;
pub mod float;
pub mod fold;
pub mod format;
pub mod gemm;
#[cfg(target_arch = "x86_64")]
mod halves;
mod handover;
pub mod isa;
pub mod kernel;
pub mod lane;
pub mod linalg;
pub mod math;
pub mod micro;
pub mod moments;
pub mod numbered;
pub mod pack;
pub mod pairs;
pub mod panels;
pub mod parts;
pub mod philox;
mod pool;
pub mod prefetch;
pub mod recurrent;
mod reversed;
pub mod row;
pub mod streaming;
pub mod threads;
pub mod tile;
pub mod tiled;
pub mod vector;
pub mod vectorize;
pub mod widen;
pub mod winograd;

// From here the files take atomics that `crates/interleavings` runs with others.
use std::sync::atomic;
