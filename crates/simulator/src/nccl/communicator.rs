//! Communicators: a rank's place among the ranks, what has gone wrong, and the thread that performs calls.

use super::board::{Board, State};
use super::id::{self, UniqueId};
use super::mesh::{Mesh, Refused};
use super::outcome::{Outcome, Result};
use super::place::Place;
use super::root::Root;
use super::seat::{LOOK, Seat, Stop};
use crate::context;
use crate::counters;
use crate::device;
use crate::event::Mark;
use crate::faults;
use crate::ipc::handle::began;
use crate::registry::{Handle, Registry};
use crate::settings::{self, Fault};
use crate::stream;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::ffi::CString;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// All communicators that live.
pub static COMMUNICATORS: Registry<Communicator> = Registry::new();

/// What a communicator's own thread does next.
pub type Task = Box<dyn FnOnce(&Communicator) + Send>;

/// One rank's end of a communicator.
pub struct Communicator {
    /// The device whose context was current when it was made.
    pub device: usize,
    /// Whether calls return only when they are through.
    pub blocking: bool,
    /// Calls that were performed, each of which all ranks count alike.
    pub performed: AtomicU64,
    /// Calls that graphs hold which live.
    pub in_graphs: AtomicU64,
    place: OnceLock<Place>,
    aborted: Arc<AtomicBool>,
    status: Mutex<Status>,
    changed: Condvar,
    tasks: Mutex<Option<Sender<Task>>>,
    /// Calls of graphs to which a stream has come. A call that was made later waits in `tasks` for its stream, and
    /// that may be for these.
    of_graphs: Mutex<VecDeque<Task>>,
}

struct Status {
    outcome: Outcome,
    message: CString,
    /// Tasks that are not done.
    pending: usize,
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Communicator").field("device", &self.device).finish_non_exhaustive()
    }
}

/// Makes a communicator that has no place yet, and its thread.
pub fn create(device: usize, blocking: bool) -> Result<(Handle, Arc<Communicator>)> {
    let (sender, tasks) = channel::<Task>();
    let outcome = if blocking { Outcome::SUCCESS } else { Outcome::IN_PROGRESS };
    let handle = COMMUNICATORS.insert(Communicator {
        device,
        blocking,
        performed: AtomicU64::new(0),
        in_graphs: AtomicU64::new(0),
        place: OnceLock::new(),
        aborted: Arc::default(),
        status: Mutex::new(Status { outcome, message: CString::default(), pending: 0 }),
        changed: Condvar::new(),
        tasks: Mutex::new(Some(sender)),
        of_graphs: Mutex::default(),
    });
    let communicator = get(handle)?;
    let thread = communicator.clone();
    let run = move || {
        for task in tasks {
            task(&thread);
            thread.status.lock().pending -= 1;
            thread.changed.notify_all();
        }
    };
    std::thread::Builder::new()
        .name(format!("sim-nccl-{device}"))
        .spawn(run)
        .map_err(|_| Outcome::SYSTEM_ERROR)?;
    Ok((handle, communicator))
}

/// The communicator behind a handle.
pub fn get(handle: Handle) -> Result<Arc<Communicator>> {
    COMMUNICATORS.get(handle).map_err(|_| Outcome::INVALID_ARGUMENT)
}

impl Communicator {
    /// Its place, once all ranks have joined.
    pub fn place(&self) -> Result<&Place> {
        self.place.get().ok_or(Outcome::INVALID_ARGUMENT)
    }

    /// Whether it was aborted.
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    /// The asynchronous error, or that a call is under way.
    pub fn outcome(&self) -> Outcome {
        self.status.lock().outcome
    }

    /// Its last message; the address is good until the next one.
    pub fn message(&self) -> *const std::ffi::c_char {
        self.status.lock().message.as_ptr()
    }

    /// Refuses a call while another is under way or after a failure.
    pub fn check_ready(&self) -> Result {
        match self.outcome() {
            Outcome::SUCCESS => Ok(()),
            Outcome::IN_PROGRESS => Err(Outcome::INVALID_ARGUMENT),
            error => Err(error),
        }
    }

