//! Carries the workers' output from their pipes to the terminal and the log files, on threads of
//! its own: a reader that does not read (a stopped pager) stops the output and, by full pipes,
//! the workers, but never the supervisor, which goes on seeing signals and deaths.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::carrier::Carrier;
use crate::console::streams_are_one;
use crate::logs::LogFile;
use crate::outputs::Stream;

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
    shared: Arc<Shared>,
    /// For each thread: how to wake it.
    wakes: Vec<Arc<EventFd>>,
}

/// What the threads and the supervisor share.
pub struct Shared {
    /// Readable when all output has been written.
    done: EventFd,
    /// Threads that still run, and the supervisor while it may have notices.
    running: AtomicUsize,
    stop: AtomicBool,
    /// Bytes written, for whoever wonders whether a reader is stuck.
    written: Arc<AtomicU64>,
    texts: Mutex<Texts>,
    /// Wakes the thread that writes to standard error.
    notice: Arc<EventFd>,
}

struct Texts {
    /// The last bytes of each rank's standard error.
    tails: Vec<VecDeque<u8>>,
    /// Lines of the launcher's own that wait to be written.
    notices: Vec<String>,
}

fn event() -> nix::Result<EventFd> {
    EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
}

impl Relay {
    /// Starts to carry `inputs` of `nproc` workers; lines get a prefix if there are several. Each
    /// place that output goes to has a thread, so that one that is stuck does not hold up another.
    pub fn start(inputs: Vec<Input>, nproc: usize) -> std::io::Result<Relay> {
        // The thread for standard error also writes the launcher's own lines: it is always there.
        let mut by_place = BTreeMap::from([(Some(Stream::Stderr), Vec::new())]);
        let one_place = streams_are_one();
        for input in inputs {
            let shown = if one_place { Stream::Stderr } else { input.stream };
            by_place.entry(input.terminal.then_some(shown)).or_default().push(input);
        }
        let notice = Arc::new(event()?);
        let shared = Arc::new(Shared {
            done: event()?,
            running: AtomicUsize::new(by_place.len() + 1),
            stop: AtomicBool::new(false),
            written: Arc::default(),
            texts: Mutex::new(Texts { tails: vec![VecDeque::new(); nproc], notices: Vec::new() }),
            notice: notice.clone(),
        });
        let mut wakes = Vec::new();
        for (place, inputs) in by_place {
            let wake =
                if place == Some(Stream::Stderr) { notice.clone() } else { Arc::new(event()?) };
            wakes.push(wake.clone());
            let carrier = Carrier::new(place, inputs, nproc, wake, shared.clone());
            thread::Builder::new().name("relay".into()).spawn(move || carrier.run())?;
        }
        Ok(Relay { shared, wakes })
    }

    /// Becomes readable when all output has been written.
    pub fn done(&self) -> BorrowedFd<'_> {
        self.shared.done.as_fd()
    }

    /// Whether all output has been written.
    pub fn is_done(&self) -> bool {
        self.shared.running.load(Ordering::Acquire) == 0
    }

    /// Prints a line of the launcher's own on standard error, between the workers' lines.
    pub fn notice(&self, line: String) {
        self.shared.notice(line);
    }

    /// The workers have ended: so does the relay as soon as it has carried what they left. Called
    /// once.
    pub fn finish(&self) {
        self.shared.finished();
    }

    /// Lines that came too late for the relay to print.
    pub fn unprinted(&self) -> Vec<String> {
        self.shared.take_notices()
    }

    /// Carries what the pipes hold now and then ends, without waiting for them to be closed.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        for wake in &self.wakes {
            let _ = wake.write(1);
        }
    }

    /// Bytes written so far: whether it moves tells a slow reader from a stuck one.
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// The end of what `rank` wrote to its standard error.
    pub fn stderr_tail(&self, rank: usize) -> Vec<u8> {
        self.shared.texts().tails[rank].iter().copied().collect()
    }
}

impl Shared {
    /// The data stays sound whatever a panicking holder did: they are bytes to show.
    fn texts(&self) -> MutexGuard<'_, Texts> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn written(&self) -> Arc<AtomicU64> {
        self.written.clone()
    }

    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Whether the calling thread is the only one left.
    pub fn is_last(&self) -> bool {
        self.running.load(Ordering::Acquire) == 1
    }

    /// A thread has carried all that it had, or the supervisor has no more notices.
    pub fn finished(&self) {
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _ = self.done.write(1);
        } else {
            let _ = self.notice.write(1);
        }
    }

    pub fn notice(&self, line: String) {
        self.texts().notices.push(line);
        let _ = self.notice.write(1);
    }

    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.texts().notices)
    }

    /// Keeps the end of a rank's standard error.
    pub fn keep_tail(&self, rank: usize, bytes: &[u8]) {
        let tail = &mut self.texts().tails[rank];
        tail.extend(bytes);
        let surplus = tail.len().saturating_sub(TAIL_SIZE);
        tail.drain(..surplus);
    }
}

/// What stands before each line of a worker among several.
pub fn prefix(rank: usize) -> String {
    format!("[rank{rank}]: ")
}
