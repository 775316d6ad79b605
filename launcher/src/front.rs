//! The process that the user starts and waits for: it reads the options, finds the program,
//! starts the supervisor and passes signals on to it. Should the supervisor be killed, all its
//! descendants become the front's, which ends them; should the front be killed, the supervisor
//! sees that and does the same.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, pipe2};
use torchrs_job::exit_status::ExitStatus;

use crate::cli::{self, Options};
use crate::console::say;
use crate::environment;
use crate::failure::{self, Doing, Failure};
use crate::outputs::{Stream, destination};
use crate::plan::{Plan, memory_file, read_all};
use crate::preflight;
use crate::process::Process;
use crate::program;
use crate::signals::{STOP, Signals, undo_inherited};
use crate::simulate::Simulated;
use crate::spawn::{Child, SHIM, SUPERVISOR, Stdio, c_string};
use crate::tree;

/// Runs a job from the command line; returns the exit code.
pub fn main() -> i32 {
    undo_inherited();
    tree::leave_alone_who_is_here();
    let options = cli::options();
    let nproc =
        options.nproc.resolve(options.simulate_gpus).unwrap_or_else(|reason| cli::refuse(reason));
    if let Some(reason) = options.misfit(nproc) {
        cli::refuse(reason);
    }
    run(options, nproc).unwrap_or_else(|failure| {
        say(&format!("{failure}\n"));
        failure.code
    })
}

fn run(options: Options, nproc: usize) -> Result<i32, Failure> {
    keep_foreign_descriptors_out();
    let mut plan = Plan {
        program: options.command[0].clone().into(),
        argv: options.command,
        nproc,
        max_restarts: options.max_restarts,
        grace: options.grace,
        role: options.role,
        job_id: random_id()?,
        run_id: options.run_id.unwrap_or_default(),
        master_addr: options.master_addr,
        master_port: preflight::master_port(options.master_port)?,
        simulated: None,
        run_folder: None,
        outputs: Vec::new(),
    };
    if plan.run_id.is_empty() {
        plan.run_id = plan.job_id.clone();
    }
    for rank in 0..nproc {
        plan.outputs.push(Stream::BOTH.map(|stream| {
            let (redirects, tee) = (options.redirects.as_ref(), options.tee.as_ref());
            destination(redirects, tee, options.log_dir.is_some(), rank, stream)
        }));
    }
    let log_files = plan.outputs.iter().flatten().filter(|d| d.file).count();
    preflight::descriptors(nproc, log_files)?;
    if log_files > 0 || options.log_dir.is_some() {
        let named = options.log_dir.is_some();
        let folder = options.log_dir.unwrap_or_else(|| std::env::temp_dir().join("torchrs-logs"));
        let folder = preflight::run_folder(&folder, &plan.run_id, &plan.job_id)?;
        if !named {
            say(&format!("torchrs-launch: without --log-dir, logs are in {}\n", folder.display()));
        }
        plan.run_folder = Some(folder);
    }
    let mut front = Front::new()?;
    plan.program = program::find(&mut front, &plan.argv[0], options.no_build)?;
    if let Some(gpus) = options.simulate_gpus {
        let simulated = Simulated::find(&mut front, gpus, &plan, options.no_build)?;
        say(&format!("{simulated}\n"));
        plan.simulated = Some(simulated);
    }
    front.supervise(&plan)
}

/// The front's view of its one child.
pub struct Front {
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

impl Front {
    fn new() -> Result<Self, Failure> {
        prctl::set_child_subreaper(true).doing(|| "cannot become a child subreaper".into())?;
        let signals = Signals::take_over().doing(|| "cannot take over signals".into())?;
        Ok(Front { signals, asked_to_stop: None })
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
        let own_pid = Pid::this().to_string().into();
        let tool_name = || tool.as_os_str().to_owned();
        let child = Child {
            role: SHIM,
            args: [own_pid, tool_name(), tool_name()]
                .into_iter()
                .chain(args)
                .map(c_string)
                .collect(),
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

    /// Runs the job in a supervisor of its own; returns the exit code.
    fn supervise(&mut self, plan: &Plan) -> Result<i32, Failure> {
        let what = || "cannot start the supervisor".to_owned();
        let (theirs, ours) = pipe2(OFlag::O_CLOEXEC).doing(what)?;
        let args = [theirs.as_raw_fd(), Pid::this().as_raw()];
        let child = Child {
            role: SUPERVISOR,
            args: args.map(|arg| c_string(arg.to_string().into())).to_vec(),
            env: &environment::own(),
            stdio: [Stdio::Inherit, Stdio::Inherit, Stdio::Inherit],
            pass: &[theirs.as_fd()],
            new_session: true,
        };
        let child = child.spawn().doing(what)?;
        drop(theirs);
        // A supervisor that died already cannot read; how it ended says more than that.
        let _ = plan.send(ours);
        let exit = self.oversee(&child);
        if exit.signal().is_some() {
            say(&format!("torchrs-launch: the supervisor was {exit}; all workers were stopped\n"));
        }
        Ok(exit.shell_code())
    }

    /// Waits for the end of `child`, passing signals on, and ends what it left behind.
    fn oversee(&mut self, child: &Process) -> ExitStatus {
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

/// Marks every descriptor that came from whoever started the launcher close-on-exec: a worker
/// gets what is meant for it, and holds nobody's pipe open.
fn keep_foreign_descriptors_out() {
    // SAFETY: close_range takes three integers. An old kernel refuses, and nothing is lost.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// 128 random bits, in hexadecimal.
fn random_id() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .doing(|| "cannot read /dev/urandom".into())?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
