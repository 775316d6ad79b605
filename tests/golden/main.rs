//! Results of real PyTorch, replayed through the public API.
//!
//! ```text
//! cargo test --release --test golden [-- PART-OF-AN-OP]
//! TORCHRS_GOLDEN_DIR=FOLDER[:FOLDER...] cargo test --release --test golden
//! cargo test --release --test golden -- --device cuda [--part 0/4]
//! ```
//!
//! Without `TORCHRS_GOLDEN_DIR`, folders as in `PATH`, the cases under `tests/golden/cases`, `tests/golden/more` and
//! `tests/golden/conditions` are run. Every op of a folder gets a line: passed (also where Rust's types rule a must-raise case out), wrong, not implemented, skipped
//! (fragile); every folder a line of sums. An op or a kind that the runner does not know is not implemented.
//! Wrong answers and missing `core` cases fail the run, but for those that `tests/golden/known.txt`
//! names with a reason; so does a case that is named there and passes, and a run of no case. With an op's
//! name the failures are told in full. The report is written to `target/golden.json`, or to the folder that
//! `TORCHRS_GOLDEN_REPORT` names: the ops by folder. `--part K/N` runs the Kth of N parts of a folder's ops,
//! `--per-op N` at most so many cases of each op and kind.
//!
//! With `--device cuda` calls of ops are made on the first GPU, which is the default device too, and their results and
//! gradients must be there; an op that has no kernel there, and says so, counts as not implemented. Schedulers are
//! left out. The run ends at a case behind which the device takes no more work.
//!
//! For a program that watches, `--lines` prints a line before and behind each case and one at the end, and
//! `--after ID` goes on behind a case of the same part (`scripts/gpu-check`).

mod arg;
mod case;
mod compare;
mod distributions;
mod formula;
mod forward;
mod modules;
mod ops;
mod optimizers;
mod programs;
mod report;
mod schedulers;
mod ties;

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::ExitCode;

use case::{Case, Cases};
use report::{Outcome, Report};

fn main() -> ExitCode {
    torchrs::init();
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    // A runner that asks for tests gets none: the cases are run by this program itself.
    if arguments.iter().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let device = option(&mut arguments, "--device").map_or(torchrs::Device::Cpu, |text| {
        let device: torchrs::Device = text.parse().expect("a device");
        device.check().unwrap_or_else(|error| panic!("{error}"));
        device
    });
    let part = option(&mut arguments, "--part").map_or((0, 1), |text| {
        let numbers =
            text.split_once('/').and_then(|(k, n)| Some((k.parse().ok()?, n.parse().ok()?)));
        numbers.expect("--part takes two numbers with / between them")
    });
    let per_op = option(&mut arguments, "--per-op");
    let per_op = per_op.map_or(usize::MAX, |text| text.parse().expect("--per-op takes a number"));
    let mut after = option(&mut arguments, "--after");
    let lines = arguments.iter().any(|argument| argument == "--lines");
    let filter = arguments.into_iter().find(|argument| !argument.starts_with('-'));
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let folders: Vec<PathBuf> = match std::env::var_os("TORCHRS_GOLDEN_DIR") {
        Some(folders) => std::env::split_paths(&folders).collect(),
        None => {
            ["cases", "more", "conditions"].map(|name| root.join("tests/golden").join(name)).into()
        }
    };
    let table = ops::table();
    let mut reports = Vec::new();
    for folder in folders {
        let cases = match Cases::open(&folder, device) {
            Ok(cases) => cases,
            Err(error) => {
                eprintln!("golden: {}: {error}", folder.display());
                return ExitCode::FAILURE;
            }
        };
        // Panics are outcomes, with their message; the default hook would print each.
        std::panic::set_hook(Box::new(|_| {}));
        let mut report = Report::new(&folder, filter.is_some(), lines, device, cases.split());
        // An op's cases stay together: they share kernels.
        let mut ops = Vec::new();
        let mut taken = HashMap::new();
        for case in cases.iter() {
            if filter.as_ref().is_some_and(|filter| !case.op().contains(filter.as_str())) {
                continue;
            }
            let at = ops.iter().position(|op| *op == case.op()).unwrap_or_else(|| {
                ops.push(case.op());
                ops.len() - 1
            });
            let count = taken.entry((case.op(), case.kind())).or_insert(0);
            *count += 1;
            if at % part.1 != part.0 || *count > per_op {
                continue;
            }
            if let Some(id) = &after {
                if *id == case.id() {
                    after = None;
                }
                continue;
            }
            report.begin(&case);
            report.add(&case, run(&table, &case));
            if is_lost(device) {
                report.lose(&case);
                break;
            }
        }
        let _ = std::panic::take_hook();
        let lost = report.is_lost();
        reports.push(report);
        if lost {
            break;
        }
    }
    report::finish(reports, &root)
}

/// Whether a case's fault is one that ends all work of this process on the device.
fn is_lost(device: torchrs::Device) -> bool {
    let torchrs::Device::Cuda(index) = device else { return false };
    torchrs::cuda::device::synchronize(index).is_err()
}

/// Removes an option and its value.
fn option(arguments: &mut Vec<String>, name: &str) -> Option<String> {
    let at = arguments.iter().position(|argument| argument == name)?;
    let value = arguments.drain(at..(at + 2).min(arguments.len())).nth(1);
    Some(value.unwrap_or_else(|| panic!("{name} takes a value")))
}

fn run(table: &ops::Table, case: &Case) -> Outcome {
    if case.fragile() {
        return Outcome::Skipped;
    }
    let run = || match case.kind() {
        "forward" | "error" => forward::run(table, case),
        "module" | "module_error" => modules::run(case),
        "program" | "program_error" => programs::run(table, case),
        "state_names" => modules::names::run(case),
        "optimizer" | "optimizer_error" | "lbfgs" => optimizers::run(case),
        "lr_scheduler" => schedulers::run(case),
        "distribution"
        | "distribution_error"
        | "kl_divergence"
        | "kl_divergence_error"
        | "transform"
        | "transform_error" => distributions::run(case),
        kind => Outcome::NotImplemented(format!("kind {kind}")),
    };
    // A kernel that meets an index out of range ends all work on the device, as PyTorch's do.
    let expected = case.json["message"].to_string();
    let ends_all = case.kind().ends_with("error")
        && [
            "index out of range",
            "out of bounds",
            "out of range: tried",
            "target out of range",
            "'target' is out of range",
            "Class values",
            "should be between 0 and 1",
            "found idx",
            "Number of elements of source",
            "offsets[0]",
            "p_in",
        ]
        .iter()
        .any(|part| expected.contains(part));
    let on_cpu = case.json["autocast"]["device"] == "cpu";
    // Results were recorded on a CPU.
    torchrs::backends::cudnn::set_allow_tf32(false);
    if case.device().is_cuda() && (ends_all || on_cpu || case.kind() == "lr_scheduler") {
        return Outcome::Skipped;
    }
    // What a call makes without being told where is to be where the calls are made.
    let run = || case.device().scope(run);
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)) {
        Ok(Outcome::Wrong(why))
            if ["computes on the CPU", "run on the CPU only"]
                .iter()
                .any(|part| why.contains(part)) =>
        {
            Outcome::NotImplemented(why)
        }
        Ok(outcome) => outcome,
        Err(panic) => Outcome::Wrong(format!("panic: {}", message(&*panic))),
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
    let text = text.or_else(|| panic.downcast_ref::<torchrs::Error>().map(|e| e.to_string()));
    text.unwrap_or_else(|| "of an unknown type".into())
}
