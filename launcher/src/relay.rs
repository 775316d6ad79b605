//! Carries the workers' output from their pipes to the terminal and the log files, on a thread of
//! its own: a reader that does not read (a stopped pager) stops the output and, by full pipes,
//! the workers, but never the supervisor, which goes on seeing signals and deaths.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::unistd::read;

use crate::console::{Console, streams_are_one};
use crate::lines::{Lines, Screen, clear};
use crate::logs::LogFile;
use crate::outputs::Stream;

/// How long a stream may pause in the middle of a very long line before another one that waits
/// may break that line.
const LONG_LINE_PAUSE: Duration = Duration::from_millis(100);
/// As much as a pipe holds.
const READ_SIZE: usize = 64 << 10;
/// How much of a worker's standard error is kept for the report.
const TAIL_SIZE: usize = 8 << 10;

/// One stream of one worker.
pub struct Input {
    /// The read end, non-blocking.
    pub pipe: OwnedFd,
    pub rank: usize,
    pub stream: Stream,
    /// Whether it goes to the launcher's own stream of that kind.
    pub terminal: bool,
    pub log: Option<LogFile>,
}

/// The relay of one attempt's output.
pub struct Relay {
    done: Arc<EventFd>,
    wake: Arc<EventFd>,
    stop: Arc<AtomicBool>,
    written: Arc<AtomicU64>,
    shared: Arc<Mutex<Shared>>,
}

/// What both sides touch.
struct Shared {
    /// The last bytes of each rank's standard error.
    tails: Vec<VecDeque<u8>>,
    /// Lines of the launcher's own that wait to be written.
    notices: Vec<String>,
}

/// The data stays sound whatever a panicking holder did: they are bytes to show.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relay {
    /// Starts to carry `inputs` of `nproc` workers; lines get a prefix if there are several.
    pub fn start(inputs: Vec<Input>, nproc: usize) -> std::io::Result<Relay> {
        let event = || EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let (done, wake) = (Arc::new(event()?), Arc::new(event()?));
        let shared = Shared { tails: vec![VecDeque::new(); nproc], notices: Vec::new() };
        let relay = Relay {
            done: done.clone(),
            wake: wake.clone(),
            stop: Arc::default(),
            written: Arc::default(),
            shared: Arc::new(Mutex::new(shared)),
        };
        let source = |(id, input)| Source::new(id, input, nproc);
        let carrier = Carrier {
            outlets: outlets(&relay.written),
            sources: inputs.into_iter().enumerate().map(source).collect(),
            wake,
            stop: relay.stop.clone(),
            shared: relay.shared.clone(),
        };
        thread::Builder::new().name("relay".into()).spawn(move || {
            carrier.run();
            let _ = done.write(1);
        })?;
        Ok(relay)
    }

    /// Becomes readable when all output has been written.
    pub fn done(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }

    /// Whether all output has been written.
    pub fn is_done(&self) -> bool {
        self.done.read().is_ok()
    }

    /// Prints a line of the launcher's own on standard error, between the workers' lines.
    pub fn notice(&self, line: String) {
        lock(&self.shared).notices.push(line);
        let _ = self.wake.write(1);
    }

    /// Lines that came too late for the relay to print.
    pub fn unprinted(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.shared).notices)
    }

    /// Carries what the pipes hold now and then ends, without waiting for them to be closed.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
        let _ = self.wake.write(1);
    }

    /// Bytes written so far: whether it moves tells a slow reader from a stuck one.
    pub fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// The end of what `rank` wrote to its standard error.
    pub fn stderr_tail(&self, rank: usize) -> Vec<u8> {
        lock(&self.shared).tails[rank].iter().copied().collect()
    }
}

/// Where lines go: the launcher's standard output and error, or the one place that both are.
struct Outlet {
    console: Console,
    /// The source whose long line is half written.
    held_by: Option<usize>,
    /// When it may be interrupted, unless it goes on before.
    held_until: Instant,
}

fn outlets(written: &Arc<AtomicU64>) -> Vec<Outlet> {
    let streams: &[Stream] = if streams_are_one() { &[Stream::Stderr] } else { &Stream::BOTH };
    let outlet = |stream: &Stream| Outlet {
        console: Console::new(*stream, written.clone()),
        held_by: None,
        held_until: Instant::now(),
    };
    streams.iter().map(outlet).collect()
}

struct Source {
    input: Input,
    /// None for a lone worker: its bytes are passed on as they come.
    lines: Option<Lines>,
    open: bool,
}

impl Source {
    fn new(id: usize, input: Input, nproc: usize) -> Self {
        let lines = (nproc > 1).then(|| Lines::new(id, prefix(input.rank).into_bytes()));
        Source { input, lines, open: true }
    }
}

/// What stands before each line of a worker among several.
pub fn prefix(rank: usize) -> String {
    format!("[rank{rank}]: ")
}

/// The thread's side.
struct Carrier {
    outlets: Vec<Outlet>,
    sources: Vec<Source>,
    wake: Arc<EventFd>,
    stop: Arc<AtomicBool>,
    shared: Arc<Mutex<Shared>>,
}

impl Carrier {
    fn run(mut self) {
        let mut buffer = vec![0; READ_SIZE];
        while self.sources.iter().any(|source| source.open) {
            let stopping = self.stop.load(Relaxed);
            let ready = self.wait(stopping);
            self.show_notices();
            if stopping && ready.is_empty() {
                break;
            }
            // Whoever is in the middle of a long line comes first, and keeps the others out.
            let (holders, others): (Vec<_>, Vec<_>) = ready
                .into_iter()
                .partition(|&id| self.outlets[self.outlet(id)].held_by == Some(id));
            for id in holders.into_iter().chain(others) {
                if self.may_read(id) {
                    self.carry(id, &mut buffer);
                }
            }
        }
        for id in 0..self.sources.len() {
            self.finish(id);
        }
        self.show_notices();
    }

