//! Memory for batches: arenas of equal slots, each slot holding one batch. Whoever makes batches (a
//! loader worker, or a loader without workers) owns an allocator, [`Slots`]; whoever uses them gives
//! a slot back by a word in the arena itself, so neither side ever waits for the other.
//!
//! Slots are used again, the lowest free one first: fresh pages cost more than the batch itself.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use serde::{Deserialize, Serialize};

use super::layout::SlotMemory;
use crate::error::{Error, Result};
use crate::multiprocessing::handles;
use crate::storage::SharedMemory;

/// Slots start at pages.
const PAGE: usize = 4096;
const FREE: u32 = 0;
const USED: u32 = 1;

/// One piece of shared memory: a word for each slot that tells whether it is in use, then the slots.
/// Sent to another process by handle.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Arena {
    /// Names the arena; never used twice by one allocator.
    pub id: u64,
    #[serde(with = "handles::shared_memory")]
    pub memory: Arc<SharedMemory>,
    slot_bytes: usize,
    count: usize,
}

impl Arena {
    fn create(id: u64, slot_bytes: usize, count: usize) -> Result<Self> {
        let bytes = slot_bytes
            .checked_mul(count)
            .and_then(|bytes| bytes.checked_add(Self::words_bytes(count)))
            .filter(|&bytes| bytes <= isize::MAX as usize);
        let Some(bytes) = bytes else {
            let message = format!("{count} batches of {slot_bytes} bytes do not fit in memory");
            return Err(Error::shape("DataLoader", message));
        };
        Ok(Arena { id, memory: SharedMemory::create("loader", bytes)?, slot_bytes, count })
    }

    /// Room for the slots' words.
    fn words_bytes(count: usize) -> usize {
        (count * size_of::<AtomicU32>()).next_multiple_of(PAGE)
    }

    /// Whether the numbers, which another process may have sent, fit the memory.
    pub fn is_sound(&self) -> bool {
        let slots = self.slot_bytes.checked_mul(self.count);
        let bytes = slots.and_then(|bytes| bytes.checked_add(Self::words_bytes(self.count)));
        self.count < 1 << 32
            && self.slot_bytes.is_multiple_of(PAGE)
            && bytes.is_some_and(|bytes| bytes <= self.memory.len())
    }

    fn word(&self, number: usize) -> &AtomicU32 {
        assert!(number < self.count, "slot {number} of {}", self.count);
        // SAFETY: inside the words by the assertion, which are inside the mapping by `create` or
        // `is_sound`; all values are valid, and the mapping lives as long as `self`.
        unsafe { &*self.memory.as_ptr().cast::<AtomicU32>().add(number) }
    }

    /// A slot that its user handed over; `None` if there is no such slot.
    pub fn slot(self: &Arc<Self>, number: usize) -> Option<Slot> {
        (number < self.count).then(|| Slot { arena: self.clone(), number })
    }
}

/// A slot in use. Dropping it makes the slot free.
#[derive(Debug)]
pub(super) struct Slot {
    arena: Arc<Arena>,
    number: usize,
}

impl Slot {
    /// The slot's arena.
    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    /// Where the slot starts in its arena, in bytes.
    pub fn start(&self) -> usize {
        Arena::words_bytes(self.arena.count) + self.number * self.arena.slot_bytes
    }

    /// The slot's bytes in this process.
    pub fn memory(&self) -> SlotMemory {
        let ptr = self.arena.memory.as_ptr().wrapping_add(self.start());
        SlotMemory { ptr, len: self.arena.slot_bytes }
    }

    /// Leaves the slot in use, for another process to free. Returns its number.
    pub fn hand_over(self) -> usize {
        let slot = std::mem::ManuallyDrop::new(self);
        // SAFETY: read once; ManuallyDrop keeps the destructor of the whole from running.
        drop(unsafe { std::ptr::read(&slot.arena) });
        slot.number
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.arena.word(self.number).store(FREE, Release);
    }
}

/// An allocator of slots.
#[derive(Debug)]
pub(super) struct Slots {
    arenas: Vec<Arc<Arena>>,
    slot_bytes: usize,
    first_count: usize,
    next_id: u64,
}

/// What [`Slots::take`] did besides.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Changes {
    /// The slot's arena is new.
    pub added: bool,
    /// Arenas that gave way to larger slots: their slots will not be taken again.
    pub retired: Vec<u64>,
}

impl Slots {
    /// No memory yet; the first arena will have `first_count` slots.
    pub fn new(first_count: usize) -> Self {
        let first_count = first_count.max(1);
        Slots { arenas: Vec::new(), slot_bytes: 0, first_count, next_id: 0 }
    }

