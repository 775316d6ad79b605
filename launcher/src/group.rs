//! One attempt of a job: all its workers, from their start to the end of the last process that
//! any of them left behind. Everything arrives as an event in one epoll: a worker's end (its
//! pidfd), signals, the front's death, the relay's end, and the next step of a shutdown as the
//! wait's own time-out.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, gethostname};
use torchrs_job::board::Board;
use torchrs_job::store::StoreServer;

use crate::console::say;
use crate::deadline::poll_timeout;
use crate::failure::{self, Doing, Failure};
use crate::place::Place;
use crate::plan::Plan;
use crate::process::Process;
use crate::relay::Relay;
use crate::signals::{STOP, Signals, USER, is_prepared};
use crate::status::event::JobEvent;
use crate::status::{Member, Round, Status};
use crate::stop::Stop;
use crate::tree;
use crate::worker::{Ended, Worker};

/// A terminal, a wrapper and the shell may all send the same Ctrl-C: signals to stop that follow
/// the first so closely are the same wish, not a second one.
pub const SAME_WISH: Duration = Duration::from_millis(300);
/// After a failure or a signal, output that a reader does not take for so long is dropped.
pub const STUCK_READER: Duration = Duration::from_secs(5);

const SIGNALS: u64 = u64::MAX;
const FRONT: u64 = u64::MAX - 1;
const RELAY: u64 = u64::MAX - 2;
const HOSTS: u64 = u64::MAX - 3;

/// What outlives the attempts.
pub struct Watch {
    epoll: Epoll,
    signals: Signals,
    /// Held for its pidfd: it becomes readable when the front dies.
    _front: Process,
    /// What is told to whoever looks at the job.
    pub status: Arc<Status>,
}

impl Watch {
    pub fn new(front: Process, status: Arc<Status>) -> nix::Result<Self> {
        let signals = Signals::take_over()?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNALS))?;
        epoll.add(&front, EpollEvent::new(EpollFlags::EPOLLIN, FRONT))?;
        Ok(Watch { epoll, signals, _front: front, status })
    }

    /// Watches the connection to other hosts, too.
    pub fn add_hosts(&self, link: impl AsFd) -> nix::Result<()> {
        self.epoll.add(link, EpollEvent::new(EpollFlags::EPOLLIN, HOSTS))
    }

    /// Waits, while no workers run, until something has come.
    pub fn wait(&self) -> Vec<Wake> {
        let mut events = [EpollEvent::empty(); 8];
        let count = match self.epoll.wait(&mut events, poll_timeout(None)) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => panic!("epoll of the launcher failed: {errno}"),
        };
        let mut wakes = Vec::new();
        for event in &events[..count] {
            match event.data() {
                HOSTS => wakes.push(Wake::Hosts),
                FRONT => wakes.push(Wake::FrontGone),
                SIGNALS => {
                    while let Some(signal) = self.signals.next() {
                        if STOP.contains(&signal) {
                            wakes.push(Wake::Stop(signal));
                        }
                    }
                    tree::reap_orphans(|_| false);
                }
                // Of workers that have ended.
                _ => {}
            }
        }
        wakes
    }
}

/// What comes while no workers run.
pub enum Wake {
    /// Something from other hosts.
    Hosts,
    /// A signal that asks for the job's end.
    Stop(Signal),
    /// The front was killed.
    FrontGone,
}

/// Where a round's workers meet, and who else may end it.
pub trait Others {
    /// A worker's connection to the store.
    fn connect(&self) -> torchrs_error::Result<OwnedFd>;
    /// Says in the store that a rank has ended.
    fn rank_ended(&self, rank: usize, how: &str);
    /// A worker has failed, and those of other hosts need not wait until the last one here has ended.
    fn failing(&self);
    /// What has come from other hosts and concerns these workers.
    fn news(&self) -> Vec<News>;
}

/// Of a job on one host.
impl Others for StoreServer {
    fn connect(&self) -> torchrs_error::Result<OwnedFd> {
        StoreServer::connect(self)
    }

