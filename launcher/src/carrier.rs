//! One thread of the relay: moves the streams that go to one place, line by line.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::unistd::read;

use crate::console::Console;
use crate::deadline::poll_timeout;
use crate::lines::{Lines, Screen, clear};
use crate::outputs::Stream;
use crate::streams::{Input, Shared};

/// How long a stream may pause in the middle of a very long line before another one that waits
/// may break that line.
const LONG_LINE_PAUSE: Duration = Duration::from_millis(100);
/// As much as a pipe holds.
const READ_SIZE: usize = 64 << 10;

/// The streams that go to one place.
pub struct Carrier {
    /// None for streams that only go to log files.
    console: Option<Console>,
    sources: Vec<Source>,
    /// The source whose long line is half written.
    held_by: Option<usize>,
    /// When it may be interrupted, unless it goes on before.
    held_until: Instant,
    /// Whether this thread writes the launcher's own lines.
    shows_notices: bool,
    wake: Arc<EventFd>,
    shared: Arc<Shared>,
}

struct Source {
    input: Input,
    /// None for a lone worker: its bytes are passed on as they come.
    lines: Option<Lines>,
    open: bool,
}

impl Carrier {
    /// Carries `inputs` to the launcher's stream `place`, or only to their log files.
    pub fn new(
        place: Option<Stream>,
        inputs: Vec<Input>,
        wake: Arc<EventFd>,
        shared: Arc<Shared>,
    ) -> Self {
        let source = |(id, input): (usize, Input)| {
            let lines = input.prefix.clone().map(|prefix| Lines::new(id, prefix.into_bytes()));
            Source { input, lines, open: true }
        };
        Carrier {
            console: place.map(|stream| Console::new(stream, shared.written())),
            sources: inputs.into_iter().enumerate().map(source).collect(),
            held_by: None,
            held_until: Instant::now(),
            shows_notices: place == Some(Stream::Stderr),
            wake,
            shared,
        }
    }

    /// Runs until all streams have ended, or until the relay is told to stop.
    pub fn run(mut self) {
        let mut buffer = vec![0; READ_SIZE];
        while !self.is_over() {
            let stopping = self.shared.is_stopping();
            let ready = self.wait(stopping);
            self.show_notices();
            if stopping && ready.is_empty() {
                break;
            }
            // Whoever is in the middle of a long line comes first, and keeps the others out.
            let (holder, others): (Vec<_>, Vec<_>) =
                ready.into_iter().partition(|id| self.held_by == Some(*id));
            for id in holder.into_iter().chain(others) {
                if self.may_read(id) {
                    self.carry(id, &mut buffer);
                }
            }
        }
        for id in 0..self.sources.len() {
            self.finish(id);
        }
        self.show_notices();
        self.shared.finished();
    }

    /// The thread that shows the launcher's own lines outlives the others.
    fn is_over(&self) -> bool {
        let ended = self.sources.iter().all(|source| !source.open);
        ended && (!self.shows_notices || self.shared.is_last())
    }

    /// Whether reading from `id` now cannot tear another stream's line.
    fn may_read(&self, id: usize) -> bool {
        let free = self.held_by.is_none_or(|holder| holder == id);
        self.sources[id].open && (free || Instant::now() >= self.held_until)
    }

    /// Waits until there is something to do; returns the sources with something to read.
    fn wait(&self, stopping: bool) -> Vec<usize> {
        // Asked for before `may_read` is: a hold that runs out in between is waited for, not
        // forgotten.
        let hold =
            Some(self.held_until).filter(|until| self.held_by.is_some() && *until > Instant::now());
        let timeout = if stopping { PollTimeout::ZERO } else { poll_timeout(hold) };
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
        self.shared.keep(input.local_rank, input.stream, bytes);
        if let Some(warning) = input.log.as_mut().and_then(|log| log.write(bytes)) {
            self.shared.notice(warning);
        }
        self.print(id, |lines, screen, out| match lines {
            Some(lines) => lines.push(bytes, screen, out),
            None => out.extend_from_slice(bytes),
        });
    }

    fn finish(&mut self, id: usize) {
        if std::mem::take(&mut self.sources[id].open) {
            self.print(id, |lines, screen, out| {
                if let Some(lines) = lines {
                    lines.finish(screen, out);
                }
            });
        }
    }

    /// Writes what `render` makes, after ending another source's line that is half written.
    fn print(
        &mut self,
        id: usize,
        render: impl FnOnce(Option<&mut Lines>, &mut Screen, &mut Vec<u8>),
    ) {
        let Some(console) = &mut self.console else { return };
        let lines = &mut self.sources[id].lines;
        let mut rendered = Vec::new();
        render(lines.as_mut(), &mut console.screen, &mut rendered);
        if rendered.is_empty() {
            return;
        }
        let mid_line = lines.as_ref().is_some_and(Lines::is_mid_line);
        if self.held_by != Some(id) {
            self.end_held_line();
        }
        self.write(&rendered);
        self.held_by = mid_line.then_some(id);
        self.held_until = Instant::now() + LONG_LINE_PAUSE;
    }

    /// Ends the line that is half written, if there is one.
    fn end_held_line(&mut self) {
        if let Some(lines) = self.held_by.take().and_then(|id| self.sources[id].lines.as_mut()) {
            let mut end = Vec::new();
            lines.break_line(&mut end);
            self.write(&end);
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(console) = &mut self.console {
            console.write(bytes);
        }
    }

    fn show_notices(&mut self) {
        if !self.shows_notices {
            return;
        }
        for line in self.shared.take_notices() {
            self.end_held_line();
            let mut out = Vec::new();
            if let Some(console) = &mut self.console {
                clear(&mut console.screen, &mut out);
            }
            out.extend_from_slice(line.as_bytes());
            out.push(b'\n');
            self.write(&out);
        }
    }
}
