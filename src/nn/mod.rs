//! Neural networks: the [`Module`] trait, modules, functions, initialisation, losses.

mod clip_grad;
mod containers;
mod display;
#[doc(hidden)]
pub mod field;
mod module;
mod operators;
mod parameter;
mod state_dict;

pub use clip_grad::{clip_grad_norm_, clip_grad_norm_with, clip_grad_value_, get_total_norm};
pub use containers::Sequential;
pub use field::Field;
pub use module::{Forward, Module, Visitor, VisitorMut};
pub use parameter::{Buffer, Parameter, Training};
pub use state_dict::{LoadReport, NamedTensors, StateDict};
pub use torchrs_macros::Module;
