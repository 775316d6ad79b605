//! Optimizers, learning-rate schedules.
//!
//! Knows nothing of `checkpoint`, `data` and `models`.
//!
//! An optimizer is an alias of [`RuleOptimizer`](engine::RuleOptimizer) over its formula, which is
//! one file; a schedule is an alias of [`Scheduler`](lr_scheduler::Scheduler) over its formula.
//!
//! ```
//! use torchrs::optim::lr_scheduler::{ExponentialLR, LRScheduler};
//! use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
//! let w = Tensor::from([1f64]).requires_grad_(true);
//! let mut optimizer = SGD::new([w.clone()], SGDOptions { lr: 0.25, ..Default::default() });
//! let mut schedule = ExponentialLR::new(&mut optimizer, 0.5);
//! for _ in 0..2 {
//!     optimizer.zero_grad();
//!     (&w * &w).backward();
//!     optimizer.step();
//!     schedule.step(&mut optimizer);
//! }
//! assert_eq!(w.item(), (1.0 - 2.0 * 0.25) * (1.0 - 2.0 * 0.125));
//! ```

mod adadelta;
mod adafactor;
mod adagrad;
mod adam;
mod adamax;
mod asgd;
mod declare;
pub mod engine;
mod grad_scaler;
mod lbfgs;
mod line_search;
pub mod lr_scheduler;
mod muon;
mod nadam;
mod optimizer;
mod radam;
mod rmsprop;
mod rprop;
mod sgd;
mod sparse_adam;
pub mod swa_utils;
mod zero_redundancy;

pub use adadelta::{Adadelta, AdadeltaOptions};
pub use adafactor::{Adafactor, AdafactorOptions};
pub use adagrad::{Adagrad, AdagradOptions};
pub use adam::{Adam, AdamOptions, AdamW, AdamWOptions};
pub use adamax::{Adamax, AdamaxOptions};
pub use asgd::{ASGD, ASGDOptions};
pub use engine::ParamGroup;
pub use grad_scaler::{GradScaler, GradScalerOptions};
pub use lbfgs::{LBFGS, LBFGSOptions, LineSearch};
pub use muon::{AdjustLR, Muon, MuonOptions};
pub use nadam::{NAdam, NAdamOptions};
pub use optimizer::{Optimizer, OptimizerState, StateValue};
pub use radam::{RAdam, RAdamOptions};
pub use rmsprop::{RMSprop, RMSpropOptions};
pub use rprop::{Rprop, RpropOptions};
pub use sgd::{SGD, SGDOptions};
pub use sparse_adam::{SparseAdam, SparseAdamOptions};
pub use zero_redundancy::ZeroRedundancyOptimizer;
