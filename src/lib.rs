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
//!
//! # How things are configured
//! Ops, losses, optimizers, recurrent and attention layers take an options struct by value:
//! `XOptions { .., ..Default::default() }`. One or two options stand in the call itself. Layers made
//! of required sizes are refined by methods: `nn::Conv2d::new(3, 8, 3).padding(1)`. Builders stand
//! where building can fail ([`data::DataLoader`], [`multiprocessing::Process`]).
//!
//! A reduction over all elements has the plain name (`sum`, `var`), the form along dimensions ends in
//! `_dim`. Ops that PyTorch has in one form only keep its name (`amax`, `logsumexp`). Arguments come
//! in PyTorch's order, `keepdim` behind the dimensions.
//!
//! # What can grow
//! Options structs get fields. Their fields are public and the struct is not fenced, so that
//! `..Default::default()` works: write it, also where every field of today is named. Enums that can
//! get variants are `#[non_exhaustive]`. Types are spelled as in PyTorch, and so are their options:
//! `BCEWithLogitsLoss`, `BCEWithLogitsOptions`. Modules that this documentation hides are machinery
//! and may change in any version.

// The name by which `#[derive(Module)]` finds this crate, here too.
extern crate self as torchrs;

pub mod amp;
pub mod autograd;
pub mod backends;
mod book;
pub mod checkpoint;
mod counted;
pub mod cuda;
pub mod cuda_graphs;
pub mod data;
pub mod distributed;
pub mod distributions;
pub mod error;
pub mod exchange;
pub mod models;
pub mod multiprocessing;
pub mod nn;
pub mod onnx;
pub mod ops;
pub mod optim;
pub mod prelude;
pub mod profiler;
mod protobuf;
pub mod storage;
pub mod tensor;
pub mod train;

// From here the files take atomics that `crates/interleavings` runs with others.
use std::sync::atomic;

pub use autograd::{enable_grad, no_grad};
use torchrs_cpu as cpu;
use torchrs_loops as loops;

pub use error::{Error, Result, catch};
pub use multiprocessing::init;
pub use ops::MemoryFormat;
pub use ops::random::{Generator, default_generator, fork_rng, manual_seed};
pub use ops::{fft, linalg, masked, special};
pub use tensor::{Complex, Device, Dtype, Operand, Scalar, Tensor, TensorOptions, default_device};
pub use torchrs_cpu::threads::{get_num_threads, set_num_threads};
pub use torchrs_cuda::cuda_args;
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
