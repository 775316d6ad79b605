//! Many processes that train together: the rendezvous store, process groups and their collectives,
//! data-parallel training (`torch.distributed`).
//!
//! Knows nothing of `nn`, `optim` and `data`: what wraps modules is in `nn::parallel`, and only re-
//! exported here.
//!
//! [`init_process_group`] reads torchrun's environment variables ([`WorkerEnv`]), meets the other
//! ranks through the [`Store`], and returns the [`ProcessGroup`] of all ranks. Collectives on it
//! never hang: they end by a result, by a deadline, or as soon as a peer dies, leaves, aborts or
//! calls something else. Tensors of one host travel through shared memory, and between hosts over TCP or MPI;
//! gradients that live in a [`SharedBuffer`] are not copied at all.
//!
//! The life of a collective, `group.all_reduce_async(&x, ReduceOp::Sum)` on host memory:
//!
//! | stop | thread | what happens |
//! | --- | --- | --- |
//! | `tensor_collectives` | the caller's | the call by its PyTorch name; notes the line of the program (`origin`) |
//! | `prepared` | | checks the tensors; lays out what is read and written, and keeps both alive |
//! | `collective` | | the call as a value, and its signature, which ranks compare |
//! | `submit` | | takes the deadline, on a GPU also an event; a plain call waits here for its turn |
//! | `queue` | | one order of all calls of a group; wakes the communication thread |
//! | `nccl` | communication | host memory goes to `shm`, a GPU's to NCCL, after the ranks have met in `shm` too |
//! | `shm::meeting` | | publishes the signature, waits for all ranks, compares: a mismatch ends here, on all ranks |
//! | `shm::collectives` | | by size and place: through the control page, in place, or in chunks of staging memory |
//! | `shm::reduce` | | adds this rank's slice of all ranks' data, in the order of ranks, and writes it through |
//! | `hosts` | | of a group over several hosts, in the place of `shm`: its steps on each host, and links between them |
//! | `work` | both | the result wakes [`Work::wait`]; `prepared` copies it where it belongs |
//!
//! A message goes the same way with a `direction` in place of the group: two ranks, a tag, a queue of its own.
//! Meanwhile `shm::watchdog` looks after the peers' processes, and a death ends every wait.
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
mod bottleneck;
mod collective;
mod direction;
mod elastic;
mod env;
pub mod functional;
mod group;
mod hosts;
mod in_place;
mod init;
mod mesh;
mod mpi;
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
mod tasks;
mod tensor_collectives;
mod work;

pub use collective::ReduceOp;
pub use elastic::{is_change_pending, welcome_change};
pub use env::WorkerEnv;
pub use group::{ProcessGroup, abort};
pub(crate) use in_place::{Readers, Run, Scratch};
pub use init::{InitOptions, default_group, init_process_group, is_initialized};
pub use mesh::DeviceMesh;
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
    CommHook, DDPOptions, DistributedDataParallel, GradBucket, comm_hooks,
};

use crate::tensor::Dtype;

#[cfg(test)]
mod functional_tests;
#[cfg(test)]
mod in_flight_tests;
#[cfg(test)]
mod peer_tests;
#[cfg(test)]
mod point_to_point_tests;
#[cfg(test)]
mod tests;
