//! Segments cut into chunks: splitting, joining, and the order in which free chunks are found.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use super::pools::Pool;
use super::source::EventSource;

/// Number of a chunk; used again after it is gone.
pub(super) type ChunkId = u32;

/// What a chunk is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It can be taken.
    Free,
    /// Somebody has it.
    InUse,
    /// Freed, but other streams may still use it: so many events are to be reached.
    Waiting(u32),
}

/// Part of a segment. The chunks of a segment are in a list, by address, without gaps.
pub(super) struct Chunk<S: EventSource> {
    pub(super) address: u64,
    pub(super) size: usize,
    /// What was asked for.
    pub(super) requested: usize,
    /// Where its segment begins, and how long it is.
    pub(super) base: u64,
    pub(super) segment_size: usize,
    pub(super) pool: Pool,
    /// The stream whose requests it serves.
    pub(super) stream: S::Stream,
    /// The list of free chunks that it goes to, which is that of its pool and stream.
    list: u32,
    pub(super) state: State,
    /// Other streams that have used it.
    pub(super) used_by: SmallVec<[S::Stream; 2]>,
    pub(super) before: Option<ChunkId>,
    pub(super) after: Option<ChunkId>,
}

/// Size, address and number. The first free chunk from a size on is the smallest that fits, and of
/// equal ones that with the lowest address.
type FreeKey = (usize, u64, ChunkId);

/// The free chunks of one pool and stream.
struct FreeList<S: EventSource> {
    pool: Pool,
    stream: S::Stream,
    free: BTreeSet<FreeKey>,
    /// Segments whose chunks come here; without any, the list can become another pool's.
    segments: usize,
}

/// All chunks of an allocator.
pub(super) struct Chunks<S: EventSource> {
    slots: Vec<Option<Chunk<S>>>,
    vacant: Vec<ChunkId>,
    /// Few: twice as many as there are streams, and some for graphs.
    lists: Vec<FreeList<S>>,
}

impl<S: EventSource> Chunks<S> {
    pub(super) fn new() -> Self {
        Chunks { slots: Vec::new(), vacant: Vec::new(), lists: Vec::new() }
    }

    /// A chunk that exists.
    #[inline]
    pub(super) fn get(&self, id: ChunkId) -> &Chunk<S> {
        self.slots[id as usize].as_ref().expect("numbers of chunks are dropped with the chunks")
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: ChunkId) -> &mut Chunk<S> {
        self.slots[id as usize].as_mut().expect("numbers of chunks are dropped with the chunks")
    }

    fn insert(&mut self, chunk: Chunk<S>) -> ChunkId {
        match self.vacant.pop() {
            Some(id) => {
                self.slots[id as usize] = Some(chunk);
                id
            }
            None => {
                self.slots.push(Some(chunk));
                (self.slots.len() - 1) as ChunkId
            }
        }
    }

    fn remove(&mut self, id: ChunkId) -> Chunk<S> {
        self.vacant.push(id);
        self.slots[id as usize].take().expect("numbers of chunks are dropped with the chunks")
    }

    /// Puts a chunk into its list.
    #[inline]
    fn enlist(&mut self, id: ChunkId) {
        let chunk = self.get(id);
        let (list, key) = (chunk.list as usize, (chunk.size, chunk.address, id));
        self.lists[list].free.insert(key);
    }

    /// Takes a chunk out of its list.
    #[inline]
    fn delist(&mut self, id: ChunkId) {
        let chunk = self.get(id);
        let (list, key) = (chunk.list as usize, (chunk.size, chunk.address, id));
        self.lists[list].free.remove(&key);
    }

    #[inline]
    fn list_of(&self, pool: Pool, stream: S::Stream) -> Option<usize> {
        self.lists.iter().position(|list| list.pool == pool && list.stream == stream)
    }

