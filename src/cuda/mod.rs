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
//! | [`device`] | how many, their figures, the current one of a thread |
//! | [`stream`], [`event`] | order of work |
//! | [`memory`] | the caching allocator of device memory; statistics |
//! | [`kernel`] | kernels of a program's own on tensors' memory |
//! | [`graph`] | capture and replay of a stream's work |
//!
//! The other modules are the library's machinery. They are public for its own tests and examples,
//! stand in no documentation, and may change in any version.
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

#[doc(hidden)]
pub mod allocator;
mod bounded;
mod code;
#[doc(hidden)]
pub mod copy;
#[doc(hidden)]
pub mod cublaslt;
#[doc(hidden)]
pub mod cudnn;
pub mod device;
mod disk_cache;
mod driver;
mod dynamic;
pub mod event;
pub(crate) mod family;
#[doc(hidden)]
pub mod fill;
mod fingerprint;
pub(crate) mod fold;
pub mod graph;
mod host_cache;
pub(crate) mod in_flight;
#[doc(hidden)]
pub mod ipc;
pub mod kernel;
#[doc(hidden)]
pub mod launch;
#[doc(hidden)]
pub mod library;
pub(crate) mod lost;
pub mod memory;
#[doc(hidden)]
pub mod module;
pub(crate) mod nccl;
mod needs;
mod nvrtc;
mod once;
#[doc(hidden)]
pub mod peer;
#[doc(hidden)]
pub mod pinned;
mod places;
#[doc(hidden)]
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
