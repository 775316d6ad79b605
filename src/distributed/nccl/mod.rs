//! Groups whose tensors may be on GPUs: memory of the host goes through shared memory and, between hosts, over
//! connections; that of GPUs through NCCL. The ranks of a host meet for both at the same place, in one order, so a
//! mismatch, a death or an abort is found before NCCL is called, and named as for tensors on the host; NCCL itself
//! would hang. Hosts meet at the first call on GPUs only. Later ones go ahead, and are compared meanwhile: what is
//! found then ends the communicators.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`peers`] | the members, on one host or over several |
//! | [`link`] | a communicator with its stream: joined at first use, polled, split, closed |
//! | [`lane`] | a stream and what is on its way there: one for all groups of a GPU, one for each direction of messages |
//! | [`calls`] | collectives as calls of NCCL |
//! | [`watchdog`] | ends what is on its way when a peer dies or a deadline passes |

mod calls;
mod lane;
mod link;
mod patience;
mod peers;
mod watchdog;

use std::sync::Arc;

use parking_lot::Mutex;

use super::Deadline;
use super::collective::{Collective, Pace};
use super::hosts::HostsBackend;
use super::shm::{Segment, ShmBackend};
use crate::cuda::graph::Executable;
use crate::cuda::{Event, Stream};
use crate::error::{Error, Result};
use lane::Lane;
use link::Link;
pub(super) use link::Started;
use peers::Peers;

/// The engine of every group: it runs collectives among the members, and knows memory and ranks but no
/// tensors. Collectives come one at a time, in the order of the group's queue; the rest from any thread.
#[derive(Debug)]
pub(super) struct HostAndGpu {
    peers: Peers,
    /// From the first collective on a GPU on, or from a split.
    link: Mutex<Option<Arc<Link>>>,
}

impl HostAndGpu {
    /// A group that has not used a GPU yet.
    pub(super) fn new(host: ShmBackend) -> Self {
        HostAndGpu::of(Peers::OnOneHost(Arc::new(host)))
    }

    /// The same over several hosts.
    pub(super) fn over_hosts(hosts: Arc<HostsBackend>) -> Self {
        HostAndGpu::of(Peers::OverHosts(hosts))
    }

    fn of(peers: Peers) -> Self {
        HostAndGpu { peers, link: Mutex::new(None) }
    }

    /// The communicator. All ranks make it in the same collective.
    fn link(&self, device: usize, deadline: &Deadline) -> Result<Arc<Link>> {
        if let Some(link) = &*self.link.lock() {
            return Ok(link.clone());
        }
        // Unlocked, for those who ask meanwhile; collectives come one at a time.
        let lane =
            if self.peers.is_direction() { Lane::new(device)? } else { lane::shared(device)? };
        self.peers.begin_on_gpu(deadline)?;
        let made = Link::join(&self.peers, lane, deadline)?;
        Ok(self.link.lock().insert(made).clone())
    }

