//! Counts of outcomes, by op.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use serde_json::json;

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
    wrong_ids: Vec<String>,
    missing: usize,
    missing_core: usize,
    skipped: usize,
    notes: Vec<String>,
}

pub struct Report {
    ops: BTreeMap<String, Counts>,
    verbose: bool,
}

impl Report {
    pub fn new(verbose: bool) -> Self {
        Report { ops: BTreeMap::new(), verbose }
    }

    pub fn add(&mut self, case: &Case, outcome: Outcome) {
        let counts = self.ops.entry(case.op().to_string()).or_default();
        let note = match outcome {
            Outcome::Passed => {
                counts.passed += 1;
                return;
            }
            Outcome::Wrong(why) => {
                counts.wrong += 1;
                counts.wrong_ids.push(case.id());
                format!("wrong {}: {why}", case.id())
            }
            Outcome::NotImplemented(why) => {
                counts.missing += 1;
                counts.missing_core += usize::from(case.core());
                format!("not implemented {}: {why}", case.id())
            }
            Outcome::Skipped => {
                counts.skipped += 1;
                return;
            }
        };
        counts.notes.push(note);
    }

    /// Prints the table, writes the JSON report, and says whether the run is good.
    pub fn finish(self, root: &Path) -> ExitCode {
        let known = std::fs::read_to_string(root.join("tests/golden/known.txt"));
        let known = known.unwrap_or_default();
        let known: BTreeSet<&str> =
            known.lines().filter_map(|line| line.split_whitespace().next()).collect();
        let mut sums = [0; 4];
        let mut bad = Vec::new();
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
            let surprising = |id: &&String| !known.contains(id.as_str());
            let wrong = c.wrong_ids.iter().any(|id| surprising(&id));
            if wrong || (c.missing_core > 0 && !known.contains(op.as_str())) {
                bad.push(op.as_str());
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
        let path = root.join("target/golden.json");
        let _ = std::fs::create_dir_all(root.join("target"));
        let text = serde_json::to_string_pretty(&ops).expect("plain data");
        if let Err(error) = std::fs::write(&path, text) {
            eprintln!("golden: {}: {error}", path.display());
        }
        if !bad.is_empty() {
            println!("golden: wrong, or core and missing: {}", bad.join(" "));
        }
        let [passed, wrong, missing, skipped] = sums;
        println!(
            "golden: {passed} passed, {wrong} wrong, {missing} not implemented, {skipped} skipped"
        );
        if bad.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
