//! Kernels: CUDA C that is compiled at its first use, and started on a stream.
//!
//! The sources of ops are in `kernels/` at the top of the repository. What an op computes is not known here:
//! programs, entry points, arguments, and how threads share a loop's elements.

mod compile;
pub(crate) mod family;
pub mod fill;
pub(crate) mod fold;
pub mod launch;
pub mod module;
pub mod pointwise;
pub(crate) mod refusal;
pub(crate) mod sources;

pub use compile::needs::Needs;
