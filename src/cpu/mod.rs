//! CPU machinery, no op: threads, instruction sets, tiles, vector math, gemm and convolution
//! drivers. It knows no tensor, only raw strided buffers.

pub mod format;
pub mod isa;
pub mod lane;
pub mod math;
pub mod threads;
