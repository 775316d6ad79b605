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
pub mod kernel;
pub mod memory;

pub(crate) use torchrs_cuda::device::NOWHERE;
pub use torchrs_cuda::device::{DeviceGuard, MAX_DEVICES, device_count, is_available};
// What is compiled ahead are the programs of ops, which stand higher; users look for it here.
pub use crate::ops::warm::{WarmOptions, Warmed, warm, warm_with};
pub use torchrs_cuda::graph;
pub use torchrs_cuda::graph::Graph;
#[doc(hidden)]
pub use torchrs_cuda::kernels::compile::figures::{Figures, figures};
pub use torchrs_cuda::kernels::compile::needs::Needs;
pub use torchrs_cuda::kernels::module::{Function, Kernel, Program};
#[doc(hidden)]
pub use torchrs_cuda::kernels::{ahead, fill, launch, module, pointwise};
#[doc(hidden)]
pub use torchrs_cuda::libraries::{cublaslt, cudnn};
#[doc(hidden)]
pub use torchrs_cuda::loading::library;
pub use torchrs_cuda::loading::library::is_simulated;
pub use torchrs_cuda::memory::Block;
pub use torchrs_cuda::memory::pinned::PinnedBlock;
#[doc(hidden)]
pub use torchrs_cuda::memory::{allocator, copy, ipc, peer, pinned};
pub use torchrs_cuda::work::event::{Event, EventOptions};
pub use torchrs_cuda::work::stream::{Priority, Stream, StreamGuard};
pub use torchrs_cuda::work::synchronisation::synchronisations;
pub use torchrs_cuda::work::{event, stream};

// What the ops and the process groups use besides.
pub(crate) use torchrs_cuda::kernels::{family, fold, refusal};
pub(crate) use torchrs_cuda::libraries::nccl;
pub(crate) use torchrs_cuda::memory::in_flight;
#[cfg(test)]
pub(crate) use torchrs_cuda::simulated_test;
pub(crate) use torchrs_cuda::work::lost;
#[doc(hidden)]
pub use torchrs_cuda::work::traffic;
pub(crate) use torchrs_cuda::{cuda_args, within};

/// Statics of ops that are made of files of `kernels/`.
pub(crate) mod sources {
    pub(crate) use torchrs_cuda::{family, kernel_text, kernels_by, program};
}
