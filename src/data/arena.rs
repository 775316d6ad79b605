//! The loader's memory: arenas of equal slots, each slot holding one batch. A slot is out as long
//! as a [`Slot`] lives: first with the worker that fills it, then with the tensors that view it.
//! Slots are used again, last returned first, because fresh pages cost more than the batch itself.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::layout::SlotMemory;
use crate::error::{Error, Result};
use crate::storage::SharedMemory;

/// Slots start at pages.
const PAGE: usize = 4096;

/// One piece of shared memory cut into slots.
#[derive(Debug)]
pub(super) struct Arena {
    /// Names the arena in messages to workers; never used twice by one loader.
    pub id: u64,
    pub memory: Arc<SharedMemory>,
    slot_bytes: usize,
    /// Numbers of the slots that nobody uses.
    free: Mutex<Vec<usize>>,
}

/// A slot in use. Dropping it makes the slot free.
#[derive(Debug)]
pub(super) struct Slot {
    pub arena: Arc<Arena>,
    number: usize,
}

impl Slot {
    /// Where the slot starts in its arena, in bytes.
    pub fn start(&self) -> usize {
        self.number * self.arena.slot_bytes
    }

    /// The slot's bytes in this process.
    pub fn memory(&self) -> SlotMemory {
        let ptr = self.arena.memory.as_ptr().wrapping_add(self.start());
        SlotMemory { ptr, len: self.arena.slot_bytes }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.arena.free.lock().push(self.number);
    }
}

/// All arenas of a loader, and the size that slots have at present.
#[derive(Debug)]
pub(super) struct Slots {
    arenas: Vec<Arc<Arena>>,
    /// Arenas whose slots are too small now. They live on in batches that still use them.
    retired: Vec<(u64, Weak<Arena>)>,
    slot_bytes: usize,
    first_count: usize,
    next_id: u64,
}

impl Slots {
    /// No memory yet; the first arena will have `first_count` slots.
    pub fn new(first_count: usize) -> Self {
        Slots {
            arenas: Vec::new(),
            retired: Vec::new(),
            slot_bytes: 0,
            first_count: first_count.max(1),
            next_id: 0,
        }
    }

    /// Whether slots have a size: false until the first batch was seen.
    pub fn is_sized(&self) -> bool {
        self.slot_bytes > 0
    }

    /// A free slot of the present size, or of at least `bytes` if that is more. It never waits: when
    /// all slots are out, an arena with as many slots again is added; when they are too small, an
    /// arena with larger ones replaces them all. The flag tells whether the slot's arena is new.
    ///
    /// # Errors
    /// [`Error::Os`] when the system has no memory or descriptor for another arena.
    pub fn take(&mut self, bytes: usize) -> Result<(Slot, bool)> {
        if bytes > self.slot_bytes {
            self.retired.extend(self.arenas.drain(..).map(|a| (a.id, Arc::downgrade(&a))));
            // A growing size grows by a quarter at least, so that steadily longer samples do not
            // need a new arena for every batch.
            self.slot_bytes = bytes.max(self.slot_bytes + self.slot_bytes / 4);
            self.slot_bytes = self.slot_bytes.next_multiple_of(PAGE);
        }
        for arena in &self.arenas {
            if let Some(number) = arena.free.lock().pop() {
                return Ok((Slot { arena: arena.clone(), number }, false));
            }
        }
        let count = self.arenas.iter().map(|a| a.count()).sum::<usize>().max(self.first_count);
        let arena = self.add(count)?;
        let number = arena.free.lock().pop().expect("a new arena has free slots");
        Ok((Slot { arena, number }, true))
    }

    fn add(&mut self, count: usize) -> Result<Arc<Arena>> {
        let slot_bytes = self.slot_bytes;
        let Some(bytes) = slot_bytes.checked_mul(count).filter(|&b| b <= isize::MAX as usize)
        else {
            let message = format!("{count} batches of {slot_bytes} bytes do not fit in memory");
            return Err(Error::shape("DataLoader", message));
        };
        let memory = SharedMemory::create("loader", bytes)?;
        // The lowest number is taken first: pages that were never used cost no memory.
        let free = Mutex::new((0..count).rev().collect());
        let arena = Arc::new(Arena { id: self.next_id, memory, slot_bytes, free });
        self.next_id += 1;
        self.arenas.push(arena.clone());
        Ok(arena)
    }

    /// Numbers of retired arenas that nobody in this process uses any more: workers can let their
    /// mappings go.
    pub fn take_forgotten(&mut self) -> Vec<u64> {
        let (gone, kept) =
            std::mem::take(&mut self.retired).into_iter().partition(|(_, a)| a.strong_count() == 0);
        self.retired = kept;
        let gone: Vec<(u64, Weak<Arena>)> = gone;
        gone.into_iter().map(|(id, _)| id).collect()
    }
}

impl Arena {
    fn count(&self) -> usize {
        self.memory.len() / self.slot_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_returned_slot_is_used_first() {
        let mut slots = Slots::new(3);
        let (a, new) = slots.take(1000).unwrap();
        let (b, again) = slots.take(10).unwrap();
        assert!(new && !again);
        assert_eq!((a.start(), b.start(), a.memory().len), (0, PAGE, PAGE));
        drop(a);
        assert_eq!(slots.take(1).unwrap().0.start(), 0);
        drop(b);
        assert_eq!(slots.take(1).unwrap().0.start(), PAGE);
    }

    #[test]
    fn when_all_slots_are_out_an_arena_is_added() {
        let mut slots = Slots::new(2);
        let held: Vec<Slot> = (0..8).map(|_| slots.take(100).unwrap().0).collect();
        let arenas: Vec<u64> = held.iter().map(|slot| slot.arena.id).collect();
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
        let (large, new) = slots.take(PAGE + 1).unwrap();
        assert!(new && large.arena.id == 1 && large.memory().len == 2 * PAGE);
        assert_eq!(slots.take_forgotten(), [0u64; 0]);
        // SAFETY: the slot is held, so its page is mapped and nobody else uses it.
        unsafe { small.memory().ptr.write(1) };
        drop(small);
        assert_eq!(slots.take_forgotten(), [0]);
        assert_eq!(slots.take_forgotten(), [0u64; 0]);
        assert_eq!(slots.arenas.len(), 1);
    }

    #[test]
    fn too_much_memory_is_an_error() {
        assert!(Slots::new(1 << 20).take(1 << 50).is_err());
    }
}
