//! The signals that the launcher takes as events (through a signalfd) instead of being killed by
//! them, and what they mean to the job.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

/// Asks for the job's end: forwarded to the workers, which then have the grace time.
pub const STOP: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Means something to the workers only: forwarded to those that are prepared for it.
pub const USER: [Signal; 2] = [Signal::SIGUSR1, Signal::SIGUSR2];

/// What whoever started the launcher may ignore on its behalf, by convention: SIGHUP (`nohup`), SIGINT and
/// SIGQUIT (a script's `&`), and what stops a background job.
const LEFT_IGNORED: [Signal; 6] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
];

/// Gives every other signal that is ignored its default action: daemons and window managers leave SIGCHLD
/// so, and children then end unseen; a launcher that ignores SIGTERM cannot be stopped. SIGPIPE is the
/// runtime's own choice.
pub fn undo_inherited() {
    // Real-time signals are not in nix's enumeration.
    for number in 1..=64 {
        let kept = Signal::try_from(number)
            .is_ok_and(|signal| signal == Signal::SIGPIPE || LEFT_IGNORED.contains(&signal));
        if !kept && is_ignored(number) {
            // SAFETY: the default action installs no handler.
            unsafe { libc::signal(number, libc::SIG_DFL) };
        }
    }
}

/// Signals as events.
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks the signals above and SIGCHLD, and no others, and makes them readable. One that was ignored
    /// when this process started (SIGHUP under `nohup`, SIGINT in a script's background) stays so.
    pub fn take_over() -> nix::Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGCHLD);
        STOP.into_iter().chain(USER).filter(|&s| !is_ignored(s as i32)).for_each(|s| set.add(s));
        set.thread_set_mask()?;
        // Writing past a file-size limit shall be an error, not a death.
        // SAFETY: ignoring a signal installs no handler.
        unsafe { signal(Signal::SIGXFSZ, SigHandler::SigIgn) }?;
        Ok(Signals(SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?))
    }

    /// The next pending signal.
    pub fn next(&self) -> Option<Signal> {
        let info = self.0.read_signal().ok().flatten()?;
        Signal::try_from(info.ssi_signo as i32).ok()
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether `pid` handles `signal`, or has blocked it to read it from a signalfd: any other process
/// would die of it.
pub fn is_prepared(pid: Pid, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let has = |mask: &str, signal: Signal| {
        let value = status.lines().find_map(|line| line.strip_prefix(mask));
        let bits = value.and_then(|value| u64::from_str_radix(value.trim(), 16).ok());
        bits.unwrap_or(0) & 1 << (signal as u64 - 1) != 0
    };
    // Who blocks even SIGSEGV blocks everything for an instant: it is starting a process.
    has("SigCgt:", signal) || has("SigBlk:", signal) && !has("SigBlk:", Signal::SIGSEGV)
}

fn is_ignored(signal: i32) -> bool {
    // SAFETY: sigaction is plain data; a null new action only reads the old one.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        let known = libc::sigaction(signal, std::ptr::null(), &mut old) == 0;
        known && old.sa_sigaction == libc::SIG_IGN
    }
}