    /// Whoever gets this error knows of what was lost.
    fn told<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|_| {
            self.peers.tell();
            self.link.lock().iter().for_each(|link| link.is_told());
        })
    }

    /// A group has one GPU per rank.
    fn check_device(&self, collective: &Collective, device: usize) -> Result<()> {
        match &*self.link.lock() {
            Some(link) if link.device() != device => {
                let call = collective.signature.kind.name();
                let what = format!(
                    "is on cuda:{device}, but this rank of the group uses cuda:{}",
                    link.device()
                );
                Err(Error::argument(call, "tensor", what))
            }
            _ => Ok(()),
        }
    }

    /// Runs one collective to its end. The memory in `collective` is valid and nobody else's until
    /// this returns.
    pub(super) fn run(
        &self,
        collective: &Collective,
        deadline: &Deadline,
        pace: Pace,
    ) -> Result<()> {
        self.told(self.peers.run(collective, deadline, pace))
    }

    /// Starts a collective on a GPU's memory: it follows `ready` and all collectives before it. Returns
    /// when it is on its way. `then` runs after that, with the stream of collectives as the current one.
    pub(super) fn start(
        &self,
        collective: &Collective,
        ready: &Event,
        deadline: &Deadline,
        pace: Pace,
        then: &mut dyn FnMut(),
    ) -> Result<Started> {
        let device = ready.device();
        self.check_device(collective, device)?;
        let calls = calls::of(collective, self.rank(), self.ranks().len())?;
        self.told(self.peers.meet(&collective.signature, deadline, pace))?;
        // From here on a failure of one rank would leave the others' GPUs waiting: it aborts the group.
        let link = || self.link(device, deadline);
        let link = match &collective.signature.origin {
            Some(origin) => origin.over(link),
            None => link(),
        };
        let started = link.and_then(|link| {
            // SAFETY: whoever made the collective keeps its memory until it is done.
            unsafe { link.start(&collective.signature, &calls, ready, deadline, then) }
        });
        started.inspect_err(|error| self.peers.abort(&error.to_string()))
    }

    /// Memory of `nbytes` on every rank that collectives work on in place. Collective.
    pub(super) fn alloc_shared(&self, nbytes: usize, deadline: &Deadline) -> Result<Arc<Segment>> {
        self.peers.alloc_shared(nbytes, deadline)
    }

    /// The group of the members `ranks` (ranks of this group, ascending); `None` if this rank is
    /// not among them. Collective over this group.
    pub(super) fn new_group(
        &self,
        ranks: &[usize],
        deadline: &Deadline,
    ) -> Result<Option<Arc<HostAndGpu>>> {
        let peers = self.peers.new_group(ranks, deadline)?;
        let place = ranks.iter().position(|&rank| rank == self.rank());
        let parent = self.link.lock().clone();
        let link = match parent {
            Some(parent) => parent
                .split(place, peers.as_ref(), deadline)
                .inspect_err(|error| self.peers.abort(&error.to_string()))?,
            None => None,
        };
        let link = Mutex::new(link);
        Ok(peers.map(|peers| Arc::new(HostAndGpu { peers, link })))
    }

    /// The group of a sender and its receiver, in this order, for messages of one tag. Only these two
    /// call it. Whatever ends it or this group ends both.
    pub(super) fn direction(
        &self,
        ends: [usize; 2],
        tag: u32,
        deadline: &Deadline,
    ) -> Result<HostAndGpu> {
        self.peers.direction(ends, tag, deadline).map(HostAndGpu::of)
    }

    /// A graph with its collectives is ready.
    pub(super) fn recorded(&self, graph: &Arc<Executable>) {
        self.link.lock().iter().for_each(|link| link.recorded(graph));
    }

    /// Puts a graph's replay on `stream` by `launch`, and looks after it.
    pub(super) fn replay(
        &self,
        stream: Stream,
        deadline: Deadline,
        launch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let link = self.link.lock().clone();
        match link {
            Some(link) => link.replay(stream, deadline, launch),
            None => launch(),
        }
    }

    /// Whether anything has failed so far. `doing` says what this rank is at. Waits for nothing.
    pub(super) fn check(&self, doing: &str) -> Result<()> {
        let link = self.link.lock().clone();
        link.map_or(Ok(()), |link| link.check())?;
        self.told(self.peers.failure(doing).map_or(Ok(()), Err))
    }

    /// Whether all ranks share a host's memory.
    pub(super) fn is_on_one_host(&self) -> bool {
        self.peers.on_one_host().is_some()
    }

    /// Waits until all ranks have completed the collective with this number, in which they read in place.
    pub(super) fn wait_until_read(&self, number: u32, deadline: &Deadline) -> Result<()> {
        match self.peers.on_one_host() {
            Some(host) => self.told(host.wait_until_read(number, deadline)),
            None => Ok(()),
        }
    }

    /// This rank's number in the group.
    pub(super) fn rank(&self) -> usize {
        self.peers.rank()
    }

    /// The members, by their rank in the world.
    pub(super) fn ranks(&self) -> &[usize] {
        self.peers.ranks()
    }

    /// Makes every rank's calls, waiting or later, fail with `reason`. The watchdog of every rank then
    /// ends what is on its way on GPUs.
    pub(super) fn abort(&self, reason: &str) {
        self.peers.abort(reason);
    }

    /// Says that this rank is done with the group.
    pub(super) fn leave(&self) {
        let link = self.link.lock().take();
        if let Some(link) = link {
            link.close();
        }
        self.peers.leave();
    }
}
