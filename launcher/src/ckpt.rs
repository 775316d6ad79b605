//! `torchrs ckpt`: the program `torchrs-ckpt`, of a package of its own. It needs tensors, which this package does without:
//! it is built in seconds, and on hosts that have nothing but a compiler.

use std::ffi::OsString;

use clap::{Arg, ArgMatches, Command};

use crate::sibling::Sibling;

const PROGRAM: Sibling =
    Sibling { command: "torchrs ckpt", name: "torchrs-ckpt", folder: "crates/ckpt" };

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
    let args = matches.get_many::<OsString>("args").into_iter().flatten();
    PROGRAM.run(args.cloned())
}
