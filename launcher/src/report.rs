//! What went wrong, said once: the rank that failed first with everything known about it, then a
//! line for each other rank. First means first by CLOCK_MONOTONIC, and a failure that only
//! follows from another one (a dead peer, the launcher's own signal) is not the root cause. Where all
//! follow from others, it is the rank that their records blame: it may have hung, and say nothing itself.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use torchrs_job::ranks::list_ranks;
use torchrs_job::report::{ErrorRecord, monotonic_ns};

use crate::failure;
use crate::group::Outcome;
use crate::plan::Plan;
use crate::worker::Ended;

/// Lines of standard error shown for a worker that left no error record.
const TAIL_LINES: usize = 15;
/// Other ranks that get a line of their own; the rest share one.
const OTHERS: usize = 32;

/// The story of a job's last attempt.
pub struct Report<'a> {
    pub plan: &'a Plan,
    pub attempt: u32,
    pub started_at: SystemTime,
    pub outcome: &'a Outcome,
}

/// A worker that failed.
struct Failed<'a> {
    worker: &'a Ended,
    record: Option<ErrorRecord>,
    /// CLOCK_MONOTONIC of the host that reports, nanoseconds.
    at: u64,
    consequence: bool,
}

impl<'a> Failed<'a> {
    fn of(worker: &'a Ended) -> Option<Self> {
        if worker.exit.success() {
            return None;
        }
        let record: Option<ErrorRecord> = serde_json::from_slice(&worker.record).ok();
        let recorded_at = record.as_ref().map(|record| record.monotonic_ns).filter(|at| *at > 0);
        // A worker knows better than the launcher when it failed, but not later than its end.
        let at = recorded_at.unwrap_or(worker.seen_at).min(worker.seen_at);
        let by_leader = at.saturating_add_signed(worker.clock_offset);
        let told = was_stopped(worker) || worker.asked_at.is_some_and(|asked| asked <= at);
        let follows = record.as_ref().is_some_and(ErrorRecord::is_consequence);
        Some(Failed { worker, record, at: by_leader, consequence: told || follows })
    }

    /// The rank that its record lays the failure on.
    fn blames(&self) -> Option<usize> {
        self.record.as_ref().and_then(ErrorRecord::blames)
    }
}

/// The rank that all failures follow from, if each follows from another and no two records disagree.
fn blamed_by_all(failed: &[Failed]) -> Option<usize> {
    let mut blamed = failed.iter().filter_map(Failed::blames);
    let rank = blamed.next()?;
    let agreed = failed.iter().all(|f| f.consequence) && blamed.all(|other| other == rank);
    (agreed && failed.iter().any(|f| f.worker.rank == rank)).then_some(rank)
}

