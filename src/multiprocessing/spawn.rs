//! `torch.multiprocessing.spawn`: the same function in several processes, each with its rank. The
//! first failure ends the others and is what the caller gets.

use std::any::type_name;
use std::env;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::entry;
use super::exit_status::ExitStatus;
use super::init::cores_for;
use super::process::Process;
use super::report::Outcome;
use super::socket::poll_until;
use crate::error::{Error, Result};

/// How long processes that are told to end (SIGTERM) have before they are killed.
const GRACE: Duration = Duration::from_secs(5);

/// Runs `f(rank, args)` in `nprocs` processes, ranks from 0, and waits for all of them.
/// PyTorch: `torch.multiprocessing.spawn(fn, args, nprocs, join=True)`.
///
/// `f` is a function, or a closure that captures nothing. Tensors and channels in `args` are shared
/// by all ranks. `OMP_NUM_THREADS` is set to each process's share of the cores unless it is set
/// already.
///
/// ```no_run
/// fn train(rank: usize, epochs: usize) -> torchrs::Result<()> {
///     println!("rank {rank} trains {epochs} epochs");
///     Ok(())
/// }
///
/// #[torchrs::main]
/// fn main() -> torchrs::Result<()> {
///     torchrs::multiprocessing::spawn(train, 3, 2)
/// }
/// ```
///
/// # Errors
/// [`Error::Child`] for the rank that failed first, with its exit code or signal, its message and
/// its backtrace; the others have been ended by then. Also as
/// [`Process::spawn`](super::Process::spawn).
pub fn spawn<F, A, R>(f: F, args: A, nprocs: usize) -> Result<()>
where
    F: Fn(usize, A) -> R + Copy + 'static,
    A: Serialize + DeserializeOwned,
    R: Outcome,
{
    start_processes(f, args, nprocs)?.join(None).map(|_| ())
}

/// As [`spawn`], without waiting. PyTorch: `spawn(..., join=False)`.
///
/// ```
/// use torchrs::multiprocessing::{Sender, channel, start_processes};
/// let (tx, rx) = channel()?;
/// let context = start_processes(|rank: usize, tx: Sender<usize>| tx.send(&(rank * 10)), tx, 3)?;
/// let mut results = [rx.recv()?, rx.recv()?, rx.recv()?];
/// results.sort();
/// assert_eq!(results, [0, 10, 20]);
/// assert!(context.join(None)?);
/// # Ok::<(), torchrs::Error>(())
/// ```
///
/// # Errors
/// As [`Process::spawn`](super::Process::spawn), and for `nprocs` 0.
pub fn start_processes<F, A, R>(f: F, args: A, nprocs: usize) -> Result<ProcessContext>
where
    F: Fn(usize, A) -> R + Copy + 'static,
    A: Serialize + DeserializeOwned,
    R: Outcome,
{
    let _ = f;
    if nprocs == 0 {
        return Err(Error::argument("spawn", "nprocs", "is 0; at least 1 process is needed"));
    }
    let mut context = ProcessContext { processes: Vec::with_capacity(nprocs) };
    for rank in 0..nprocs {
        let mut builder = Process::builder().name(format!("rank {rank}"));
        if env::var_os("OMP_NUM_THREADS").is_none() {
            builder = builder.env("OMP_NUM_THREADS", cores_for(nprocs).to_string());
        }
        let entry = entry::ranked::<F, A, R>;
        let (process, _) = builder.start(entry, type_name::<F>(), &(rank, &args))?;
        context.processes.push(process);
    }
    Ok(context)
}

/// The processes that [`start_processes`] started. Dropping it kills those that still run.
/// PyTorch: `torch.multiprocessing.ProcessContext`.
///
/// ```
/// use torchrs::multiprocessing::{ProcessContext, start_processes};
/// let context: ProcessContext = start_processes(|rank: usize, bad: usize| assert_ne!(rank, bad), 1, 2)?;
/// let error = context.join(None).unwrap_err().to_string();
/// assert!(error.contains("rank 1") && error.contains("panicked"));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug)]
pub struct ProcessContext {
    processes: Vec<Process>,
}

