//! Optimizers, learning-rate schedules.
//!
//! An optimizer is an alias of [`RuleOptimizer`](engine::RuleOptimizer) over its formula, which is
//! one file; a schedule is an alias of [`Scheduler`](lr_scheduler::Scheduler) over its formula.

mod adam;
pub mod engine;
pub mod lr_scheduler;
mod optimizer;
mod sgd;

pub use adam::{Adam, AdamOptions, AdamW, AdamWOptions};
pub use engine::ParamGroup;
pub use optimizer::{Optimizer, OptimizerState, StateValue};
pub use sgd::{SGD, SGDOptions};
