//! The cache of pinned host blocks, over any source. A block is used again when all streams that
//! used it have reached the point at which it was freed: unlike device memory it is written by the
//! host, which no stream's order holds back.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::memory::allocator::Source;
use torchrs_error::{Error, Result};

/// The smallest block: a page.
const SMALLEST: usize = 4096;

/// Streams that used a block.
pub(crate) type Users<S> = SmallVec<[S; 2]>;

/// The size of the block for a request: one of eight classes per power of two.
pub(crate) fn block_size(requested: usize) -> usize {
    let n = requested.max(SMALLEST);
    n.checked_next_multiple_of(((1 << n.ilog2()) / 8).max(SMALLEST)).unwrap_or(n)
}

/// A block that was freed while streams may still use it.
struct Waiting<S: Source> {
    address: u64,
    size: usize,
    /// Streams whose events are not recorded yet, because their work is being captured.
    unrecorded: Users<S::Stream>,
    events: SmallVec<[S::Event; 2]>,
}

/// Blocks that are reserved.
pub(crate) struct HostCache<S: Source> {
    free: BTreeMap<usize, Vec<u64>>,
    waiting: Vec<Waiting<S>>,
    /// Bytes from the source.
    pub(crate) reserved: usize,
    /// Bytes of blocks in use.
    pub(crate) allocated: usize,
}

impl<S: Source> HostCache<S> {
    pub(crate) const fn new() -> Self {
        HostCache { free: BTreeMap::new(), waiting: Vec::new(), reserved: 0, allocated: 0 }
    }

    /// A block of at least so many bytes; its address and size.
    pub(crate) fn allocate(&mut self, source: &S, bytes: usize) -> Result<(u64, usize)> {
        let size = block_size(bytes);
        self.poll(source)?;
        let address = match self.free.get_mut(&size).and_then(Vec::pop) {
            Some(address) => address,
            None => self.reserve(source, size)?,
        };
        self.allocated += size;
        Ok((address, size))
    }

    fn reserve(&mut self, source: &S, size: usize) -> Result<u64> {
        let address = match source.reserve(size)? {
            Some(address) => address,
            None => {
                self.release_free(source)?;
                source.reserve(size)?.ok_or_else(|| {
                    Error::OutOfMemory(format!(
                        "{} cannot be had for {size} bytes; {} bytes are pinned by this process. \
                         Pinned memory is limited by the system (`ulimit -l`, a container's limit)",
                        source.name(),
                        self.reserved
                    ))
                })?
            }
        };
        self.reserved += size;
        Ok(address)
    }

    /// Gives a block back that streams have used.
    pub(crate) fn free(
        &mut self,
        source: &S,
        (address, size): (u64, usize),
        users: Users<S::Stream>,
    ) -> Result<()> {
        self.allocated -= size;
        if users.is_empty() {
            self.free.entry(size).or_default().push(address);
            return Ok(());
        }
        let mut block =
            Waiting { address, size, unrecorded: SmallVec::new(), events: SmallVec::new() };
        let outcome = record(source, &mut block, users);
        self.waiting.push(block);
        outcome
    }

    /// Looks which blocks are free by now.
    pub(crate) fn poll(&mut self, source: &S) -> Result<()> {
        let mut i = 0;
        while i < self.waiting.len() {
            let block = &mut self.waiting[i];
            let unrecorded = std::mem::take(&mut block.unrecorded);
            record(source, block, unrecorded)?;
            let mut done = block.unrecorded.is_empty();
            for event in &block.events {
                done = done && source.is_reached(event)?;
            }
            if done {
                let block = self.waiting.swap_remove(i);
                self.free.entry(block.size).or_default().push(block.address);
            } else {
                i += 1;
            }
        }
        Ok(())
    }

    /// Gives all free blocks back to the source.
    pub(crate) fn release_free(&mut self, source: &S) -> Result<()> {
        while let Some(mut class) = self.free.first_entry() {
            let size = *class.key();
            match class.get_mut().pop() {
                Some(address) => {
                    source.release(address)?;
                    self.reserved -= size;
                }
                None => drop(class.remove()),
            }
        }
        Ok(())
    }
}

/// Records an event on each stream; those that are being captured are put off.
fn record<S: Source>(source: &S, block: &mut Waiting<S>, users: Users<S::Stream>) -> Result<()> {
    for stream in users {
        if source.is_capturing(stream)? {
            block.unrecorded.push(stream);
        } else {
            block.events.push(source.record(stream)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::memory::allocator::fake::Fake;

    #[test]
    fn sizes_are_rounded_by_an_eighth_at_most() {
        assert_eq!(block_size(0), 4096);
        assert_eq!(block_size(4097), 8192);
        assert_eq!(block_size(1 << 20), 1 << 20);
        assert_eq!(block_size((1 << 20) + 1), (1 << 20) + (1 << 17));
    }

    #[test]
    fn a_block_is_used_again_after_the_streams_that_used_it() {
        let (source, mut cache) = (Fake::new(1 << 30), HostCache::new());
        let a = cache.allocate(&source, 100).unwrap();
        cache.free(&source, a, smallvec![1, 2]).unwrap();
        source.finish(1);
        assert_ne!(cache.allocate(&source, 100).unwrap(), a);
        source.finish(2);
        assert_eq!(cache.allocate(&source, 100).unwrap(), a);
        cache.free(&source, a, smallvec![]).unwrap();
        assert_eq!(cache.allocate(&source, 100).unwrap(), a);
    }

    #[test]
    fn no_event_is_recorded_on_a_stream_that_is_captured() {
        let (source, mut cache) = (Fake::new(1 << 30), HostCache::new());
        let a = cache.allocate(&source, 100).unwrap();
        source.capture(Some(1));
        cache.free(&source, a, smallvec![1]).unwrap();
        assert_ne!(cache.allocate(&source, 100).unwrap(), a);
        source.capture(None);
        assert_eq!(source.forbidden(), 0);
        cache.poll(&source).unwrap();
        source.finish(1);
        assert_eq!(cache.allocate(&source, 100).unwrap(), a);
    }

    #[test]
    fn free_blocks_go_back_before_a_request_fails() {
        let (source, mut cache) = (Fake::new(64 << 10), HostCache::new());
        let a = cache.allocate(&source, 40 << 10).unwrap();
        cache.free(&source, a, smallvec![]).unwrap();
        let b = cache.allocate(&source, 64 << 10).unwrap();
        assert_eq!((cache.reserved, cache.allocated), (64 << 10, 64 << 10));
        let error = cache.allocate(&source, 4096).unwrap_err();
        assert!(matches!(&error, Error::OutOfMemory(text) if text.contains("ulimit -l")));
        cache.free(&source, b, smallvec![]).unwrap();
        cache.release_free(&source).unwrap();
        assert_eq!(cache.reserved, 0);
    }
}
