//! CPU machinery, no op: threads, instruction sets, tiles, vector math, gemm and convolution
//! drivers. It knows no tensor, only raw strided buffers.

pub mod copy;
pub mod format;
pub mod isa;
pub mod kernel;
pub mod lane;
pub mod math;
pub mod philox;
pub mod plan;
pub mod threads;
pub mod tile;
