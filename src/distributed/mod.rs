//! Many processes that train together: the rendezvous store, process groups and their collectives,
//! data-parallel training (`torch.distributed`).
//!
//! [`init_process_group`] reads torchrun's environment variables ([`WorkerEnv`]), meets the other
//! ranks through the [`Store`], and returns the [`ProcessGroup`] of all ranks. Collectives on it
//! never hang: they end by a result, by a deadline, or as soon as a peer dies, leaves, aborts or
//! calls something else. Tensors of one host travel through shared memory; gradients that live in
//! a [`SharedBuffer`] are not copied at all.
//!
//! ```no_run
//! use torchrs::Tensor;
//! use torchrs::distributed::{self, ReduceOp};
//!
//! #[torchrs::main]
//! fn main() -> torchrs::Result<()> {
//!     let group = distributed::init_process_group(Default::default())?;
//!     let x = Tensor::full([3], group.rank() as f64, torchrs::Dtype::F32);
//!     group.all_reduce(&x, ReduceOp::Sum)?;
//!     let work = group.broadcast_async(&x, 0)?;
//!     work.wait()
//! }
//! ```

mod barrier;
mod collective;
mod direction;
mod env;
pub mod functional;
mod group;
mod init;
mod nccl;
mod objects;
mod origin;
mod point_to_point;
mod prepared;
mod queue;
mod reminder;
mod shared_buffer;
mod shm;
pub mod store;
mod submit;
mod tensor_collectives;
mod work;

pub use collective::ReduceOp;
pub use env::WorkerEnv;
pub use group::{ProcessGroup, abort};
pub use init::{InitOptions, default_group, init_process_group, is_initialized};
pub(crate) use origin::Origin;
pub use point_to_point::P2POp;
pub(crate) use ranks::join_some;
pub use shared_buffer::{SharedBuffer, SharedSlice};
pub use store::{Store, StoreServer};
#[doc(inline)]
pub use torchrs_job::cluster::ClusterTask;
#[doc(inline)]
pub use torchrs_job::deadline::Deadline;
#[doc(inline)]
pub use torchrs_job::ranks::{MAX_WORLD_SIZE, list_ranks};
use torchrs_job::{cluster, ranks};
pub use work::Work;

// Made of modules too, and therefore in `nn`; users look for it beside the groups, as PyTorch's do.
pub use crate::nn::parallel::{
    CommHook, DdpOptions, DistributedDataParallel, GradBucket, comm_hooks,
};

use crate::tensor::Dtype;

#[cfg(test)]
mod functional_tests;
#[cfg(test)]
mod peer_tests;
#[cfg(test)]
mod point_to_point_tests;
#[cfg(test)]
mod tests;
