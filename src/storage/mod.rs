//! Bytes and who owns them: the caching host allocator and memory shared between processes.

pub mod shared;

pub use shared::SharedMemory;
