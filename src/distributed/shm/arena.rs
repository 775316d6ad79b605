//! Memory that all ranks of a group map: one memfd with a slab per rank. A buffer that lies in it is
//! reduced where it is, by all ranks at once; any other has to be copied through staging memory.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::control::Place;
use crate::error::{Error, Result};
use crate::storage::SharedMemory;

const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;
/// What fits in a [`Place`].
const MAX_SEGMENTS: u32 = 1 << 24;

/// A piece of a group's shared memory: every rank has a slab of the same size in it, and maps those
/// of the others too.
#[derive(Debug)]
pub(crate) struct Segment {
    memory: Arc<SharedMemory>,
    id: u32,
    slab: usize,
    rank: usize,
    nbytes: usize,
}

impl Segment {
    fn slab_bytes(nbytes: usize) -> usize {
        // Whole huge pages for large slabs, so that none is shared by two ranks.
        nbytes.max(1).next_multiple_of(if nbytes >= HUGE_PAGE { HUGE_PAGE } else { PAGE })
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// The mapping that holds all slabs.
    pub(crate) fn memory(&self) -> &Arc<SharedMemory> {
        &self.memory
    }

    /// Where this rank's slab starts in the mapping, in bytes.
    pub(crate) fn own_start(&self) -> usize {
        self.rank * self.slab
    }

    /// Bytes that were asked for.
    pub(crate) fn nbytes(&self) -> usize {
        self.nbytes
    }

    /// The first byte of this rank's slab.
    pub(crate) fn own(&self) -> *mut u8 {
        self.slab_of(self.rank)
    }

    /// Has the system provide the pages of the slab of `rank` now rather than one by one later.
    pub(super) fn populate(&self, rank: usize) {
        let (start, len) = (self.slab_of(rank).cast(), self.slab);
        // SAFETY: the range is inside the mapping and page-aligned; MADV_POPULATE_WRITE changes no
        // contents. A kernel that does not know it (before 5.14) refuses, and nothing is lost.
        unsafe { libc::madvise(start, len, libc::MADV_POPULATE_WRITE) };
    }

    /// The first byte of the slab of `rank`, as mapped in this process.
    pub(super) fn slab_of(&self, rank: usize) -> *mut u8 {
        assert!((rank + 1) * self.slab <= self.memory.len());
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.memory.as_ptr().add(rank * self.slab) }
    }
}

/// The segments of a group that this process still uses.
#[derive(Debug, Default)]
pub(super) struct Arena {
    segments: Mutex<Segments>,
}

#[derive(Debug, Default)]
struct Segments {
    /// Allocations so far. The same on all ranks, since allocation is collective.
    count: u32,
    live: Vec<Weak<Segment>>,
}

impl Arena {
    /// The number of the next segment. From 1: 0 stands for private memory.
    pub(super) fn next_id(&self) -> Result<u32> {
        let mut segments = self.segments.lock();
        if segments.count + 1 == MAX_SEGMENTS {
            return Err(Error::Other(format!(
                "this process group has made {} shared buffers, which is the limit",
                segments.count
            )));
        }
        segments.count += 1;
        Ok(segments.count)
    }

    /// Makes the memory of a new segment.
    pub(super) fn create(world_size: usize, nbytes: usize) -> Result<Arc<SharedMemory>> {
        let slab = Segment::slab_bytes(nbytes);
        let total = slab.checked_mul(world_size).filter(|&total| total < 1 << 40);
        match total {
            Some(total) => SharedMemory::create("arena", total),
            None => {
                let what = format!("{nbytes} bytes on each of {world_size} ranks is above 1 TiB");
                Err(Error::argument("alloc_shared", "nbytes", what))
            }
        }
    }

    /// Enters a segment whose memory is `memory`.
    pub(super) fn insert(
        &self,
        id: u32,
        memory: Arc<SharedMemory>,
        rank: usize,
        world_size: usize,
        nbytes: usize,
    ) -> Result<Arc<Segment>> {
        let slab = Segment::slab_bytes(nbytes);
        if memory.len() != slab * world_size {
            let what = format!("shared buffer {id} has {} bytes", memory.len());
            return Err(Error::Store(format!("{what}, not the {} asked for", slab * world_size)));
        }
        let segment = Arc::new(Segment { memory, id, slab, rank, nbytes });
        let mut segments = self.segments.lock();
        segments.live.retain(|s| s.strong_count() > 0);
        segments.live.push(Arc::downgrade(&segment));
        Ok(segment)
    }

