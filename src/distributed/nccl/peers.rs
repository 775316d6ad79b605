//! The members of a group as its communicator sees them: all on one host, or over several. On one host they meet
//! before each call. Over several those of each host do, and hosts compare their calls while these are on their way:
//! no call waits for the network before NCCL has it.

use std::sync::Arc;
use std::time::Duration;

use crate::distributed::Deadline;
use crate::distributed::collective::{Collective, Pace, Signature};
use crate::distributed::hosts::{HostsBackend, Made};
use crate::distributed::shm::{Segment, ShmBackend};
use crate::error::{Error, Result};

/// How much longer than its members for each other a host waits for what is on its way: where a member is missing its
/// own host says so first, and better. A host's first member knows more of the others, and so waits half as long.
const GRACE: Duration = Duration::from_millis(600);

/// The members of a group.
#[derive(Debug, Clone)]
pub(super) enum Peers {
    OnOneHost(Arc<ShmBackend>),
    OverHosts(Arc<HostsBackend>),
}

use Peers::{OnOneHost, OverHosts};

impl From<Made> for Peers {
    fn from(made: Made) -> Peers {
        match made {
            Made::OnThisHost(host) => OnOneHost(Arc::new(*host)),
            Made::OverHosts(hosts) => OverHosts(hosts),
        }
    }
}

impl Peers {
    /// Those on this host.
    fn local(&self) -> &Arc<ShmBackend> {
        match self {
            OnOneHost(host) => host,
            OverHosts(hosts) => hosts.local(),
        }
    }

    /// The members, if they share a host's memory.
    pub(super) fn on_one_host(&self) -> Option<&Arc<ShmBackend>> {
        match self {
            OnOneHost(host) => Some(host),
            OverHosts(_) => None,
        }
    }

    /// This rank's number in the group.
    pub(super) fn rank(&self) -> usize {
        match self {
            OnOneHost(host) => host.rank(),
            OverHosts(hosts) => hosts.rank(),
        }
    }

    /// The members, by their rank in the world.
    pub(super) fn ranks(&self) -> &[usize] {
        match self {
            OnOneHost(host) => host.ranks(),
            OverHosts(hosts) => hosts.ranks(),
        }
    }

    /// This rank in the world.
    pub(super) fn me(&self) -> usize {
        self.ranks()[self.rank()]
    }

    /// Whether the two ranks are those of messages within a larger group.
    pub(super) fn is_direction(&self) -> bool {
        self.local().is_direction()
    }

    /// Whether what is on its way on the GPU may wait for a rank that has to do something else with this one first.
    pub(super) fn may_be_waited_for(&self) -> bool {
        matches!(self, OverHosts(_)) && self.is_direction()
    }

    /// Runs a collective on memory of the host.
    pub(super) fn run(
        &self,
        collective: &Collective,
        deadline: &Deadline,
        pace: Pace,
    ) -> Result<()> {
        match self {
            OnOneHost(host) => host.run(collective, deadline, pace),
            OverHosts(hosts) => hosts.run(collective, deadline, pace),
        }
    }

    /// Waits until all ranks, or those of this host, call the same on their GPUs.
    pub(super) fn meet(
        &self,
        signature: &Signature,
        deadline: &Deadline,
        pace: Pace,
    ) -> Result<()> {
        match self {
            OnOneHost(host) => host.meet(signature, deadline, pace),
            OverHosts(hosts) => hosts.meet_on_gpu(signature, deadline, pace),
        }
    }

    /// All members call it as the group gets a communicator.
    pub(super) fn begin_on_gpu(&self, deadline: &Deadline) -> Result<()> {
        match self {
            OnOneHost(_) => Ok(()),
            OverHosts(hosts) => hosts.open_notes(deadline),
        }
    }

    /// Memory of `nbytes` on every rank that collectives work on in place.
    pub(super) fn alloc_shared(&self, nbytes: usize, deadline: &Deadline) -> Result<Arc<Segment>> {
        match self {
            OnOneHost(host) => host.alloc_shared(nbytes, deadline),
            OverHosts(hosts) => hosts.alloc_shared(nbytes, deadline),
        }
    }

    /// The members `ranks` as a group of their own, if this rank is among them.
    pub(super) fn new_group(&self, ranks: &[usize], deadline: &Deadline) -> Result<Option<Peers>> {
        match self {
            OnOneHost(host) => {
                Ok(host.sub_group(ranks, deadline)?.map(|host| OnOneHost(Arc::new(host))))
            }
            OverHosts(hosts) => Ok(hosts.new_group(ranks, deadline)?.map(Peers::from)),
        }
    }

    /// A sender and its receiver.
    pub(super) fn direction(
        &self,
        ends: [usize; 2],
        tag: u32,
        deadline: &Deadline,
    ) -> Result<Peers> {
        match self {
            OnOneHost(host) => Ok(OnOneHost(Arc::new(host.direction(ends, tag, deadline)?))),
            OverHosts(hosts) => hosts.direction(ends, tag, deadline).map(Peers::from),
        }
    }

    /// Why nobody goes on in this group, if that is so. `doing` says what this rank was at.
    pub(super) fn failure(&self, doing: &str) -> Option<Error> {
        self.local().failure(doing)
    }

    /// How long to wait for the reason once NCCL has failed: its connections end at once where a peer dies, and who
    /// died is known a little later.
    pub(super) fn explained_within(&self) -> Duration {
        match self {
            OnOneHost(_) => Duration::from_millis(100),
            OverHosts(_) => Duration::from_millis(700),
        }
    }

    /// The deadline of what is on its way.
    pub(super) fn patient(&self, deadline: Deadline) -> Deadline {
        let OverHosts(hosts) = self else { return deadline };
        let grace = if hosts.local().rank() == 0 { GRACE / 2 } else { GRACE };
        Deadline::after(deadline.remaining() + grace)
    }

    /// How all ranks are and what they called last, as far as this one knows.
    pub(super) fn conditions(&self) -> String {
        let here = self.local().conditions();
        let there = match self {
            OnOneHost(_) => String::new(),
            OverHosts(hosts) => hosts.conditions(),
        };
        if there.is_empty() { here } else { format!("{here}; {there}") }
    }

    /// Takes down that the group has failed, unless it has already. All ranks of this host see it, and other hosts
    /// soon.
    pub(super) fn fail(&self, reason: &str) {
        self.local().abort(reason);
    }

    /// Makes every rank's calls fail with `reason`.
    pub(super) fn abort(&self, reason: &str) {
        match self {
            OnOneHost(host) => host.abort(reason),
            OverHosts(hosts) => hosts.abort(reason),
        }
    }

    /// Whoever gets a failure may end at once: before that the other hosts are told.
    pub(super) fn tell(&self) {
        if let OverHosts(hosts) = self {
            hosts.tell();
        }
    }

    /// Says that this rank is done with the group.
    pub(super) fn leave(&self) {
        match self {
            OnOneHost(host) => host.leave(),
            OverHosts(hosts) => hosts.leave(),
        }
    }
}
