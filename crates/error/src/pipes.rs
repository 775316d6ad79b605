//! The end of a program whose output nobody reads any more, as in `train | head`. The standard library
//! has such a write fail, and `println!` panics over it; here the process ends without a word, as other
//! programs do: by SIGPIPE. Sockets and other pipes keep their errors, which are values.

use std::os::fd::BorrowedFd;
use std::panic::{self, PanicHookInfo};
use std::process;
use std::sync::Once;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigHandler, SigSet, Signal, raise, signal};

use super::panic_message;

/// Has every panic over a closed standard stream end the process. A hook that the program sets later
/// takes its place.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            end_if_closed(info);
            previous(info);
        }));
    });
}

/// Ends the process if `info` is the panic of a `println!` or `eprintln!` whose reader has gone.
pub fn end_if_closed(info: &PanicHookInfo) {
    let message = panic_message(info.payload());
    let print = ["failed printing to stdout: ", "failed printing to stderr: "];
    let Some(why) = print.iter().find_map(|start| message.strip_prefix(start)) else { return };
    if why.contains(&format!("(os error {})", libc::EPIPE)) {
        end();
    }
}

fn end() -> ! {
    let mut pipe = SigSet::empty();
    pipe.add(Signal::SIGPIPE);
    // SAFETY: the default action is no function of this program.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
    let _ = pipe.thread_unblock();
    let _ = raise(Signal::SIGPIPE);
    // Whoever is the first process of a container has no default actions.
    process::exit(128 + libc::SIGPIPE)
}

/// Whether standard error has no reader any more: `eprintln!` would panic, and a panic inside a panic's
/// hook aborts the process.
pub(super) fn nobody_listens() -> bool {
    // SAFETY: the number is only asked about, whatever it stands for.
    let stderr = unsafe { BorrowedFd::borrow_raw(libc::STDERR_FILENO) };
    let mut events = [PollFd::new(stderr, PollFlags::POLLOUT)];
    let gone = PollFlags::POLLERR | PollFlags::POLLNVAL;
    let asked = poll(&mut events, PollTimeout::ZERO);
    asked.is_ok() && events[0].revents().is_some_and(|events| events.intersects(gone))
}
