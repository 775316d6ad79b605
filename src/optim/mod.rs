//! Optimizers, learning-rate schedules.
//!
//! An optimizer is an alias of [`RuleOptimizer`](engine::RuleOptimizer) over its formula, which is
//! one file; a schedule is an alias of [`Scheduler`](lr_scheduler::Scheduler) over its formula.

mod adadelta;
mod adafactor;
mod adagrad;
mod adam;
mod adamax;
mod asgd;
mod declare;
pub mod engine;
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
pub mod swa_utils;

pub use adadelta::{Adadelta, AdadeltaOptions};
pub use adafactor::{Adafactor, AdafactorOptions};
pub use adagrad::{Adagrad, AdagradOptions};
pub use adam::{Adam, AdamOptions, AdamW, AdamWOptions};
pub use adamax::{Adamax, AdamaxOptions};
pub use asgd::{ASGD, ASGDOptions};
pub use engine::ParamGroup;
pub use lbfgs::{LBFGS, LBFGSOptions, LineSearch};
pub use muon::{AdjustLr, Muon, MuonOptions};
pub use nadam::{NAdam, NAdamOptions};
pub use optimizer::{Optimizer, OptimizerState, StateValue};
pub use radam::{RAdam, RAdamOptions};
pub use rmsprop::{RMSprop, RMSpropOptions};
pub use rprop::{Rprop, RpropOptions};
pub use sgd::{SGD, SGDOptions};
