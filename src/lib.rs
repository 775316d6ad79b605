//! torchrs: imperative, define-by-run tensors in Rust, made for multi-process data-parallel
//! training.

// The name by which `#[derive(Module)]` finds this crate, here too.
extern crate self as torchrs;

pub mod amp;
pub mod autograd;
pub mod checkpoint;
mod cpu;
pub mod data;
pub mod distributed;
pub mod error;
pub mod models;
pub mod multiprocessing;
pub mod nn;
pub mod ops;
pub mod optim;
pub mod storage;
pub mod tensor;

pub use autograd::{enable_grad, no_grad};
pub use cpu::threads::{get_num_threads, set_num_threads};
pub use error::{Error, Result, catch};
pub use multiprocessing::init;
pub use ops::MemoryFormat;
pub use ops::random::{Generator, default_generator, manual_seed};
pub use ops::{fft, linalg};
pub use tensor::{Complex, Device, Dtype, Operand, Scalar, Tensor, TensorOptions};
pub use torchrs_macros::main;

/// The examples of the page for those who come from PyTorch, as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/from-pytorch.md")]
struct FromPyTorch;
