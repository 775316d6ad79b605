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
}

/// What `tests/golden/known.txt` says: after a line with the split that its cases are of, lines with a
/// case's id and the reason why that case fails.
struct Known(BTreeMap<String, String>);

impl Known {
    /// None for cases of another split: ids are unique within one.
    fn of(split: &str) -> Self {
        let mut lines = include_str!("known.txt").lines();
        if lines.next().and_then(|line| line.strip_prefix("split ")) != Some(split) {
            return Known(BTreeMap::new());
        }
        let entry = |line: &str| {
            let (id, reason) = line.split_once(' ').unwrap_or((line, ""));
            (id.to_string(), reason.to_string())
        };
        Known(lines.map(entry).collect())
    }
}

pub struct Report {
    ops: BTreeMap<String, Counts>,
    ids: Vec<String>,
    verbose: bool,
    lines: bool,
    device: Device,
    known: BTreeMap<String, String>,
    lost: Option<String>,
}

impl Report {
    /// For cases of a split; with a line for each case where `lines` are wanted.
    pub fn new(verbose: bool, lines: bool, device: Device, split: &str) -> Self {
        let known = Known::of(split).0;
        Report { ops: BTreeMap::new(), ids: Vec::new(), verbose, lines, device, known, lost: None }
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
            Outcome::Wrong(why) if self.known.contains_key(&case.id()) => ("known", why.as_str()),
            Outcome::Wrong(why) => ("wrong", why.as_str()),
            Outcome::NotImplemented(why) if case.core() => ("missing", why.as_str()),
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

    /// Prints the table, writes the JSON report, and says whether the run is good: some case ran, and
    /// those that failed are exactly those that are known to.
    pub fn finish(self, root: &Path) -> ExitCode {
        if self.lost.is_none() {
            self.line(json!({ "done": true }));
        }
        let known = &self.known;
        let mut sums = [0; 4];
        let mut bad = Vec::new();
        if self.ids.is_empty() {
            bad.push("no case ran".to_string());
        }
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
            bad.extend(c.failed.iter().filter(|id| !known.contains_key(*id)).cloned());
        }
        for (id, reason) in known {
            let failed = self.ops.values().any(|c| c.failed.contains(id));
            if self.ids.contains(id) && !failed && !self.device.is_cuda() {
                bad.push(format!("{id}, which known.txt calls known, passes"));
            }
            if reason.is_empty() {
                bad.push(format!("{id} is in known.txt without a reason"));
            }
        }
        let ops: BTreeMap<_, _> = self
            .ops
            .iter()
            .map(|(op, c)| {
                let counts = json!({
                    "passed": c.passed, "wrong": c.wrong, "not_implemented": c.missing,
                    "skipped": c.skipped, "notes": c.notes,
                });
                (op, counts)
            })
            .collect();
        let folder = std::env::var_os("TORCHRS_GOLDEN_REPORT")
            .map_or_else(|| root.join("target"), PathBuf::from);
        let _ = std::fs::create_dir_all(&folder);
        let path = folder.join("golden.json");
        let text = serde_json::to_string_pretty(&ops).expect("plain data");
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("golden: {}: {error}", path.display());
        }
        if !bad.is_empty() {
            println!("golden: wrong, or core and missing: {}", bad.join("; "));
        }
        let [passed, wrong, missing, skipped] = sums;
        println!(
            "golden: {passed} passed, {wrong} wrong, {missing} not implemented, {skipped} skipped"
        );
        if bad.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
