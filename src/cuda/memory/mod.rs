//! Device memory by the caching allocator: one per device, over `cuMemAlloc`, whose memory other
//! processes can open.

#[doc(hidden)]
pub mod allocator;
mod block;
#[doc(hidden)]
pub mod copy;
mod host_cache;
pub(crate) mod in_flight;
#[doc(hidden)]
pub mod ipc;
#[doc(hidden)]
pub mod peer;
#[doc(hidden)]
pub mod pinned;

pub use block::{
    Block, DeviceAllocator, DeviceSource, USE_CACHE, allocator, empty_cache, memory_allocated,
    memory_reserved, reset_peak, set_memory_fraction, snapshot, statistics,
};
