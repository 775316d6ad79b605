//! Carries the workers' output from their pipes to the terminal and the log files, on threads of
//! its own: a reader that does not read (a stopped pager) stops the output and, by full pipes,
//! the workers, but never the supervisor, which goes on seeing signals and deaths.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use nix::sys::eventfd::EventFd;

use crate::carrier::Carrier;
use crate::console::streams_are_one;
use crate::outputs::Stream;
use crate::streams::{Input, Shared, event};

/// The relay of one attempt's output.
pub struct Relay {
    shared: Arc<Shared>,
    /// For each thread: how to wake it.
    wakes: Vec<Arc<EventFd>>,
}

impl Relay {
    /// Starts to carry `inputs` of `nproc` workers. Each place that output goes to has a thread, so that one that is stuck does not hold up another.
    pub fn start(inputs: Vec<Input>, nproc: usize) -> std::io::Result<Relay> {
        // The thread for standard error also writes the launcher's own lines: it is always there.
        let mut by_place = BTreeMap::from([(Some(Stream::Stderr), Vec::new())]);
        let one_place = streams_are_one();
        for input in inputs {
            let shown = if one_place { Stream::Stderr } else { input.stream };
            by_place.entry(input.terminal.then_some(shown)).or_default().push(input);
        }
        let shared = Arc::new(Shared::new(by_place.len(), nproc)?);
        let mut wakes = Vec::new();
        for (place, inputs) in by_place {
            let wake = match place {
                Some(Stream::Stderr) => shared.wakes_for_notices(),
                _ => Arc::new(event()?),
            };
            wakes.push(wake.clone());
            let carrier = Carrier::new(place, inputs, wake, shared.clone());
            thread::Builder::new().name("relay".into()).spawn(move || carrier.run())?;
        }
        Ok(Relay { shared, wakes })
    }

    /// What the threads share, for whoever looks at the workers' output.
    pub fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    /// Becomes readable when all output has been written.
    pub fn done(&self) -> BorrowedFd<'_> {
        self.shared.done()
    }

    /// Whether all output has been written.
    pub fn is_done(&self) -> bool {
        self.shared.is_done()
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
        self.shared.stop();
        for wake in &self.wakes {
            let _ = wake.write(1);
        }
    }

    /// Bytes written so far: whether it moves tells a slow reader from a stuck one.
    pub fn written(&self) -> u64 {
        self.shared.written().load(Ordering::Relaxed)
    }

    /// The end of what a worker wrote to its standard error.
    pub fn stderr_tail(&self, local_rank: usize) -> Vec<u8> {
        self.shared.tail(local_rank)
    }
}
