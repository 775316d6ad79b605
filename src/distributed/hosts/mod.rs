//! Process groups over several hosts. Tensors of GPUs go through NCCL ([`nccl`](super::nccl)), and calls on them are
//! compared by [`notes`]. The rest is about tensors of the CPU: on each host its members meet and share memory as in a
//! group of one host ([`shm`](super::shm)), and between hosts their data goes over TCP connections (`torchrs_links`) or
//! MPI (`torchrs_mpi`).
//!
//! Members with the same place on their hosts are a *rail*: they have connections of their own to each other. There
//! are as many rails as the smallest host has members. A large all-reduce uses all of them, a slice on each;
//! everything else goes over the first, in the hands of each host's first member, its *leader*.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`layout`] | which members are on which host |
//! | [`world`] | how processes of several hosts find each other, through the job's store |
//! | [`cards`] | what their hosts tell each other of them |
//! | [`engine`] | what moves bytes between hosts: TCP connections or MPI |
//! | [`rail`] | a member's engine: joining its counterparts, and calls on it |
//! | [`needs`] | what a host needs of which members' gifts, and where that is on its board |
//! | [`exchange`] | every collective but a large all-reduce |
//! | [`all_reduce`] | that one |
//! | [`notes`] | calls on GPUs, which hosts compare without waiting for each other |
//! | [`failure`] | what a failure on one host is on the others |
//! | [`watch`] | failures while nobody calls |
//!
//! What holds of results: they are the same bits on all ranks, and from run to run. All but those of a large
//! all-reduce are those of one host, too: elements are combined in rank order, halves in f32. A large all-reduce
//! combines the members of each host in order first, and then the hosts in an order that size, number of hosts and
//! engine give; f16 and bf16 are rounded after each of these steps, and a mean is divided at the end.

mod all_reduce;
mod cards;
mod engine;
mod exchange;
mod failure;
mod layout;
mod needs;
mod notes;
mod rail;
mod watch;
mod world;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;

use super::Deadline;
use super::collective::RawBuffer;
use super::collective::{Collective, Kind, Pace, Signature};
use super::shm::{Gift, Segment, ShmBackend, Turn};
use crate::error::{Error, Result};
use crate::storage::SharedMemory;
use engine::Engine;
use layout::Layout;
use notes::Noted;
use world::World;
pub(super) use world::join;

/// Gifts of all members together up to this size go to all hosts, even where each needs less than that: a message is
/// then all that it costs.
const SMALL: usize = 64 << 10;
/// The least memory of a board.
const LEAST_BOARD: usize = 64 << 10;

/// One rank's end of a group over several hosts.
pub(super) struct HostsBackend {
    /// The members on this host.
    local: Arc<ShmBackend>,
    layout: Layout,
    /// This rank in the group.
    rank: usize,
    /// The members by their rank in the world.
    ranks: Vec<usize>,
    /// What the group's keys in the job's store begin with.
    prefix: String,
    /// Where the group's first failure is told in the job's store.
    failed: String,
    world: Arc<World>,
    /// On members that have one, until the group is left.
    rail: Mutex<Option<Box<dyn Engine>>>,
    /// Memory that all members of this host map: gifts lie here on their way.
    board: Mutex<Option<Arc<SharedMemory>>>,
    /// Of a leader, from the first call on a GPU on until the group is left.
    notes: Mutex<Option<Arc<Noted>>>,
    /// Whether calls are noted, on this host as on the others.
    has_notes: AtomicBool,
    /// Whether the other hosts have been told that this one has failed.
    told: AtomicBool,
}

/// A group that [`HostsBackend::new_group`] or [`HostsBackend::direction`] makes.
pub(super) enum Made {
    OnThisHost(Box<ShmBackend>),
    OverHosts(Arc<HostsBackend>),
}

impl HostsBackend {
    /// Brings a group into being among `ranks` of the world, of which `local` are on this host; its other members are
    /// on others. `failed` is where its failure is told, if that is not the group's own.
    fn found(
        local: ShmBackend,
        world: &Arc<World>,
        ranks: Vec<usize>,
        prefix: String,
        failed: Option<String>,
        deadline: &Deadline,
    ) -> Result<Arc<HostsBackend>> {
        let hosts: Vec<usize> = ranks.iter().map(|&rank| world.members[rank].host).collect();
        let me = local.ranks()[local.rank()];
        let rank = ranks.iter().position(|&other| other == me).expect("a member founds it");
        let group = HostsBackend {
            local: Arc::new(local),
            layout: Layout::new(&hosts, rank),
            rank,
            ranks,
            failed: failed.unwrap_or_else(|| format!("{prefix}/failed")),
            prefix,
            world: world.clone(),
            rail: Mutex::new(None),
            board: Mutex::new(None),
            notes: Mutex::new(None),
            has_notes: AtomicBool::new(false),
            told: AtomicBool::new(false),
        };
        let group = Arc::new(group);
        group.settle(group.connect(deadline).and_then(|()| {
            // Nobody returns before everybody is there.
            let barrier = Signature::of_host(Kind::Barrier, &[]);
            group.arrive(&mut group.local.first_turn(&barrier, deadline))
        }))?;
        watch::add(&group)?;
        Ok(group)
    }

    /// Runs one collective to its end; see [`HostAndGpu::run`](super::nccl::HostAndGpu::run).
    pub(super) fn run(
        &self,
        collective: &Collective,
        deadline: &Deadline,
        pace: Pace,
    ) -> Result<()> {
        let gift = Gift::of(collective, self.rank, self.ranks.len());
        let is_large = gift.nbytes().saturating_mul(self.ranks.len()) > SMALL;
        self.settle(match collective.signature.kind {
            Kind::AllReduce if is_large => all_reduce::run(self, collective, gift, deadline, pace),
            _ => exchange::run(self, collective, gift, deadline, pace),
        })
    }

