//! A group's communicator with the lane on which its collectives run.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::lane::Lane;
use super::patience::Patience;
use super::peers::Peers;
use super::{lane, watchdog};
use crate::cuda::graph::Executable;
use crate::cuda::nccl::{Call, Communicator, UniqueId, unique_id};
use crate::cuda::{self, Event, Stream, StreamGuard, lost};
use crate::distributed::Deadline;
use crate::distributed::collective::{Collective, Kind, Pace, RawBuffer, Signature};
use crate::distributed::reminder::Reminder;
use crate::error::{Error, Result};
use crate::tensor::Dtype;

/// How long the end of a group waits for the other ranks to end it too.
const CLOSING: Duration = Duration::from_secs(2);
/// Bytes that each rank tells the others when they join: an id, and the identity of its GPU.
const CARD: usize = 128 + 16;

/// A communicator and the lane of its collectives.
#[derive(Debug)]
pub(super) struct Link {
    communicator: Communicator,
    lane: Arc<Lane>,
    peers: Peers,
    /// Graphs with its collectives. NCCL ends no communicator before them.
    graphs: Mutex<Vec<Weak<Executable>>>,
    /// Why it was aborted.
    failure: OnceLock<Error>,
    /// The number of the loss, where results were lost by that.
    loss: OnceLock<u64>,
    /// A caller was told.
    is_known: AtomicBool,
}

/// A collective on its way, or other work of a GPU.
#[derive(Debug, Clone)]
pub(crate) struct Started {
    done: Arc<Event>,
    /// Whose collective it is.
    link: Option<Arc<Link>>,
}

impl Started {
    /// What is done when `done` is.
    pub(in crate::distributed) fn after(done: Event) -> Started {
        Started { done: Arc::new(done), link: None }
    }

    fn check(&self) -> Result<()> {
        self.link.as_ref().map_or(Ok(()), |link| link.check())
    }

    /// Lets what comes next on the thread's current stream wait for it.
    ///
    /// # Errors
    /// What has failed since.
    pub(crate) fn join_current_stream(&self) -> Result<()> {
        self.check()?;
        self.done.hold_current_stream()
    }

    /// Whether it is done.
    ///
    /// # Errors
    /// What has failed since.
    pub(crate) fn is_done(&self) -> Result<bool> {
        let done = self.done.query()?;
        // An aborted collective is done as well.
        self.check().map(|()| done)
    }
}

impl Link {
    /// Joins with all ranks of `peers`, in the same collective. `lane` is where its collectives run.
    pub(super) fn join(peers: &Peers, lane: Arc<Lane>, deadline: &Deadline) -> Result<Arc<Link>> {
        let device = lane.stream().device();
        let (rank, world) = (peers.rank(), peers.ranks().len());
        let id = if rank == 0 { unique_id()? } else { UniqueId([0; 128]) };
        let mut card = id.0.to_vec();
        card.extend(cuda::device::properties(device)?.uuid.0);
        let cards = exchange(peers, &mut card, deadline)?;
        check_devices(&cards, peers.ranks(), device)?;
        let mut id = UniqueId([0; 128]);
        id.0.copy_from_slice(&cards[..128]);
        const DOING: &str = "joins an NCCL communicator";
        if !peers.may_be_waited_for() {
            lane::shared(device)?.drain(deadline, || doing(peers, DOING))?;
        }
        let communicator = explained(Communicator::begin(id, world, rank, device), peers, DOING)?;
        until_ready(&communicator, peers, deadline, DOING)?;
        Link::new(communicator, lane, peers.clone())
    }

    fn new(communicator: Communicator, lane: Arc<Lane>, peers: Peers) -> Result<Arc<Link>> {
        watchdog::start()?;
        let (graphs, failure, loss, is_known) = Default::default();
        Ok(Arc::new(Link { communicator, lane, peers, graphs, failure, loss, is_known }))
    }

    /// The ranks that give a place become a communicator of their own; all ranks take part. `peers` are
    /// those of the new group, on its members.
    pub(super) fn split(
        &self,
        place: Option<usize>,
        peers: Option<&Peers>,
        deadline: &Deadline,
    ) -> Result<Option<Arc<Link>>> {
        self.check()?;
        peers.map_or(Ok(()), |peers| peers.begin_on_gpu(deadline))?;
        const DOING: &str = "splits an NCCL communicator";
        self.lane.drain(deadline, || doing(&self.peers, DOING))?;
        self.check()?;
        let split = explained(self.communicator.begin_split(place), &self.peers, DOING)?;
        until_ready(&self.communicator, &self.peers, deadline, DOING)?;
        let (Some(communicator), Some(peers)) = (split.finish(), peers) else { return Ok(None) };
        until_ready(&communicator, &self.peers, deadline, DOING)?;
        Link::new(communicator, self.lane.clone(), peers.clone()).map(Some)
    }

