//! What a process group needs from the engine under it. A backend knows raw memory and ranks; it
//! knows no tensors, and is called by one thread at a time, in the same order on all ranks.

use std::fmt::Debug;
use std::sync::Arc;

use super::Deadline;
use super::collective::Collective;
use super::nccl::Started;
use super::shm::Segment;
use crate::cuda::graph::Executable;
use crate::cuda::{Event, Stream};
use crate::error::Result;

/// How eagerly a thread may wait for its peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The caller has nothing else to do: it may burn a little time to save latency.
    Foreground,
    /// Other threads of the process are at work on the same cores.
    Background,
}

/// An engine that runs collectives among the members of one group.
pub(crate) trait Backend: Debug + Send + Sync {
    /// Runs one collective to its end. The memory in `collective` is valid and nobody else's until
    /// this returns.
    fn run(&self, collective: &Collective, deadline: &Deadline, pace: Pace) -> Result<()>;

    /// Starts a collective on a GPU's memory: it follows `ready` and all collectives before it. Returns
    /// when it is on its way. `then` runs after that, with the stream of collectives as the current one.
    fn start(
        &self,
        collective: &Collective,
        ready: &Event,
        deadline: &Deadline,
        pace: Pace,
        then: &mut dyn FnMut(),
    ) -> Result<Started>;

    /// Memory of `nbytes` on every rank that collectives work on in place. Collective.
    fn alloc_shared(&self, nbytes: usize, deadline: &Deadline) -> Result<Arc<Segment>>;

    /// The group of the members `ranks` (ranks of this group, ascending); `None` if this rank is
    /// not among them. Collective over this group.
    fn new_group(&self, ranks: &[usize], deadline: &Deadline) -> Result<Option<Arc<dyn Backend>>>;

    /// The GPU of its collectives, once there were some.
    fn gpu(&self) -> Option<usize>;

    /// A graph with its collectives is ready.
    fn recorded(&self, graph: &Arc<Executable>);

    /// Puts a graph's replay on `stream` by `launch`, and looks after it.
    fn replay(
        &self,
        stream: Stream,
        deadline: Deadline,
        launch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()>;

    /// Whether anything has failed so far. `doing` says what this rank is at.
    fn check(&self, doing: &str) -> Result<()>;

    /// The group of a sender and its receiver, in this order, for messages of one tag. Only these two
    /// call it.
    fn direction(
        &self,
        ends: [usize; 2],
        tag: u32,
        deadline: &Deadline,
    ) -> Result<Arc<dyn Backend>>;

    /// This rank's number in the group.
    fn rank(&self) -> usize;

    /// The members, by their rank in the world.
    fn ranks(&self) -> &[usize];

    /// Makes every rank's calls, waiting or later, fail with `reason`. From any thread.
    fn abort(&self, reason: &str);

    /// Says that this rank is done with the group.
    fn leave(&self);
}
