//! How a process ended, in words: an exit code, or a signal by its name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How a child process ended.
///
/// ```
/// use torchrs::multiprocessing::{ExitStatus, Process};
/// fn quit(code: i32) {
///     std::process::exit(code)
/// }
/// let child = Process::spawn(quit, 3)?;
/// let status: ExitStatus = child.wait()?;
/// assert_eq!((status, status.to_string().as_str()), (ExitStatus::Exited(3), "exited with code 3"));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ExitStatus {
    /// It exited with this code.
    Exited(i32),
    /// A signal ended it.
    Signaled {
        /// The signal's number.
        signal: i32,
        /// Whether a core file was written.
        core_dumped: bool,
    },
    /// It ended, but somebody else collected the status (this process ignores SIGCHLD, or waits
    /// for any child).
    Unknown,
}

impl ExitStatus {
    /// True for exit code 0.
    pub fn success(self) -> bool {
        self == ExitStatus::Exited(0)
    }

    /// The code that a shell would give: the exit code, or 128 + the signal. 1 when unknown.
    ///
    /// ```
    /// use torchrs::multiprocessing::ExitStatus;
    /// assert_eq!(ExitStatus::Exited(3).shell_code(), 3);
    /// assert_eq!(ExitStatus::Signaled { signal: 9, core_dumped: false }.shell_code(), 137);
    /// ```
    pub fn shell_code(self) -> i32 {
        match self {
            ExitStatus::Exited(code) => code,
            ExitStatus::Signaled { signal, .. } => 128 + signal,
            ExitStatus::Unknown => 1,
        }
    }

    /// The signal that ended the process.
    ///
    /// ```
    /// use torchrs::multiprocessing::ExitStatus;
    /// assert_eq!(ExitStatus::Signaled { signal: 11, core_dumped: true }.signal(), Some(11));
    /// assert_eq!(ExitStatus::Exited(139).signal(), None);
    /// ```
    pub fn signal(self) -> Option<i32> {
        match self {
            ExitStatus::Signaled { signal, .. } => Some(signal),
            _ => None,
        }
    }

    /// From the two fields of `siginfo_t` that `waitid` fills.
    #[doc(hidden)]
    pub fn from_siginfo(code: i32, status: i32) -> Self {
        match code {
            libc::CLD_EXITED => ExitStatus::Exited(status),
            _ => ExitStatus::Signaled { signal: status, core_dumped: code == libc::CLD_DUMPED },
        }
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match *self {
            ExitStatus::Exited(code) => write!(f, "exited with code {code}"),
            ExitStatus::Signaled { signal, core_dumped } => {
                match SIGNALS.iter().find(|(number, ..)| *number == signal) {
                    Some((_, name, meaning)) => write!(f, "killed by {name} ({meaning})")?,
                    None => write!(f, "killed by signal {signal}")?,
                }
                if core_dumped { f.write_str(", core dumped") } else { Ok(()) }
            }
            ExitStatus::Unknown => f.write_str("ended in an unknown way (SIGCHLD is ignored?)"),
        }
    }
}

/// Signals that end processes, with what they usually mean.
const SIGNALS: [(i32, &str, &str); 16] = [
    (libc::SIGABRT, "SIGABRT", "abort: a failed assertion or allocation in native code"),
    (libc::SIGALRM, "SIGALRM", "a timer that nobody handles"),
    (libc::SIGBUS, "SIGBUS", "bus error: mapped memory whose file or page is gone"),
    (libc::SIGFPE, "SIGFPE", "arithmetic trap"),
    (libc::SIGHUP, "SIGHUP", "the terminal closed"),
    (libc::SIGILL, "SIGILL", "an instruction that this processor does not have"),
    (libc::SIGINT, "SIGINT", "interrupt from the keyboard"),
    (libc::SIGKILL, "SIGKILL", "killed from outside, often for using too much memory"),
    (libc::SIGPIPE, "SIGPIPE", "broken pipe"),
    (libc::SIGQUIT, "SIGQUIT", "quit from the keyboard"),
    (libc::SIGSEGV, "SIGSEGV", "segmentation fault"),
    (libc::SIGSYS, "SIGSYS", "a system call that the sandbox forbids"),
    (libc::SIGTERM, "SIGTERM", "asked to terminate"),
    (libc::SIGUSR1, "SIGUSR1", "user signal that nobody handles"),
    (libc::SIGXCPU, "SIGXCPU", "limit of processor time"),
    (libc::SIGXFSZ, "SIGXFSZ", "limit of file size"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_how_a_process_ended() {
        let status = ExitStatus::from_siginfo(libc::CLD_EXITED, 3);
        assert_eq!((status.to_string().as_str(), status.shell_code()), ("exited with code 3", 3));
        let status = ExitStatus::from_siginfo(libc::CLD_DUMPED, libc::SIGSEGV);
        assert_eq!(status.to_string(), "killed by SIGSEGV (segmentation fault), core dumped");
        assert_eq!((status.shell_code(), status.signal()), (139, Some(11)));
        let status = ExitStatus::from_siginfo(libc::CLD_KILLED, 40);
        assert_eq!(status.to_string(), "killed by signal 40");
    }
}