    /// A new segment as one chunk in nobody's hands, not among the free ones.
    pub(super) fn add_segment(
        &mut self,
        base: u64,
        size: usize,
        pool: Pool,
        stream: S::Stream,
    ) -> ChunkId {
        let list = self.list_of(pool, stream).unwrap_or_else(|| {
            let list = FreeList { pool, stream, free: BTreeSet::new(), segments: 0 };
            match self.lists.iter().position(|list| list.segments == 0) {
                Some(unused) => {
                    self.lists[unused] = list;
                    unused
                }
                None => {
                    self.lists.push(list);
                    self.lists.len() - 1
                }
            }
        });
        self.lists[list].segments += 1;
        self.insert(Chunk {
            address: base,
            size,
            requested: 0,
            base,
            segment_size: size,
            pool,
            stream,
            list: list as u32,
            state: State::Free,
            used_by: SmallVec::new(),
            before: None,
            after: None,
        })
    }

    /// Takes the smallest free chunk of at least and at most these bytes out of the free ones.
    #[inline]
    pub(super) fn take_first(
        &mut self,
        pool: Pool,
        stream: S::Stream,
        least: usize,
        most: usize,
    ) -> Option<ChunkId> {
        let list = self.list_of(pool, stream)?;
        let free = &mut self.lists[list].free;
        let first = *free.range((least, 0, 0)..).next().filter(|key| key.0 <= most)?;
        free.remove(&first);
        Some(first.2)
    }

    /// Makes a chunk that is not among the free ones shorter; the rest becomes a free chunk.
    pub(super) fn split(&mut self, id: ChunkId, size: usize) {
        let chunk = self.get_mut(id);
        let rest = Chunk {
            address: chunk.address + size as u64,
            size: chunk.size - size,
            requested: 0,
            base: chunk.base,
            segment_size: chunk.segment_size,
            pool: chunk.pool,
            stream: chunk.stream,
            list: chunk.list,
            state: State::Free,
            used_by: SmallVec::new(),
            before: Some(id),
            after: chunk.after,
        };
        chunk.size = size;
        let after = rest.after;
        let rest = self.insert(rest);
        self.get_mut(id).after = Some(rest);
        if let Some(after) = after {
            self.get_mut(after).before = Some(rest);
        }
        self.enlist(rest);
    }

    /// Puts a chunk among the free ones, as one with its free neighbours.
    pub(super) fn put_back(&mut self, id: ChunkId) {
        self.get_mut(id).state = State::Free;
        if let Some(after) = self.get(id).after {
            self.join(id, after);
        }
        let mut id = id;
        if let Some(before) = self.get(id).before
            && self.get(before).state == State::Free
        {
            self.delist(before);
            self.absorb(before, id);
            id = before;
        }
        self.enlist(id);
    }

    /// Joins the neighbour behind, if it is free.
    fn join(&mut self, id: ChunkId, after: ChunkId) {
        if self.get(after).state == State::Free {
            self.delist(after);
            self.absorb(id, after);
        }
    }

    /// Makes `id` as long as itself and the chunk behind it, which is gone.
    fn absorb(&mut self, id: ChunkId, behind: ChunkId) {
        let gone = self.remove(behind);
        let chunk = self.get_mut(id);
        chunk.size += gone.size;
        chunk.after = gone.after;
        if let Some(after) = gone.after {
            self.get_mut(after).before = Some(id);
        }
    }

    fn free(&self) -> impl Iterator<Item = &FreeKey> {
        self.lists.iter().flat_map(|list| &list.free)
    }

    /// Free chunks that are a whole segment.
    pub(super) fn whole_free(&self) -> Vec<ChunkId> {
        let whole = self.free().filter(|key| key.0 == self.get(key.2).segment_size);
        whole.map(|key| key.2).collect()
    }

    /// Removes a free chunk that is a whole segment.
    pub(super) fn remove_segment(&mut self, id: ChunkId) {
        self.delist(id);
        let gone = self.remove(id);
        self.lists[gone.list as usize].segments -= 1;
    }

    /// Bytes of free chunks in segments that are partly in use.
    pub(super) fn free_in_split(&self) -> usize {
        let split = self.free().filter(|key| key.0 != self.get(key.2).segment_size);
        split.map(|key| key.0).sum()
    }

    /// The longest free chunk.
    pub(super) fn largest_free(&self) -> usize {
        self.free().map(|key| key.0).max().unwrap_or(0)
    }

    /// The first chunk of every segment.
    pub(super) fn firsts(&self) -> impl Iterator<Item = ChunkId> + '_ {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, c)| c.as_ref().is_some_and(|c| c.before.is_none()))
            .map(|(i, _)| i as ChunkId)
    }
}
