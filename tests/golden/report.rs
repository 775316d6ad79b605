//! Counts of outcomes, by op, and what of them is known.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use torchrs::Device;

use crate::case::Case;

/// How a case went.
pub enum Outcome {
    Passed,
    Wrong(String),
    NotImplemented(String),
    /// The case says that nobody should insist.
    Skipped,
}

#[derive(Default)]
struct Counts {
    passed: usize,
    wrong: usize,
    missing: usize,
    skipped: usize,
    notes: Vec<String>,
    /// Ids of the wrong cases, and of the missing ones among the core.
    failed: Vec<String>,
    /// Of these the missing ones.
    lacked: Vec<String>,
}

/// What `tests/golden/known.txt` says: after a line with the split that its cases are of, lines with a
/// case's id and the reason why that case fails. An id with `*` in it, which stands for anything, is of cases of
/// what the library lacks: it excuses none that is wrong. A reason that begins with `on a GPU` holds there only.
struct Known(Vec<(&'static str, &'static str)>);

impl Known {
    /// None for cases of another split: ids are unique within one.
    fn of(split: &str, device: Device) -> Self {
        let mut lines = include_str!("known.txt").lines();
        if lines.next().and_then(|line| line.strip_prefix("split ")) != Some(split) {
            return Known(Vec::new());
        }
        let all = lines.map(|line| line.split_once(' ').unwrap_or((line, "")));
        Known(all.filter(|(_, why)| device.is_cuda() || !why.starts_with("on a GPU")).collect())
    }

    /// Whether a case may fail, as a missing one or as a wrong one.
    fn excuses(&self, id: &str, missing: bool) -> bool {
        self.0.iter().any(|(known, _)| *known == id || missing && matches(known, id))
    }
}

/// Whether `id` is what `pattern` says, in which `*` stands for anything; false without one.
fn matches(pattern: &str, id: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return false };
    let (Some(mut id), Some((middle, last))) =
        (id.strip_prefix(first), rest.rsplit_once('*').or(Some(("", rest))))
    else {
        return false;
    };
    for part in middle.split('*') {
        match id.find(part) {
            Some(at) => id = &id[at + part.len()..],
            None => return false,
        }
    }
    id.ends_with(last)
}

/// The outcomes of a folder's cases.
pub struct Report {
    folder: String,
    ops: BTreeMap<String, Counts>,
    ids: Vec<String>,
    verbose: bool,
    lines: bool,
    device: Device,
    known: Known,
    lost: Option<String>,
}

impl Report {
    /// For cases of a split; with a line for each case where `lines` are wanted.
    pub fn new(folder: &Path, verbose: bool, lines: bool, device: Device, split: &str) -> Self {
        let folder = folder.display().to_string();
        let (known, ops, ids) = (Known::of(split, device), BTreeMap::new(), Vec::new());
        Report { folder, ops, ids, verbose, lines, device, known, lost: None }
    }

    /// Whether the device takes no more work.
    pub fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// A line, at once, so that whoever reads it knows which case ended or hung the process.
    fn line(&self, value: serde_json::Value) {
        if self.lines {
            println!("{value}");
        }
    }

    /// Says that a case begins.
    pub fn begin(&self, case: &Case) {
        self.line(json!({ "begin": case.id() }));
    }

    /// Notes that the device takes no work behind a case.
    pub fn lose(&mut self, case: &Case) {
        self.lost = Some(case.id());
        self.line(json!({ "lost": case.id() }));
    }

