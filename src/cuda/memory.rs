//! Device memory by the caching allocator: one per device, over `cuMemAlloc`, whose memory other
//! processes can open.

pub use torchrs_cuda::memory::block::{
    Block, DeviceAllocator, DeviceSource, USE_CACHE, allocator, empty_cache, memory_allocated,
    memory_reserved, reset_peak, set_memory_fraction, snapshot, statistics,
};