    /// The outlet that `id` writes to.
    fn outlet(&self, id: usize) -> usize {
        match self.sources[id].input.stream {
            Stream::Stdout => 0,
            Stream::Stderr => self.outlets.len() - 1,
        }
    }

    /// Whether reading from `id` now cannot tear another stream's line.
    fn may_read(&self, id: usize) -> bool {
        let Source { open, input, .. } = &self.sources[id];
        let outlet = &self.outlets[self.outlet(id)];
        let interruptible = Instant::now() >= outlet.held_until;
        *open && (!input.terminal || interruptible || outlet.held_by.is_none_or(|by| by == id))
    }

    /// Waits until there is something to do; returns the sources with something to read.
    fn wait(&mut self, stopping: bool) -> Vec<usize> {
        // Before `may_read`: a hold that runs out in between is waited for, not forgotten.
        let now = Instant::now();
        let holds = self.outlets.iter().filter(|o| o.held_by.is_some() && o.held_until > now);
        let timeout = match holds.map(|outlet| outlet.held_until - now).min() {
            _ if stopping => PollTimeout::ZERO,
            Some(left) => poll_timeout(left),
            None => PollTimeout::NONE,
        };
        let waiting: Vec<usize> = (0..self.sources.len()).filter(|&id| self.may_read(id)).collect();
        let mut events: Vec<PollFd> = waiting
            .iter()
            .map(|&id| PollFd::new(self.sources[id].input.pipe.as_fd(), PollFlags::POLLIN))
            .collect();
        events.push(PollFd::new(self.wake.as_fd(), PollFlags::POLLIN));
        match poll(&mut events, timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Vec::new(),
            Err(errno) => panic!("poll of the workers' output failed: {errno}"),
        }
        let _ = self.wake.read();
        let ready = waiting.iter().zip(&events).filter(|(_, event)| event.any() == Some(true));
        ready.map(|(&id, _)| id).collect()
    }

    /// Moves what one read gives.
    fn carry(&mut self, id: usize, buffer: &mut [u8]) {
        match read(&self.sources[id].input.pipe, buffer) {
            Ok(0) => self.finish(id),
            Ok(count) => self.take(id, &buffer[..count]),
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            Err(_) => self.finish(id),
        }
    }

    fn take(&mut self, id: usize, bytes: &[u8]) {
        let input = &mut self.sources[id].input;
        if input.stream == Stream::Stderr {
            let tail = &mut lock(&self.shared).tails[input.rank];
            tail.extend(bytes);
            let surplus = tail.len().saturating_sub(TAIL_SIZE);
            tail.drain(..surplus);
        }
        let warning = input.log.as_mut().and_then(|log| log.write(bytes));
        if input.terminal {
            self.print(id, |lines, screen, out| match lines {
                Some(lines) => lines.push(bytes, screen, out),
                None => out.extend_from_slice(bytes),
            });
        }
        if let Some(warning) = warning {
            self.show(&warning);
        }
    }

    fn finish(&mut self, id: usize) {
        if !std::mem::take(&mut self.sources[id].open) || !self.sources[id].input.terminal {
            return;
        }
        self.print(id, |lines, screen, out| {
            if let Some(lines) = lines {
                lines.finish(screen, out);
            }
        });
    }

    /// Writes what `render` makes, after ending another source's line that is half written.
    fn print(
        &mut self,
        id: usize,
        render: impl FnOnce(Option<&mut Lines>, &mut Screen, &mut Vec<u8>),
    ) {
        let at = self.outlet(id);
        let lines = &mut self.sources[id].lines;
        let mut rendered = Vec::new();
        render(lines.as_mut(), &mut self.outlets[at].console.screen, &mut rendered);
        if rendered.is_empty() {
            return;
        }
        let mid_line = lines.as_ref().is_some_and(Lines::is_mid_line);
        let mut out = self.interrupt(at, Some(id));
        out.append(&mut rendered);
        let outlet = &mut self.outlets[at];
        outlet.console.write(&out);
        outlet.held_by = mid_line.then_some(id);
        outlet.held_until = Instant::now() + LONG_LINE_PAUSE;
    }

    /// Takes the outlet from whoever holds it, unless that is `id`; returns what ends the
    /// holder's line.
    fn interrupt(&mut self, outlet: usize, id: Option<usize>) -> Vec<u8> {
        let mut out = Vec::new();
        let holder = self.outlets[outlet].held_by.take();
        if let Some(holder) = holder.filter(|_| holder != id)
            && let Some(lines) = self.sources[holder].lines.as_mut()
        {
            lines.break_line(&mut out);
        }
        out
    }

    fn show_notices(&mut self) {
        let notices = std::mem::take(&mut lock(&self.shared).notices);
        for line in notices {
            self.show(&line);
        }
    }

    /// Writes a line of the launcher's own to standard error.
    fn show(&mut self, line: &str) {
        let last = self.outlets.len() - 1;
        let mut out = self.interrupt(last, None);
        let console = &mut self.outlets[last].console;
        clear(&mut console.screen, &mut out);
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
        console.write(&out);
    }
}

/// For poll and epoll: whole milliseconds, rounded up, so that waking means the time has come.
pub fn poll_timeout(left: Duration) -> PollTimeout {
    let millis = left.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
    PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
}
