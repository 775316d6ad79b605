//! The allocator: requests, frees, and what happens when memory runs out.

use parking_lot::Mutex;

use super::chunks::{ChunkId, Chunks, State};
use super::out_of_memory::OutOfMemory;
use super::pending::Pending;
use super::pools::{
    GRANULE, Pool, PoolId, PrivatePools, class_of, rounded, segment_size, should_split,
};
use super::snapshot::{SegmentSnapshot, snapshot};
use super::source::Source;
use super::statistics::Statistics;
use super::trace::{Recorder, Trace};
use torchrs_error::{Error, Result};

/// Memory that a request got. It is given back by [`CachingAllocator::free`], once.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins.
    pub address: u64,
    /// Its bytes, at least as many as were asked for.
    pub size: usize,
    /// Where its segment begins: what other processes can open.
    pub base: u64,
    /// The segment's bytes.
    pub segment_size: usize,
    chunk: ChunkId,
}

impl Piece {
    /// Where it begins in its segment.
    pub fn offset(&self) -> usize {
        (self.address - self.base) as usize
    }
}

/// A caching allocator over a source.
pub struct CachingAllocator<S: Source> {
    source: S,
    inner: Mutex<Inner<S>>,
}

/// What the lock protects.
struct Inner<S: Source> {
    chunks: Chunks<S>,
    pending: Pending<S>,
    private: PrivatePools,
    statistics: Statistics,
    /// Whether what is freed is kept for later requests.
    caches: bool,
    /// The most bytes to reserve.
    limit: Option<usize>,
    recorder: Option<Recorder<S::Stream>>,
}

impl<S: Source> CachingAllocator<S> {
    /// One that has reserved nothing.
    pub fn new(source: S) -> Self {
        CachingAllocator::with(source, true)
    }

    /// One that keeps nothing: every request is the source's, of exactly its bytes, and goes back as
    /// soon as it is freed. For tools that look for accesses out of bounds.
    pub fn uncached(source: S) -> Self {
        CachingAllocator::with(source, false)
    }

    fn with(source: S, caches: bool) -> Self {
        let inner = Inner {
            caches,
            chunks: Chunks::new(),
            pending: Pending::new(),
            private: PrivatePools::default(),
            statistics: Statistics::default(),
            limit: None,
            recorder: None,
        };
        CachingAllocator { source, inner: Mutex::new(inner) }
    }

    /// The source.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Memory for work on a stream.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], and what failed in work whose events were looked at.
    pub fn allocate(&self, bytes: usize, stream: S::Stream) -> Result<Piece> {
        self.inner.lock().allocate(&self.source, bytes, stream)
    }

    /// Gives memory back. Work on its own stream that was enqueued before may still use it.
    ///
    /// # Errors
    /// Where an event cannot be recorded; the memory is then lost.
    pub fn free(&self, piece: Piece) -> Result<()> {
        self.inner.lock().free(&self.source, &piece)
    }

    /// Work on another stream uses the memory too: after it is freed, it waits for that work.
    pub fn record_stream(&self, piece: &Piece, stream: S::Stream) {
        let mut inner = self.inner.lock();
        let chunk = inner.chunks.get_mut(piece.chunk);
        if chunk.stream != stream && !chunk.used_by.contains(&stream) {
            chunk.used_by.push(stream);
        }
    }

    /// Gives all whole free segments back to the source; how many bytes. Does nothing during a
    /// capture.
    ///
    /// # Errors
    /// What failed in work whose events were waited for.
    pub fn empty_cache(&self) -> Result<usize> {
        let mut inner = self.inner.lock();
        if inner.private.capture.is_some() {
            return Ok(0);
        }
        inner.wait_for_events(&self.source)?;
        inner.release_segments(&self.source)
    }

    /// The figures.
    pub fn statistics(&self) -> Statistics {
        let inner = self.inner.lock();
        Statistics { inactive_split: inner.chunks.free_in_split(), ..inner.statistics }
    }

    /// Lets every peak begin at what is now.
    pub fn reset_peak(&self) {
        self.inner.lock().statistics.reset_peaks();
    }

    /// Every segment and chunk.
    pub fn snapshot(&self) -> Vec<SegmentSnapshot> {
        snapshot(&self.inner.lock().chunks)
    }

    /// Reserves at most this part of the source's memory from now on.
    ///
    /// # Errors
    /// [`Error::Argument`] for what is not in 0 to 1.
    pub fn set_fraction(&self, fraction: f64) -> Result<()> {
        if !(0.0..=1.0).contains(&fraction) {
            let message = format!("{fraction}; expected 0 to 1");
            return Err(Error::argument("set_memory_fraction", "fraction", message));
        }
        let (_, total) = self.source.info()?;
        let limit = (fraction < 1.0).then_some((total as f64 * fraction) as usize);
        self.inner.lock().limit = limit;
        Ok(())
    }