    /// The segment in whose slab of this rank the range lies, and its place there.
    pub(super) fn locate(&self, ptr: *const u8, nbytes: usize) -> Option<(Arc<Segment>, Place)> {
        let segments = self.segments.lock();
        segments.live.iter().filter_map(Weak::upgrade).find_map(|segment| {
            let offset = (ptr as usize).checked_sub(segment.own() as usize)?;
            let fits = offset.checked_add(nbytes)? <= segment.slab;
            let place = Place::shared(segment.id, offset);
            fits.then_some((segment, place))
        })
    }
}

/// Memory through which private buffers pass, a chunk at a time: four slots per rank.
#[derive(Debug)]
pub(super) struct Staging {
    memory: Arc<SharedMemory>,
    chunk: usize,
}

/// What a staging slot holds: chunks go in by even and odd turns, reduced ones come out likewise.
#[derive(Debug, Clone, Copy)]
pub(super) enum Slot {
    In,
    Out,
}

impl Staging {
    const SLOTS: usize = 4;

    pub(super) fn create(world_size: usize, chunk: usize) -> Result<Self> {
        let memory = SharedMemory::create("staging", world_size * Self::SLOTS * chunk)?;
        Ok(Staging { memory, chunk })
    }

    /// Maps the staging memory that another rank has made.
    pub(super) fn from_fd(fd: OwnedFd, world_size: usize, chunk: usize) -> Result<Self> {
        let memory = SharedMemory::from_fd(fd)?;
        if memory.len() != world_size * Self::SLOTS * chunk {
            return Err(Error::Store("the group's staging memory has another size".into()));
        }
        Ok(Staging { memory, chunk })
    }

    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// Bytes per slot.
    pub(super) fn chunk(&self) -> usize {
        self.chunk
    }

    /// The slot of `rank` for chunk number `turn`.
    pub(super) fn slot(&self, rank: usize, slot: Slot, turn: usize) -> *mut u8 {
        let index = rank * Self::SLOTS + slot as usize * 2 + (turn & 1);
        assert!((index + 1) * self.chunk <= self.memory.len());
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.memory.as_ptr().add(index * self.chunk) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_found_in_the_segment_that_holds_it() {
        let arena = Arena::default();
        let make = |nbytes| {
            let id = arena.next_id().unwrap();
            let memory = Arena::create(2, nbytes).unwrap();
            arena.insert(id, memory, 1, 2, nbytes).unwrap()
        };
        let (small, large) = (make(100), make(3 << 20));
        assert_eq!(large.slab_of(1) as usize - large.slab_of(0) as usize, 4 << 20);
        let (found, place) = arena.locate(large.own().wrapping_add(4096), 1 << 20).unwrap();
        assert!(Arc::ptr_eq(&found, &large));
        assert_eq!((place.segment(), place.offset()), (2, 4096));
        assert!(arena.locate(large.own(), 5 << 20).is_none(), "longer than the slab");
        assert!(arena.locate(large.slab_of(0), 8).is_none(), "another rank's slab");
        let inside = small.own();
        drop((small, found));
        assert!(arena.locate(inside, 8).is_none(), "no longer in use");
    }

    #[test]
    fn slots_do_not_overlap() {
        let staging = Staging::create(3, 4096).unwrap();
        let mut slots = Vec::new();
        for rank in 0..3 {
            for turn in 0..2 {
                slots.push(staging.slot(rank, Slot::In, turn) as usize);
                slots.push(staging.slot(rank, Slot::Out, turn) as usize);
            }
        }
        slots.sort_unstable();
        assert!(slots.windows(2).all(|w| w[1] - w[0] == 4096));
        assert_eq!(staging.slot(0, Slot::In, 2), staging.slot(0, Slot::In, 0));
    }
}
