//! CPU machinery, no op: threads, instruction sets, tiles, vector math, gemm and convolution
//! drivers. It knows no tensor, only raw strided buffers.
