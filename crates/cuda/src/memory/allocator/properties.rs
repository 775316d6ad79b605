//! Any sequence of requests and frees keeps the allocator's promises.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::Index;

use super::fake::Fake;
use super::*;

const CAPACITY: usize = 256 << 20;
const STREAMS: u8 = 3;

/// One step.
#[derive(Clone, Debug)]
enum Step {
    Allocate { bytes: usize, stream: u8 },
    Free(Index),
    RecordStream(Index, u8),
    Finish(u8),
    EmptyCache,
}

fn bytes() -> impl Strategy<Value = usize> {
    prop_oneof![0..4096usize, 0..(2usize << 20), (1usize << 20)..(40 << 20)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (bytes(), 0..STREAMS).prop_map(|(bytes, stream)| Step::Allocate { bytes, stream }),
        4 => any::<Index>().prop_map(Step::Free),
        2 => (any::<Index>(), 0..STREAMS).prop_map(|(piece, stream)| Step::RecordStream(piece, stream)),
        1 => (0..STREAMS).prop_map(Step::Finish),
        1 => Just(Step::EmptyCache),
    ]
}

/// A piece in use, with the streams other than its own that use it.
struct Live {
    piece: Piece,
    bytes: usize,
    stream: u8,
    used_by: Vec<u8>,
}

/// What the allocator promises, followed step by step.
struct Model {
    allocator: CachingAllocator<Fake>,
    live: Vec<Live>,
    /// Freed memory with the streams that may still use it.
    waiting: Vec<(u64, u64, Vec<u8>)>,
}

impl Model {
    fn apply(&mut self, step: Step) {
        match step {
            Step::Allocate { bytes, stream } => {
                let retries = self.allocator.statistics().retries;
                let Ok(piece) = self.allocator.allocate(bytes, stream) else {
                    // A failed request has waited for everything.
                    return self.waiting.clear();
                };
                if self.allocator.statistics().retries > retries {
                    self.waiting.clear();
                }
                assert!(piece.size >= bytes && piece.address % 512 == 0);
                let end = piece.address + piece.size as u64;
                for (from, to, streams) in &self.waiting {
                    assert!(end <= *from || piece.address >= *to, "still used by {streams:?}");
                }
                self.live.push(Live { piece, bytes, stream, used_by: vec![] });
            }
            Step::Free(index) if !self.live.is_empty() => {
                let live = self.live.swap_remove(index.index(self.live.len()));
                let (at, size) = (live.piece.address, live.piece.size as u64);
                if !live.used_by.is_empty() {
                    self.waiting.push((at, at + size, live.used_by));
                }
                self.allocator.free(live.piece).unwrap();
            }
            Step::RecordStream(index, stream) if !self.live.is_empty() => {
                let i = index.index(self.live.len());
                let live = &mut self.live[i];
                self.allocator.record_stream(&live.piece, stream);
                if stream != live.stream && !live.used_by.contains(&stream) {
                    live.used_by.push(stream);
                }
            }
            Step::Finish(stream) => {
                self.allocator.source().finish(stream);
                self.waiting.iter_mut().for_each(|w| w.2.retain(|&s| s != stream));
                self.waiting.retain(|w| !w.2.is_empty());
            }
            Step::EmptyCache => {
                self.allocator.empty_cache().unwrap();
                self.waiting.clear();
            }
            Step::Free(_) | Step::RecordStream(..) => {}
        }
    }

    /// The snapshot, the statistics, the source and the model agree.
    fn check(&self) {
        let statistics = self.allocator.statistics();
        let snapshot = self.allocator.snapshot();
        let segments: Vec<_> =
            snapshot.iter().map(|s| s.address..s.address + s.size as u64).collect();
        assert_eq!(segments, self.allocator.source().segments());
        assert_eq!(statistics.reserved.current, snapshot.iter().map(|s| s.size).sum::<usize>());
        assert_eq!(statistics.segments.current, snapshot.len());

        let mut in_use = BTreeMap::new();
        let (mut allocated, mut active, mut split) = (0, 0, 0);
        for segment in &snapshot {
            let mut at = segment.address;
            let mut before = ChunkState::InUse;
            for chunk in &segment.chunks {
                assert_eq!(chunk.address, at, "chunks have no gaps and do not overlap");
                at += chunk.size as u64;
                let two_free = before == ChunkState::Free && chunk.state == ChunkState::Free;
                assert!(!two_free, "free neighbours are one chunk");
                before = chunk.state;
                match chunk.state {
                    ChunkState::InUse => {
                        in_use.insert(chunk.address, chunk.requested);
                        allocated += chunk.size;
                        active += chunk.size;
                    }
                    ChunkState::Waiting => active += chunk.size,
                    ChunkState::Free if chunk.size < segment.size => split += chunk.size,
                    ChunkState::Free => {}
                }
            }
            assert_eq!(at, segment.address + segment.size as u64);
        }
        let expected: BTreeMap<_, _> =
            self.live.iter().map(|live| (live.piece.address, live.bytes)).collect();
        assert_eq!(in_use, expected);
        assert_eq!(statistics.allocated.current, allocated);
        assert_eq!(statistics.active.current, active);
        assert_eq!(statistics.inactive_split, split);
        assert_eq!(statistics.requested.current, expected.values().sum::<usize>());
        assert_eq!(statistics.allocations.current, self.live.len());
        for figure in [statistics.allocated, statistics.active, statistics.reserved] {
            assert_eq!(figure.added - figure.removed, figure.current as u64);
            assert!(figure.peak >= figure.current);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn promises_are_kept(steps in proptest::collection::vec(step(), 1..150)) {
        let allocator = CachingAllocator::new(Fake::new(CAPACITY));
        let mut model = Model { allocator, live: vec![], waiting: vec![] };
        for step in steps {
            model.apply(step);
            model.check();
        }
        for live in std::mem::take(&mut model.live) {
            model.allocator.free(live.piece).unwrap();
        }
        (0..STREAMS).for_each(|stream| model.allocator.source().finish(stream));
        // A request looks at the events; after it every segment is one free chunk again.
        let piece = model.allocator.allocate(1, 0).unwrap();
        model.allocator.free(piece).unwrap();
        model.check();
        prop_assert!(model.allocator.snapshot().iter().all(|segment| segment.chunks.len() == 1));
        model.allocator.empty_cache().unwrap();
        prop_assert_eq!(model.allocator.statistics().reserved.current, 0);
    }
}
