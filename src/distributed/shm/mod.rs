//! The shared-memory backend: ranks that are processes of one host, and tensors in host memory.
//!
//! Every collective begins by publishing what this rank is about to do and waiting until all ranks
//! have arrived; then each compares what all have published. So a mismatch is found by every rank,
//! in the same collective, before any data has moved. How the data then moves depends on its size
//! and place: see `collectives`.

mod arena;
mod backend;
mod collectives;
mod control;
mod futex;
mod gift;
mod identity;
mod meeting;
mod reduce;
mod rendezvous;
mod sleepers;
mod turn;
mod watchdog;

use std::os::fd::AsFd;
use std::sync::{Arc, atomic};

use arena::Arena;
pub(crate) use arena::Segment;
pub(crate) use backend::ShmBackend;
use backend::{Between, Progress, name_of, only};
pub(super) use collectives::{chunk_len, slice_of};
pub(super) use control::{AbortRecord, Cause};
pub(super) use gift::{Gift, take};
pub(super) use identity::Identity;
use meeting::LOOK;
pub(super) use meeting::{describe, who_does_what};
pub(super) use reduce::{divide, reduce};
pub(crate) use rendezvous::{Seat, join};
pub(super) use rendezvous::{check_started, wait_for_key};
pub(super) use turn::Turn;

use super::Deadline;
use super::collective::{Collective, Kind, Pace, Signature};
use super::reminder::Reminder;
use crate::error::{Error, Result};
use crate::storage::SharedMemory;

impl ShmBackend {
    /// Runs one collective to its end; see [`HostAndGpu::run`](super::nccl::HostAndGpu::run).
    pub(crate) fn run(
        &self,
        collective: &Collective,
        deadline: &Deadline,
        pace: Pace,
    ) -> Result<()> {
        let mut progress = self.progress.lock();
        self.run_collective(&mut progress, collective, deadline, pace)
    }

    /// Memory on every rank; see [`HostAndGpu::alloc_shared`](super::nccl::HostAndGpu::alloc_shared).
    pub(crate) fn alloc_shared(&self, nbytes: usize, deadline: &Deadline) -> Result<Arc<Segment>> {
        let signature = Signature::of_host(Kind::AllocShared, &[nbytes]);
        let mut progress = self.progress.lock();
        self.agree(&mut progress, &signature, deadline, Pace::Foreground)?;
        self.alloc_agreed(&mut progress, &signature, nbytes, deadline)
    }

    /// After all ranks have said that they want it.
    fn alloc_agreed(
        &self,
        progress: &mut Progress,
        signature: &Signature,
        nbytes: usize,
        deadline: &Deadline,
    ) -> Result<Arc<Segment>> {
        let world = self.ranks.len();
        // From here on a failure of one rank would leave the others waiting: it aborts the group.
        let result = (|| {
            let id = self.arena.next_id()?;
            let key = format!("{}/arena/{id}", self.prefix);
            let memory = match &self.store {
                None => Arena::create(world, nbytes)?,
                Some(store) if self.rank == 0 => {
                    let memory = Arena::create(world, nbytes)?;
                    store.set_fds(&key, &[memory.as_fd()])?;
                    memory
                }
                Some(store) => SharedMemory::from_fd(only(store.get_fds(&key, *deadline)?)?)?,
            };
            let segment = self.arena.insert(id, memory, self.rank, world, nbytes)?;
            // Each rank makes its own pages, near its own core, and then maps those of the others:
            // the first collective is to be as fast as the second.
            segment.populate(self.rank);
            self.finish(progress, signature, deadline)?;
            (0..world).for_each(|rank| segment.populate(rank));
            if let (0, Some(store)) = (self.rank, &self.store) {
                store.delete(&key)?;
            }
            Ok(segment)
        })();
        self.abort_unless_ok(result)
    }

    /// This rank's number in the group.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// The members, by their rank in the world.
    pub(crate) fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Says that this rank is done with the group.
    pub(crate) fn leave(&self) {
        self.control.leave(self.rank);
    }

    /// The group of the members `ranks`; see [`HostAndGpu::new_group`](super::nccl::HostAndGpu::new_group).
    pub(crate) fn sub_group(
        &self,
        ranks: &[usize],
        deadline: &Deadline,
    ) -> Result<Option<ShmBackend>> {
        let signature = Signature::of_host(Kind::NewGroup, ranks);
        let mut progress = self.progress.lock();
        self.agree(&mut progress, &signature, deadline, Pace::Foreground)?;
        self.sub_group_agreed(&mut progress, ranks, deadline)
    }

