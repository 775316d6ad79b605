//! Nothing but tests: `tests/declarations.rs` compares what torchrs declares of CUDA's libraries with NVIDIA's headers.
