//! A profile without a change of the program: `TORCHRS_PROFILE=FOLDER`.
//!
//! Steps are those of the first optimizer that takes one. The environment is read at its first step; without the
//! variable a step costs a load and a branch.

use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use parking_lot::Mutex;
use torchrs_job::cluster::told_rank;

use super::averages::SortBy;
use super::options::ProfilerOptions;
use super::profile::Profile;
use super::recorder;
use crate::error::{Context, Error, Result, throw};

/// The folder for traces and reports.
const FOLDER: &str = "TORCHRS_PROFILE";
/// The steps: `10..20` without it.
const STEPS: &str = "TORCHRS_PROFILE_STEPS";

/// Whether there is something to do at steps: not known yet, no, yes.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const WAITING: u8 = 2;

static PLAN: Mutex<Option<Plan>> = Mutex::new(None);

struct Plan {
    folder: PathBuf,
    steps: Range<usize>,
    /// Of the optimizer that counts: its first parameter.
    of: Option<usize>,
    done: usize,
    recording: bool,
    /// Said that another recording is in the way.
    said: bool,
}

/// An optimizer has taken a step; `of` tells it from others.
#[inline(always)]
pub(crate) fn step_ended(of: impl FnOnce() -> Option<usize>) {
    if STATE.load(Relaxed) != OFF {
        count(of());
    }
}

#[cold]
fn count(of: Option<usize>) {
    let mut kept = PLAN.lock();
    if STATE.load(Relaxed) == UNKNOWN {
        let plan = match plan() {
            Ok(plan) => plan,
            Err(error) => {
                drop(kept);
                STATE.store(OFF, Relaxed);
                throw(error)
            }
        };
        STATE.store(if plan.is_some() { WAITING } else { OFF }, Relaxed);
        *kept = plan;
        register();
    }
    let Some(plan) = kept.as_mut() else { return };
    if *plan.of.get_or_insert(of.unwrap_or(0)) != of.unwrap_or(0) {
        return;
    }
    plan.done += 1;
    if plan.recording && plan.done >= plan.steps.end {
        let plan = kept.take();
        drop(kept);
        finish(plan);
    } else if !plan.recording && plan.done >= plan.steps.start {
        let options =
            ProfilerOptions { with_modules: true, with_flops: true, ..Default::default() };
        plan.recording = recorder::start(options);
        if !plan.recording && !std::mem::replace(&mut plan.said, true) {
            eprintln!(
                "torchrs: {FOLDER}: the program records a profile itself; trying again at its next step"
            );
        }
    }
}

/// Has the end of the process say what became of it.
fn register() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        // SAFETY: a function without captures, which touches nothing that ends before it.
        _ = unsafe { libc::atexit(at_exit) };
    });
}

/// The program begins: where a profile is asked for, its end will say if no optimizer took a step.
pub(crate) fn announce() {
    if std::env::var_os(FOLDER).is_some_and(|folder| !folder.is_empty()) {
        register();
    }
}

/// What the environment asks for.
fn plan() -> Result<Option<Plan>> {
    let Some(folder) = std::env::var_os(FOLDER).filter(|folder| !folder.is_empty()) else {
        return Ok(None);
    };
    let folder = PathBuf::from(folder);
    std::fs::create_dir_all(&folder).context(|| format!("{FOLDER}: make {}", folder.display()))?;
    let steps = steps_of(&std::env::var(STEPS).unwrap_or_default())?;
    Ok(Some(Plan { folder, steps, of: None, done: 0, recording: false, said: false }))
}

fn steps_of(text: &str) -> Result<Range<usize>> {
    if text.trim().is_empty() {
        return Ok(10..20);
    }
    let ends = text.split_once("..").map(|(start, end)| (start.trim().parse(), end.trim().parse()));
    match ends {
        Some((Ok(start), Ok(end))) if start < end => Ok(start..end),
        _ => {
            let message =
                format!("is `{text}`: must be two steps, the first before the second, as `10..20`");
            Err(Error::config(STEPS, message))
        }
    }
}

extern "C" fn at_exit() {
    if STATE.load(Relaxed) == UNKNOWN {
        eprintln!("torchrs: {FOLDER}: nothing was recorded: no optimizer took a step");
        return;
    }
    // A thread may hold it forever: that of a program that ends in the middle of a step.
    let Some(mut plan) = PLAN.try_lock().and_then(|mut plan| plan.take()) else { return };
    if !plan.recording {
        eprintln!(
            "torchrs: {FOLDER}: nothing was recorded: the program ended after {} optimizer steps, before step {}; \
             set {STEPS} to earlier ones",
            plan.done, plan.steps.start
        );
        return;
    }
    plan.steps.end = plan.done.max(plan.steps.start + 1);
    finish(Some(plan));
}

/// Ends the recording and writes what it has.
fn finish(plan: Option<Plan>) {
    STATE.store(OFF, Relaxed);
    let Some(plan) = plan else { return };
    let profile = recorder::stop();
    match write(&plan.folder, plan.steps.clone(), &profile) {
        Ok(report) => {
            eprintln!("torchrs: {FOLDER}: wrote {} and a trace beside it", report.display())
        }
        Err(error) => eprintln!("torchrs: {FOLDER}: {error}"),
    }
}

fn write(folder: &Path, steps: Range<usize>, profile: &Profile) -> Result<PathBuf> {
    let rank = told_rank().map_or(0, |(rank, _)| rank);
    profile.export_chrome_trace(folder.join(format!("trace-rank{rank}.json")))?;
    let path = folder.join(format!("report-rank{rank}.txt"));
    let mut text = String::new();
    let _ = writeln!(text, "Optimizer steps {} to {}\n", steps.start, steps.end);
    let _ = writeln!(text, "{}", profile.bottleneck());
    text += &profile.key_averages().table(SortBy::SelfCpuTimeTotal, 30);
    std::fs::write(&path, text).context(|| format!("write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::steps_of;

    #[test]
    fn steps_are_a_range() {
        assert_eq!([steps_of("").unwrap(), steps_of(" 3..5").unwrap()], [10..20, 3..5]);
        for wrong in ["5", "5..5", "7..3", "a..b", "1..2..3"] {
            let error = steps_of(wrong).unwrap_err().to_string();
            assert!(error.contains("TORCHRS_PROFILE_STEPS") && error.contains(wrong), "{error}");
        }
    }
}
