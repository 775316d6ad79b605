//! `torchrs`: tools around a training job.

use clap::Command;

use crate::check::options::check_command;
use crate::signals::undo_inherited;
use crate::{check, ckpt, create, doctor, top, tree};

/// The command line of `torchrs`.
pub fn command() -> Command {
    Command::new("torchrs")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Tools around a training job; torchrs-launch starts one")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(create::command())
        .subcommand(doctor::command())
        .subcommand(check_command())
        .subcommand(ckpt::command())
        .subcommand(top::command())
}

/// Of `torchrs`; returns the exit code.
pub fn main() -> i32 {
    undo_inherited();
    tree::leave_alone_who_is_here();
    let matches = command().get_matches();
    match matches.subcommand() {
        Some(("check", matches)) => check::main(matches),
        Some(("ckpt", matches)) => ckpt::run(matches),
        Some(("doctor", matches)) => doctor::run(matches),
        Some(("new", matches)) => create::run(matches),
        Some(("top", matches)) => top::run(matches),
        _ => unreachable!("the command line has a subcommand"),
    }
}
