//! One worker: how it is started, and what is known of it at its end.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, pipe2};
use serde::{Deserialize, Serialize};
use torchrs_job::exit_status::ExitStatus;
use torchrs_job::report::monotonic_ns;

use crate::console::is_terminal;
use crate::environment;
use crate::failure::{Doing, Failure};
use crate::lines::prefix;
use crate::logs::LogFile;
use crate::outputs::Stream;
use crate::place::Place;
use crate::plan::{Plan, memory_file, read_all};
use crate::process::Process;
use crate::shim;
use crate::spawn::{Child, SHIM, Stdio};
use crate::streams::Input;

/// A worker that was started.
pub struct Worker {
    pub local_rank: usize,
    pub rank: usize,
    pub process: Process,
    /// Where it may leave an error record.
    record: File,
    /// How it ended, and when that was seen (CLOCK_MONOTONIC, nanoseconds).
    exit: Option<(ExitStatus, u64)>,
    /// The signals by which the launcher asked it to end, and when the first was sent.
    asked: Vec<Signal>,
    asked_at: Option<u64>,
}

/// What is known of a worker after its end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Ended {
    pub rank: usize,
    pub local_rank: usize,
    /// Its host's name.
    pub host: String,
    pub pid: i32,
    pub exit: ExitStatus,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub seen_at: u64,
    /// What to add to it for the clock of the host that reports.
    pub clock_offset: i64,
    /// The numbers of the launcher's signals to it, and the time of the first.
    pub asked: Vec<i32>,
    pub asked_at: Option<u64>,
    /// The bytes of its error record.
    pub record: Vec<u8>,
    /// The end of what it wrote to standard error.
    pub stderr: Vec<u8>,
}

/// What a worker's start leaves to the caller.
pub struct Started {
    pub worker: Worker,
    pub outputs: Vec<Input>,
    /// About its log files.
    pub warnings: Vec<String>,
}

impl Worker {
    /// Starts the worker with this local rank, connected to the store through `store`, with a slot of `board`.
    pub fn start(
        plan: &Plan,
        place: &Place,
        local_rank: usize,
        store: OwnedFd,
        board: Option<BorrowedFd<'_>>,
    ) -> Result<Started, Failure> {
        let (rank, attempt) = (place.rank(local_rank), place.attempt);
        let what = || format!("cannot start the worker of rank {rank}");
        let record = memory_file("torchrs-error-record").doing(what)?;
        let mut outputs = Vec::new();
        let mut warnings = Vec::new();
        let mut write_ends = [None, None];
        for (stream, write_end) in Stream::BOTH.into_iter().zip(&mut write_ends) {
            let to = plan.outputs[local_rank][stream as usize];
            if place.world_size == 1 && !to.file && is_terminal(stream) {
                // A lone worker has the terminal to itself.
                continue;
            }
            let (ours, theirs) = pipe2(OFlag::O_CLOEXEC).doing(what)?;
            fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).doing(what)?;
            let log = plan.run_folder.as_deref().filter(|_| to.file).map(|folder| {
                let (mut log, warning) = LogFile::create(folder, attempt, rank, stream);
                warnings.extend(warning);
                // Numbers from a simulation must not be taken for others, later.
                let note = plan.simulated.as_ref().filter(|_| stream == Stream::Stderr);
                let line = note.map(|simulated| format!("{simulated}\n"));
                warnings.extend(line.and_then(|line| log.write(line.as_bytes())));
                log
            });
            let prefix = (place.world_size > 1).then(|| prefix(rank));
            let terminal = to.terminal;
            outputs.push(Input { pipe: ours, local_rank, prefix, stream, terminal, log });
            *write_end = Some(theirs);
        }
        let env = environment::of_worker(&environment::Of {
            plan,
            place,
            local_rank,
            parent: Pid::this().as_raw(),
            error_fd: record.as_raw_fd(),
            store_fd: store.as_raw_fd(),
            board_fd: board.map(|board| board.as_raw_fd()),
        });
        let cores = plan.cores.as_ref().map(|cores| &cores[local_rank]);
        let [out, err] = write_ends.each_ref().map(|write_end| match write_end {
            Some(fd) => Stdio::Fd(fd.as_fd()),
            None => Stdio::Inherit,
        });
        let pass: Vec<BorrowedFd<'_>> =
            [store.as_fd(), record.as_fd()].into_iter().chain(board).collect();
        let child = Child {
            role: SHIM,
            args: shim::arguments(cores, plan.program.as_os_str(), plan.argv.iter().cloned()),
            env: &env,
            stdio: [Stdio::Null, out, err],
            pass: &pass,
            new_session: true,
        };
        let process = child.spawn().doing(what)?;
        let (exit, asked, asked_at) = (None, Vec::new(), None);
        let worker = Worker { local_rank, rank, process, record, exit, asked, asked_at };
        Ok(Started { worker, outputs, warnings })
    }

    /// Asks the worker and its process group to end. A stopped process is woken to hear it.
    pub fn ask_to_end(&mut self, signal: Signal) {
        if self.exit.is_some() {
            return;
        }
        self.asked.push(signal);
        self.asked_at.get_or_insert_with(monotonic_ns);
        // Its group is its own since its first instant, and its pid is kept until it is reaped.
        let _ = killpg(self.process.pid(), signal);
        let _ = killpg(self.process.pid(), Signal::SIGCONT);
    }

    /// Notes that the launcher killed it with all others.
    pub fn was_killed(&mut self) {
        if self.exit.is_none() {
            self.asked.push(Signal::SIGKILL);
            self.asked_at.get_or_insert_with(monotonic_ns);
        }
    }

    /// Reaps the worker if it has ended; how it ended the first time that this is seen.
    pub fn try_reap(&mut self) -> Option<ExitStatus> {
        if self.exit.is_some() {
            return None;
        }
        let seen_at = monotonic_ns();
        let exit = self.process.try_wait().ok().flatten()?;
        self.exit = Some((exit, seen_at));
        Some(exit)
    }

    pub fn succeeded(&self) -> bool {
        self.exit.is_some_and(|(exit, _)| exit.success())
    }

    pub fn has_ended(&self) -> bool {
        self.exit.is_some()
    }

    /// The whole story. `stderr` is the end of its standard error. One that is still there, deaf
    /// to SIGKILL, counts as killed.
    pub fn into_ended(self, host: &str, stderr: Vec<u8>) -> Ended {
        let killed = ExitStatus::Signaled { signal: libc::SIGKILL, core_dumped: false };
        let (exit, seen_at) = self.exit.unwrap_or((killed, monotonic_ns()));
        Ended {
            rank: self.rank,
            local_rank: self.local_rank,
            host: host.to_owned(),
            pid: self.process.pid().as_raw(),
            exit,
            seen_at,
            clock_offset: 0,
            asked: self.asked.into_iter().map(|signal| signal as i32).collect(),
            asked_at: self.asked_at,
            record: read_all(self.record).unwrap_or_default(),
            stderr,
        }
    }
}
