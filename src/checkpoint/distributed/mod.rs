//! Checkpoints that all ranks write and read together, each its own part.

mod agree;
mod background;
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

pub(crate) use agree::{agree, follow};
pub use background::AsyncCheckpointer;
pub(crate) use fetch::Files;
pub(super) use formats::open;
pub(crate) use index::{Entry, Index};
pub use load::{LoadOptions, Loaded, load};
pub(crate) use load::{check, read};
pub(super) use own::INDEX;
pub use save::save;
pub use state::{Shard, State};