    /// Begins to note every request and free.
    pub fn start_trace(&self) {
        self.inner.lock().recorder = Some(Recorder::default());
    }

    /// What was noted since; empty where nothing was begun.
    pub fn take_trace(&self) -> Trace {
        self.inner.lock().recorder.take().map(Recorder::finish).unwrap_or_default()
    }

    /// A new private pool for a graph.
    pub fn create_pool(&self) -> PoolId {
        self.inner.lock().private.create()
    }

    /// One more graph uses a private pool.
    ///
    /// # Errors
    /// [`Error::Device`] where no graph uses it any more.
    pub fn retain_pool(&self, pool: PoolId) -> Result<()> {
        match self.inner.lock().private.retain(pool) {
            true => Ok(()),
            false => Err(Error::Device(format!("{pool:?}: no graph uses that pool any more"))),
        }
    }

    /// One graph less uses a private pool. When none does, its memory can be given back to the
    /// source.
    pub fn release_pool(&self, pool: PoolId) {
        self.inner.lock().private.release(pool);
    }

    /// A capture begins: requests of streams that are captured come from the pool.
    ///
    /// # Errors
    /// [`Error::Device`] where another capture is under way.
    pub fn begin_capture(&self, pool: PoolId) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.private.capture.is_some() {
            let name = self.source.name();
            return Err(Error::Device(format!("{name}: another capture is under way")));
        }
        inner.private.capture = Some(pool);
        Ok(())
    }

    /// The capture has ended.
    ///
    /// # Errors
    /// Where an event that was put off cannot be recorded.
    pub fn end_capture(&self) -> Result<()> {
        let mut inner = self.inner.lock();
        inner.private.capture = None;
        for chunk in inner.pending.take_deferred() {
            inner.record_events(&self.source, chunk)?;
        }
        if !inner.caches {
            inner.release_segments(&self.source)?;
        }
        Ok(())
    }
}

impl<S: Source> Inner<S> {
    #[inline]
    fn allocate(&mut self, source: &S, bytes: usize, stream: S::Stream) -> Result<Piece> {
        let granule = if self.caches { GRANULE } else { 1 };
        let Some(size) = rounded(bytes, granule) else {
            return Err(self.out_of_memory(source, bytes));
        };
        let mut private = None;
        if let Some(pool) = self.private.capture {
            private = source.is_capturing(stream)?.then_some(pool);
        } else if !self.pending.is_empty() {
            self.poll_events(source)?;
        }
        let pool = Pool { private, class: class_of(size) };
        let id = match self.take_free(pool, stream, size) {
            Some(id) => id,
            None => self.make_room(source, pool, stream, size, bytes)?,
        };
        if should_split(pool.class, self.chunks.get(id).size - size) {
            self.chunks.split(id, size);
        }
        let chunk = self.chunks.get_mut(id);
        chunk.state = State::InUse;
        chunk.requested = bytes;
        self.statistics.allocated.add(chunk.size);
        self.statistics.active.add(chunk.size);
        self.statistics.requested.add(bytes);
        self.statistics.allocations.add(1);
        let piece = Piece {
            address: chunk.address,
            size: chunk.size,
            base: chunk.base,
            segment_size: chunk.segment_size,
            chunk: id,
        };
        if let Some(recorder) = &mut self.recorder {
            recorder.allocate(id, bytes, stream);
        }
        Ok(piece)
    }

    /// The best free chunk. Without a cache there are some during captures only, and one is taken
    /// that has exactly the size, so that its end stays where the source's memory ends.
    #[inline]
    fn take_free(&mut self, pool: Pool, stream: S::Stream, size: usize) -> Option<ChunkId> {
        let most = if self.caches { usize::MAX } else { size };
        self.chunks.take_first(pool, stream, size, most)
    }

    fn free(&mut self, source: &S, piece: &Piece) -> Result<()> {
        let id = piece.chunk;
        let chunk = self.chunks.get_mut(id);
        self.statistics.allocated.remove(chunk.size);
        self.statistics.requested.remove(chunk.requested);
        self.statistics.allocations.remove(1);
        if let Some(recorder) = &mut self.recorder {
            recorder.free(id);
        }
        if !self.caches && self.private.capture.is_none() {
            // The source waits for all streams before it takes memory back.
            chunk.used_by.clear();
            self.retire(source, id);
            return self.release_segments(source).map(drop);
        }
        if chunk.used_by.is_empty() {
            self.retire(source, id);
            return Ok(());
        }
        chunk.state = State::Waiting(chunk.used_by.len() as u32);
        if self.private.capture.is_some() {
            self.pending.defer(id);
            return Ok(());
        }
        self.record_events(source, id)
    }

