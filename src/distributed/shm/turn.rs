//! A call of a group over several hosts, as its members on one host go through it: they meet as for a call of their
//! own, and then wait for each other as often as the call needs. Knows nothing of the other hosts.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::arena::Segment;
use super::backend::{Progress, ShmBackend, only};
use super::control::Place;
use super::meeting::Call;
use crate::distributed::Deadline;
use crate::distributed::collective::{Pace, RawBuffer, Signature};
use crate::error::Result;
use crate::storage::SharedMemory;

/// How much longer a member waits for those of its host: who waits for another host knows better what is missing.
const GRACE: Duration = Duration::from_millis(600);

/// A call under way. Nobody else of this process can begin another in this group.
pub(in crate::distributed) struct Turn<'a> {
    shm: &'a ShmBackend,
    progress: MutexGuard<'a, Progress>,
    call: Call<'a>,
    /// Where the segment is that holds every member's buffer, and the buffers in it.
    places: Option<Vec<*mut u8>>,
    /// Keeps it mapped.
    _segment: Option<Arc<Segment>>,
}

impl ShmBackend {
    /// How many bytes a member can give as it enters.
    pub(in crate::distributed) fn slot_bytes(&self) -> usize {
        self.control.inline_bytes()
    }

    /// Enters the next call: all members call the same. `buffer` is what the call is about, should it be in memory
    /// that all map; `gift` goes into this member's [slot](Turn::slot).
    pub(in crate::distributed) fn enter_turn<'a>(
        &'a self,
        signature: &'a Signature,
        [buffer, gift]: [Option<RawBuffer>; 2],
        deadline: &'a Deadline,
        pace: Pace,
    ) -> Result<Turn<'a>> {
        let mut progress = self.progress.lock();
        let located = buffer.and_then(|b| self.arena.locate(b.ptr, b.nbytes()));
        let place = located.as_ref().map_or(Place::PRIVATE, |(_, place)| *place);
        let mine = self.enter(&mut progress, signature, place)?;
        if let Some(gift) = gift.filter(|gift| gift.nbytes() > 0) {
            assert!(gift.nbytes() <= self.slot_bytes());
            let to = self.control.slot(self.rank, progress.sequence);
            // SAFETY: the slot has room, and is this rank's to write: its last readers were in the call before the
            // previous one, which all have left. The gift is this rank's own buffer.
            unsafe { gift.ptr.cast_const().copy_to_nonoverlapping(to, gift.nbytes()) };
        }
        let call = Call { signature, deadline, pace };
        self.barrier(&mut progress, &call)?;
        self.compare(&progress, mine)?;
        let (sequence, members) = (progress.sequence, 0..self.ranks.len());
        let all_in = |segment: &Segment| {
            members.clone().all(|r| self.control.place(r, sequence).segment() == segment.id())
        };
        let segment = located.map(|(segment, _)| segment).filter(|segment| all_in(segment));
        let places = segment.as_ref().map(|segment| {
            let at = |rank| {
                segment.slab_of(rank).wrapping_add(self.control.place(rank, sequence).offset())
            };
            members.clone().map(at).collect()
        });
        Ok(Turn { shm: self, progress, call, places, _segment: segment })
    }

    /// The rest of the call in which the group was founded.
    pub(in crate::distributed) fn first_turn<'a>(
        &'a self,
        signature: &'a Signature,
        deadline: &'a Deadline,
    ) -> Turn<'a> {
        let call = Call { signature, deadline, pace: Pace::Foreground };
        Turn { shm: self, progress: self.progress.lock(), call, places: None, _segment: None }
    }
}

impl<'a> Turn<'a> {
    /// The call's number.
    pub(in crate::distributed) fn number(&self) -> u32 {
        self.progress.sequence
    }

    pub(in crate::distributed) fn signature(&self) -> &'a Signature {
        self.call.signature
    }

    /// By when the call has to end.
    pub(in crate::distributed) fn deadline(&self) -> &'a Deadline {
        self.call.deadline
    }

    /// What a member gave as it entered. It stays until the next call.
    pub(in crate::distributed) fn slot(&self, member: usize) -> *const u8 {
        self.shm.control.slot(member, self.progress.sequence)
    }

    /// Each member's buffer, if all are in one segment.
    pub(in crate::distributed) fn places(&self) -> Option<&[*mut u8]> {
        self.places.as_deref()
    }

    /// Waits for all members. What each wrote before is seen by all afterwards.
    pub(in crate::distributed) fn barrier(&mut self) -> Result<()> {
        let deadline = Deadline::after(self.call.deadline.remaining() + GRACE);
        let call = Call { deadline: &deadline, ..self.call };
        self.shm.barrier(&mut self.progress, &call)
    }

    /// All has gone well.
    pub(in crate::distributed) fn complete(self) {
        self.shm.control.complete(self.shm.rank, self.progress.sequence);
    }

    /// Makes `nbytes` that all members map. They call it alike.
    pub(in crate::distributed) fn map(&mut self, nbytes: usize) -> Result<Arc<SharedMemory>> {
        let shm = self.shm;
        let Some(store) = shm.store.as_ref().filter(|_| shm.ranks.len() > 1) else {
            return SharedMemory::create("board", nbytes);
        };
        let key = format!("{}/board/{}", shm.prefix, self.number());
        let memory = if shm.rank == 0 {
            let memory = SharedMemory::create("board", nbytes)?;
            store.set_fds(&key, &[memory.as_fd()])?;
            memory
        } else {
            SharedMemory::from_fd(only(store.get_fds(&key, *self.call.deadline)?)?)?
        };
        self.barrier()?;
        if shm.rank == 0 {
            store.delete(&key)?;
        }
        Ok(memory)
    }

    /// As [`ShmBackend::alloc_shared`], within this call.
    pub(in crate::distributed) fn alloc_shared(&mut self, nbytes: usize) -> Result<Arc<Segment>> {
        let Call { signature, deadline, .. } = self.call;
        self.shm.alloc_agreed(&mut self.progress, signature, nbytes, deadline)
    }

    /// As [`ShmBackend::sub_group`], within this call. `members` may be none of this host.
    pub(in crate::distributed) fn sub_group(
        &mut self,
        members: &[usize],
    ) -> Result<Option<ShmBackend>> {
        self.shm.sub_group_agreed(&mut self.progress, members, self.call.deadline)
    }
}