    pub fn add(&mut self, case: &Case, outcome: Outcome) {
        self.ids.push(case.id());
        let (word, why) = match &outcome {
            Outcome::Passed => ("passed", ""),
            Outcome::Wrong(why) if self.known.excuses(&case.id(), false) => ("known", why.as_str()),
            Outcome::Wrong(why) => ("wrong", why.as_str()),
            Outcome::NotImplemented(why)
                if case.core() && !self.known.excuses(&case.id(), true) =>
            {
                ("missing", why.as_str())
            }
            Outcome::NotImplemented(why) => ("not implemented", why.as_str()),
            Outcome::Skipped => ("skipped", ""),
        };
        let why: String = why.chars().take(400).collect();
        self.line(json!({ "case": case.id(), "outcome": word, "why": why }));
        let counts = self.ops.entry(case.op().to_string()).or_default();
        let note = match outcome {
            Outcome::Passed => {
                counts.passed += 1;
                return;
            }
            Outcome::Wrong(why) => {
                counts.wrong += 1;
                counts.failed.push(case.id());
                format!("wrong {}: {why}", case.id())
            }
            Outcome::NotImplemented(why) => {
                counts.missing += 1;
                if case.core() {
                    counts.failed.push(case.id());
                    counts.lacked.push(case.id());
                }
                format!("not implemented {}: {why}", case.id())
            }
            Outcome::Skipped => {
                counts.skipped += 1;
                return;
            }
        };
        counts.notes.push(note);
    }

    /// Prints the table; says which cases failed that are not known to, and which are known to fail and pass.
    fn print(&self) -> Vec<String> {
        let mut sums = [0; 4];
        let mut bad = Vec::new();
        if let Some(id) = &self.lost {
            bad.push(format!("the device takes no work behind {id}, and later cases were not run"));
        }
        for (op, c) in &self.ops {
            for (sum, n) in sums.iter_mut().zip([c.passed, c.wrong, c.missing, c.skipped]) {
                *sum += n;
            }
            println!(
                "{op}: {} passed, {} wrong, {} not implemented, {} skipped",
                c.passed, c.wrong, c.missing, c.skipped
            );
            let shown = if self.verbose { 200 } else { 2 };
            for note in
                c.notes.iter().filter(|n| self.verbose || n.starts_with("wrong")).take(shown)
            {
                println!("    {}", note.chars().take(400).collect::<String>());
            }
            let excused = |id: &&String| self.known.excuses(id, c.lacked.contains(*id));
            bad.extend(c.failed.iter().filter(|id| !excused(id)).cloned());
        }
        for (known, reason) in &self.known.0 {
            let names = |id: &String| id == known || matches(known, id);
            let failed = self.ops.values().any(|c| c.failed.iter().any(names));
            if self.ids.iter().any(names) && !failed && !self.device.is_cuda() && !self.verbose {
                bad.push(format!("{known}, which known.txt calls known, passes"));
            }
            if reason.is_empty() {
                bad.push(format!("{known} is in known.txt without a reason"));
            }
        }
        let [passed, wrong, missing, skipped] = sums;
        println!(
            "golden: {}: {passed} passed, {wrong} wrong, {missing} not implemented, {skipped} skipped",
            self.folder
        );
        bad
    }

    /// The counts and notes of all ops.
    fn json(&self) -> serde_json::Value {
        let counts = |c: &Counts| {
            json!({
                "passed": c.passed, "wrong": c.wrong, "not_implemented": c.missing,
                "skipped": c.skipped, "notes": c.notes,
            })
        };
        self.ops.iter().map(|(op, c)| (op.clone(), counts(c))).collect()
    }
}

/// Prints the tables of all folders, writes the JSON report, and says whether the run is good: some case ran,
/// and those that failed are exactly those that are known to.
pub fn finish(reports: Vec<Report>, root: &Path) -> ExitCode {
    if let Some(report) = reports.last().filter(|report| !report.is_lost()) {
        report.line(json!({ "done": true }));
    }
    let mut bad: Vec<String> = reports.iter().flat_map(Report::print).collect();
    if reports.iter().all(|report| report.ids.is_empty()) {
        bad.push("no case ran".to_string());
    }
    let folders: BTreeMap<_, _> = reports.iter().map(|r| (r.folder.clone(), r.json())).collect();
    let folder = std::env::var_os("TORCHRS_GOLDEN_REPORT")
        .map_or_else(|| root.join("target"), PathBuf::from);
    let _ = std::fs::create_dir_all(&folder);
    let path = folder.join("golden.json");
    let text = serde_json::to_string_pretty(&folders).expect("plain data");
    if let Err(error) = std::fs::write(&path, text) {
        eprintln!("golden: {}: {error}", path.display());
    }
    if !bad.is_empty() {
        println!("golden: wrong, or core and missing: {}", bad.join("; "));
    }
    if bad.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
