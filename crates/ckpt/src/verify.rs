//! `torchrs ckpt verify`: whether every byte is as it was written.

use clap::{ArgMatches, Command};

use crate::sizes::{plain, shown, tensors};
use crate::{FOUND, complain, open, path, print};

/// The command line of `verify`.
pub fn command() -> Command {
    Command::new("verify")
        .about("Read all of a checkpoint and compare it with its checksums")
        .after_help("Exit code: 0, 1 when something is damaged or missing; each tensor is named.")
        .arg(path("path", "PATH", "The checkpoint"))
}

/// Prints what is found; returns the exit code.
pub fn run(matches: &ArgMatches) -> i32 {
    let files = match open(matches, "path", FOUND) {
        Ok(files) => files,
        Err(code) => return code,
    };
    let found = files.verify();
    for (_, error) in &found.damaged {
        complain(error);
    }
    let mut names: Vec<String> = found.damaged.iter().map(|(name, _)| plain(name)).collect();
    names.dedup();
    let count = tensors(files.tensors().count());
    let mut text = match names.is_empty() {
        true => format!("{count}, {} as they were written", shown(found.checked)),
        false => format!("{} of {count} damaged: {}", names.len(), names.join(", ")),
    };
    if found.unchecked > 0 {
        text += &format!("; {} could be read, and have no checksum", shown(found.unchecked));
    }
    print(&(text + "\n"));
    if names.is_empty() { 0 } else { FOUND }
}
