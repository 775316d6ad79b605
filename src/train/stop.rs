//! A run that is told to stop finishes its step, saves, and ends: on a signal, or when its time is up; under Slurm it
//! can have itself started again.

use std::process::Command;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::distributed::{ProcessGroup, ReduceOp};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// The signal that came last; 0 for none.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// What asks a program to stop.
const SIGNALS: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGUSR1];

/// Why a run stops.
///
/// ```
/// use torchrs::train::StopReason;
/// let reasons = [StopReason::TimeLimit, StopReason::Signal(10), StopReason::Signal(15)];
/// assert_eq!(reasons.map(StopReason::exit_code), [0, 0, 143]);
/// assert_eq!(reasons.map(|reason| reason.to_string()), ["the time limit", "SIGUSR1", "SIGTERM"]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// A signal, by its number.
    Signal(i32),
    /// The time is up.
    TimeLimit,
}

impl StopReason {
    /// The exit status of a program that has saved and stops: after SIGTERM and SIGINT what a shell expects of one
    /// that they ended, else 0.
    pub fn exit_code(self) -> i32 {
        match self {
            StopReason::Signal(signal) if signal != libc::SIGUSR1 => 128 + signal,
            _ => 0,
        }
    }

    /// All that [`GracefulStop`] has. Of several the last one counts, on all ranks.
    pub(super) const ALL: [StopReason; 4] = [
        StopReason::TimeLimit,
        StopReason::Signal(libc::SIGUSR1),
        StopReason::Signal(libc::SIGINT),
        StopReason::Signal(libc::SIGTERM),
    ];
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StopReason::TimeLimit => f.write_str("the time limit"),
            StopReason::Signal(signal) => match Signal::try_from(*signal) {
                Ok(signal) => f.write_str(signal.as_str()),
                Err(_) => write!(f, "signal {signal}"),
            },
        }
    }
}

/// Options of [`GracefulStop::install`]. Without any it stops at signals alone.
///
/// ```
/// use std::time::Duration;
/// use torchrs::train::StopOptions;
/// let hour = Duration::from_secs(3600);
/// let options = StopOptions { time_limit: Some(hour), ..Default::default() };
/// assert!(options.before_slurm_end.is_none() && !options.requeue);
/// ```
#[derive(Debug, Clone, Default)]
pub struct StopOptions {
    /// Stops so long after [`GracefulStop::install`].
    pub time_limit: Option<Duration>,
    /// Stops so long before Slurm ends the job (`SLURM_JOB_END_TIME`). Outside of Slurm it means nothing.
    pub before_slurm_end: Option<Duration>,
    /// [`GracefulStop::requeue`] may have Slurm start the job again.
    pub requeue: bool,
}

/// Has SIGTERM, SIGINT and SIGUSR1 ask for a stop in place of ending the process, and looks at the clock.
///
/// ```
/// use torchrs::train::{GracefulStop, StopOptions};
/// let group = torchrs::distributed::init_process_group(Default::default())?;
/// let stop = GracefulStop::install(StopOptions::default())?;
/// for step in 0..3 {
///     // ...
///     if let Some(reason) = stop.stop_requested(&group)? {
///         // Save.
///         println!("stopped by {reason} at step {step}");
///         let is_queued = stop.requeue(reason, &group)?;
///         std::process::exit(if is_queued { 0 } else { reason.exit_code() });
///     }
/// }
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct GracefulStop {
    deadline: Option<Instant>,
    requeue: bool,
}

impl StopOptions {
    /// When the time is over, counted from now.
    fn deadline(&self) -> Result<Option<Instant>> {
        let now = Instant::now();
        // A limit that no clock reaches is none.
        let limit = self.time_limit.and_then(|limit| now.checked_add(limit));
        let end = match self.before_slurm_end {
            Some(margin) => slurm_end(std::env::var("SLURM_JOB_END_TIME").ok().as_deref())?
                .and_then(|left| now.checked_add(left.saturating_sub(margin))),
            None => None,
        };
        Ok(limit.into_iter().chain(end).min())
    }
}

impl GracefulStop {
    /// Handles the signals from now on, for the whole process. Every rank does. A SIGINT that is ignored, as a shell's
    /// programs in the background ignore it, stays so.
    ///
    /// # Errors
    /// [`Error::Config`] for a `SLURM_JOB_END_TIME` that is no time; [`Error::Os`] where a signal cannot be handled.
    pub fn install(options: StopOptions) -> Result<Self> {
        extern "C" fn handler(signal: i32) {
            SIGNAL.store(signal, Ordering::Relaxed);
        }
        let action =
            SigAction::new(SigHandler::Handler(handler), SaFlags::SA_RESTART, SigSet::empty());
        for signal in SIGNALS {
            let failed = |errno| Error::os(format!("handle {}", signal.as_str()), errno);
            // SAFETY: the handler only stores to an atomic.
            let old = unsafe { sigaction(signal, &action) }.map_err(failed)?;
            // As a shell has it for programs in the background.
            if signal == Signal::SIGINT && matches!(old.handler(), SigHandler::SigIgn) {
                // SAFETY: the action that was there.
                unsafe { sigaction(signal, &old) }.map_err(failed)?;
            }
        }
        Ok(GracefulStop { deadline: options.deadline()?, requeue: options.requeue })
    }

    /// Whether this rank is asked to stop.
    pub fn requested_here(&self) -> Option<StopReason> {
        let signal = SIGNAL.load(Ordering::Relaxed);
        let is_late = || self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        match signal {
            0 => is_late().then_some(StopReason::TimeLimit),
            signal => Some(StopReason::Signal(signal)),
        }
    }