impl ProcessContext {
    /// The processes, by rank.
    pub fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// The process ids, by rank.
    pub fn pids(&self) -> Vec<i32> {
        self.processes.iter().map(Process::pid).collect()
    }

    /// Waits until all processes have ended (true), or `timeout` has passed (false), or one has
    /// failed: then the others are told to end (SIGTERM), and killed after 5 s.
    ///
    /// ```
    /// use std::{thread::sleep, time::Duration};
    /// use torchrs::multiprocessing::start_processes;
    /// let context = start_processes(|_: usize, nap: Duration| sleep(nap), Duration::from_secs(60), 2)?;
    /// assert!(!context.join(Some(Duration::from_millis(10)))?);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Child`] for the rank that failed first.
    pub fn join(&self, timeout: Option<Duration>) -> Result<bool> {
        let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
        loop {
            // In this order: whoever is not in the list has ended and is looked at for failure.
            let running = self.running()?;
            if let Some(error) = self.first_failure()? {
                self.stop(GRACE)?;
                return Err(error);
            }
            if running.is_empty() {
                return Ok(true);
            }
            if !wait_any(&running, deadline)? {
                return Ok(false);
            }
        }
    }

    /// Tells the processes that still run to end (SIGTERM), and kills those that do not within
    /// `grace`.
    ///
    /// ```
    /// use std::{thread::sleep, time::Duration};
    /// use torchrs::multiprocessing::start_processes;
    /// let context = start_processes(|_: usize, nap: Duration| sleep(nap), Duration::from_secs(60), 2)?;
    /// context.stop(Duration::from_secs(5))?;
    /// assert!(context.processes().iter().all(|process| process.try_wait().unwrap().is_some()));
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Os`] when the system refuses.
    pub fn stop(&self, grace: Duration) -> Result<()> {
        let running = self.running()?;
        for process in &running {
            process.terminate()?;
        }
        let deadline = Instant::now() + grace;
        for process in &running {
            let left = deadline.saturating_duration_since(Instant::now());
            if let Err(Error::Timeout { .. }) = process.wait_timeout(left) {
                process.kill()?;
            }
        }
        for process in &running {
            process.reap_killed()?;
        }
        Ok(())
    }

    fn running(&self) -> Result<Vec<&Process>> {
        let mut running = Vec::new();
        for process in &self.processes {
            if process.try_wait()?.is_none() {
                running.push(process);
            }
        }
        Ok(running)
    }

    /// The error of the rank that failed first. Among ranks that are found dead together, one
    /// that failed by itself comes before one that followed (a peer died), and those whose time is
    /// known (they left a record) go by time; a signal leaves none.
    fn first_failure(&self) -> Result<Option<Error>> {
        let mut first: Option<((bool, u64), &Process, ExitStatus)> = None;
        for process in &self.processes {
            let Some(status) = process.try_wait()?.filter(|status| !status.success()) else {
                continue;
            };
            let order = match process.record() {
                Some(record) => {
                    let followed = record.kind.is_consequence() || record.caused_by_rank.is_some();
                    (followed, record.monotonic_ns)
                }
                None => (false, 0),
            };
            if first.as_ref().is_none_or(|(earlier, ..)| order < *earlier) {
                first = Some((order, process, status));
            }
        }
        Ok(first.and_then(|(_, process, status)| process.failure(status)))
    }
}

/// Waits until one of `running` has ended; false when the deadline has passed.
fn wait_any(running: &[&Process], deadline: Option<Instant>) -> Result<bool> {
    let mut fds: Vec<PollFd> =
        running.iter().map(|p| PollFd::new(p.as_fd(), PollFlags::POLLIN)).collect();
    poll_until(&mut fds, deadline)
}

impl Drop for ProcessContext {
    fn drop(&mut self) {
        // All are killed before the first is waited for.
        for process in &self.processes {
            let _ = process.kill();
        }
    }
}
