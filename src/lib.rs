//! torchrs: imperative, define-by-run tensors in Rust, made for multi-process data-parallel
//! training.
//!
//! ```
//! use torchrs::prelude::*;
//! let model = nn::Linear::new(3, 1);
//! let options = optim::SGDOptions { lr: 0.1, ..Default::default() };
//! let mut optimizer = optim::SGD::new(model.parameters(), options);
//! let (x, y) = (Tensor::ones([4, 3], Dtype::F32), Tensor::full([4, 1], 2.0, Dtype::F32));
//! for _ in 0..10 {
//!     optimizer.zero_grad();
//!     F::mse_loss(&model.forward(&x), &y).backward();
//!     optimizer.step();
//! }
//! assert!((model.forward(&x).mean().item() - 2.0).abs() < 1e-3);
//! ```

// The name by which `#[derive(Module)]` finds this crate, here too.
extern crate self as torchrs;

pub mod amp;
pub mod autograd;
pub mod backends;
mod book;
pub mod checkpoint;
mod counted;
mod cpu;
pub mod cuda;
pub mod cuda_graphs;
pub mod data;
pub mod distributed;
pub mod error;
mod loops;
pub mod models;
pub mod multiprocessing;
pub mod nn;
pub mod ops;
pub mod optim;
pub mod prelude;
pub mod profiler;
pub mod storage;
pub mod tensor;

// From here the files take atomics that `crates/interleavings` runs with others.
use std::sync::atomic;

pub use autograd::{enable_grad, no_grad};
pub use cpu::threads::{get_num_threads, set_num_threads};
pub use error::{Error, Result, catch};
pub use multiprocessing::init;
pub use ops::MemoryFormat;
pub use ops::random::{Generator, default_generator, fork_rng, manual_seed};
pub use ops::{fft, linalg};
pub use tensor::{Complex, Device, Dtype, Operand, Scalar, Tensor, TensorOptions};
/// ```
/// #[torchrs::main]
/// fn main() -> torchrs::Result<()> {
///     torchrs::multiprocessing::spawn(train, "digits".to_owned(), 2)
/// }
///
/// fn train(rank: usize, dataset: String) {
///     println!("rank {rank} trains on {dataset}");
/// }
/// ```
pub use torchrs_macros::main;
