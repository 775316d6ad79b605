//! A child process held by its pidfd: the number cannot be reused under us, its end is an event
//! for epoll, and a signal sent through it never reaches a stranger.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use torchrs_job::exit_status::ExitStatus;

/// A process that this one may wait for, or only watch.
#[derive(Debug)]
pub struct Process {
    pidfd: OwnedFd,
    pid: Pid,
}

impl Process {
    /// Takes hold of `pid`: a child that has not been waited for, or any living process.
    pub fn open(pid: Pid) -> nix::Result<Self> {
        // SAFETY: pidfd_open takes two integers and touches no memory of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
        let fd = Errno::result(fd)? as i32;
        // SAFETY: the kernel just gave us this descriptor (close-on-exec); nobody else owns it.
        Ok(Process { pidfd: unsafe { OwnedFd::from_raw_fd(fd) }, pid })
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends `signal` to this process alone. One that has ended already is no error.
    pub fn signal(&self, signal: Signal) {
        // SAFETY: pidfd_send_signal with a null siginfo reads no memory of ours.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.pidfd.as_raw_fd(),
                signal as i32,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
    }

    /// Reaps this child if it has ended.
    pub fn try_wait(&self) -> nix::Result<Option<ExitStatus>> {
        let id = self.pidfd.as_raw_fd() as libc::id_t;
        let info = waitid(libc::P_PIDFD, id, libc::WEXITED | libc::WNOHANG)?;
        Ok(info.map(|info| status(&info)))
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

fn status(info: &libc::siginfo_t) -> ExitStatus {
    // SAFETY: the caller got `info` from a successful waitid, which fills `si_status`.
    let status = unsafe { info.si_status() };
    match info.si_code {
        libc::CLD_EXITED => ExitStatus::Exited(status),
        how => ExitStatus::Signaled { signal: status, core_dumped: how == libc::CLD_DUMPED },
    }
}

/// The pid of some child that has ended and not been reaped; `Err(ECHILD)` when this process has
/// no children at all.
pub fn peek_ended_child() -> nix::Result<Option<Pid>> {
    let info = waitid(libc::P_ALL, 0, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)?;
    // SAFETY: waitid succeeded and found a child, so `si_pid` is filled.
    Ok(info.map(|info| Pid::from_raw(unsafe { info.si_pid() })))
}

/// Reaps the ended child `pid` and forgets how it ended.
pub fn reap(pid: Pid) {
    // A child that somebody reaped before is what we wanted anyway.
    let _ = waitid(libc::P_PID, pid.as_raw() as libc::id_t, libc::WEXITED | libc::WNOHANG);
}

/// `waitid`, without nix's translation, which refuses real-time signals.
fn waitid(
    kind: libc::idtype_t,
    id: libc::id_t,
    flags: i32,
) -> nix::Result<Option<libc::siginfo_t>> {
    // SAFETY: siginfo_t is plain data, for which all zeroes is a value; waitid writes only to it.
    let (result, info) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        (libc::waitid(kind, id, &mut info, flags), info)
    };
    Errno::result(result)?;
    // SAFETY: with WNOHANG and nothing ended, the kernel leaves or sets `si_pid` to zero.
    Ok((unsafe { info.si_pid() } != 0).then_some(info))
}
