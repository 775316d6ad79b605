//! `torchrs ckpt`: the program `torchrs-ckpt`, of a package of its own. It needs tensors, which this package does without:
//! it is built in seconds, and on hosts that have nothing but a compiler.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process;

use clap::{Arg, ArgMatches, Command};

use crate::console::say;
use crate::executable::{check, on_path};
use crate::failure::{CANNOT_EXECUTE, Failure, NOT_FOUND};
use crate::program::own_folder;

const PROGRAM: &str = "torchrs-ckpt";

/// The command line of `torchrs ckpt`, as far as it is known here.
pub fn command() -> Command {
    Command::new("ckpt")
        .about(
            "Show, check, compare and convert checkpoints: inspect, verify, convert, diff, reshard",
        )
        .disable_help_flag(true)
        .arg(
            Arg::new("args")
                .value_name("ARGS")
                .num_args(0..)
                .allow_hyphen_values(true)
                .trailing_var_arg(true)
                .value_parser(clap::value_parser!(OsString)),
        )
}

/// Becomes the program; returns the exit code when it cannot.
pub fn run(matches: &ArgMatches) -> i32 {
    let failure = match find() {
        Ok(program) => {
            let args = matches.get_many::<OsString>("args").into_iter().flatten();
            let error = process::Command::new(&program).args(args).exec();
            let message = format!("cannot run {}: {error}", program.display());
            Failure::with_code(CANNOT_EXECUTE, message)
        }
        Err(failure) => failure,
    };
    say(&format!("torchrs ckpt: {}\n", failure.message));
    failure.code
}

/// The program beside this one, or on PATH.
fn find() -> Result<PathBuf, Failure> {
    let beside = own_folder().map(|folder| folder.join(PROGRAM));
    if let Some(beside) = beside.filter(|beside| check(beside).is_ok()) {
        return Ok(beside);
    }
    on_path(OsStr::new(PROGRAM)).unwrap_or_else(|| {
        let what = format!(
            "no program `{PROGRAM}` beside torchrs or on PATH; in a clone of torchrs `cargo install --path crates/ckpt` installs it"
        );
        Err(Failure::with_code(NOT_FOUND, what))
    })
}
