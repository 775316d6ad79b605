//! The parent's side of loader workers: starts them, publishes tasks to the ring, waits for the
//! oldest one, and says what happened when a worker fails, dies or hangs.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::mem;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::arena::{Arena, Slot};
use super::control::{Control, Dimensions, SlotPlace, TaskState};
use super::dataset::Dataset;
use super::layout::BatchLayout;
use super::shared::Shared;
use super::worker::{Init, ToParent, Wake, WorkerArgs, run_worker};
use crate::error::{Error, Result};
use crate::multiprocessing::{Channel, ExitStatus, Process};

/// How long a worker may take to leave when the loader is dropped; then it is killed.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(100);
/// How long a worker whose socket is closed may take to be gone.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);

/// A loader's worker processes and their memory.
#[derive(Debug)]
pub(super) struct Pool {
    control: Control,
    /// The number of the first worker.
    first: usize,
    workers: Vec<Worker>,
    /// Published tasks that were not collected, oldest first.
    ring: VecDeque<InFlight>,
    /// What workers said about failed tasks.
    failures: HashMap<u64, (usize, Option<usize>, String)>,
}

#[derive(Debug)]
struct Worker {
    process: Process,
    channel: Channel<Wake, ToParent>,
    /// The worker's memory, by number.
    arenas: HashMap<u64, Arc<Arena>>,
}

#[derive(Debug)]
struct InFlight {
    task: u64,
    cancelled: bool,
    /// Where the batch is, once that was looked up.
    slot: Option<Slot>,
}

/// A collected task.
#[derive(Debug)]
pub(super) enum Collected {
    Batch(BatchLayout, Slot),
    /// The batch failed; the others are not concerned.
    Failed(Error),
    /// There was none left to make.
    Nothing,
}

impl Pool {
    /// Starts the workers, each of which runs `F` first.
    pub fn start<D: Dataset, F: Init>(
        dataset: &Arc<D>,
        seed: u64,
        dimensions: Dimensions,
    ) -> Result<Self> {
        Self::of(dimensions, 0, |worker, control| {
            let args = WorkerArgs {
                worker,
                seed,
                dimensions,
                control: control.memory().clone(),
                dataset: Shared(dataset.clone()),
            };
            // Workers run beside the trainer's threads: one computing thread each.
            Process::builder()
                .name(format!("loader worker {worker}"))
                .env("OMP_NUM_THREADS", "1")
                .spawn_connected(run_worker::<D, F>, args)
        })
    }

    /// Workers that `spawn` starts, the first with the number `first`.
    pub fn of(
        dimensions: Dimensions,
        first: usize,
        spawn: impl Fn(usize, &Control) -> Result<(Process, Channel<Wake, ToParent>)>,
    ) -> Result<Self> {
        let control = Control::create(dimensions)?;
        let mut workers = Vec::with_capacity(dimensions.workers);
        for worker in 0..dimensions.workers {
            let (process, channel) = spawn(first + worker, &control)?;
            workers.push(Worker { process, channel, arenas: HashMap::new() });
        }
        Ok(Pool { control, first, workers, ring: VecDeque::new(), failures: HashMap::new() })
    }

    /// Whether a task can be published.
    pub fn has_room(&self) -> bool {
        self.ring.len() < self.control.dimensions().tasks
    }

