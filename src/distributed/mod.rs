//! Store, process groups and data-parallel training.

mod deadline;
mod env;
pub mod store;

pub use deadline::Deadline;
pub use env::WorkerEnv;
pub use store::{Store, StoreServer};