    fn rank_ended(&self, rank: usize, how: &str) {
        StoreServer::rank_ended(self, rank, how);
    }

    fn failing(&self) {}

    fn news(&self) -> Vec<News> {
        Vec::new()
    }
}

/// From other hosts.
pub enum News {
    /// These workers are to end; `true`: at once.
    Stop(bool),
    /// A worker of another host has failed: these end as after a failure here.
    Failed,
    /// For the user's eyes.
    Say(String),
}

/// What a signal that asks for the end leads to.
pub fn grace_notice(signal: Signal, grace: Duration) -> String {
    format!(
        "torchrs-launch: {signal}: the workers have {grace:?} to end; a second signal kills them at once"
    )
}

/// How an attempt ended.
pub struct Outcome {
    /// By rank.
    pub workers: Vec<Ended>,
    /// The signal that asked the launcher to end the job.
    pub signal: Option<Signal>,
    /// Whether another host ended it.
    pub stopped: bool,
    /// Whether everything that the workers wrote was passed on.
    pub output_complete: bool,
}

/// The workers of one attempt and what becomes of them.
pub struct Group<'a> {
    plan: &'a Plan,
    watch: &'a Watch,
    place: &'a Place,
    workers: Vec<Worker>,
    relay: Relay,
    relay_done: bool,
    others: &'a dyn Others,
    /// Whether another host ends this round.
    stopped: bool,
    stop: Option<Stop>,
    /// The first signal that asked for the end, and when.
    signal: Option<(Signal, Instant)>,
    /// Whether another one came since the last stage began.
    at_once: bool,
    /// Processes that outlived their parents and all workers, and were asked to end.
    orphans: HashSet<Pid>,
}

impl<'a> Group<'a> {
    /// Starts all workers. If one cannot be started, those before it are killed.
    pub fn start(
        plan: &'a Plan,
        watch: &'a Watch,
        place: &'a Place,
        others: &'a dyn Others,
    ) -> Result<Self, Failure> {
        let started = Self::try_start(plan, watch, place, others);
        if started.is_err() {
            tree::kill_all(&watch.signals);
        }
        started
    }

    fn try_start(
        plan: &'a Plan,
        watch: &'a Watch,
        place: &'a Place,
        others: &'a dyn Others,
    ) -> Result<Self, Failure> {
        let (mut workers, mut inputs, mut warnings) = (Vec::new(), Vec::new(), Vec::new());
        // A job without one runs as well; nobody sees how far it is.
        let board = Board::new(plan.nproc).ok().map(Arc::new);
        for local_rank in 0..plan.nproc {
            let rank = place.rank(local_rank);
            let what = || format!("cannot connect rank {rank} to the store");
            let store = others.connect().doing(what)?;
            let board = board.as_ref().map(|board| board.fd());
            let started = Worker::start(plan, place, local_rank, store, board)?;
            let event = EpollEvent::new(EpollFlags::EPOLLIN, local_rank as u64);
            let watched = watch.epoll.add(&started.worker.process, event);
            watched.doing(|| format!("cannot watch the worker of rank {rank}"))?;
            workers.push(started.worker);
            inputs.extend(started.outputs);
            warnings.extend(started.warnings);
        }
        let what = || "cannot start the relay of the workers' output".to_owned();
        let relay = Relay::start(inputs, plan.nproc).doing(what)?;
        let event = EpollEvent::new(EpollFlags::EPOLLIN, RELAY);
        watch.epoll.add(relay.done(), event).doing(what)?;
        warnings.into_iter().for_each(|warning| relay.notice(warning));
        let member = |worker: &Worker| Member {
            rank: worker.rank,
            pid: worker.process.pid().as_raw(),
            ended: None,
        };
        watch.status.round_started(Round {
            place: place.clone(),
            members: workers.iter().map(member).collect(),
            board,
            output: relay.shared(),
        });
        Ok(Group {
            plan,
            watch,
            place,
            workers,
            relay,
            relay_done: false,
            others,
            stopped: false,
            stop: None,
            signal: None,
            at_once: false,
            orphans: HashSet::new(),
        })
    }

