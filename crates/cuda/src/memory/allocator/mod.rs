//! The caching allocator's policy, by PyTorch's rules, over any source of memory and events. It
//! never reads or writes the memory, so it is tested without a GPU.
//!
//! - Sizes are rounded up to 512 bytes. Up to 1 MiB they come from segments of 2 MiB, below 10 MiB
//!   from segments of 20 MiB, and larger ones get a segment of their own, rounded up to 2 MiB.
//! - A request takes the smallest free chunk of its stream and size class that fits, and splits it.
//!   Freed neighbours become one again.
//! - A chunk is used again at once on the stream that it was made for, because work on a stream is
//!   done in order. For other streams that used it ([`CachingAllocator::record_stream`]), events
//!   are recorded when it is freed, and it is free when they are reached; they are looked at, never
//!   waited for, at each request.
//! - When the source has no more memory, all events are waited for, all whole free segments go back,
//!   and the source is asked again before the request fails.
//! - While a graph is captured, its stream's requests come from the graph's private pool; no
//!   segment is given back and no event is looked at until the capture ends.

mod caching;
mod chunks;
mod out_of_memory;
mod pending;
mod pools;
mod replay;
mod snapshot;
mod source;
mod statistics;
mod trace;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use caching::{CachingAllocator, Piece};
pub use out_of_memory::OutOfMemory;
pub use pools::{PoolId, SizeClass};
pub use replay::ReplayReport;
pub use snapshot::{ChunkSnapshot, ChunkState, SegmentSnapshot};
pub use source::{EventSource, MemorySource, Source};
pub use statistics::{Figure, Statistics};
pub use trace::{Trace, TraceEntry};
