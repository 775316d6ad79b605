//! Neural networks: the [`Module`] trait, modules, functions, initialisation, losses.

mod containers;
mod display;
#[doc(hidden)]
pub mod field;
mod module;
mod operators;
mod parameter;
mod state_dict;

pub use containers::Sequential;
pub use field::Field;
pub use module::{Forward, Module, Visitor, VisitorMut};
pub use parameter::{Buffer, Parameter, Training};
pub use state_dict::{LoadReport, NamedTensors, StateDict};
pub use torchrs_macros::Module;
