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

pub mod device;
mod driver;
pub mod graph;
pub mod kernel;
mod kernels;
mod libraries;
mod loading;
mod memo;
pub mod memory;
#[cfg(test)]
pub(crate) mod simulated_test;
mod work;

pub use device::{DeviceGuard, MAX_DEVICES, device_count, is_available};
pub(crate) use driver::code::within;
pub use graph::Graph;
pub use kernels::Needs;
pub use kernels::module::{Function, Kernel, Program};
pub(crate) use kernels::{family, fold, refusal, sources};
#[doc(hidden)]
pub use kernels::{fill, launch, module, pointwise};
pub(crate) use libraries::nccl;
#[doc(hidden)]
pub use libraries::{cublaslt, cudnn};
#[doc(hidden)]
pub use loading::library;
pub use loading::library::is_simulated;
pub use memory::Block;
pub(crate) use memory::in_flight;
pub use memory::pinned::PinnedBlock;
#[doc(hidden)]
pub use memory::{allocator, copy, ipc, peer, pinned};
pub use work::event::{Event, EventOptions};
pub(crate) use work::lost;
pub use work::stream::{Priority, Stream, StreamGuard};
pub use work::synchronisation::synchronisations;
pub use work::{event, stream};