    /// A free slot of at least `bytes`. It never waits: when all slots are in use, an arena with as
    /// many slots again is added; when they are too small, an arena with larger ones replaces all.
    ///
    /// # Errors
    /// [`Error::Os`] when the system has no memory or descriptor for another arena.
    pub fn take(&mut self, bytes: usize) -> Result<(Slot, Changes)> {
        let mut retired = Vec::new();
        if bytes > self.slot_bytes {
            retired.extend(self.arenas.drain(..).map(|arena| arena.id));
            // A growing size grows by a quarter at least, so that steadily longer samples do not
            // need a new arena for every batch.
            self.slot_bytes =
                bytes.max(self.slot_bytes + self.slot_bytes / 4).next_multiple_of(PAGE);
        }
        for arena in &self.arenas {
            if let Some(slot) = Self::take_from(arena) {
                return Ok((slot, Changes { added: false, retired }));
            }
        }
        let count = self.arenas.iter().map(|a| a.count).sum::<usize>().max(self.first_count);
        // Slots that are never used cost no memory, so they may be many.
        let arena = Arc::new(Arena::create(self.next_id, self.slot_bytes, count)?);
        self.next_id += 1;
        self.arenas.push(arena.clone());
        let slot = Self::take_from(&arena).expect("a new arena has free slots");
        Ok((slot, Changes { added: true, retired }))
    }

    /// The arena's lowest free slot. Nobody else takes slots, so what is free stays so.
    fn take_from(arena: &Arc<Arena>) -> Option<Slot> {
        let number = (0..arena.count).find(|&n| arena.word(n).load(Acquire) == FREE)?;
        arena.word(number).store(USED, Relaxed);
        Some(Slot { arena: arena.clone(), number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_free_slot_is_used_first() {
        let mut slots = Slots::new(3);
        let (a, changes) = slots.take(1000).unwrap();
        assert!(changes.added);
        let (b, changes) = slots.take(10).unwrap();
        assert!(!changes.added);
        assert_eq!((a.start(), b.start(), a.memory().len), (PAGE, 2 * PAGE, PAGE));
        drop(a);
        let (c, _) = slots.take(1).unwrap();
        assert_eq!((c.start(), slots.take(1).unwrap().0.start()), (PAGE, 3 * PAGE));
    }

    #[test]
    fn when_all_slots_are_out_an_arena_is_added() {
        let mut slots = Slots::new(2);
        let held: Vec<Slot> = (0..8).map(|_| slots.take(100).unwrap().0).collect();
        let arenas: Vec<u64> = held.iter().map(|slot| slot.arena().id).collect();
        assert_eq!(arenas, [0, 0, 1, 1, 2, 2, 2, 2]);
        let mut places: Vec<usize> = held.iter().map(|s| s.memory().ptr as usize).collect();
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 8);
    }

    #[test]
    fn larger_batches_replace_the_arena_and_old_batches_stay() {
        let mut slots = Slots::new(2);
        let (small, _) = slots.take(PAGE).unwrap();
        let (large, changes) = slots.take(PAGE + 1).unwrap();
        assert_eq!(changes, Changes { added: true, retired: vec![0] });
        assert_eq!((large.arena().id, large.memory().len), (1, 2 * PAGE));
        // SAFETY: the slot is held, so its page is mapped and nobody else uses it.
        unsafe { small.memory().ptr.write(1) };
        drop(small);
        assert_eq!(slots.arenas.len(), 1);
    }

    #[test]
    fn a_slot_that_was_handed_over_is_freed_by_the_other_side() {
        let mut slots = Slots::new(1);
        let (slot, _) = slots.take(1).unwrap();
        let other_side = Arc::new(Arena {
            memory: SharedMemory::from_fd(
                std::os::fd::AsFd::as_fd(&*slot.arena().memory).try_clone_to_owned().unwrap(),
            )
            .unwrap(),
            ..slot.arena().clone()
        });
        assert!(other_side.is_sound());
        let number = slot.hand_over();
        let (next, _) = slots.take(1).unwrap();
        assert_eq!(next.arena().id, 1, "slot 0 is still in use");
        drop(other_side.slot(number));
        assert_eq!(slots.take(1).unwrap().0.arena().id, 0);
    }

    #[test]
    fn numbers_that_do_not_fit_are_noticed() {
        let arena = Arena::create(0, PAGE, 2).unwrap();
        for (slot_bytes, count) in [(PAGE, 3), (2 * PAGE, 2), (usize::MAX & !4095, 2), (100, 1)] {
            assert!(!Arena { slot_bytes, count, ..arena.clone() }.is_sound());
        }
        assert!(Slots::new(1 << 20).take(1 << 50).is_err());
    }
}
