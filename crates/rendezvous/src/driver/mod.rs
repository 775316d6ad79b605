//! A host's part in a rendezvous, with sockets and a clock: one thread that drives [`Member`](crate::member::Member)
//! and, where this host leads, [`Leader`](crate::leader::Leader). Whoever starts workers gives it commands and takes
//! its events.

mod dial;
mod endpoint;
mod own;
mod peer;
mod place;
mod run;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use torchrs_error::{Context, Result};

use crate::action::Connection;
use crate::ending::Ending;
use crate::lock::Taken;
use crate::protocol::{Round, Verdict, Why};
use crate::settings::Settings;
use crate::token::JobToken;

pub use endpoint::{DEFAULT_PORT, Endpoint};

/// What a host brings to a rendezvous.
#[derive(Debug, Clone)]
pub struct Config {
    /// The same on all hosts.
    pub settings: Settings,
    /// The secret of the job.
    pub token: JobToken,
    /// Where the job begins.
    pub endpoint: Endpoint,
    /// Whether this host sits there; nothing: if the endpoint's address is its own and free.
    pub is_host: Option<bool>,
    /// The addresses at which other hosts reach this one, and the only ones at which it listens; none: all by which they
    /// may.
    pub local_addrs: Vec<IpAddr>,
    /// What the system calls this host.
    pub name: String,
    /// Workers that it starts.
    pub nproc: u32,
    /// Its place, where the user gave one.
    pub node_rank: Option<u32>,
    /// A folder that all hosts share, in which ties are decided; with [`Settings::lock`].
    pub lock: Option<PathBuf>,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// Start the workers of a round.
    Start {
        /// The round.
        round: Arc<Round>,
        /// This host's place in it.
        group_rank: usize,
        /// Whether this host leads it.
        leads: bool,
        /// The address of the round's first host by which this one reaches it best.
        first_host: Option<IpAddr>,
    },
    /// End the workers, then [`Command::WorkersEnded`].
    Stop {
        /// They are not asked.
        at_once: bool,
        /// What ended the round.
        why: Why,
    },
    /// What the job's store answers to [`Command::Ask`].
    Answer(u64, Vec<u8>),
    /// This host leads: what a host's workers ask of the job's store. [`Command::Reply`] answers.
    Ask(Connection, u64, Vec<u8>),
    /// This host leads: a connection that may have asked is no more.
    Gone(Connection),
    /// This host leads: a round has ended and another follows.
    Restarting(Ending),
    /// This host leads: the job has ended. [`Command::Finish`] tells all.
    Ended(Ending),
    /// This host leads from now on, or no more.
    Leads(bool),
    /// This host leads: whether hosts wait for the program's [`Command::Welcome`]; not, before the first of these in a
    /// round.
    AwaitsWelcome(bool),
    /// The job is over, with this exit code and report.
    Over(i32, String),
    /// The host cannot take part: why.
    Fail(String),
    /// This host leads: how the workers of another are, in the words of its launcher.
    Status(Vec<u8>),
    /// For the user's eyes.
    Say(String),
}

/// What is to be done.
#[derive(Debug)]
pub enum Command {
    /// All workers of the round have ended: how, and what there is to say of them.
    WorkersEnded(Verdict, Vec<u8>),
    /// A question to the job's store.
    Ask(u64, Vec<u8>),
    /// The answer to [`Event::Ask`].
    Reply(Connection, u64, Vec<u8>),
    /// After [`Event::Ended`]: the job's exit code and report.
    Finish(i32, String),
    /// End the job.
    Stop,
    /// In this round: now is a good time for hosts that wait.
    Welcome(u64),
    /// A worker has failed, and the others of this host are about to end.
    WorkersFailing,
    /// How this host's workers are, for the leader's launcher. Left out while what was sent before is on its way, and
    /// where this host leads itself.
    Status(Vec<u8>),
}

/// A host's end of a rendezvous. Dropped, its connections close.
#[derive(Debug)]
pub struct Rendezvous {
    events: Receiver<Event>,
    ready: Arc<EventFd>,
    commands: Sender<Input>,
    wake: Arc<EventFd>,
    offset: Arc<AtomicI64>,
    thread: Option<JoinHandle<()>>,
}

/// Gives commands from any thread.
#[derive(Debug, Clone)]
pub struct Commander {
    commands: Sender<Input>,
    wake: Arc<EventFd>,
}

impl Commander {
    /// Gives a command.
    pub fn command(&self, command: Command) {
        // A thread that has ended has said why.
        let _ = self.commands.send(Input::Command(command));
        let _ = self.wake.write(1);
    }
}

/// What reaches the thread from elsewhere in this process.
#[derive(Debug)]
enum Input {
    Command(Command),
    Dialed(dial::Dialed),
    /// Whose the tie with this number is.
    Tie(u32, Taken),
    Close,
}

impl Rendezvous {
    /// Joins a job. What comes of it is an [`Event`].
    ///
    /// # Errors
    /// When the system gives no thread or descriptor.
    pub fn start(config: Config) -> Result<Self> {
        let efd = || {
            EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
                .context(|| "eventfd of the rendezvous")
        };
        let (ready, wake) = (Arc::new(efd()?), Arc::new(efd()?));
        let (event_sender, events) = channel();
        let (commands, inputs) = channel();
        let offset = Arc::new(AtomicI64::new(0));
        let outlet =
            run::Outlet { events: event_sender, ready: ready.clone(), offset: offset.clone() };
        let line = dial::Line { results: commands.clone(), wake: wake.clone() };
        let lost = outlet.clone();
        let work = move || {
            let driver = place::listen(&config, &outlet, &inputs).and_then(|place| {
                let driver = |place| run::Driver::new(config, outlet, line, inputs, place);
                place.map(driver).transpose()
            });
            match driver {
                Ok(Some(driver)) => driver.run(),
                Ok(None) => {}
                Err(error) => lost.give(Event::Fail(error.to_string())),
            }
        };
        let thread = std::thread::Builder::new()
            .name("torchrs-hosts".into())
            .spawn(work)
            .context(|| "start the thread of the rendezvous")?;
        Ok(Rendezvous { events, ready, commands, wake, offset, thread: Some(thread) })
    }

    /// The next event, if there is one.
    pub fn try_next(&self) -> Option<Event> {
        let _ = self.ready.read();
        match self.events.try_recv() {
            Ok(event) => {
                // There may be another.
                let _ = self.ready.write(1);
                Some(event)
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Event::Fail(ENDED.into())),
        }
    }

    /// The next event, if it comes in time.
    pub fn next_within(&self, time: Duration) -> Option<Event> {
        match self.events.recv_timeout(time) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Event::Fail(ENDED.into())),
        }
    }

    /// Gives a command.
    pub fn command(&self, command: Command) {
        self.commander().command(command);
    }

    /// For other threads.
    pub fn commander(&self) -> Commander {
        Commander { commands: self.commands.clone(), wake: self.wake.clone() }
    }

    /// What to add to this host's CLOCK_MONOTONIC for the leader's, in nanoseconds; 0 before that is known.
    pub fn clock_offset(&self) -> i64 {
        self.offset.load(Ordering::Relaxed)
    }
}

const ENDED: &str = "the thread of the rendezvous has ended";

/// Becomes readable when there is an event.
impl AsFd for Rendezvous {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        let _ = self.commands.send(Input::Close);
        let _ = self.wake.write(1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Addresses, as messages show them.
fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