impl<'a> Report<'a> {
    /// The failures of this attempt, the root cause first.
    fn failures(&self) -> Vec<Failed<'a>> {
        let mut failed: Vec<_> = self.outcome.workers.iter().filter_map(Failed::of).collect();
        let blamed = blamed_by_all(&failed);
        failed.sort_by_key(|f| (Some(f.worker.rank) != blamed, f.consequence, f.at));
        failed
    }

    /// The rank that failed first, unless all succeeded.
    pub fn root_cause(&self) -> Option<usize> {
        self.failures().first().map(|failed| failed.worker.rank)
    }

    /// The launcher's exit code.
    pub fn exit_code(&self) -> i32 {
        match (self.own_failure(), self.outcome.signal) {
            // The launcher's own signal says nothing: then it is the code of the first that ended by itself.
            (Some(root), _) => {
                let failures = self.failures();
                let by_itself = failures.iter().find(|f| !was_stopped(f.worker));
                by_itself.unwrap_or(&root).worker.exit.shell_code()
            }
            (None, Some(signal)) => failure::SIGNAL + signal as i32,
            (None, None) => 0,
        }
    }

    /// The root cause, if the job ended by a failure rather than by a signal to the launcher:
    /// what workers do on being told to stop is not one.
    fn own_failure(&self) -> Option<Failed<'a>> {
        let root = self.failures().into_iter().next()?;
        (self.outcome.signal.is_none() || !root.consequence).then_some(root)
    }

    /// Whether a worker failed by itself.
    pub fn has_own_failure(&self) -> bool {
        self.own_failure().is_some_and(|root| !root.consequence)
    }

    /// What to print at the job's end; empty if there is nothing to say.
    pub fn text(&self) -> String {
        let mut text = match (self.own_failure(), self.outcome.signal) {
            (Some(root), _) => self.failure_text(&root),
            (None, Some(signal)) => self.signal_text(signal.as_str()),
            (None, None) => String::new(),
        };
        if !self.outcome.output_complete {
            text += "torchrs-launch: nobody read the workers' last output; it is lost\n";
        }
        text
    }

    /// What to print before the workers are started again.
    pub fn restart_notice(&self) -> String {
        let Some(root) = self.failures().into_iter().next() else { return String::new() };
        let why = match &root.record {
            Some(record) => format!(": {}", first_line(record.text())),
            None => String::new(),
        };
        format!(
            "torchrs-launch: rank {} {}{why}; starting all workers again ({} of {} restarts)\n",
            root.worker.rank,
            how_it_ended(root.worker),
            self.attempt + 1,
            self.plan.max_restarts
        )
    }

    fn signal_text(&self, signal: &str) -> String {
        let killed: Vec<usize> =
            self.outcome.workers.iter().filter(|w| was_killed(w)).map(|w| w.rank).collect();
        let mut text = format!("torchrs-launch: stopped by {signal}\n");
        if !killed.is_empty() {
            let _ = writeln!(
                text,
                "torchrs-launch: did not end by themselves and were killed: {}",
                list_ranks(&killed)
            );
        }
        text
    }

    fn failure_text(&self, root: &Failed) -> String {
        let worker = root.worker;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "\ntorchrs-launch: the job failed: rank {} {}",
            worker.rank,
            how_it_ended(worker)
        );
        let mut row = |mut name: &str, value: String| {
            for line in value.trim_end().split('\n') {
                let _ = writeln!(text, "{}", format!("  {name:<11}{line}").trim_end());
                name = "";
            }
        };
        row("rank", format!("{} (local rank {})", worker.rank, worker.local_rank));
        row("process", format!("pid {} on {}", worker.pid, worker.host));
        row("ended", worker.exit.to_string());
        if let Some(peers) = self.who_blames(worker.rank).filter(|_| root.consequence) {
            row("blamed", peers);
        }
        row("time", self.time_of(root.at));
        if self.plan.max_restarts > 0 {
            row("attempt", format!("{} of {}", self.attempt + 1, self.plan.max_restarts + 1));
        }
        match &root.record {
            Some(record) => {
                if !record.thread.is_empty() {
                    row("thread", record.thread.clone());
                }
                row("message", record.text().to_owned());
                if !record.backtrace().is_empty() {
                    row("backtrace", format!("\n{}", record.backtrace()));
                }
            }
            None => {
                if !worker.record.is_empty() {
                    let seen =
                        String::from_utf8_lossy(&worker.record[..worker.record.len().min(300)]);
                    row("message", format!("its error record cannot be read: {seen}"));
                }
                let tail = last_lines(&worker.stderr);
                if !tail.is_empty() {
                    row("stderr", format!("its last lines:\n{tail}"));
                }
            }
        }
        if let Some(folder) = &self.plan.run_folder {
            row("logs", folder.join(format!("attempt_{}", self.attempt)).display().to_string());
        }
        self.others(root, &mut text);
        text
    }

    /// One line for each other rank, in the order of failure, then those that succeeded.
    fn others(&self, root: &Failed, text: &mut String) {
        let mut failures = self.failures();
        failures.retain(|f| f.worker.rank != root.worker.rank);
        for failed in failures.iter().take(OTHERS) {
            let Ended { rank, pid, host, .. } = failed.worker;
            let host =
                if *host == root.worker.host { String::new() } else { format!(" on {host}") };
            let how = how_it_ended(failed.worker);
            let later = Duration::from_nanos(failed.at.abs_diff(root.at));
            let when = if failed.at >= root.at { "later" } else { "earlier" };
            let _ = write!(text, "  rank {rank} (pid {pid}{host}) {how}, {later:.1?} {when}");
            if let Some(record) = &failed.record {
                let _ = write!(text, ": {}", first_line(record.text()));
            }
            text.push('\n');
        }
        let mut more: Vec<usize> = failures.iter().skip(OTHERS).map(|f| f.worker.rank).collect();
        more.sort_unstable();
        if !more.is_empty() {
            let _ = writeln!(text, "  failed or were stopped, too: {}", list_ranks(&more));
        }
        let succeeded = self.outcome.workers.iter().filter(|w| w.exit.success());
        let done: Vec<usize> = succeeded.map(|w| w.rank).collect();
        if !done.is_empty() {
            let _ = writeln!(text, "  succeeded: {}", list_ranks(&done));
        }
    }

    /// Which other ranks' records blame `rank`, and the words of the first.
    fn who_blames(&self, rank: usize) -> Option<String> {
        let failures = self.failures();
        let peers = failures.iter().filter(|f| f.worker.rank != rank && f.blames() == Some(rank));
        let peers: Vec<&Failed> = peers.collect();
        let words = peers.first()?.record.as_ref().map(|record| first_line(record.text()))?;
        let mut ranks: Vec<usize> = peers.iter().map(|f| f.worker.rank).collect();
        ranks.sort_unstable();
        Some(format!("by {}: {words}", list_ranks(&ranks)))
    }

    /// A moment of CLOCK_MONOTONIC as a date in UTC and as a time since the start.
    fn time_of(&self, at: u64) -> String {
        let ago = Duration::from_nanos(monotonic_ns().saturating_sub(at));
        let moment = SystemTime::now() - ago;
        let after = moment.duration_since(self.started_at).unwrap_or_default();
        format!("{} ({:.3} s after the start)", utc(moment), after.as_secs_f64())
    }
}

/// Whether a signal from the launcher ended it.
fn was_stopped(worker: &Ended) -> bool {
    worker.asked.iter().any(|signal| worker.exit.signal() == Some(*signal))
}

/// In words, with the launcher's part in it.
fn how_it_ended(worker: &Ended) -> String {
    if was_killed(worker) {
        "killed by the launcher".to_owned()
    } else if was_stopped(worker) {
        "stopped by the launcher".to_owned()
    } else {
        worker.exit.to_string()
    }
}

/// Whether the launcher lost patience with it.
fn was_killed(worker: &Ended) -> bool {
    was_stopped(worker) && worker.exit.signal() == Some(libc::SIGKILL)
}

fn first_line(text: &str) -> &str {
    text.lines().find(|line| !line.trim().is_empty()).unwrap_or("")
}

fn last_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

/// `2026-11-21 07:31:02.123 UTC`.
fn utc(time: SystemTime) -> String {
    // There are no words for a time before 1970, which only a clock that is wrong gives.
    let rfc3339 = humantime::format_rfc3339_millis(time.max(UNIX_EPOCH)).to_string();
    rfc3339.replace('T', " ").replace('Z', " UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_people_do() {
        let time = UNIX_EPOCH + Duration::from_millis(1_709_210_096_007);
        assert_eq!(utc(time), "2024-02-29 12:34:56.007 UTC");
        assert_eq!(utc(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01 00:00:00.000 UTC");
    }
}
