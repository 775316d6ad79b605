//! Checkpoints that all ranks write and read together, each its own part.

mod agree;
mod fetch;
mod formats;
mod index;
mod load;
mod own;
mod plan;
mod region;
mod save;
mod state;
mod write;

pub use load::{LoadOptions, Loaded, load};
pub(super) use own::INDEX;
pub use save::save;
pub use state::{Shard, State};