    /// Memory on every rank, in which those of its host work in place.
    pub(super) fn alloc_shared(&self, nbytes: usize, deadline: &Deadline) -> Result<Arc<Segment>> {
        let signature = Signature::of_host(Kind::AllocShared, &[nbytes]);
        self.settle(self.meet(&signature, deadline).and_then(|mut turn| {
            let segment = turn.alloc_shared(nbytes)?;
            turn.complete();
            Ok(segment)
        }))
    }

    /// The group of the members `ranks`; `None` if this rank is not among them.
    pub(super) fn new_group(&self, ranks: &[usize], deadline: &Deadline) -> Result<Option<Made>> {
        let signature = Signature::of_host(Kind::NewGroup, ranks);
        self.settle(self.meet(&signature, deadline).and_then(|mut turn| {
            let here = |&rank: &usize| self.layout.find(rank)[0] == self.layout.place;
            let (own, others): (Vec<usize>, Vec<usize>) = ranks.iter().partition(|r| here(r));
            let own: Vec<usize> = own.iter().map(|&rank| self.layout.find(rank)[1]).collect();
            let number = turn.number();
            let local = turn.sub_group(&own)?;
            turn.complete();
            let Some(local) = local else { return Ok(None) };
            if others.is_empty() {
                return Ok(Some(Made::OnThisHost(Box::new(local))));
            }
            let members = ranks.iter().map(|&rank| self.ranks[rank]).collect();
            let prefix = format!("{}/group/{number}", self.prefix);
            let group = Self::found(local, &self.world, members, prefix, None, deadline)?;
            Ok(Some(Made::OverHosts(group)))
        }))
    }

    /// The group in which rank `from` sends to rank `to`. Both call it; the others do not.
    pub(super) fn direction(
        &self,
        [from, to]: [usize; 2],
        tag: u32,
        deadline: &Deadline,
    ) -> Result<Made> {
        let [[host, member], [other_host, other]] = [self.layout.find(from), self.layout.find(to)];
        if host == other_host {
            let made = self.local.direction([member, other], tag, deadline);
            return self.settle(made).map(Box::new).map(Made::OnThisHost);
        }
        let ends = [self.ranks[from], self.ranks[to]];
        self.settle(self.local.end_of_messages(ends, tag, deadline).and_then(|local| {
            let prefix = format!("{}/send/{from}-{to}/{tag}", self.prefix);
            let (members, failed) = (ends.to_vec(), Some(self.failed.clone()));
            Self::found(local, &self.world, members, prefix, failed, deadline)
        }))
        .map(Made::OverHosts)
    }

    /// Enters a call in which no data moves: when it returns, all members on all hosts are in it.
    fn meet<'a>(&'a self, signature: &'a Signature, deadline: &'a Deadline) -> Result<Turn<'a>> {
        let pace = Pace::Foreground;
        let mut turn = self.enter_turn(signature, [None, None], deadline, pace)?;
        self.arrive(&mut turn)?;
        Ok(turn)
    }

    /// Enters the next call with the members of this host; see [`ShmBackend::enter_turn`].
    fn enter_turn<'a>(
        &'a self,
        signature: &'a Signature,
        gifts: [Option<RawBuffer>; 2],
        deadline: &'a Deadline,
        pace: Pace,
    ) -> Result<Turn<'a>> {
        let turn = self.local.enter_turn(signature, gifts, deadline, pace)?;
        self.note(&turn);
        Ok(turn)
    }

    /// Waits until all members on all hosts have come so far.
    fn arrive(&self, turn: &mut Turn) -> Result<()> {
        if self.layout.is_leader() {
            self.on_rail(turn, 0, |engine, call| engine.barrier(call))?;
        }
        turn.barrier()
    }

    /// A board of at least `nbytes`. All members of this host ask for as many.
    fn board(&self, turn: &mut Turn, nbytes: usize) -> Result<Arc<SharedMemory>> {
        let mut board = self.board.lock();
        if let Some(board) = board.as_ref().filter(|board| board.len() >= nbytes) {
            return Ok(board.clone());
        }
        let size = nbytes.checked_next_power_of_two().ok_or_else(|| {
            Error::Other(format!("a collective of {nbytes} bytes does not fit in memory"))
        })?;
        let made = turn.map(size.max(LEAST_BOARD))?;
        Ok(board.insert(made).clone())
    }

    /// The members on this host.
    pub(super) fn local(&self) -> &Arc<ShmBackend> {
        &self.local
    }

    /// This rank's number in the group.
    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    /// The members, by their rank in the world.
    pub(super) fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    /// Makes every rank's calls fail with `reason`. Waits for the store for a moment, at most.
    pub(super) fn abort(&self, reason: &str) {
        self.local.abort(reason);
        self.tell();
    }

    /// Says that this rank is done with the group.
    pub(super) fn leave(&self) {
        self.local.leave();
        self.end_notes();
        // The others hear it as the connections are dropped.
        drop(self.rail.lock().take());
    }
}

impl fmt::Debug for HostsBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("HostsBackend");
        let engine = if self.world.mpi.is_some() { "mpi" } else { "tcp" };
        shown.field("engine", &engine).field("rank", &self.rank).field("ranks", &self.ranks);
        shown.field("layout", &self.layout);
        shown.finish_non_exhaustive()
    }
}
