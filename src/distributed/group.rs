//! Process groups: the ranks that take part in a collective, and what every collective has in
//! common: membership, order, deadlines, the end. The collectives themselves, on tensors, are in
//! `tensor_collectives`.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::Deadline;
use super::direction::{Direction, Directions};
use super::in_place::Scratch;
use super::nccl::HostAndGpu;
use super::origin::Origin;
use super::queue::{self, Queue};
use super::ranks::{list_numbers, list_ranks};
use crate::cuda::Stream;
use crate::cuda::graph::{self, Executable, Participant};
use crate::error::{Error, Result};

/// A set of ranks that call collectives together (`torch.distributed.ProcessGroup`). Cheap to
/// clone; from [`init_process_group`](super::init_process_group) or
/// [`new_group`](ProcessGroup::new_group).
///
/// Every rank of the group calls the same collectives in the same order, with tensors of the same
/// dtype and shape; a difference is an [`Error::Mismatch`] on all ranks. After a time-out, a peer's
/// death or an abort the group is of no more use, and every further call says why. `_async` forms
/// return at once and run on the group's communication thread, in the order of submission together
/// with the others.
///
/// When the last handle is dropped, this rank leaves the group: started collectives are completed
/// first. During a panic it aborts the group instead, so that the peers do not wait.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Tensor, distributed::{ProcessGroup, ReduceOp}};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// let group: ProcessGroup = group;
/// assert_eq!((group.world_size(), group.ranks()), (2, &[0, 1][..]));
/// let x = Tensor::from([group.rank() as f32 + 1.0]);
/// group.all_reduce(&x, ReduceOp::Sum)?;
/// assert_eq!(x.item(), 3.0);
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ProcessGroup {
    inner: Arc<Inner>,
    timeout: Duration,
}

#[derive(Debug)]
struct Inner {
    /// `None` on ranks that took part in making the group but are no members.
    member: Option<Member>,
    /// Members by their rank in the world.
    ranks: Vec<usize>,
    world_rank: usize,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) backend: Arc<HostAndGpu>,
    pub(super) queue: Queue,
    directions: Directions,
    /// The GPU of its collectives. All ranks begin to have one at the same place of the program: with the
    /// first collective there that is called, or as a part of a group that had one.
    pub(super) gpu: OnceLock<usize>,
    /// Of what is reduced in place.
    pub(super) scratch: Mutex<Option<Arc<Scratch>>>,
    /// How many things have a number of their own.
    numbered: AtomicU32,
    /// Groups of so many neighbours, of which this rank is one.
    worlds: Mutex<Vec<ProcessGroup>>,
}

/// What to do with what makes communicators: a graph cannot.
pub(super) const BEFORE: &str = "do it once before the capture";

/// The groups of this process, for [`abort`].
static LIVE: Mutex<Vec<Weak<HostAndGpu>>> = Mutex::new(Vec::new());

/// Aborts all process groups of this process: every rank's collectives, waiting or later, return
/// [`Error::Aborted`] with `reason`. For a worker that is about to fail outside a group's own calls.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
/// use torchrs::{Error, distributed};
/// # fn main() -> torchrs::Result<()> {
/// # two_ranks(|group| {
/// if group.rank() == 0 {
///     distributed::abort("no data left");
/// }
/// let error = group.barrier().unwrap_err();
/// assert!(matches!(error, Error::Aborted(_)) && error.to_string().contains("no data left"));
/// # Ok(())
/// # })
/// # }
/// ```
pub fn abort(reason: &str) {
    let live: Vec<_> = LIVE.lock().iter().filter_map(Weak::upgrade).collect();
    live.iter().for_each(|group| group.abort(reason));
}

impl ProcessGroup {
    /// `gpu` is that of the group that this one is a part of.
    pub(super) fn new(
        backend: Arc<HostAndGpu>,
        gpu: Option<usize>,
        world_rank: usize,
        timeout: Duration,
    ) -> Self {
        {
            let mut live = LIVE.lock();
            live.retain(|group| group.strong_count() > 0);
            live.push(Arc::downgrade(&backend));
        }
        let ranks = backend.ranks().to_vec();
        let (queue, directions) = (Queue::new(), Directions::default());
        let gpu = gpu.map_or_else(OnceLock::new, OnceLock::from);
        let (scratch, numbered, worlds) = (Mutex::default(), AtomicU32::new(0), Mutex::default());
        let member = Member { backend, queue, directions, gpu, scratch, numbered, worlds };
        let member = Some(member);
        ProcessGroup { inner: Arc::new(Inner { member, ranks, world_rank }), timeout }
    }