    /// Says that a call is under way, or through.
    pub fn set_in_progress(&self, under_way: bool) {
        let mut status = self.status.lock();
        let (from, to) = match under_way {
            true => (Outcome::SUCCESS, Outcome::IN_PROGRESS),
            false => (Outcome::IN_PROGRESS, Outcome::SUCCESS),
        };
        if status.outcome == from {
            status.outcome = to;
        }
    }

    /// Takes a failure down and prints it; the first one stays.
    pub fn fail(&self, outcome: Outcome, message: &str) {
        let mut status = self.status.lock();
        if matches!(status.outcome, Outcome::SUCCESS | Outcome::IN_PROGRESS) {
            let rank =
                self.place.get().map_or(String::new(), |place| format!(" rank {}:", place.rank));
            eprintln!("simulated NCCL:{rank} {message}");
            status.outcome = outcome;
            status.message = CString::new(message).unwrap_or_default();
        }
    }

    /// Takes down what ended a wait.
    pub fn stopped(&self, stop: Stop) -> Outcome {
        let (outcome, message) = match stop {
            // Whoever aborts knows.
            Stop::Aborted => return Outcome::REMOTE_ERROR,
            Stop::Peer(message) => (Outcome::REMOTE_ERROR, message),
            Stop::Mismatch(message) => (Outcome::INVALID_USAGE, message),
        };
        self.fail(outcome, &message);
        outcome
    }

    /// Has the communicator's thread do something after all else.
    pub fn submit(&self, task: Task) {
        let tasks = self.tasks.lock();
        if let Some(sender) = &*tasks {
            self.status.lock().pending += 1;
            // The thread ends only after its sender is gone.
            let _ = sender.send(task);
        }
    }

    /// Has the communicator's thread do something of a graph, before what waits for its stream.
    pub fn submit_of_graph(&self, task: Task) {
        {
            let tasks = self.tasks.lock();
            let Some(sender) = &*tasks else { return };
            self.of_graphs.lock().push_back(task);
            self.status.lock().pending += 1;
            let _ = sender.send(Box::new(Communicator::serve_graphs));
        }
        stream::wake();
    }

    fn serve_graphs(&self) {
        while let Some(task) = self.next_of_graphs() {
            task(self);
        }
    }

    fn next_of_graphs(&self) -> Option<Task> {
        self.of_graphs.lock().pop_front()
    }

    /// On the communicator's thread: waits until a stream has come to a call; whether it has, and all is well.
    pub fn wait_for_stream(&self, mark: &Mark) -> bool {
        loop {
            self.serve_graphs();
            let is_wanted = || self.is_aborted() || !self.of_graphs.lock().is_empty();
            if stream::wait_unless(mark, self.device, is_wanted) {
                return true;
            }
            if self.is_aborted() || context::of(self.device).check().is_err() {
                return false;
            }
        }
    }

    /// Waits until the thread has done everything.
    pub fn drain(&self) {
        let mut status = self.status.lock();
        while status.pending > 0 && !self.is_aborted() {
            self.changed.wait_for(&mut status, Duration::from_millis(10));
        }
    }

    /// Waits until no graph lives that holds its calls, as NCCL does before it frees anything, also in an
    /// abort.
    pub fn outlive_graphs(&self) {
        while self.in_graphs.load(Ordering::Acquire) > 0 {
            std::thread::sleep(LOOK);
        }
    }

    /// Sleeps until it is aborted: what a kernel does whose peers do not come.
    pub fn hang(&self) {
        while !self.is_aborted() {
            std::thread::sleep(LOOK);
        }
    }

    /// Joins as `rank` of `world` and waits until all ranks have.
    pub fn join(&self, id: &UniqueId, rank: usize, world: usize) -> Result {
        counters::JOINS.count();
        if faults::is_set(Fault::NcclJoinHang) {
            self.hang();
            return Err(Outcome::REMOTE_ERROR);
        }
        match Root::decode(&id.0) {
            Some(root) => self.join_by_network(&root, rank, world),
            None => self.join_in_memory(id, rank, world),
        }
    }