    /// After all ranks have said that they want it.
    fn sub_group_agreed(
        &self,
        progress: &mut Progress,
        ranks: &[usize],
        deadline: &Deadline,
    ) -> Result<Option<ShmBackend>> {
        progress.subgroups += 1;
        let Some(rank) = ranks.iter().position(|&r| r == self.rank) else { return Ok(None) };
        let seat = Seat {
            rank,
            ranks: ranks.iter().map(|&r| self.ranks[r]).collect(),
            store: self.store.clone().filter(|_| ranks.len() > 1),
            prefix: format!("{}/group/{}", self.prefix, progress.subgroups),
        };
        let peers = Some(ranks.iter().map(|&r| self.peers[r].clone()).collect());
        let group =
            self.abort_unless_ok(rendezvous::found(seat, peers, None, self.everybody, deadline))?;
        Ok(Some(group))
    }

    /// The group in which rank `from` of this group, its first rank, sends to rank `to`. Both call it;
    /// the others do not. Its failures are this group's, and this group's are its own.
    pub(crate) fn direction(
        self: &Arc<Self>,
        [from, to]: [usize; 2],
        tag: u32,
        deadline: &Deadline,
    ) -> Result<ShmBackend> {
        let seat = Seat {
            rank: usize::from(self.rank == to),
            ranks: vec![self.ranks[from], self.ranks[to]],
            store: self.store.clone(),
            prefix: format!("{}/send/{from}-{to}/{tag}", self.prefix),
        };
        let result = self.wait_for_sender(&seat, from, tag, deadline).and_then(|()| {
            let peers = vec![self.peers[from].clone(), self.peers[to].clone()];
            let between = Between { whole: self.clone(), tag };
            rendezvous::found(seat, Some(peers), Some(between), self.everybody, deadline)
        });
        self.abort_unless_ok(result)
    }

    /// The receiver's: until the sender has made the memory for a direction.
    fn wait_for_sender(
        &self,
        seat: &Seat,
        from: usize,
        tag: u32,
        deadline: &Deadline,
    ) -> Result<()> {
        let Some(store) = seat.store.as_ref().filter(|_| seat.rank != 0) else { return Ok(()) };
        let (memory, [sender, me]) = (seat.memory_key(), [seat.ranks[0], seat.ranks[1]]);
        let doing = || format!("rank {me} waits for the first of {}", name_of([sender, me], tag));
        let reminder = Reminder::new();
        let look = || {
            if let Some(error) = self.failure(&doing()) {
                return Err(error);
            }
            // It leaves after all that it has sent: what is not there then never comes.
            if self.control.has_left(from) && matches!(store.try_get(&memory), Ok(None)) {
                let last = self.control.progress(from).1;
                let reason = format!(
                    "rank {sender} has left the process group after collective {last}, but {}",
                    doing()
                );
                let (cause, pid) = (Cause::Left, self.peers[from].pid);
                self.fail(AbortRecord { cause, rank: from, pid, reason: reason.clone() });
                return Err(Error::Aborted(reason));
            }
            reminder.remind(|| format!("{}; {}", doing(), self.condition(from)));
            Ok(())
        };
        rendezvous::wait_for_key(store, &memory, deadline, LOOK, look).map_err(
            |error| match error {
                Error::Timeout { .. } => {
                    deadline.error(format!("{}; {}", doing(), self.condition(from)))
                }
                other => other,
            },
        )
    }

    /// This rank's end of messages with a rank of another host: `ends` are sender and receiver, by their rank in
    /// the world. Its failures are this group's, and this group's are its own.
    pub(super) fn end_of_messages(
        self: &Arc<Self>,
        [from, to]: [usize; 2],
        tag: u32,
        deadline: &Deadline,
    ) -> Result<ShmBackend> {
        let prefix = format!("{}/send-between-hosts/{from}-{to}/{tag}", self.prefix);
        let seat = Seat { rank: 0, ranks: vec![self.ranks[self.rank]], store: None, prefix };
        let between = Between { whole: self.clone(), tag };
        rendezvous::found(seat, None, Some(between), self.everybody, deadline)
    }

    /// Whether the two ranks are those of messages within a larger group.
    pub(crate) fn is_direction(&self) -> bool {
        self.between.is_some()
    }

    /// Waits until all ranks call the same; the data goes another way.
    pub(crate) fn meet(
        &self,
        signature: &Signature,
        deadline: &Deadline,
        pace: Pace,
    ) -> Result<()> {
        self.agree(&mut self.progress.lock(), signature, deadline, pace)
    }

    /// Why nobody goes on in this group, if that is so. `doing` says what this rank was at.
    pub(crate) fn failure(&self, doing: &str) -> Option<Error> {
        self.has_failed().then(|| self.aborted(doing))
    }
}