    /// This process's rank in the group.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] on a rank that is not a member; see [`is_member`](Self::is_member).
    #[track_caller]
    pub fn rank(&self) -> usize {
        match self.member("rank") {
            Ok(member) => member.backend.rank(),
            Err(error) => crate::error::throw(error),
        }
    }

    /// How many ranks the group has.
    pub fn world_size(&self) -> usize {
        self.inner.ranks.len()
    }

    /// The members, by their rank in the world.
    pub fn ranks(&self) -> &[usize] {
        &self.inner.ranks
    }

    /// Whether this process is in the group.
    pub fn is_member(&self) -> bool {
        self.inner.member.is_some()
    }

    /// How long a call may take.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The same group, whose calls through this handle may take `timeout`.
    ///
    /// ```
    /// use std::time::Duration;
    /// let group = torchrs::distributed::init_process_group(Default::default())?;
    /// let impatient = group.with_timeout(Duration::from_millis(100));
    /// assert_eq!(impatient.timeout(), Duration::from_millis(100));
    /// assert!(group.timeout() > impatient.timeout());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    pub fn with_timeout(&self, timeout: Duration) -> ProcessGroup {
        ProcessGroup { inner: self.inner.clone(), timeout }
    }

    /// A group of the members `ranks` (ranks in this group, without repetition; their order does
    /// not matter). All ranks of this group call it, with the same list; those that are not in the
    /// list get a group of which they are no members. PyTorch: `torch.distributed.new_group`.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// use torchrs::{Tensor, distributed::ReduceOp};
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// // On both of two ranks:
    /// let second = group.new_group(&[1])?;
    /// let x = Tensor::from([7.0f32]);
    /// assert_eq!(second.all_reduce(&x, ReduceOp::Sum).is_ok(), group.rank() == 1);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty list, a rank that does not exist or appears twice;
    /// otherwise as any collective.
    #[track_caller]
    pub fn new_group(&self, ranks: &[usize]) -> Result<ProcessGroup> {
        let member = self.member("new_group")?;
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        let (world, given) = (self.world_size(), format!("[{}]", list_numbers(ranks)));
        let wrong = match (sorted.last(), sorted.windows(2).find(|w| w[0] == w[1])) {
            (None, _) => Some("is empty".to_owned()),
            (_, Some(twice)) => Some(format!("{given} names rank {} twice", twice[0])),
            (Some(&last), _) if last >= world => {
                Some(format!("{given} names rank {last}, but the group has {world} ranks"))
            }
            _ => None,
        };
        if let Some(wrong) = wrong {
            return Err(Error::argument("new_group", "ranks", wrong));
        }
        let gpu = member.gpu.get().copied();
        if let Some(gpu) = gpu {
            graph::refuse(Stream::current(gpu)?, "a new process group", BEFORE)?;
        }
        let deadline = Deadline::after(self.timeout);
        let backend = Origin::here()
            .over(|| member.queue.run(gpu, || member.backend.new_group(&sorted, &deadline)))?;
        let (world_rank, timeout) = (self.inner.world_rank, self.timeout);
        Ok(match backend {
            Some(backend) => ProcessGroup::new(backend, gpu, world_rank, timeout),
            None => {
                let ranks = sorted.iter().map(|&r| self.inner.ranks[r]).collect();
                let inner = Inner { member: None, ranks, world_rank };
                ProcessGroup { inner: Arc::new(inner), timeout }
            }
        })
    }

    /// Makes every rank's calls on this group, waiting or later, fail with [`Error::Aborted`] and
    /// `reason`. Does nothing on a rank that is not a member.
    pub fn abort(&self, reason: &str) {
        if let Some(member) = &self.inner.member {
            member.backend.abort(reason);
        }
    }

    /// Whether anything of this group has failed so far, also what calls that have returned put on a GPU:
    /// a collective there ends without a result where a peer dies or a deadline passes. Waits for nothing;
    /// after `cuda::device::synchronize` it knows of everything before. The next call of the group and the
    /// next wait for the GPU (`item`, `cpu`, `synchronize`) find the same error.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/distributed/two_ranks.rs"));
    /// # fn main() -> torchrs::Result<()> {
    /// # two_ranks(|group| {
    /// group.check()?;
    /// group.barrier()?;
    /// group.abort("no data left");
    /// assert!(group.check().unwrap_err().to_string().contains("no data left"));
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    ///
    /// # Errors
    /// The failure, as the group's calls return it.
    pub fn check(&self) -> Result<()> {
        let member = self.member("check")?;
        let doing = format!("rank {} checks the group", self.inner.world_rank);
        member.backend.check(&doing)
    }

    /// A number for the next of several things whose collectives over the group look alike: from 1, the same on all ranks.
    pub(crate) fn next_number(&self) -> u32 {
        self.inner.member.as_ref().map_or(0, |member| member.numbered.fetch_add(1, Relaxed) + 1)
    }

    /// The group of this rank among each `ranks` neighbours, a number that divides the group's. All ranks call it.
    ///
    /// # Errors
    /// Those of [`new_group`](Self::new_group).
    #[track_caller]
    pub(crate) fn within_worlds_of(&self, ranks: usize) -> Result<ProcessGroup> {
        let member = self.member("new_group")?;
        let known = |group: &&ProcessGroup| group.world_size() == ranks;
        if let Some(group) = member.worlds.lock().iter().find(known) {
            return Ok(group.clone());
        }
        let all: Vec<usize> = (0..self.world_size()).collect();
        let groups: Result<Vec<_>> = all.chunks(ranks).map(|ranks| self.new_group(ranks)).collect();
        let own = groups?.swap_remove(self.rank() / ranks);
        member.worlds.lock().push(own.clone());
        Ok(own)
    }

    /// Whether the other is a handle of the same group.
    pub(crate) fn is_same(&self, other: &ProcessGroup) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// This process's rank in the world.
    pub(super) fn world_rank(&self) -> usize {
        self.inner.world_rank
    }

    /// # Errors
    /// [`Error::Argument`] on a rank that is not a member.
    pub(super) fn check_member(&self, call: &str) -> Result<()> {
        self.member(call).map(drop)
    }

    /// The direction between two ranks of the group, which is made at its first use.
    pub(super) fn direction(
        &self,
        call: &str,
        ends: [usize; 2],
        tag: u32,
    ) -> Result<Arc<Direction>> {
        let member = self.member(call)?;
        Ok(member.directions.get(&member.backend, ends, tag))
    }

    /// # Errors
    /// [`Error::Argument`] on a rank that is not a member.
    pub(super) fn member(&self, call: &str) -> Result<&Member> {
        self.inner.member.as_ref().ok_or_else(|| {
            let (rank, ranks) = (self.inner.world_rank, list_ranks(&self.inner.ranks));
            Error::argument(call, "group", format!("rank {rank} is not a member; it has {ranks}"))
        })
    }

    pub(crate) fn downgrade(&self) -> WeakGroup {
        WeakGroup { inner: Arc::downgrade(&self.inner), timeout: self.timeout }
    }
}

impl Participant for ProcessGroup {
    fn key(&self) -> usize {
        Arc::as_ptr(&self.inner) as usize
    }

    fn recorded(&self, executable: &Arc<Executable>) {
        self.inner.member.iter().for_each(|member| member.backend.recorded(executable));
    }

    fn replay(&self, stream: Stream, launch: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        let member = self.member("replay")?;
        queue::run_on_gpu(stream.device(), || {
            member.backend.replay(stream, Deadline::after(self.timeout), launch)
        })
    }
}

/// A group that this does not keep alive.
#[derive(Debug)]
pub(crate) struct WeakGroup {
    inner: Weak<Inner>,
    timeout: Duration,
}

impl WeakGroup {
    pub(crate) fn upgrade(&self) -> Option<ProcessGroup> {
        let inner = self.inner.upgrade()?;
        Some(ProcessGroup { inner, timeout: self.timeout })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(member) = &self.member else { return };
        if std::thread::panicking() {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or("<unnamed>");
            let reason = format!("thread `{name}` panicked");
            member.backend.abort(&reason);
        }
        member.queue.close();
        member.directions.close();
        member.backend.leave();
    }
}
