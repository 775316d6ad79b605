//! What the relay and its threads share: the workers' streams, and how far they are carried.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::logs::LogFile;
use crate::outputs::Stream;

/// How much of a worker's standard error is kept for the report.
const TAIL_SIZE: usize = 8 << 10;
/// How much of a worker's output is kept for whoever looks at the job.
const LOG_SIZE: usize = 16 << 10;

/// One stream of one worker.
pub struct Input {
    /// The read end, non-blocking.
    pub pipe: OwnedFd,
    /// Of the worker, on this host.
    pub local_rank: usize,
    /// What its lines begin with, if they need it.
    pub prefix: Option<String>,
    pub stream: Stream,
    /// Whether it goes to the launcher's own stream of that kind.
    pub terminal: bool,
    pub log: Option<LogFile>,
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
    /// The last bytes of each worker's standard error.
    tails: Vec<VecDeque<u8>>,
    /// The last bytes of each worker's output, and which stream they came from.
    logs: Vec<(VecDeque<u8>, Option<Stream>)>,
    /// Lines of the launcher's own that wait to be written.
    notices: Vec<String>,
}

/// An event that wakes a thread.
pub fn event() -> nix::Result<EventFd> {
    EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)
}

impl Shared {
    /// For `threads` threads that carry the output of `nproc` workers.
    pub fn new(threads: usize, nproc: usize) -> nix::Result<Self> {
        Ok(Shared {
            done: event()?,
            running: AtomicUsize::new(threads + 1),
            stop: AtomicBool::new(false),
            written: Arc::default(),
            texts: Mutex::new(Texts {
                tails: vec![VecDeque::new(); nproc],
                logs: vec![(VecDeque::new(), None); nproc],
                notices: Vec::new(),
            }),
            notice: Arc::new(event()?),
        })
    }

    /// The data stays sound whatever a panicking holder did: they are bytes to show.
    fn texts(&self) -> MutexGuard<'_, Texts> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn written(&self) -> Arc<AtomicU64> {
        self.written.clone()
    }

    /// Readable when all output has been written.
    pub fn done(&self) -> BorrowedFd<'_> {
        self.done.as_fd()
    }

    /// Whether all output has been written.
    pub fn is_done(&self) -> bool {
        self.running.load(Ordering::Acquire) == 0
    }

    /// What wakes the thread that writes to standard error.
    pub fn wakes_for_notices(&self) -> Arc<EventFd> {
        self.notice.clone()
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
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

    /// Keeps the end of a worker's output, and of its standard error by itself.
    pub fn keep(&self, local_rank: usize, stream: Stream, bytes: &[u8]) {
        let mut texts = self.texts();
        let (log, last) = &mut texts.logs[local_rank];
        // A line that one stream has not ended is not the other's.
        if *last != Some(stream) && log.back().is_some_and(|byte| *byte != b'\n') {
            log.push_back(b'\n');
        }
        *last = Some(stream);
        append(log, bytes, LOG_SIZE);
        if stream == Stream::Stderr {
            append(&mut texts.tails[local_rank], bytes, TAIL_SIZE);
        }
    }

    /// The end of a worker's output, both streams in the order in which they came.
    pub fn log(&self, local_rank: usize) -> Vec<u8> {
        self.texts()
            .logs
            .get(local_rank)
            .map_or_else(Vec::new, |(log, _)| log.iter().copied().collect())
    }

    /// The end of a worker's standard error.
    pub fn tail(&self, local_rank: usize) -> Vec<u8> {
        self.texts().tails[local_rank].iter().copied().collect()
    }
}

/// Adds bytes to a tail of at most `size`.
fn append(tail: &mut VecDeque<u8>, bytes: &[u8], size: usize) {
    let bytes = &bytes[bytes.len().saturating_sub(size)..];
    let surplus = (tail.len() + bytes.len()).saturating_sub(size);
    tail.drain(..surplus);
    tail.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_both_streams_is_kept() {
        let shared = Shared::new(1, 2).unwrap();
        shared.keep(1, Stream::Stdout, b"step 1");
        shared.keep(1, Stream::Stderr, b"oh no\n");
        shared.keep(1, Stream::Stdout, b"step 2\n");
        assert_eq!(shared.log(1), b"step 1\noh no\nstep 2\n");
        assert_eq!((shared.tail(1), shared.log(0)), (b"oh no\n".to_vec(), Vec::new()));
        for size in [10, LOG_SIZE - 3, 3 * LOG_SIZE] {
            shared.keep(1, Stream::Stdout, &vec![b'x'; size]);
            assert!(shared.log(1).len() <= LOG_SIZE);
        }
        assert_eq!(shared.log(1), vec![b'x'; LOG_SIZE]);
    }
}
