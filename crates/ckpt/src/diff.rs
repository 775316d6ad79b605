//! `torchrs ckpt diff`: how two checkpoints differ.

use std::fmt::Write;

use clap::{Arg, ArgMatches, Command};
use torchrs::checkpoint::{CheckpointFiles, Difference};

use crate::sizes::{grouped, plain, tensors};
use crate::{FAILED, FOUND, failed, open, path, print};

/// The command line of `diff`.
pub fn command() -> Command {
    Command::new("diff")
        .about("Tell how two checkpoints differ, whatever their formats")
        .after_help("Exit code: 0, 1 when they differ, 2 when one cannot be read.")
        .arg(path("a", "A", "The first checkpoint"))
        .arg(path("b", "B", "The second checkpoint"))
        .arg(
            Arg::new("tolerance")
                .long("tolerance")
                .value_name("X")
                .value_parser(clap::value_parser!(f64))
                .default_value("0")
                .help("Numbers that are at most so far apart are the same"),
        )
        .arg(
            Arg::new("only")
                .long("only")
                .value_name("GROUP")
                .help("Compare the tensors of a group, such as model, with another checkpoint that may be of the group alone"),
        )
}

/// Prints it; returns the exit code.
pub fn run(matches: &ArgMatches) -> i32 {
    let tolerance = *matches.get_one::<f64>("tolerance").expect("it has a default");
    let compare = || {
        let (mut a, mut b) = (open(matches, "a", FAILED)?, open(matches, "b", FAILED)?);
        if let Some(group) = matches.get_one::<String>("only") {
            let whole = |files: &CheckpointFiles| files.groups().is_empty();
            (a, b) = match (whole(&a), whole(&b)) {
                (false, true) => (only(a, group)?, b),
                (true, false) => (a, only(b, group)?),
                _ => (only(a, group)?, only(b, group)?),
            };
        }
        let found = a.diff(&b, tolerance).map_err(|error| failed(&error, FAILED))?;
        Ok((a, b, found))
    };
    match compare() {
        Err(code) => code,
        Ok((a, b, found)) => {
            print(&text(&a, &b, &found));
            if found.is_empty() { 0 } else { FOUND }
        }
    }
}

fn only(files: CheckpointFiles, group: &str) -> Result<CheckpointFiles, i32> {
    files.only(group).map_err(|error| failed(&error, FAILED))
}

fn text(a: &CheckpointFiles, b: &CheckpointFiles, found: &Difference) -> String {
    let mut text = String::new();
    for (names, of) in [(&found.only_first, a), (&found.only_second, b)] {
        for name in names {
            _ = writeln!(text, "{}: only in {}", plain(name), of.path().display());
        }
    }
    for of in &found.kinds {
        let (name, (dtype, shape), (other, sizes)) = (plain(&of.name), &of.first, &of.second);
        _ = writeln!(text, "{name}: {dtype} {shape:?} and {other} {sizes:?}");
    }
    for of in &found.tensors {
        let (count, numel) = (grouped(of.count as u64), grouped(of.numel as u64));
        let (name, largest) = (plain(&of.name), of.largest);
        _ = writeln!(text, "{name}: {count} of {numel} numbers differ, by at most {largest:e}");
    }
    for name in &found.values {
        let of = |files: &CheckpointFiles| match files.value::<serde_json::Value>(name) {
            Ok(value) => value.to_string(),
            Err(_) => "none".to_owned(),
        };
        _ = writeln!(text, "{}: value {} and {}", plain(name), of(a), of(b));
    }
    if found.is_empty() {
        _ = writeln!(text, "they are the same: {}", tensors(a.tensors().count()));
    }
    text
}
