//! The shared-memory backend: ranks that are processes of one host, and tensors in host memory.
//!
//! Every collective begins by publishing what this rank is about to do and waiting until all ranks
//! have arrived; then each compares what all have published. So a mismatch is found by every rank,
//! in the same collective, before any data has moved. How the data then moves depends on its size
//! and place: see `collectives`.

mod arena;
mod collectives;
mod control;
mod futex;
mod identity;
mod meeting;
mod reduce;
mod rendezvous;
mod sleepers;
mod watchdog;

use std::os::fd::AsFd;
use std::sync::{Arc, atomic};
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) use arena::Segment;
use arena::{Arena, Staging};
use control::{AbortRecord, Cause, Control};
use meeting::LOOK;
pub(crate) use rendezvous::{Seat, join};
use watchdog::Peer;

use super::collective::{Collective, Kind, Pace, Signature};
use super::reminder::Reminder;
use super::{Deadline, Store};
use crate::error::{Error, Result};
use crate::storage::SharedMemory;

/// Messages up to this size go through the control block, with one barrier; above, two barriers
/// cost less than reading everybody's message. Tuned with two ranks.
fn inline_bytes(world: usize) -> usize {
    ((64 << 10) / world).max(1 << 10) / 64 * 64
}

/// Private buffers pass through staging memory in chunks of this size: few enough barriers, and a
/// chunk is still in a cache when the other ranks read it.
const CHUNK_BYTES: usize = 512 << 10;

/// One rank's end of a group.
#[derive(Debug)]
pub(crate) struct ShmBackend {
    /// This rank in the group.
    rank: usize,
    /// The members by their rank in the world: what messages call them.
    ranks: Vec<usize>,
    control: Arc<Control>,
    staging: Staging,
    arena: Arena,
    peers: Vec<Peer>,
    /// For descriptors of shared buffers and sub-groups. A group of one needs none.
    store: Option<Store>,
    /// What this group's keys in the store begin with.
    prefix: String,
    /// Of a group for messages.
    between: Option<Between>,
    /// How many ranks the job has, be they members or not, and the cores that they share: spinning for long may
    /// keep one of them from its core.
    pub(super) everybody: usize,
    cores: usize,
    progress: Mutex<Progress>,
}

/// What a group for messages from one rank to another is a part of.
#[derive(Debug)]
struct Between {
    whole: Arc<ShmBackend>,
    tag: u32,
}

/// `the messages from rank 2 to rank 5 with tag 0`.
fn name_of([from, to]: [usize; 2], tag: u32) -> String {
    format!("the messages from rank {from} to rank {to} with tag {tag}")
}

/// How far this rank is. All ranks count alike.
#[derive(Debug)]
struct Progress {
    /// Number of the collective that runs, or ran last. From 1.
    sequence: u32,
    /// How many barriers this rank has arrived at.
    steps: u32,
    /// How long to spin: adapts to how long peers let this rank wait.
    spin: Duration,
    subgroups: u32,
}

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
            self.finish(&mut progress, &signature, deadline)?;
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

    /// Makes every rank's calls fail with `reason`.
    pub(crate) fn abort(&self, reason: &str) {
        let pid = std::process::id() as i32;
        let reason = reason.to_owned();
        self.fail(AbortRecord { cause: Cause::Failed, rank: self.rank, pid, reason });
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

    fn has_failed(&self) -> bool {
        let whole = self.between.as_ref().map(|between| &between.whole);
        self.control.is_aborted() || whole.is_some_and(|whole| whole.has_failed())
    }

    /// Ends the group and, of messages, the one that they are within. The first record stands; false when
    /// there was one.
    fn fail(&self, record: AbortRecord) -> bool {
        let Some(Between { whole, .. }) = &self.between else { return self.control.abort(&record) };
        let rank = whole.ranks.iter().position(|&rank| rank == self.ranks[record.rank]);
        // Before the peer is woken, so that it finds the reason.
        let first = whole.fail(AbortRecord { rank: rank.unwrap_or(0), ..record.clone() });
        self.control.abort(&record);
        first
    }

    fn abort_unless_ok<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            // If the group is aborted already that record stands.
            self.abort(&error.to_string());
        }
        result
    }
}

fn only<T>(items: Vec<T>) -> Result<T> {
    let count = items.len();
    let mut items = items.into_iter();
    match (items.next(), count) {
        (Some(item), 1) => Ok(item),
        _ => Err(Error::Store(format!("{count} descriptors where one was expected"))),
    }
}
