//! Groups whose tensors may be on GPUs: memory of the host goes through shared memory, that of GPUs
//! through NCCL. The ranks' hosts meet for both at the same place, in one order, so a mismatch, a death or
//! an abort is found before NCCL is called, and named as for tensors on the host; NCCL itself would hang.
//!
//! | module | what it is for |
//! | --- | --- |
//! | [`link`] | a communicator with its stream: joined at first use, polled, split, closed |
//! | [`lane`] | what all groups share on a GPU: the stream, what is on its way |
//! | [`calls`] | collectives as calls of NCCL |
//! | [`watchdog`] | ends what is on its way when a peer dies or a deadline passes |

mod calls;
mod lane;
mod link;
mod watchdog;

use std::sync::Arc;

use parking_lot::Mutex;

use super::Deadline;
use super::backend::{Backend, Pace};
use super::collective::Collective;
use super::shm::{Segment, ShmBackend};
use crate::cuda::graph::Executable;
use crate::cuda::{Event, Stream};
use crate::error::{Error, Result};
use link::Link;
pub(super) use link::Started;

/// The backend of every group.
#[derive(Debug)]
pub(super) struct HostAndGpu {
    host: Arc<ShmBackend>,
    /// Whether its collectives wait for no other group's, nor theirs for them.
    is_apart: bool,
    /// From the first collective on a GPU on, or from a split.
    link: Mutex<Option<Arc<Link>>>,
}

impl HostAndGpu {
    /// A group that has not used a GPU yet.
    pub(super) fn new(host: ShmBackend) -> Self {
        HostAndGpu { host: Arc::new(host), is_apart: false, link: Mutex::new(None) }
    }

    /// The communicator. All ranks make it in the same collective.
    fn link(&self, device: usize, deadline: &Deadline) -> Result<Arc<Link>> {
        let mut link = self.link.lock();
        if let Some(link) = &*link {
            return Ok(link.clone());
        }
        link::refuse_capture(device, "the first collective of a process group")?;
        let lane = if self.is_apart { lane::apart() } else { lane::shared(device) };
        let made = Link::join(&self.host, device, lane, deadline)?;
        Ok(link.insert(made).clone())
    }

    /// Whoever gets this error knows of what was lost.
    fn told<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|_| self.link.lock().iter().for_each(|link| link.is_told()))
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
}

impl Backend for HostAndGpu {
    fn run(&self, collective: &Collective, deadline: &Deadline, pace: Pace) -> Result<()> {
        self.told(self.host.run(collective, deadline, pace))
    }

    fn start(
        &self,
        collective: &Collective,
        ready: &Event,
        deadline: &Deadline,
        pace: Pace,
        then: &mut dyn FnMut(),
    ) -> Result<Started> {
        let device = ready.device();
        self.check_device(collective, device)?;
        let calls = calls::of(collective, self.host.rank(), self.host.ranks().len())?;
        self.told(self.host.meet(&collective.signature, deadline, pace))?;
        // From here on a failure of one rank would leave the others' GPUs waiting: it aborts the group.
        let started = self.link(device, deadline).and_then(|link| {
            // SAFETY: whoever made the collective keeps its memory until it is done.
            unsafe { link.start(&collective.signature, &calls, ready, deadline, then) }
        });
        started.inspect_err(|error| self.host.abort(&error.to_string()))
    }

    fn alloc_shared(&self, nbytes: usize, deadline: &Deadline) -> Result<Arc<Segment>> {
        self.host.alloc_shared(nbytes, deadline)
    }

    fn new_group(&self, ranks: &[usize], deadline: &Deadline) -> Result<Option<Arc<dyn Backend>>> {
        let host = self.host.sub_group(ranks, deadline)?.map(Arc::new);
        let place = ranks.iter().position(|&rank| rank == self.host.rank());
        let parent = self.link.lock().clone();
        let link = match parent {
            Some(parent) => parent
                .split(place, host.as_ref(), deadline)
                .inspect_err(|error| self.host.abort(&error.to_string()))?,
            None => None,
        };
        let of = |host| HostAndGpu { host, is_apart: self.is_apart, link: Mutex::new(link) };
        Ok(host.map(|host| Arc::new(of(host)) as _))
    }

    fn gpu(&self) -> Option<usize> {
        self.link.lock().as_ref().map(|link| link.device())
    }

    fn recorded(&self, graph: &Arc<Executable>) {
        self.link.lock().iter().for_each(|link| link.recorded(graph));
    }

    fn replay(
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

    fn check(&self, doing: &str) -> Result<()> {
        let link = self.link.lock().clone();
        link.map_or(Ok(()), |link| link.check())?;
        self.told(self.host.failure(doing).map_or(Ok(()), Err))
    }

    fn direction(
        &self,
        ends: [usize; 2],
        tag: u32,
        deadline: &Deadline,
    ) -> Result<Arc<dyn Backend>> {
        let host = self.host.direction(ends, tag, deadline)?;
        Ok(Arc::new(HostAndGpu { is_apart: true, ..HostAndGpu::new(host) }))
    }

    fn rank(&self) -> usize {
        self.host.rank()
    }

    fn ranks(&self) -> &[usize] {
        self.host.ranks()
    }

    fn abort(&self, reason: &str) {
        // The watchdog of every rank then ends what is on its way on GPUs.
        self.host.abort(reason);
    }

    fn leave(&self) {
        if let Some(link) = self.link.lock().take() {
            link.close();
        }
        self.host.leave();
    }
}