    /// Whether a rank is asked to stop: the same on all ranks, in the same step, so that all save and end together. A
    /// small all-reduce, which every rank calls. [`NanGuard::check`](super::NanGuard::check) has it in the message that
    /// it sends anyway.
    ///
    /// # Errors
    /// As [`ProcessGroup::all_reduce`](crate::distributed::ProcessGroup::all_reduce).
    #[track_caller]
    pub fn stop_requested(&self, group: &ProcessGroup) -> Result<Option<StopReason>> {
        let place = |reason| StopReason::ALL.iter().position(|other| *other == reason);
        let mine = self.requested_here().and_then(place).map_or(0, |place| place as i64 + 1);
        let highest = Tensor::from_slice(&[mine], [1]);
        group.all_reduce(&highest, ReduceOp::Max)?;
        Ok(usize::try_from(highest.item_i64() - 1).ok().map(|place| StopReason::ALL[place]))
    }

    /// Has Slurm start this job again (`scontrol requeue`), and says on all ranks whether it does. Collective: call it
    /// after the state is saved. It does so for SIGUSR1 (`sbatch --signal=USR1@90`) and the time limit, where
    /// [`requeue`](StopOptions::requeue) is set and Slurm runs the job. After SIGTERM and SIGINT somebody wants it to
    /// end. The job's next start goes on by itself: see [`RunDir`](super::RunDir).
    ///
    /// # Errors
    /// [`Error::Child`] on all ranks where Slurm refuses, in its words.
    #[track_caller]
    pub fn requeue(&self, reason: StopReason, group: &ProcessGroup) -> Result<bool> {
        let wanted = self.requeue && reason.exit_code() == 0;
        let outcome: std::result::Result<bool, String> = match (wanted, group.rank()) {
            (true, 0) => requeue_job(|name| std::env::var(name).ok(), "scontrol"),
            _ => Ok(false),
        };
        let outcome: std::result::Result<bool, String> =
            group.broadcast_object(Some(&outcome), 0)?;
        outcome.map_err(|message| Error::Child { who: "scontrol requeue".into(), message })
    }
}

/// How long until Slurm ends the job, by the time in seconds since 1970.
fn slurm_end(time: Option<&str>) -> Result<Option<Duration>> {
    let Some(time) = time else { return Ok(None) };
    let end: u64 = time.trim().parse().map_err(|_| {
        Error::config("SLURM_JOB_END_TIME", format!("`{time}` is not a time in seconds since 1970"))
    })?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Some(Duration::from_secs(end).saturating_sub(now)))
}

fn requeue_job(
    variable: impl Fn(&str) -> Option<String>,
    program: &str,
) -> std::result::Result<bool, String> {
    let task = variable("SLURM_ARRAY_JOB_ID").zip(variable("SLURM_ARRAY_TASK_ID"));
    let job = task.map(|(job, task)| format!("{job}_{task}")).or_else(|| variable("SLURM_JOB_ID"));
    let Some(job) = job else { return Ok(false) };
    let output = Command::new(program)
        .args(["requeue", &job])
        .output()
        .map_err(|why| format!("cannot start {program}: {why}"))?;
    if output.status.success() {
        return Ok(true);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("job {job}: {}: {}", output.status, said.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_nothing_is_reached_and_one_without_end_never() {
        let reason = |time_limit| {
            let options = StopOptions { time_limit: Some(time_limit), ..Default::default() };
            let stop = GracefulStop { deadline: options.deadline().unwrap(), requeue: false };
            stop.requested_here()
        };
        assert_eq!(reason(Duration::ZERO), Some(StopReason::TimeLimit));
        assert_eq!(reason(Duration::MAX), None);
    }

    #[test]
    fn the_end_that_slurm_says_is_read() {
        assert_eq!(slurm_end(None).unwrap(), None);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let left = slurm_end(Some(&(now + 100).to_string())).unwrap().unwrap();
        assert!((98..=100).contains(&left.as_secs()), "{left:?}");
        assert_eq!(slurm_end(Some("5")).unwrap(), Some(Duration::ZERO));
        assert!(slurm_end(Some("noon")).unwrap_err().to_string().contains("`noon`"));
    }

    #[test]
    fn the_job_or_the_task_of_an_array_is_requeued() {
        let folder = tempfile::tempdir().unwrap();
        let (program, log) = (folder.path().join("scontrol"), folder.path().join("log"));
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> {}\n[ \"$2\" != 9 ] || {{ echo 'Invalid job id' >&2; exit 1; }}\n",
            log.display()
        );
        std::fs::write(&program, script).unwrap();
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let requeue = |variables: &[(&str, &str)]| {
            let value = |name: &str| {
                variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
            };
            requeue_job(value, program.to_str().unwrap())
        };
        assert_eq!(requeue(&[]), Ok(false));
        assert_eq!(requeue(&[("SLURM_JOB_ID", "7")]), Ok(true));
        let task =
            [("SLURM_ARRAY_JOB_ID", "4"), ("SLURM_ARRAY_TASK_ID", "2"), ("SLURM_JOB_ID", "8")];
        assert_eq!(requeue(&task), Ok(true));
        let error = requeue(&[("SLURM_JOB_ID", "9")]).unwrap_err();
        assert!(error.contains("job 9") && error.contains("Invalid job id"), "{error}");
        assert_eq!(std::fs::read_to_string(log).unwrap(), "requeue 7\nrequeue 4_2\nrequeue 9\n");
    }
}
