//! The far end of a remote shell: a launcher that another one has started. Its standard input says what to do, and
//! its end that nobody is there any more who wanted this host's part of the job.

use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::time::Instant;

use clap::Parser;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::Signal;
use nix::unistd::{gethostname, pipe2, read};
use serde::Serialize;

use super::address;
use super::wire::{
    ALIVE_EVERY, Frame, Frames, FromHost, GREETING, Hello, Outbox, Start, ToHost, silent_after,
};
use crate::check::options::{CheckPlan, check_command, launcher_words};
use crate::cli::{Options, Starter};
use crate::deadline::poll_timeout;
use crate::failure::{Doing, Failure, SIGNAL};
use crate::front::{keep_foreign_descriptors_out, prepare, start_supervisor};
use crate::hosts::HostsPlan;
use crate::outputs::Stream;
use crate::process::Process;
use crate::signals::{Signals, undo_inherited};
use crate::spawn::{CHECK, SUPERVISOR, Stdio};
use crate::tool::Overseer;
use crate::tree;

/// Bytes that may wait for the near end before no more are taken from the workers.
const MOST_WAITING: usize = 256 << 10;
const READ: usize = 64 << 10;
/// Exit code where an option cannot be used.
const USAGE: i32 = 2;
/// Ports of which one is offered for the meeting; outside the range that the system gives to callers.
const PORTS: std::ops::Range<u16> = 29_400..29_500;

/// Runs a host's part of a job; returns the exit code.
pub fn main() -> i32 {
    undo_inherited();
    tree::leave_alone_who_is_here();
    // SAFETY: 0 and 1 are open in every process of Rust, and nothing else here reads or writes through them: what the
    // launcher prints goes to standard error.
    let [input, output] = [0, 1].map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
    let wire = Outbox::new(output).and_then(|outbox| {
        fcntl(&input, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        keep_foreign_descriptors_out();
        Ok(Wire {
            input,
            frames: Frames::default(),
            outbox,
            heard: Instant::now(),
            said: Instant::now(),
        })
    });
    match wire {
        Ok(wire) => run(wire),
        Err(errno) => {
            crate::console::say(&format!(
                "torchrs-launch: cannot use standard input and output: {errno}\n"
            ));
            1
        }
    }
}

fn run(mut wire: Wire) -> i32 {
    wire.outbox.raw(GREETING);
    wire.outbox.message(&FromHost::Hello(hello()));
    let begun = wire.start().and_then(begin);
    match begun {
        Ok((overseer, part)) => part.run(&mut wire, overseer.signals()),
        Err(failure) => {
            wire.outbox.message(&FromHost::Failed(failure.code, failure.message));
            wire.empty();
            failure.code
        }
    }
}

fn hello() -> Hello {
    let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
    Hello {
        version: env!("CARGO_PKG_VERSION").into(),
        name: gethostname().unwrap_or_default().to_string_lossy().into_owned(),
        connection: address::of_connection(&connection),
        port: free_port(),
    }
}

/// A port that is free now, and the next, too. Jobs that begin at once do not look in the same order.
fn free_port() -> u16 {
    let free = |port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
    let count = PORTS.len() as u32;
    let order = (0..count).map(|k| PORTS.start + ((std::process::id() * 2 + k) % count) as u16);
    order.into_iter().find(|&port| free(port) && free(port + 1)).unwrap_or(PORTS.start)
}

/// What the supervisor's end and output are taken from.
struct Part {
    supervisor: Process,
    /// Standard output and error, until they have ended.
    outputs: [Option<OwnedFd>; 2],
}

/// Does what a launcher does before it starts workers, then starts its supervisor.
fn begin(start: Start) -> Result<(Overseer, Part), Failure> {
    let folder = start.folder.display();
    std::env::set_current_dir(&start.folder).doing(|| {
        format!(
            "the working folder {folder} is not usable here (it has to be the same on all hosts)"
        )
    })?;
    for (name, value) in &start.environment {
        // SAFETY: this process has one thread so far.
        unsafe { std::env::set_var(name, value) };
    }
    let usage = |why: String| Failure::with_code(USAGE, why);
    let starter = Some(Starter { token: start.token });
    if start.is_check {
        let words = std::iter::once("check".into()).chain(start.args);
        let matches = check_command().try_get_matches_from(words);
        let matches = matches.map_err(|error| usage(error.to_string()))?;
        let options = Options::try_parse_from(launcher_words(&matches));
        let options = options.map_err(|error| usage(error.to_string()))?;
        let plan = CheckPlan::of(&matches, &Options { under_launcher: starter, ..options });
        return Ok((Overseer::new()?, part(CHECK, &plan)?));
    }
    let words = std::iter::once("torchrs-launch".into()).chain(start.args);
    let options = Options::try_parse_from(words).map_err(|error| usage(error.to_string()))?;
    let options = Options { under_launcher: starter, ..options };
    let nproc = options.nproc.resolve(options.simulate_gpus).map_err(usage)?;
    if let Some(reason) = options.misfit(nproc) {
        return Err(usage(reason));
    }
    let hosts = HostsPlan::of(&options).map_err(usage)?;
    let mut overseer = Overseer::new()?;
    let plan = prepare(&mut overseer, options, nproc, hosts)?;
    Ok((overseer, part(SUPERVISOR, &plan)?))
}

/// Starts a supervisor whose output comes back here.
fn part(role: &str, plan: &impl Serialize) -> Result<Part, Failure> {
    let what = || "cannot make pipes for the workers' output".to_owned();
    let (out, their_out) = pipe2(OFlag::O_CLOEXEC).doing(what)?;
    let (err, their_err) = pipe2(OFlag::O_CLOEXEC).doing(what)?;
    for fd in [&out, &err] {
        fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).doing(what)?;
    }
    let stdio = [Stdio::Null, Stdio::Fd(their_out.as_fd()), Stdio::Fd(their_err.as_fd())];
    let supervisor = start_supervisor(role, plan, stdio)?;
    Ok(Part { supervisor, outputs: [Some(out), Some(err)] })
}

