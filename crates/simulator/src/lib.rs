//! A GPU on the CPU: the functions of CUDA's driver, of NVRTC and of NCCL that torchrs calls, with their C ABI,
//! their return codes and their order of events. Kernels are compiled by the host's C++ compiler;
//! results are real, speeds are not. `docs/simulated-gpu.md` says what it tells and what it does not.
//!
//! From the outside in: `api` has a folder for each library whose symbols are exported; they check
//! arguments and hand work to `stream`; `executor` threads take it from there and perform it
//! (`work`); `kernel` runs a grid's threads as `fiber`s; `compile` makes a shared object of a
//! source text and `module` loads it; `memory` holds what is allocated; `nccl` lets
//! processes exchange it.

pub mod api;
mod code;
mod compile;
mod context;
mod counters;
mod device;
mod event;
mod executor;
mod faults;
mod fiber;
mod graph;
mod half;
mod ipc;
mod kernel;
mod memory;
mod module;
mod nccl;
mod number;
mod random;
mod registry;
mod settings;
mod stream;
mod work;

pub use code::Code;
pub use compile::compiler::is_available as has_compiler;
pub use counters::{
    torchrs_simulated_allocated_bytes, torchrs_simulated_allocations,
    torchrs_simulated_collectives, torchrs_simulated_copies, torchrs_simulated_graph_launches,
    torchrs_simulated_joins, torchrs_simulated_kernel_launches,
    torchrs_simulated_synchronizing_calls,
};
pub use registry::Handle;
