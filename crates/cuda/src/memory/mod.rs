//! Memory that devices use: blocks of their own from a caching allocator, pinned memory of the host, memory of
//! other processes and devices, and copies between all of it.
//!
//! It knows nothing of kernels, nor of what the bytes are.

pub mod allocator;
pub mod block;
pub mod copy;
mod host_cache;
pub mod in_flight;
pub mod ipc;
pub mod peer;
pub mod pinned;

pub use block::{
    Block, DeviceAllocator, DeviceSource, USE_CACHE, allocator, empty_cache, memory_allocated,
    memory_reserved, reset_peak, set_memory_fraction, snapshot, statistics,
};