    /// The GPU.
    pub(super) fn device(&self) -> usize {
        self.communicator.device()
    }

    /// # Errors
    /// Why it was aborted, if it was.
    pub(super) fn check(&self) -> Result<()> {
        let Some(error) = self.failure.get() else { return Ok(()) };
        self.is_told();
        Err(error.clone())
    }

    /// A caller knows that the group has failed.
    pub(super) fn is_told(&self) {
        self.is_known.store(true, SeqCst);
        self.peers.tell();
        self.loss.get().copied().into_iter().for_each(lost::heard);
    }

    /// A graph with its collectives is ready.
    pub(super) fn recorded(&self, graph: &Arc<Executable>) {
        let mut graphs = self.graphs.lock();
        graphs.retain(|graph| graph.strong_count() > 0);
        graphs.push(Arc::downgrade(graph));
        drop(graphs);
        if self.failure.get().is_some() {
            graph.end();
        }
    }

    /// Puts a replay on `stream` by `launch`: after the collectives that are on their way, before later ones.
    pub(super) fn replay(
        self: &Arc<Self>,
        stream: Stream,
        deadline: Deadline,
        launch: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        self.check()?;
        let call = "the replay of a graph with collectives";
        if let Some(error) = self.peers.failure(&format!("rank {} starts {call}", self.rank())) {
            self.fail(error);
            return self.check();
        }
        stream.wait_stream(self.lane.stream())?;
        launch()?;
        let done = Arc::new(stream.record_event()?);
        self.lane.stream().wait_event(&done)?;
        self.lane.add(self, &done, self.peers.patient(deadline), call.into());
        Ok(())
    }

    /// This rank's number in the world.
    fn rank(&self) -> usize {
        self.peers.me()
    }

    /// Puts a collective on the stream, after `ready`, and `then` behind it. A failure ends the
    /// communicator: part of it may be on the stream.
    ///
    /// # Safety
    /// The calls' memory is valid and left alone until the collective is done.
    pub(super) unsafe fn start(
        self: &Arc<Self>,
        signature: &Signature,
        calls: &[Call],
        ready: &Event,
        deadline: &Deadline,
        then: &mut dyn FnMut(),
    ) -> Result<Started> {
        // SAFETY: this function's contract: the memory is valid and left alone until the collective
        // is done.
        let started = unsafe { self.put_on_stream(signature, calls, ready, deadline, then) };
        started.inspect_err(|error| self.fail(error.clone()))
    }

    /// # Safety
    /// As [`start`](Self::start).
    unsafe fn put_on_stream(
        self: &Arc<Self>,
        signature: &Signature,
        calls: &[Call],
        ready: &Event,
        deadline: &Deadline,
        then: &mut dyn FnMut(),
    ) -> Result<Started> {
        self.check()?;
        let stream = self.lane.stream();
        stream.wait_event(ready)?;
        if !calls.is_empty() {
            const DOING: &str = "starts an NCCL collective";
            // SAFETY: the calls' memory is valid and left alone until the collective is done, by
            // `start`'s contract.
            let started = unsafe { self.communicator.start(calls, stream) };
            explained(started, &self.peers, DOING)?;
            until_ready(&self.communicator, &self.peers, deadline, DOING)?;
        }
        {
            let _current = StreamGuard::new(stream)?;
            then();
        }
        let done = Arc::new(stream.record_event()?);
        // What is recorded into a graph runs later, any number of times.
        if !stream.is_capturing()? {
            let deadline = self.peers.patient(*deadline);
            self.lane.add(self, &done, deadline, signature.with_place());
        }
        Ok(Started { done, link: Some(self.clone()) })
    }

    /// What a warning says while `call` is on its way.
    pub(super) fn waiting_in(&self, call: &str, deadline: &Deadline) -> String {
        let (rank, all) = (self.rank(), self.peers.conditions());
        let limit = deadline.limit();
        format!(
            "the GPU of rank {rank} has not completed {call}; on the hosts {all} (until the deadline of \
             {limit:.0?})"
        )
    }

    /// Why `call`, which is on its way, will not be done, if that is so.
    pub(super) fn find_failure(&self, call: &str, deadline: Option<&Deadline>) -> Option<Error> {
        let doing = format!("rank {} was in {call}", self.rank());
        let failure = self.peers.failure(&doing).or_else(|| {
            let error = self.communicator.poll().err()?;
            Some(cause(&self.peers, error, &doing))
        });
        failure.or_else(|| {
            let all = || format!("{doing}; {}", self.peers.conditions());
            deadline.filter(|deadline| deadline.has_passed()).map(|deadline| deadline.error(all()))
        })
    }

