//! A child of the front, run to its end: the supervisor, or a tool such as cargo. Signals to the front are
//! passed on to it, and what it leaves behind is ended.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::Path;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use torchrs_job::exit_status::ExitStatus;

use crate::environment;
use crate::failure::{self, Doing, Failure};
use crate::plan::{memory_file, read_all};
use crate::process::Process;
use crate::shim;
use crate::signals::{STOP, Signals};
use crate::spawn::{Child, SHIM, Stdio};
use crate::tree;

/// Waits for one child at a time, and passes signals on to it.
pub struct Overseer {
    signals: Signals,
    /// The first signal that asked for the end.
    asked_to_stop: Option<Signal>,
}

/// What a tool printed and how it ended.
pub struct Ran {
    pub exit: ExitStatus,
    pub stdout: Vec<u8>,
    /// Empty if its messages were shown.
    pub stderr: Vec<u8>,
}

/// What becomes of a tool's standard error.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Messages {
    Show,
    Keep,
}

impl Overseer {
    pub fn new() -> Result<Self, Failure> {
        prctl::set_child_subreaper(true).doing(|| "cannot become a child subreaper".into())?;
        let signals = Signals::take_over().doing(|| "cannot take over signals".into())?;
        Ok(Overseer { signals, asked_to_stop: None })
    }

    /// The signals of this process, for whoever oversees a child in a way of its own.
    pub fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Runs `tool` to its end.
    ///
    /// # Errors
    /// If it cannot be started, or if a signal asked for the end meanwhile.
    pub fn run_tool(
        &mut self,
        tool: &Path,
        args: Vec<OsString>,
        messages: Messages,
    ) -> Result<Ran, Failure> {
        let what = || format!("cannot run {}", tool.display());
        let stdout = memory_file("torchrs-tool-stdout").doing(what)?;
        let stderr = memory_file("torchrs-tool-stderr").doing(what)?;
        let name = tool.as_os_str();
        let child = Child {
            role: SHIM,
            args: shim::arguments(None, name, [name.to_owned()].into_iter().chain(args)),
            env: &environment::own(),
            stdio: [
                Stdio::Null,
                Stdio::Fd(stdout.as_fd()),
                if messages == Messages::Show { Stdio::Inherit } else { Stdio::Fd(stderr.as_fd()) },
            ],
            pass: &[],
            new_session: false,
        };
        let exit = self.oversee(&child.spawn().doing(what)?);
        if let Some(signal) = self.asked_to_stop {
            let message = format!("stopped by {signal} before any worker was started");
            return Err(Failure::with_code(failure::SIGNAL + signal as i32, message));
        }
        Ok(Ran {
            exit,
            stdout: read_all(stdout).doing(what)?,
            stderr: read_all(stderr).doing(what)?,
        })
    }

    /// Waits for the end of `child`, passing signals on, and ends what it left behind.
    pub fn oversee(&mut self, child: &Process) -> ExitStatus {
        let exit = loop {
            let mut events = [
                PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
                PollFd::new(child.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut events, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => panic!("poll of two descriptors failed: {errno}"),
            }
            while let Some(signal) = self.signals.next() {
                if STOP.contains(&signal) {
                    self.asked_to_stop.get_or_insert(signal);
                }
                if signal != Signal::SIGCHLD {
                    child.signal(signal);
                }
            }
            match child.try_wait() {
                Ok(Some(exit)) => break exit,
                Ok(None) => {}
                Err(errno) => panic!("waiting for a child failed: {errno}"),
            }
        };
        tree::kill_all(&self.signals);
        exit
    }
}