    /// Runs the attempt to its end.
    pub fn run(mut self) -> Outcome {
        while !self.is_over() {
            self.handle_events(self.stop.and_then(Stop::deadline));
            self.step_if_due();
        }
        let output_complete = self.drain();
        for line in self.relay.unprinted() {
            say(&format!("{line}\n"));
        }
        let relay = self.relay;
        let host = gethostname().unwrap_or_default().to_string_lossy().into_owned();
        let ended = |worker: Worker| {
            let tail = relay.stderr_tail(worker.local_rank);
            worker.into_ended(&host, tail)
        };
        Outcome {
            workers: self.workers.into_iter().map(ended).collect(),
            signal: self.signal.map(|(signal, _)| signal),
            stopped: self.stopped,
            output_complete,
        }
    }

    /// Whether no process of this attempt is left, or none that can be helped. Processes that
    /// outlive all workers are asked to end, then killed.
    fn is_over(&mut self) -> bool {
        if self.stop == Some(Stop::GivenUp) {
            return true;
        }
        if !self.workers.iter().all(Worker::has_ended) {
            return false;
        }
        if tree::reap_orphans(|_| false) {
            return true;
        }
        if matches!(self.stop, Some(Stop::Killed { .. })) {
            // Somebody forked while the others were being killed.
            tree::signal_all(Signal::SIGKILL);
        } else {
            // Each process is asked when it has lost its parent: until then it is the parent's to
            // end, and may be what the parent saves its work with.
            for orphan in tree::children().into_iter().filter(|pid| self.orphans.insert(*pid)) {
                let _ = kill(orphan, Signal::SIGTERM);
                let _ = kill(orphan, Signal::SIGCONT);
            }
            self.stop = Some(Stop::with_leftovers(self.stop, Instant::now(), self.plan.grace));
        }
        false
    }