    /// Ends the communicator, and with it what is on its way, on all ranks. Waits for nothing.
    pub(super) fn fail(&self, error: Error) {
        // If the group is aborted already that record stands.
        self.peers.fail(&error.to_string());
        if self.failure.set(error.clone()).is_err() {
            return;
        }
        if self.lane.forget(self) {
            // Before the device goes on.
            let _ = self.loss.set(lost::lose(self.device(), error));
            if self.is_known.load(SeqCst) {
                self.is_told();
            }
        }
        self.communicator.abort();
        self.graphs.lock().iter().filter_map(Weak::upgrade).for_each(|graph| graph.end());
    }

    /// Completes what was started and ends the communicator. No graph of its collectives lives any more.
    pub(super) fn close(&self) {
        // The watchdog ends this loop: everything on its way has a deadline.
        while self.lane.holds(self) {
            self.lane.look();
            std::thread::sleep(Duration::from_micros(200));
        }
        let failed = self.failure.get().is_some();
        let ended = (!failed).then(|| self.communicator.begin_end()).map(|begun| {
            begun?;
            let deadline = Deadline::after(CLOSING);
            while !self.communicator.poll()? {
                if deadline.has_passed() {
                    return Err(deadline.error("the end of an NCCL communicator"));
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            Ok(())
        });
        match ended {
            Some(Ok(())) => self.communicator.destroy(),
            // It serves nobody any more, in peace or not.
            _ => self.communicator.abort(),
        }
        self.communicator.wait_for_end(CLOSING);
    }
}

fn doing(peers: &Peers, what: &str) -> String {
    format!("rank {} {what}", peers.me())
}

/// Polls until the communicator's last call is through, a peer is gone or the deadline has passed.
fn until_ready(
    communicator: &Communicator,
    peers: &Peers,
    deadline: &Deadline,
    what: &str,
) -> Result<()> {
    let mut patience = Patience::new();
    let reminder = Reminder::new();
    let doing = || doing(peers, what);
    while !explained(communicator.poll(), peers, what)? {
        if !patience.wait() {
            continue;
        }
        let failure = peers.failure(&doing());
        let late = || deadline.has_passed().then(|| deadline.error(doing()));
        if let Some(error) = failure.or_else(late) {
            communicator.abort();
            return Err(error);
        }
        reminder.remind(|| format!("{}; {}", doing(), peers.conditions()));
    }
    Ok(())
}

/// The result of a call of NCCL, with its [`cause`] where it failed.
fn explained<T>(result: Result<T>, peers: &Peers, what: &str) -> Result<T> {
    result.map_err(|error| cause(peers, error, &doing(peers, what)))
}

/// Why NCCL failed: what befell a peer, if the watch over peers finds something, says more than NCCL. So does
/// what the watchdog knew when it ended the communicator.
fn cause(peers: &Peers, error: Error, doing: &str) -> Error {
    let deadline = Deadline::after(peers.explained_within());
    loop {
        if let Some(failure) = peers.failure(doing) {
            return failure;
        }
        if deadline.has_passed() {
            return error;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// All ranks' cards, one behind the other.
fn exchange(peers: &Peers, card: &mut [u8], deadline: &Deadline) -> Result<Vec<u8>> {
    let mut cards = vec![0; CARD * peers.ranks().len()];
    let raw = |bytes: &mut [u8]| {
        Some(RawBuffer { ptr: bytes.as_mut_ptr(), len: bytes.len(), dtype: Dtype::U8 })
    };
    let signature = Signature::of_host(Kind::AllGather, &[CARD]);
    let (send, recv) = (raw(card), raw(&mut cards));
    peers.run(
        &Collective { signature, send, recv, owner: None, gpu: None, read: None },
        deadline,
        Pace::Foreground,
    )?;
    Ok(cards)
}

/// NCCL wants a GPU for each rank, and says so in fewer words.
fn check_devices(cards: &[u8], ranks: &[usize], device: usize) -> Result<()> {
    let shares = ["NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_HOSTID"];
    if shares.iter().any(|name| std::env::var_os(name).is_some()) {
        return Ok(());
    }
    let gpus: Vec<&[u8]> = cards.chunks_exact(CARD).map(|card| &card[128..]).collect();
    for (a, gpu) in gpus.iter().enumerate() {
        if let Some(b) = gpus[..a].iter().position(|other| other == gpu) {
            return Err(Error::Device(format!(
                "ranks {} and {} of the group use the same GPU (this rank uses cuda:{device}); each \
                 rank needs one of its own: put its tensors on `Device::Cuda(local_rank)`",
                ranks[b], ranks[a]
            )));
        }
    }
    Ok(())
}