    /// Records an event on every other stream that used a freed chunk.
    fn record_events(&mut self, source: &S, id: ChunkId) -> Result<()> {
        let streams = std::mem::take(&mut self.chunks.get_mut(id).used_by);
        for stream in streams {
            let event = source.record(stream)?;
            self.pending.push(stream, event, id);
        }
        Ok(())
    }

    /// Nobody uses the chunk any more.
    fn retire(&mut self, source: &S, id: ChunkId) {
        let chunk = self.chunks.get(id);
        self.statistics.active.remove(chunk.size);
        if self.caches && chunk.pool.private == self.private.capture {
            source.retired(chunk.address, chunk.size, chunk.stream);
        }
        self.chunks.put_back(id);
    }

    /// One of a chunk's events has been reached.
    fn reached(&mut self, source: &S, id: ChunkId) {
        let chunk = self.chunks.get_mut(id);
        if let State::Waiting(events) = chunk.state {
            chunk.state = State::Waiting(events - 1);
            if events == 1 {
                self.retire(source, id);
            }
        }
    }

    fn poll_events(&mut self, source: &S) -> Result<()> {
        let mut reached = Vec::new();
        let outcome = self.pending.poll(source, |id| reached.push(id));
        reached.into_iter().for_each(|id| self.reached(source, id));
        outcome
    }

    fn wait_for_events(&mut self, source: &S) -> Result<()> {
        let mut reached = Vec::new();
        let outcome = self.pending.wait(source, |id| reached.push(id));
        reached.into_iter().for_each(|id| self.reached(source, id));
        outcome
    }

    /// A chunk from a new segment, or from what others can do without.
    #[cold]
    fn make_room(
        &mut self,
        source: &S,
        pool: Pool,
        stream: S::Stream,
        size: usize,
        requested: usize,
    ) -> Result<ChunkId> {
        if let Some(id) = self.new_segment(source, pool, stream, size)? {
            return Ok(id);
        }
        if self.private.capture.is_none() {
            self.statistics.retries += 1;
            self.wait_for_events(source)?;
            if let Some(id) = self.take_free(pool, stream, size) {
                return Ok(id);
            }
            self.release_segments(source)?;
            if let Some(id) = self.new_segment(source, pool, stream, size)? {
                return Ok(id);
            }
        }
        Err(self.out_of_memory(source, requested))
    }

    fn new_segment(
        &mut self,
        source: &S,
        pool: Pool,
        stream: S::Stream,
        size: usize,
    ) -> Result<Option<ChunkId>> {
        let bytes = if self.caches { segment_size(size) } else { size };
        let reserved = self.statistics.reserved.current;
        if self.limit.is_some_and(|limit| reserved.saturating_add(bytes) > limit) {
            return Ok(None);
        }
        let Some(base) = source.reserve(bytes)? else { return Ok(None) };
        self.statistics.reserved.add(bytes);
        self.statistics.segments.add(1);
        Ok(Some(self.chunks.add_segment(base, bytes, pool, stream)))
    }

    /// Gives whole free segments back; how many bytes.
    fn release_segments(&mut self, source: &S) -> Result<usize> {
        let mut bytes = 0;
        for id in self.chunks.whole_free() {
            let chunk = self.chunks.get(id);
            if !self.private.may_release(chunk.pool) {
                continue;
            }
            source.release(chunk.base)?;
            bytes += chunk.size;
            self.statistics.reserved.remove(chunk.size);
            self.statistics.segments.remove(1);
            self.chunks.remove_segment(id);
        }
        Ok(bytes)
    }

    fn out_of_memory(&mut self, source: &S, requested: usize) -> Error {
        self.statistics.out_of_memory += 1;
        let (free, total) = source.info().unwrap_or_default();
        let segments = snapshot(&self.chunks);
        let in_graphs = segments.iter().filter(|s| s.pool.is_some()).map(|s| s.size).sum();
        let error = OutOfMemory {
            name: source.name(),
            requested,
            total,
            free,
            limit: self.limit,
            allocated: self.statistics.allocated.current,
            reserved: self.statistics.reserved.current,
            largest_free: self.chunks.largest_free(),
            in_graphs,
        };
        Error::OutOfMemory(error.to_string())
    }
}
