//! What a loop over elements is, on any device: its dimensions and strides, the types of its elements,
//! the formula it computes. The CPU's loops and the GPU's kernels are driven by these descriptions.
//!
//! An inside of torchrs, which alone uses it: no promise is made of what is here.
//!
//! Knows nothing of threads, instruction sets, devices or tensors.

pub mod axes;
mod element;
pub mod fold;
mod functions;
mod plan;
mod text;

pub use element::{Compute, Constant, Format};
pub use functions::{Cuda, FUNCTIONS, Function};
pub use plan::{Operand, Plan};
pub use text::Text;
