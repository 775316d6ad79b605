//! The names that most programs need, for one `use` line.
//!
//! ```
//! use torchrs::prelude::*;
//!
//! let model = nn::Linear::new(3, 1);
//! let mut optimizer = optim::SGD::new(model.parameters(), Default::default());
//! let (x, y) = (Tensor::ones([4, 3], Dtype::F32), Tensor::zeros([4, 1], Dtype::F32));
//! optimizer.zero_grad();
//! F::mse_loss(&model.forward(&x), &y).backward();
//! optimizer.step();
//! ```
//!
//! Traits stand here because their methods need them in scope, and types because nearly every
//! program names them. Layers, optimizers and data sets are reached through their modules
//! ([`nn`], [`optim`], [`data`], [`distributed`]), as in PyTorch.
//!
//! [`Result`] takes the place of the standard library's. It is the same type with a second
//! parameter that defaults to [`Error`], so `Result<T>` and `Result<T, E>` both mean what they say.
//! An explicit `use` of another name wins over this module's.

pub use crate::autograd::{enable_grad, no_grad};
pub use crate::data::{self, DataLoader, Dataset};
pub use crate::distributed::{self, DistributedDataParallel};
pub use crate::error::{Error, Result};
pub use crate::nn::{self, Forward, Module, functional as F};
pub use crate::ops::random::manual_seed;
pub use crate::optim::lr_scheduler::LRScheduler;
pub use crate::optim::{self, Optimizer};
pub use crate::tensor::{Device, Dtype, Tensor};
