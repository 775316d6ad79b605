//! `torchrs ckpt`: shows, checks, compares and converts checkpoints. A program of its own, which `torchrs` starts: the
//! launcher's package knows no tensors, and starts and builds faster without them.

mod convert;
mod diff;
mod inspect;
mod sizes;
mod verify;

use std::io::Write;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command, ValueHint};
use torchrs::checkpoint::CheckpointFiles;

/// A checkpoint is damaged, or two differ.
const FOUND: i32 = 1;
/// What cannot be read or written, or is no command.
const FAILED: i32 = 2;

const AFTER_HELP: &str = "\
PATH is a checkpoint's folder of torchrs, Hugging Face or torch.distributed.checkpoint, a safetensors file or one of
torch.save. Exit code: 0, 1 when one is damaged or two differ, 2 when something cannot be read or written.

  torchrs ckpt inspect runs/gpt/step-1000
  torchrs ckpt verify runs/gpt/step-1000
  torchrs ckpt convert runs/gpt/step-1000 llama --to huggingface --only model --dtype bf16
  torchrs ckpt diff runs/a/step-10 runs/b/step-10 --tolerance 1e-6
  torchrs ckpt reshard runs/gpt/step-1000 for-eight --ranks 8";

fn command() -> Command {
    Command::new("torchrs ckpt")
        .bin_name("torchrs ckpt")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Show, check, compare and convert checkpoints")
        .after_help(AFTER_HELP)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(inspect::command())
        .subcommand(verify::command())
        .subcommand(convert::command())
        .subcommand(diff::command())
        .subcommand(convert::reshard_command())
}

fn main() {
    // SAFETY: nothing else runs yet. A reader that goes away, as `head` does, ends this program as any other.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    let matches = command().get_matches();
    let code = match matches.subcommand() {
        Some(("inspect", matches)) => inspect::run(matches),
        Some(("verify", matches)) => verify::run(matches),
        Some(("convert", matches)) => convert::run(matches),
        Some(("diff", matches)) => diff::run(matches),
        Some(("reshard", matches)) => convert::reshard(matches),
        _ => unreachable!("the command line has a subcommand"),
    };
    std::process::exit(code)
}

/// An argument that is a path.
fn path(id: &'static str, name: &'static str, help: &'static str) -> Arg {
    Arg::new(id)
        .value_name(name)
        .required(true)
        .value_hint(ValueHint::AnyPath)
        .value_parser(clap::value_parser!(PathBuf))
        .help(help)
}

fn path_of<'a>(matches: &'a ArgMatches, id: &str) -> &'a PathBuf {
    matches.get_one::<PathBuf>(id).expect("a required argument")
}

/// The checkpoint of an argument; or else the exit code `code`.
fn open(matches: &ArgMatches, id: &str, code: i32) -> Result<CheckpointFiles, i32> {
    CheckpointFiles::open(path_of(matches, id)).map_err(|error| failed(&error, code))
}

/// Says why; returns the exit code.
fn failed(error: &torchrs::Error, code: i32) -> i32 {
    complain(error);
    code
}

/// Says what is wrong; names in it are a file's own.
fn complain(error: &torchrs::Error) {
    let text = error.to_string();
    let lines: Vec<String> = text.lines().map(sizes::plain).collect();
    eprintln!("torchrs ckpt: {}", lines.join("\n"));
}

fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        eprintln!("torchrs ckpt: write to standard output: {error}");
        std::process::exit(FAILED);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_sound() {
        super::command().debug_assert();
    }
}