    fn join_by_network(&self, root: &Root, rank: usize, world: usize) -> Result {
        let device = (settings::get().host, device::physical(self.device) as u32);
        self.settle(Mesh::join(root, device, world, rank, &self.aborted))
    }

    /// Joins as place `place` of some ranks of `parent`, in its `number`-th split.
    pub fn join_part(
        &self,
        parent: &Mesh,
        split: (u64, i32),
        ranks: &[usize],
        place: usize,
    ) -> Result {
        counters::JOINS.count();
        self.settle(parent.split(split, ranks, place, &self.aborted))
    }

    fn settle(&self, joined: std::result::Result<Mesh, Refused>) -> Result {
        let mesh = joined.map_err(|(outcome, message)| {
            self.fail(outcome, &message);
            outcome
        })?;
        let _ = self.place.set(mesh.into());
        Ok(())
    }

    fn join_in_memory(&self, id: &UniqueId, rank: usize, world: usize) -> Result {
        let board = Board::new(id::open(id).inspect_err(|outcome| {
            self.fail(*outcome, "the process that made the unique id is gone");
        })?);
        if let Err(other) = board.agree_on_world(world) {
            let message = format!("{world} ranks here, {other} ranks elsewhere");
            self.fail(Outcome::INVALID_ARGUMENT, &message);
            return Err(Outcome::INVALID_ARGUMENT);
        }
        let seat = Seat { rank, world, board, aborted: self.aborted.clone() };
        let cell = seat.board.cell(rank);
        if !cell.claim() {
            self.fail(Outcome::INVALID_USAGE, &format!("another process has rank {rank} too"));
            return Err(Outcome::INVALID_USAGE);
        }
        let process = std::process::id();
        cell.device.store(device::physical(self.device) as u32, Ordering::Release);
        cell.began.store(began(process).unwrap_or(0), Ordering::Release);
        cell.process.store(process, Ordering::Release);
        seat.ring_all();
        let all: Vec<usize> = (0..world).collect();
        let here = |rank: &usize| seat.board.cell(*rank).process.load(Ordering::Acquire) != 0;
        let met = seat.wait(&all, || all.iter().all(here).then_some(()));
        id::forget(id);
        if let Err(stop) = met {
            cell.end(State::Aborted);
            seat.ring_all();
            return Err(self.stopped(stop));
        }
        let device = |rank: usize| (0, seat.board.cell(rank).device.load(Ordering::Acquire));
        if let Some(message) =
            shared_device(&all.iter().map(|&rank| device(rank)).collect::<Vec<_>>())
        {
            self.fail(Outcome::INVALID_USAGE, &message);
            return Err(Outcome::INVALID_USAGE);
        }
        let _ = self.place.set(seat.into());
        Ok(())
    }

    /// Ends this rank's part in it. Without an abort, what was called is still done.
    pub fn end(&self, state: State) {
        if state == State::Left && self.outcome() == Outcome::SUCCESS {
            self.drain();
        }
        self.aborted.store(true, Ordering::Release);
        *self.tasks.lock() = None;
        self.of_graphs.lock().clear();
        if let Some(place) = self.place.get() {
            place.end(state);
        }
    }
}

/// NCCL takes one rank per device, unless its experimental variables say otherwise. `devices` are the ranks' hosts
/// and devices there.
pub fn shared_device(devices: &[(u32, u32)]) -> Option<String> {
    let allowed = ["NCCL_MULTI_RANK_GPU_ENABLE", "NCCL_HOSTID"];
    if allowed.iter().any(|name| std::env::var_os(name).is_some()) {
        return None;
    }
    let twice = |b: usize| (0..b).find(|&a| devices[a] == devices[b]).map(|a| (a, b));
    let (a, b) = (0..devices.len()).find_map(twice)?;
    let device = devices[a].1;
    Some(format!("Duplicate GPU detected : rank {a} and rank {b} both on CUDA device {device}"))
}