    /// Waits for events, at most until `deadline`, and handles them.
    fn handle_events(&mut self, deadline: Option<Instant>) {
        let mut events = [EpollEvent::empty(); 64];
        let count = match self.watch.epoll.wait(&mut events, poll_timeout(deadline)) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => panic!("epoll of the workers failed: {errno}"),
        };
        let mut signalled = false;
        // Epoll reports in the order in which things happened: of two workers that die, the
        // first is seen first.
        for event in &events[..count] {
            match event.data() {
                SIGNALS => signalled = true,
                FRONT => self.abandon(),
                RELAY => self.relay_done = self.relay.is_done(),
                HOSTS => self.take_news(),
                local_rank => self.worker_ended(local_rank as usize),
            }
        }
        if signalled {
            while let Some(signal) = self.watch.signals.next() {
                self.handle_signal(signal);
            }
        }
    }

    fn take_news(&mut self) {
        for news in self.others.news() {
            match news {
                News::Say(text) => {
                    self.watch.status.tell(JobEvent::Hosts { text: text.clone() });
                    self.relay.notice(format!("torchrs-launch: {text}"));
                }
                News::Failed => {
                    self.stopped = true;
                    let (now, grace) = (Instant::now(), self.plan.grace);
                    self.stop.get_or_insert_with(|| Stop::after_failure(now, grace));
                }
                News::Stop(at_once) => {
                    self.stopped = true;
                    if at_once {
                        self.kill_all();
                    } else {
                        self.ask_all_to_end(Signal::SIGTERM);
                        let grace = self.plan.grace;
                        self.stop = Some(Stop::after_signal(self.stop, Instant::now(), grace));
                    }
                }
            }
        }
    }

    fn worker_ended(&mut self, local_rank: usize) {
        let Some(exit) = self.workers[local_rank].try_reap() else { return };
        // Its pidfd stays readable for ever.
        let _ = self.watch.epoll.delete(&self.workers[local_rank].process);
        self.watch.status.rank_ended(local_rank, exit.to_string(), exit.success());
        // Others may wait for it to join, and it may have ended in peace.
        self.others.rank_ended(self.place.rank(local_rank), &exit.to_string());
        if !exit.success() && self.stop.is_none() {
            self.others.failing();
            self.stop = Some(Stop::after_failure(Instant::now(), self.plan.grace));
        }
    }

    fn handle_signal(&mut self, signal: Signal) {
        if signal == Signal::SIGCHLD {
            let workers = &self.workers;
            tree::reap_orphans(|pid| {
                workers.iter().any(|w| w.process.pid() == pid && !w.has_ended())
            });
        } else if USER.contains(&signal) {
            // A script's program rather than the script, if only the program is prepared; never
            // the children of one that is.
            for pid in tree::topmost(|pid| is_prepared(pid, signal)) {
                let _ = kill(pid, signal);
            }
        } else if STOP.contains(&signal) {
            self.asked_to_stop(signal);
        }
    }

    fn asked_to_stop(&mut self, signal: Signal) {
        let now = Instant::now();
        match self.signal {
            Some((_, first)) if now < first + SAME_WISH => {}
            Some(_) => {
                self.at_once = true;
                self.kill_all();
            }
            None => {
                self.signal = Some((signal, now));
                self.watch.status.stopping(format!("asked to by {signal}"));
                self.ask_all_to_end(signal);
                let grace = self.plan.grace;
                if !self.plan.under_launcher {
                    self.relay.notice(grace_notice(signal, grace));
                }
                self.stop = Some(Stop::after_signal(self.stop, now, self.plan.grace));
            }
        }
    }

    /// Takes the next step of the shutdown if its time has come.
    fn step_if_due(&mut self) {
        let now = Instant::now();
        let Some(stop) = self.stop.filter(|s| s.deadline().is_some_and(|due| due <= now)) else {
            return;
        };
        match stop {
            Stop::Waiting { kill_at, .. } => {
                self.ask_all_to_end(Signal::SIGTERM);
                self.stop = Some(Stop::Asked { kill_at });
            }
            Stop::Asked { .. } => self.kill_all(),
            Stop::Killed { .. } | Stop::GivenUp => {
                self.relay.notice(format!("torchrs-launch: {}", tree::could_not_end()));
                self.stop = Some(Stop::GivenUp);
            }
        }
    }

    fn ask_all_to_end(&mut self, signal: Signal) {
        self.workers.iter_mut().for_each(|worker| worker.ask_to_end(signal));
    }

    fn kill_all(&mut self) {
        self.workers.iter_mut().for_each(Worker::was_killed);
        tree::signal_all(Signal::SIGKILL);
        if !matches!(self.stop, Some(Stop::Killed { .. } | Stop::GivenUp)) {
            self.stop = Some(Stop::killed(Instant::now()));
        }
    }

    /// Waits until all output has been passed on. True unless it had to be given up.
    fn drain(&mut self) -> bool {
        if self.stop == Some(Stop::GivenUp) {
            // Whoever is left may hold its pipe for ever.
            self.relay.stop();
        }
        self.relay.finish();
        self.at_once = false;
        let mut seen = (self.relay.written(), Instant::now());
        while !self.relay_done {
            let patient = self.signal.is_none() && self.workers.iter().all(Worker::succeeded);
            let limit = STUCK_READER.min(self.plan.grace);
            let deadline = (!patient).then_some(seen.1 + limit);
            self.handle_events(deadline);
            let now = (self.relay.written(), Instant::now());
            if now.0 != seen.0 {
                seen = now;
            }
            let stuck = !patient && (self.at_once || seen.1 + limit <= now.1);
            if !self.relay_done && stuck {
                return false;
            }
        }
        true
    }

    /// The front was killed: whoever did that wanted the job gone.
    fn abandon(&self) -> ! {
        tree::kill_all(&self.watch.signals);
        std::process::exit(failure::SIGNAL + Signal::SIGKILL as i32);
    }
}
