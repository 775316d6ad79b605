//! A host as the near end sees it: how far its launcher is, and when its line is really gone.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use torchrs_job::exit_status::ExitStatus;

use super::line::Line;
use super::trouble::{self, Way};
use super::wire::{Hello, Start, ToHost};

/// How long a remote shell may stay when it has nothing more to do.
const LEAVES_WITHIN: Duration = Duration::from_secs(3);

/// How far a host's launcher is.
#[derive(Debug)]
pub enum Phase {
    Called,
    Answered(Hello),
    /// It was told to begin.
    Started,
    Running,
}

pub struct Host {
    line: Line,
    pub phase: Phase,
    /// What its remote shell printed before it began.
    pub words: Vec<String>,
    /// Why it takes no part.
    pub trouble: Option<String>,
    /// Whether it has said itself that its part is over.
    over: bool,
    /// Whether nothing more comes from it, and why, if not by the stream's end.
    closed: Option<Option<String>>,
    exit: Option<ExitStatus>,
    /// When its remote shell is killed.
    kill_at: Option<Instant>,
    /// Whether its end has been told.
    told: bool,
    /// Pieces of output that had come when it was last asked.
    pieces: u64,
}

impl Host {
    pub fn called(line: Line) -> Self {
        Host {
            line,
            phase: Phase::Called,
            words: Vec::new(),
            trouble: None,
            over: false,
            closed: None,
            exit: None,
            kill_at: None,
            told: false,
            pieces: 0,
        }
    }

    pub fn hello(&self) -> Option<&Hello> {
        match &self.phase {
            Phase::Answered(hello) if !self.is_over() => Some(hello),
            _ => None,
        }
    }

    /// Whether it was told to begin.
    pub fn has_begun(&self) -> bool {
        matches!(self.phase, Phase::Started | Phase::Running)
    }

    /// Whether its part is over, well or not.
    pub fn is_over(&self) -> bool {
        self.over || self.closed.is_some() || self.exit.is_some()
    }

    /// Whether nothing is left of its line.
    pub fn is_gone(&self) -> bool {
        self.exit.is_some() && self.closed.is_some()
    }

    /// Whether its output has got on since this was last asked, or waits for whoever reads it.
    pub fn is_talking(&mut self) -> bool {
        let before = std::mem::replace(&mut self.pieces, self.line.flow.pieces());
        !self.is_over() && (self.pieces != before || self.line.flow.waits())
    }

    pub fn is_child(&self, pid: Pid) -> bool {
        self.exit.is_none() && self.line.process.pid() == pid
    }

    pub fn send(&mut self, message: &ToHost) {
        if let Some(outbox) = &mut self.line.outbox {
            outbox.message(message);
        }
    }

    /// Unless bytes wait, which say as much.
    pub fn say_alive(&mut self) {
        if self.line.outbox.as_ref().is_some_and(|outbox| outbox.len() == 0) {
            self.send(&ToHost::Alive);
        }
    }

    pub fn start(&mut self, start: Start) {
        self.phase = Phase::Started;
        self.send(&ToHost::Start(Box::new(start)));
    }

    /// Its launcher has ended its part.
    pub fn over(&mut self) {
        self.over = true;
        self.close();
    }

    /// Closes its launcher's standard input, which ends whatever it still does.
    pub fn close(&mut self) {
        self.line.outbox = None;
        self.kill_at.get_or_insert(Instant::now() + LEAVES_WITHIN);
    }

    /// Nothing more comes from it.
    pub fn closed(&mut self, why: Option<String>) {
        self.closed = Some(why);
        self.close();
    }

    /// What to wait for.
    pub fn events(&self) -> impl Iterator<Item = PollFd<'_>> {
        let process =
            self.exit.is_none().then(|| PollFd::new(self.line.process.as_fd(), PollFlags::POLLIN));
        let outbox = self.line.outbox.as_ref().filter(|outbox| outbox.len() > 0);
        process
            .into_iter()
            .chain(outbox.map(|outbox| PollFd::new(outbox.as_fd(), PollFlags::POLLOUT)))
    }

    /// When something is due.
    pub fn due(&self) -> Option<Instant> {
        self.kill_at.filter(|_| !self.is_gone())
    }

    /// Sends what can be sent, and looks whether the line is gone: why, told once, if the launcher had not said how.
    pub fn step(&mut self, way: &Way<'_>) -> Option<String> {
        if self.line.outbox.as_mut().is_some_and(|outbox| outbox.flush().is_err()) {
            self.line.outbox = None;
        }
        if self.exit.is_none() {
            self.exit = self.line.process.try_wait().unwrap_or(Some(ExitStatus::Unknown));
            if self.exit.is_some() {
                // What it has left in its pipes is read; who else holds them is not waited for.
                self.line.outbox = None;
                self.kill_at = Some(Instant::now() + LEAVES_WITHIN);
            }
        }
        if self.kill_at.is_some_and(|at| at <= Instant::now()) && !self.is_gone() {
            match self.exit {
                None => self.line.process.signal(Signal::SIGKILL),
                Some(_) => self.closed = Some(None),
            }
            self.kill_at = Some(Instant::now() + LEAVES_WITHIN);
        }
        if !self.is_gone() || self.over || self.told {
            return None;
        }
        self.told = true;
        let why = self.closed.as_ref().and_then(Option::as_deref);
        Some(match self.phase {
            Phase::Called | Phase::Answered(_) => trouble::unreached(way, &self.words, self.exit),
            Phase::Started | Phase::Running => trouble::lost(way, &self.words, why, self.exit),
        })
    }

    /// Why it has not answered.
    pub fn unreached(&self, way: &Way<'_>) -> String {
        trouble::unreached(way, &self.words, self.exit)
    }
}