    /// Publishes a batch. There is room.
    pub fn publish(&mut self, indices: &[usize], epoch: u64) -> Result<()> {
        let most = self.control.dimensions().batch_size;
        if indices.len() > most {
            let message = format!("has more than the {most} indices of the first epoch");
            return Err(Error::argument("DataLoader", "sampler", message));
        }
        let task = self.control.publish(indices, epoch);
        self.ring.push_back(InFlight { task, cancelled: false, slot: None });
        if let Some(worker) = self.control.wake_one() {
            // A worker with a full socket is awake; a dead one is found by `wait`.
            match self.workers[worker].channel.send_timeout(&Wake, Duration::ZERO) {
                Err(Error::Timeout { .. } | Error::Disconnected(_)) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Nobody wants the tasks that are in flight: they end early.
    pub fn cancel_all(&mut self) {
        for task in &mut self.ring {
            task.cancelled = true;
            self.control.cancel(task.task);
        }
    }

    /// True when the oldest task is finished and wanted: [`collect`](Self::collect) will not wait.
    pub fn has_next(&self) -> bool {
        let front = self.ring.front().filter(|front| !front.cancelled);
        front.is_some_and(|front| self.control.state(front.task) != TaskState::Published)
    }

    /// The oldest wanted task, once it is finished; `None` when there is none.
    ///
    /// # Errors
    /// [`Error::Timeout`] and [`Error::Child`]: the pool is of no more use.
    pub fn collect(&mut self, timeout: Option<Duration>) -> Result<Option<Collected>> {
        let start = Instant::now();
        while let Some(&InFlight { task, .. }) = self.ring.front() {
            let state = self.wait(task, start, timeout)?;
            // Looked up even if nobody wants the batch: the slot has to be freed.
            self.adopt_front()?;
            let InFlight { slot, cancelled, .. } =
                self.ring.pop_front().expect("the front is there");
            let failure = self.failures.remove(&task);
            if cancelled {
                continue;
            }
            return match (state, slot) {
                (TaskState::Done, Some(slot)) => {
                    let layout = BatchLayout::read_table(slot.memory())?;
                    Ok(Some(Collected::Batch(layout, slot)))
                }
                (TaskState::Failed, _) => Ok(Some(Collected::Failed(self.explain(failure)))),
                (TaskState::Skipped, _) => Ok(Some(Collected::Nothing)),
                (state, _) => {
                    Err(Error::Other(format!("DataLoader: task {task} ended as {state:?}")))
                }
            };
        }
        Ok(None)
    }

    /// Takes over the slot of the oldest task, if its batch is done.
    fn adopt_front(&mut self) -> Result<()> {
        if let Err(place) = self.adopt(0) {
            // Its arena was announced before the batch was done: the message is there.
            if place.worker < self.workers.len() {
                self.serve(place.worker)?;
            }
            self.adopt(0).map_err(|_| Error::Other(format!("DataLoader: {place:?} is unknown")))?;
        }
        Ok(())
    }

    /// Takes over the slot of the task at place `at` of the ring, if its batch is done and its arena
    /// known; else an error.
    fn adopt(&mut self, at: usize) -> Result<(), SlotPlace> {
        let InFlight { task, ref slot, .. } = self.ring[at];
        if slot.is_none() && self.control.state(task) == TaskState::Done {
            let place = self.control.place(task);
            let arena = self.workers.get(place.worker).and_then(|w| w.arenas.get(&place.arena));
            self.ring[at].slot = Some(arena.and_then(|a| a.slot(place.slot)).ok_or(place)?);
        }
        Ok(())
    }

    /// The error for a failed task.
    fn explain(&self, failure: Option<(usize, Option<usize>, String)>) -> Error {
        match failure {
            Some((worker, Some(index), message)) => {
                Error::Dataset { index, worker: self.name(worker), message }
            }
            Some((worker, None, message)) => Error::Child { who: self.name(worker), message },
            None => Error::Other("DataLoader: a worker failed and did not say why".to_owned()),
        }
    }

    fn name(&self, worker: usize) -> String {
        format!(
            "loader worker {} (pid {})",
            self.first + worker,
            self.workers[worker].process.pid()
        )
    }

    /// Sleeps until `task` is finished, answering workers meanwhile.
    fn wait(&mut self, task: u64, start: Instant, timeout: Option<Duration>) -> Result<TaskState> {
        let deadline = timeout.and_then(|timeout| start.checked_add(timeout));
        loop {
            match self.control.state(task) {
                TaskState::Published => {}
                // A worker sends its reasons before it says that it failed.
                TaskState::Failed if !self.failures.contains_key(&task) => {
                    self.serve_all()?;
                    return Ok(TaskState::Failed);
                }
                state => return Ok(state),
            }
            self.control.set_awaited(Some(task));
            let woken = match self.control.state(task) {
                TaskState::Published => self.sleep(deadline),
                _ => Ok(true),
            };
            self.control.set_awaited(None);
            if !woken? {
                return Err(self.timed_out(task, start.elapsed()));
            }
        }
    }

    /// Sleeps until a worker sends something or dies, and serves it; false when the deadline passed.
    fn sleep(&mut self, deadline: Option<Instant>) -> Result<bool> {
        let ready: Vec<usize> = {
            let mut fds: Vec<PollFd> = Vec::with_capacity(2 * self.workers.len());
            for worker in &self.workers {
                fds.push(PollFd::new(worker.channel.as_fd(), PollFlags::POLLIN));
                fds.push(PollFd::new(worker.process.as_fd(), PollFlags::POLLIN));
            }
            loop {
                match poll(&mut fds, poll_timeout(deadline)) {
                    Ok(0) if deadline.is_some_and(|at| Instant::now() >= at) => return Ok(false),
                    Ok(0) | Err(Errno::EINTR) => {}
                    Ok(_) => break,
                    Err(e) => return Err(Error::os("wait for loader workers", e)),
                }
            }
            let is_ready = |fd: &PollFd| fd.revents().is_some_and(|events| !events.is_empty());
            let pairs = fds.chunks(2).enumerate();
            pairs.filter(|(_, pair)| pair.iter().any(is_ready)).map(|(w, _)| w).collect()
        };
        for worker in ready {
            self.serve(worker)?;
        }
        Ok(true)
    }

    fn serve_all(&mut self) -> Result<()> {
        (0..self.workers.len()).try_for_each(|worker| self.serve(worker))
    }

    /// Handles all that a worker has sent; an error when it is dead.
    fn serve(&mut self, worker: usize) -> Result<()> {
        loop {
            match self.workers[worker].channel.try_recv() {
                Ok(Some(message)) => self.handle(worker, message)?,
                Ok(None) => match self.workers[worker].process.try_wait()? {
                    Some(_) => return Err(self.death_of(worker)),
                    None => return Ok(()),
                },
                Err(Error::Disconnected(_)) => return Err(self.death_of(worker)),
                Err(error) => return Err(error),
            }
        }
    }

    fn handle(&mut self, worker: usize, message: ToParent) -> Result<()> {
        match message {
            ToParent::Wake => {}
            ToParent::Arena(arena) => {
                if !arena.is_sound() {
                    let who = self.name(worker);
                    let message = format!("sent memory with numbers that do not fit: {arena:?}");
                    return Err(Error::Child { who, message });
                }
                self.workers[worker].arenas.insert(arena.id, Arc::new(arena));
            }
            ToParent::Retired(arenas) => {
                // Batches in them are done, and keep them alive by their slots. What cannot be
                // taken over now is another worker's.
                for at in 0..self.ring.len() {
                    let _ = self.adopt(at);
                }
                self.workers[worker].arenas.retain(|id, _| !arenas.contains(id));
            }
            ToParent::Failed { task, index, message } => {
                self.failures.insert(task, (worker, index, message));
            }
        }
        Ok(())
    }

    /// The error for a worker that is dead: how it ended, and what it was doing.
    fn death_of(&self, worker: usize) -> Error {
        let process = &self.workers[worker].process;
        let doing = match self.control.activity(worker).index {
            Some(index) => format!("while it read index {index}"),
            None => "while it read no sample".to_owned(),
        };
        // Asked before the status is collected: the process is a zombie, its limits still known.
        let mut message = doing;
        let limit = address_space_limit(process.pid());
        let failure = match process.wait_timeout(EXIT_TIMEOUT) {
            Ok(ExitStatus::Exited(0)) => None,
            Ok(status) => {
                if let (Some(libc::SIGABRT | libc::SIGSEGV), Some(limit)) = (status.signal(), limit)
                {
                    message += &format!(
                        "; a failed allocation ends a process so, and its memory limit (address \
                         space, `ulimit -v`) is {limit} bytes"
                    );
                }
                process.failure(status)
            }
            Err(error) => Some(error),
        };
        let how = match failure {
            Some(Error::Child { message, .. }) => message,
            Some(other) => other.to_string(),
            None => "exited with code 0, before its time".to_owned(),
        };
        // How it ended comes first; a panic's message and backtrace may follow on more lines.
        let message = match how.split_once(": panicked") {
            Some((how, panic)) => format!("{how} {message}: panicked{panic}"),
            None => format!("{how} {message}"),
        };
        Error::Child { who: self.name(worker), message }
    }

    fn timed_out(&self, task: u64, waited: Duration) -> Error {
        let describe = |worker: usize| {
            let process = &self.workers[worker].process;
            let activity = self.control.activity(worker);
            let batch =
                if activity.task == Some(task) { "the awaited batch" } else { "another batch" };
            let doing = match (activity.index, activity.task) {
                (Some(index), Some(_)) => format!("reads index {index} of {batch}"),
                (None, Some(_)) => format!("is at {batch}"),
                _ => "has nothing to do".to_owned(),
            };
            let state = process_state(process.pid());
            (
                activity.task != Some(task),
                format!(
                    "loader worker {} (pid {}, {state}) {doing}",
                    self.first + worker,
                    process.pid()
                ),
            )
        };
        let mut workers: Vec<(bool, String)> = (0..self.workers.len()).map(describe).collect();
        // The one that is to blame comes first.
        workers.sort_by_key(|(other, _)| *other);
        let list: Vec<String> = workers.into_iter().map(|(_, text)| text).collect();
        Error::Timeout {
            seconds: waited.as_secs_f64(),
            message: format!("the next batch is not ready: {}", list.join("; ")),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.cancel_all();
        self.control.stop();
        let deadline = Instant::now() + LEAVE_TIMEOUT;
        // All sockets close before the first worker is waited for; whoever is still there then is
        // killed by its handle's drop.
        let processes: Vec<Process> = self.workers.drain(..).map(|w| w.process).collect();
        for process in &processes {
            let _ = process.wait_timeout(deadline.saturating_duration_since(Instant::now()));
        }
    }
}

fn poll_timeout(deadline: Option<Instant>) -> PollTimeout {
    let Some(at) = deadline else { return PollTimeout::NONE };
    let left = at.saturating_duration_since(Instant::now());
    // Rounded up, so that a wake-up is never early; far deadlines come round again.
    let millis = left.as_nanos().div_ceil(1_000_000).min(i32::MAX as u128) as i32;
    PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
}

/// The address-space limit of a process, if it has one.
fn address_space_limit(pid: i32) -> Option<u64> {
    // SAFETY: rlimit is plain data; prlimit fills it and changes nothing.
    unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        let result = libc::prlimit(pid, libc::RLIMIT_AS, std::ptr::null(), &mut limit);
        (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
    }
}

/// What the kernel says a process is doing.
fn process_state(pid: i32) -> &'static str {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The letter behind the program's name, which is in parentheses.
    match stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()) {
        Some('R') => "running",
        Some('S' | 'I') => "sleeping",
        Some('D') => "waiting for a disk or network file system",
        Some('T') => "stopped by a signal",
        Some('t') => "stopped by a debugger",
        Some('Z' | 'X') => "dead",
        _ => "in an unknown state",
    }
}
