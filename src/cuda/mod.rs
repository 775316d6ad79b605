//! CUDA without tensors: devices, streams, events, memory, kernels. It knows raw addresses and
//! sizes only; tensors and operations are built on it.
//!
//! Nothing of CUDA is needed to build or to start: libraries are loaded at their first use
//! ([`library`]). Work is asynchronous; what makes the host wait is counted
//! ([`synchronisations`]). Streams are always created ones: the driver's stream 0, which waits for
//! all others, is never used.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`library`] | where CUDA's libraries are, and what to install |
//! | [`device`] | how many, their figures, the current one of a thread |
//! | [`stream`], [`event`] | order of work |
//! | [`allocator`] | the policy of the caching allocator, over any source of memory |
//! | [`memory`] | device memory by that policy; statistics |
//! | [`pinned`] | host memory that devices read and write directly |
//! | [`copy`], [`fill`] | copies and fills |
//! | [`module`], [`launch`] | kernels: compiled at first use, cached, started |
//! | [`cublaslt`] | matrix products, where cuBLASLt is there |
//! | [`pointwise`] | formulas over tensors' elements |
//! | [`graph`] | capture and replay of a stream's work |
//! | [`ipc`], [`peer`] | memory of other processes and other devices |
//! | `nccl` | communicators, for [`distributed`](crate::distributed) |
//!
//! With `TORCHRS_SIMULATE_GPUS=N` all of it runs on N simulated devices.
//!
//! ```
//! use torchrs::cuda;
//! if cuda::is_available() {
//!     println!("{}", cuda::device::properties(0)?.name);
//! }
//! # Ok::<(), torchrs::Error>(())
//! ```

pub mod allocator;
mod bounded;
mod code;
pub mod copy;
pub mod cublaslt;
pub mod cudnn;
pub mod device;
mod disk_cache;
mod driver;
mod dynamic;
pub mod event;
pub(crate) mod family;
pub mod fill;
mod fingerprint;
pub(crate) mod fold;
pub mod graph;
mod host_cache;
pub(crate) mod in_flight;
pub mod ipc;
pub mod launch;
pub mod library;
pub(crate) mod lost;
pub mod memory;
pub mod module;
pub(crate) mod nccl;
mod needs;
mod nvrtc;
mod once;
pub mod peer;
pub mod pinned;
mod places;
pub mod pointwise;
mod quick_hash;
pub(crate) mod refusal;
#[cfg(test)]
pub(crate) mod simulated_test;
pub(crate) mod sources;
pub mod stream;
mod synchronisation;
mod version;

pub(crate) use code::within;
pub use device::{DeviceGuard, MAX_DEVICES, device_count, is_available};
pub use event::{Event, EventOptions};
pub use graph::Graph;
pub use library::is_simulated;
pub use memory::Block;
pub use module::{Function, Kernel, Program};
pub use needs::Needs;
pub use pinned::PinnedBlock;
pub use stream::{Priority, Stream, StreamGuard};
pub use synchronisation::synchronisations;
