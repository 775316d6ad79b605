//! Tensors of GPUs over several hosts, on simulated ones: each rank has one.

mod calls;
mod failures;
