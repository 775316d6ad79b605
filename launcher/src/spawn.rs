//! Starting this executable again, in one of its private roles, by posix_spawn: no fork of a
//! process with threads, and only the descriptors that are listed reach the child.

use std::ffi::{CString, OsString};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::ffi::OsStringExt;

use nix::fcntl::OFlag;
use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
use nix::sys::signal::SigSet;
use nix::sys::stat::Mode;

use crate::process::Process;

/// `argv[0]` of the process that becomes a worker.
pub const SHIM: &str = "torchrs-worker-shim";
/// `argv[0]` of the process that runs the job.
pub const SUPERVISOR: &str = "torchrs-supervisor";
/// `argv[0]` of the process that runs the launchers of several hosts.
pub const SSH_SUPERVISOR: &str = "torchrs-ssh-supervisor";
/// `argv[0]` of the process that looks whether this host is fit for a job.
pub const CHECK: &str = "torchrs-check";
/// `argv[0]` of the process that opens libraries, which may end it.
pub const PROBE: &str = "torchrs-probe";

/// One of the child's standard streams.
pub enum Stdio<'a> {
    /// The parent's own.
    Inherit,
    /// `/dev/null`.
    Null,
    /// This descriptor.
    Fd(BorrowedFd<'a>),
}

/// What a child starts with.
pub struct Child<'a> {
    /// [`SHIM`], [`SUPERVISOR`], [`SSH_SUPERVISOR`] or [`CHECK`].
    pub role: &'a str,
    /// The arguments after `argv[0]`.
    pub args: Vec<CString>,
    /// The whole environment, as `NAME=value`.
    pub env: &'a [CString],
    /// Standard input, output, error.
    pub stdio: [Stdio<'a>; 3],
    /// Descriptors that the child gets under the same numbers, open across its next exec too.
    pub pass: &'a [BorrowedFd<'a>],
    /// Whether the child gets a session of its own: a terminal's signals and a kill of the
    /// launcher's process group do not reach it.
    pub new_session: bool,
}

impl Child<'_> {
    /// Starts the child: a supervisor with its parent's signal mask, so that no signal is lost
    /// before it is ready, a worker's shim with none, so that it never looks as if it waited for
    /// one.
    pub fn spawn(self) -> nix::Result<Process> {
        let mut actions = PosixSpawnFileActions::init()?;
        for (target, stdio) in self.stdio.iter().enumerate() {
            let target = target as RawFd;
            match stdio {
                Stdio::Inherit => {}
                Stdio::Null => {
                    actions.add_open(target, "/dev/null", OFlag::O_RDWR, Mode::empty())?
                }
                Stdio::Fd(fd) => actions.add_dup2(fd.as_raw_fd(), target)?,
            }
        }
        for fd in self.pass {
            // Onto itself: clears close-on-exec in the child alone.
            actions.add_dup2(fd.as_raw_fd(), fd.as_raw_fd())?;
        }
        let mut attributes = PosixSpawnAttr::init()?;
        let mut flags = PosixSpawnFlags::empty();
        if self.new_session {
            flags |= PosixSpawnFlags::from_bits_retain(libc::POSIX_SPAWN_SETSID.into());
        }
        if self.role == SHIM {
            flags |= PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK;
            attributes.set_sigmask(&SigSet::empty())?;
        }
        attributes.set_flags(flags)?;
        let role = CString::new(self.role).expect("a role's name holds no NUL");
        let args: Vec<CString> = std::iter::once(role).chain(self.args).collect();
        let pid = posix_spawn("/proc/self/exe", &actions, &attributes, &args, self.env)?;
        // Nobody else waits for our children, so the number is still this child's.
        Process::open(pid)
    }
}

/// Arguments and paths came in as C strings, so they hold no NUL.
pub fn c_string(text: OsString) -> CString {
    CString::new(text.into_vec()).expect("an argument holds no NUL")
}
