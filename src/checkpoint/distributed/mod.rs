//! Checkpoints that all ranks write and read together, each its own part (`torch.distributed.checkpoint`).
//!
//! A state is a set of boxes of tensors: each rank says which it has, or needs. What several have is written by one of
//! them, and what several of a host need is read by one of them. So any layout loads what any other has saved.
//!
//! | module | what it is for |
//! | --- | --- |
//! | `region` | boxes, and which bytes two of them share |
//! | `state` | what a rank has |
//! | `plan` | who writes what |
//! | `agree` | steps of all ranks, that fail on all or none |
//! | `write`, `save` | a rank's file; the folder, which appears whole or not at all |
//! | `background` | the same while training goes on |
//! | `index`, `formats`, `own` | what a checkpoint holds and where, in any format |
//! | `fetch`, `load` | pieces, checked; each rank's parts |
//! | `casts` | numbers in another dtype |

mod agree;
mod background;
mod casts;
mod fetch;
pub(crate) mod files;
pub(crate) mod formats;
mod index;
mod load;
mod own;
mod plan;
mod region;
mod save;
mod state;
mod write;

pub(crate) use agree::{agree, all_have, check_paths, follow};
pub use background::AsyncCheckpointer;
pub(crate) use fetch::Files;
pub(super) use formats::open;
pub(crate) use index::{Entry, Index};
pub use load::{LoadOptions, Loaded, load};
pub(crate) use load::{check, read, value};
pub(super) use own::INDEX;
pub use save::save;
pub use state::{Shard, State};
