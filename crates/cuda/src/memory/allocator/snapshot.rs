//! What every byte of the allocator's segments is doing (`torch.cuda.memory_snapshot`).

use std::fmt;

use super::chunks::{Chunks, State};
use super::pools::{PoolId, SizeClass};
use super::source::EventSource;

/// A segment: memory that came from the source in one piece.
#[derive(Clone, Debug)]
pub struct SegmentSnapshot {
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub size: usize,
    /// The stream whose requests it serves, as text.
    pub stream: String,
    /// Which requests it serves.
    pub class: SizeClass,
    /// The private pool that it belongs to.
    pub pool: Option<PoolId>,
    /// Its chunks by address, without gaps.
    pub chunks: Vec<ChunkSnapshot>,
}

/// A chunk of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkSnapshot {
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub size: usize,
    /// Bytes that were asked for; 0 for a free chunk.
    pub requested: usize,
    /// What it is doing.
    pub state: ChunkState,
}

/// What a chunk is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkState {
    /// It can be taken.
    Free,
    /// Somebody has it.
    InUse,
    /// Freed, but work of other streams may still use it.
    Waiting,
}

/// All segments, by address.
pub(super) fn snapshot<S: EventSource>(chunks: &Chunks<S>) -> Vec<SegmentSnapshot> {
    let mut segments: Vec<_> = chunks
        .firsts()
        .map(|first| {
            let chunk = chunks.get(first);
            let mut segment = SegmentSnapshot {
                address: chunk.base,
                size: chunk.segment_size,
                stream: format!("{:?}", chunk.stream),
                class: chunk.pool.class,
                pool: chunk.pool.private,
                chunks: Vec::new(),
            };
            let mut next = Some(first);
            while let Some(id) = next {
                let chunk = chunks.get(id);
                segment.chunks.push(ChunkSnapshot {
                    address: chunk.address,
                    size: chunk.size,
                    requested: if chunk.state == State::Free { 0 } else { chunk.requested },
                    state: match chunk.state {
                        State::Free => ChunkState::Free,
                        State::InUse => ChunkState::InUse,
                        State::Waiting(_) => ChunkState::Waiting,
                    },
                });
                next = chunk.after;
            }
            segment
        })
        .collect();
    segments.sort_by_key(|segment| segment.address);
    segments
}

impl fmt::Display for SegmentSnapshot {
    /// A line for the segment and one for each chunk.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (address, size, stream) = (self.address, self.size, &self.stream);
        writeln!(f, "{address:#x} {size} bytes, {:?}, {stream}", self.class)?;
        for chunk in &self.chunks {
            let ChunkSnapshot { address, size, requested, state } = chunk;
            writeln!(f, "  {address:#x} {size} bytes, {requested} asked for, {state:?}")?;
        }
        Ok(())
    }
}
