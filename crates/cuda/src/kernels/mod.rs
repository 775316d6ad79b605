//! Kernels: CUDA C that is compiled at its first use, and started on a stream.
//!
//! The sources of ops are in `kernels/` at the top of the repository. What an op computes is not known here:
//! programs, entry points, arguments, and how threads share a loop's elements.

pub mod ahead;
pub mod compile;
pub mod family;
pub mod fill;
pub mod fold;
pub mod launch;
pub mod module;
mod parts;
pub mod pointwise;
pub mod refusal;
pub mod sources;