/// The connection to the near end.
struct Wire {
    input: OwnedFd,
    frames: Frames,
    outbox: Outbox,
    /// When the last byte came, and when the last sign of life went.
    heard: Instant,
    said: Instant,
}

impl Wire {
    /// What to start.
    fn start(&mut self) -> Result<Start, Failure> {
        loop {
            self.wait(&[]);
            for message in self.take() {
                if let ToHost::Start(start) = message {
                    return Ok(*start);
                }
            }
        }
    }

    /// Waits until something can be done: a message, a sign of life that is due, one of `others`.
    fn wait(&mut self, others: &[PollFd<'_>]) {
        if self.outbox.flush().is_err() {
            lost();
        }
        let due = (self.said + ALIVE_EVERY).min(self.heard + silent_after());
        let mut events = others.to_vec();
        events.push(PollFd::new(self.input.as_fd(), PollFlags::POLLIN));
        if self.outbox.len() > 0 {
            events.push(PollFd::new(self.outbox.as_fd(), PollFlags::POLLOUT));
        }
        match poll(&mut events, poll_timeout(Some(due))) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => panic!("poll of the launcher's far end failed: {errno}"),
        }
        drop(events);
        let now = Instant::now();
        if now >= self.said + ALIVE_EVERY {
            self.said = now;
            // One that waits says as much as two.
            if self.outbox.len() == 0 {
                self.outbox.message(&FromHost::Alive);
            }
        }
    }

    /// The messages that have come. Ends the process, and all that it has started, where nobody will send one.
    fn take(&mut self) -> Vec<ToHost> {
        let mut buffer = [0; READ];
        loop {
            match read(&self.input, &mut buffer) {
                Ok(0) => lost(),
                Ok(count) => {
                    self.heard = Instant::now();
                    self.frames.push(&buffer[..count]);
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(_) => lost(),
            }
        }
        if self.heard.elapsed() >= silent_after() {
            lost();
        }
        let mut messages = Vec::new();
        loop {
            match self.frames.next() {
                Ok(Some(Frame::Message(message))) => messages.push(message),
                Ok(Some(Frame::Output(..))) | Err(_) => lost(),
                Ok(None) => return messages,
            }
        }
    }

    /// Waits until all is sent.
    fn empty(&mut self) {
        while self.outbox.len() > 0 {
            self.wait(&[]);
            self.take();
        }
    }
}

/// Nobody is there any more who wanted this: ends all at once.
fn lost() -> ! {
    if let Ok(signals) = Signals::take_over() {
        tree::kill_all(&signals);
    }
    std::process::exit(SIGNAL + Signal::SIGKILL as i32);
}

impl Part {
    /// Passes signals on and output back until the supervisor's end; returns its exit code.
    fn run(mut self, wire: &mut Wire, signals: &Signals) -> i32 {
        wire.outbox.message(&FromHost::Ready);
        let exit = loop {
            let outputs =
                self.outputs.iter().flatten().filter(|_| wire.outbox.len() < MOST_WAITING);
            let mut events: Vec<PollFd> =
                outputs.map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)).collect();
            events.push(PollFd::new(signals.as_fd(), PollFlags::POLLIN));
            wire.wait(&events);
            while let Some(signal) = signals.next() {
                if signal != Signal::SIGCHLD {
                    self.supervisor.signal(signal);
                }
            }
            for message in wire.take() {
                if let ToHost::Signal(number) = message
                    && let Ok(signal) = Signal::try_from(number)
                {
                    self.supervisor.signal(signal);
                }
            }
            self.carry(&mut wire.outbox);
            match self.supervisor.try_wait() {
                Ok(Some(exit)) => break exit,
                Ok(None) => {}
                Err(errno) => panic!("waiting for the supervisor failed: {errno}"),
            }
        };
        tree::kill_all(signals);
        while self.carry(&mut wire.outbox) {
            wire.empty();
        }
        if exit.signal().is_some() {
            let text =
                format!("torchrs-launch: the supervisor was {exit}; all workers were stopped\n");
            wire.outbox.output(Stream::Stderr, text.as_bytes());
        }
        wire.outbox.message(&FromHost::Ended(exit.shell_code()));
        wire.empty();
        exit.shell_code()
    }

    /// Moves what the workers have written, as far as there is room. True if there was something.
    fn carry(&mut self, outbox: &mut Outbox) -> bool {
        let (mut moved, mut buffer) = (false, vec![0; READ]);
        for (stream, output) in Stream::BOTH.into_iter().zip(&mut self.outputs) {
            while outbox.len() < MOST_WAITING
                && let Some(fd) = output
            {
                match read(&*fd, &mut buffer) {
                    Ok(0) => *output = None,
                    Ok(count) => {
                        moved = true;
                        outbox.output(stream, &buffer[..count]);
                    }
                    Err(Errno::EINTR) => {}
                    Err(_) => break,
                }
            }
        }
        moved
    }
}
