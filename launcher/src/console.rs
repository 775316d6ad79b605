//! The launcher's own standard output and error: blocking writes (they run on the relay's
//! thread), a reader that goes away is one warning and not the end of the training, and both
//! streams are known to be one where they lead to the same place.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::stat::fstat;
use nix::unistd::{isatty, write};

use crate::lines::Screen;
use crate::outputs::Stream;

/// A terminal's size, in characters.
#[derive(Debug, Clone, Copy)]
pub struct TerminalSize {
    pub columns: u16,
    pub lines: u16,
}

/// One place that the launcher writes to.
pub struct Console {
    stream: Stream,
    pub screen: Screen,
    /// Writing failed: what comes is dropped.
    broken: bool,
    written: Arc<AtomicU64>,
}

impl Console {
    /// Bytes written are added to `written`, for whoever wonders whether it is stuck.
    pub fn new(stream: Stream, written: Arc<AtomicU64>) -> Self {
        let screen = Screen { is_terminal: is_terminal(stream), transient: None };
        Console { stream, screen, broken: false, written }
    }

    /// Writes all of `bytes`, waiting as long as the reader makes it wait.
    pub fn write(&mut self, bytes: &[u8]) {
        if self.broken || bytes.is_empty() {
            return;
        }
        if let Err(error) = self.try_write(bytes) {
            self.broken = true;
            if self.stream == Stream::Stdout {
                let text = "torchrs-launch: cannot write to standard output any more";
                // If standard error is gone too there is nobody left to tell.
                say(&format!("{text} ({error}); the job goes on\n"));
            }
        }
    }

    fn try_write(&self, bytes: &[u8]) -> nix::Result<()> {
        let count = |count| {
            self.written.fetch_add(count as u64, Relaxed);
        };
        write_all(self.stream, bytes, count)
    }
}

/// Writes all of `text` to standard error. Nobody may listen there, or whoever shares the descriptor may have
/// made it non-blocking: `eprintln!` would panic over either.
pub fn say(text: &str) {
    let _ = write_all(Stream::Stderr, text.as_bytes(), |_| {});
}

/// Writes all of `bytes`, waiting as long as the reader makes it wait; `written` is told of each part.
fn write_all(stream: Stream, mut bytes: &[u8], written: impl Fn(usize)) -> nix::Result<()> {
    let fd = fd_of(stream);
    while !bytes.is_empty() {
        match write(fd, bytes) {
            Ok(count) => {
                written(count);
                bytes = &bytes[count..];
            }
            Err(Errno::EINTR) => {}
            // Somebody made the descriptor that we share with them non-blocking.
            Err(Errno::EAGAIN) => {
                poll(&mut [PollFd::new(fd, PollFlags::POLLOUT)], PollTimeout::NONE)?;
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Whether the launcher's `stream` is a terminal.
pub fn is_terminal(stream: Stream) -> bool {
    isatty(fd_of(stream)).unwrap_or(false)
}

/// Whether standard output and error lead to the same file, pipe or terminal.
pub fn streams_are_one() -> bool {
    match (fstat(fd_of(Stream::Stdout)), fstat(fd_of(Stream::Stderr))) {
        (Ok(out), Ok(err)) => (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino),
        _ => false,
    }
}

/// The size of the terminal behind `stream`, if it is one and says.
pub fn terminal_size(stream: Stream) -> Option<TerminalSize> {
    // SAFETY: winsize is plain data and TIOCGWINSZ writes nothing else.
    let (result, size) = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(fd_of(stream).as_raw_fd(), libc::TIOCGWINSZ, &mut size), size)
    };
    (result == 0 && size.ws_col > 0)
        .then_some(TerminalSize { columns: size.ws_col, lines: size.ws_row })
}

fn fd_of(stream: Stream) -> BorrowedFd<'static> {
    let number = match stream {
        Stream::Stdout => libc::STDOUT_FILENO,
        Stream::Stderr => libc::STDERR_FILENO,
    };
    // SAFETY: descriptors 1 and 2 stay open for the life of the process; Rust's runtime opens
    // them at the start if the caller had closed them.
    unsafe { BorrowedFd::borrow_raw(number) }
}
