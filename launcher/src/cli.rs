//! The command line: torchrun's names where it has them. Options stand before PROGRAM; all that
//! follows PROGRAM is the program's own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};

use crate::nproc::Nproc;
use crate::outputs::StreamMap;

const AFTER_HELP: &str = "\
PROGRAM is looked for in this order:
  1. a path (it contains a '/')
  2. a binary or example of the cargo workspace around the current folder: it is built with
     `cargo build --release` first (unless --no-build)
  3. an executable beside torchrs-launch, or in the folder `examples` there
  4. an executable on PATH

Exit code: that of the worker that failed first (128 + N if signal N killed it), 128 + N if the
launcher was stopped by signal N, 2 for a wrong option, 127 and 126 for a PROGRAM that is not
there or not executable, 1 if the launcher itself could not go on.

  torchrs-launch --nproc 2 train --epochs 3
  torchrs-launch --nproc gpu --max-restarts 3 --log-dir logs ./train
  torchrs-launch --simulate-gpus 2 --nproc gpu train";

/// Start PROGRAM as several cooperating worker processes on this host, and supervise them.
#[derive(Debug, Parser)]
#[command(name = "torchrs-launch", version, after_help = AFTER_HELP)]
pub struct Options {
    /// Workers to start: a number, `gpu` (one per GPU), `cpu` (one per core), or `auto` (one per
    /// GPU, or per core on a machine without).
    #[arg(
        long,
        visible_alias = "nproc-per-node",
        alias = "nproc_per_node",
        value_name = "N|auto|cpu|gpu",
        default_value = "1",
        allow_hyphen_values = true
    )]
    pub nproc: Nproc,

    /// Give the workers N simulated GPUs in place of real ones: to debug a program, never to time it.
    /// `--nproc gpu` then starts N workers.
    #[arg(long, alias = "simulate_gpus", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub simulate_gpus: Option<u32>,

    /// Start all workers again up to N times after a failure.
    #[arg(long, alias = "max_restarts", value_name = "N", default_value_t = 0)]
    pub max_restarts: u32,

    /// Write each worker's stdout.log, stderr.log and error.json under
    /// DIR/RUN_ID/attempt_K/RANK/ (as well as to the terminal, unless --redirects).
    #[arg(long, alias = "log_dir", value_name = "DIR")]
    pub log_dir: Option<PathBuf>,

    /// Streams to send to the log files instead of the terminal: 0 none, 1 stdout, 2 stderr,
    /// 3 both, or per local rank, as in `0:3,1:1`.
    #[arg(short, long, value_name = "STREAMS")]
    pub redirects: Option<StreamMap>,

    /// Streams to send to the log files and to the terminal, written as for --redirects.
    #[arg(short, long, value_name = "STREAMS")]
    pub tee: Option<StreamMap>,

    /// Time that workers have to end by themselves after a signal or after a worker's failure,
    /// before they are killed.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds,
          allow_hyphen_values = true)]
    pub grace: Duration,

    /// The workers' role, given to them as ROLE_NAME.
    #[arg(long, default_value = "default")]
    pub role: String,

    /// Name of this run, given to the workers as TORCHELASTIC_RUN_ID and used in --log-dir
    /// [default: a random one].
    #[arg(
        long,
        visible_alias = "rdzv-id",
        aliases = ["rdzv_id", "run_id"],
        value_name = "ID",
        value_parser = NonEmptyStringValueParser::new()
    )]
    pub run_id: Option<String>,

    /// MASTER_ADDR for the workers.
    #[arg(long, alias = "master_addr", value_name = "HOST", default_value = "127.0.0.1")]
    pub master_addr: String,

    /// MASTER_PORT for the workers; it must be free. torchrs itself opens no port on one host;
    /// 0 picks a number.
    #[arg(long, alias = "master_port", value_name = "PORT", default_value_t = 0)]
    pub master_port: u16,

    /// Accepted for torchrun's sake: a job on one host is always on its own.
    #[arg(long)]
    pub standalone: bool,

    /// Hosts: only 1 so far.
    #[arg(long, value_name = "N", default_value = "1", value_parser = one_host)]
    pub nnodes: u32,

    /// Do not look for PROGRAM in a cargo workspace and build nothing.
    #[arg(long)]
    pub no_build: bool,

    /// What the workers run, with its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

/// Prints why an option's value cannot be used and the usage, and exits with 2.
pub fn refuse(message: String) -> ! {
    Options::command().error(ErrorKind::ValueValidation, message).exit()
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|grace| *grace <= Duration::from_secs(86_400 * 365))
        .ok_or_else(|| "give a time between 0 seconds and a year".to_owned())
}

fn one_host(text: &str) -> Result<u32, String> {
    match text {
        "1" | "1:1" => Ok(1),
        _ => Err("this version runs on one host; jobs across hosts come with a later one".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, clap::Error> {
        Options::try_parse_from(line.split(' '))
    }

    #[test]
    fn the_declaration_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn what_follows_the_program_is_the_programs() {
        let o = parse("x --nproc 2 train --nproc 7 --help -- --log-dir").unwrap();
        assert_eq!(o.nproc, Nproc::Count(2));
        assert_eq!(o.command, ["train", "--nproc", "7", "--help", "--", "--log-dir"]);
        assert!(o.log_dir.is_none());
    }

    #[test]
    fn an_unknown_option_is_not_taken_for_the_program() {
        assert!(parse("x --bogus train").is_err());
        assert!(parse("x --nproc 2").is_err());
    }

    #[test]
    fn torchruns_spellings_are_accepted() {
        let line = "x --standalone --nnodes 1 --nproc_per_node 3 --max_restarts 2 --rdzv_id j \
                    --master_port 29500 --log_dir l --tee 3 t";
        let o = parse(line).unwrap();
        assert_eq!((o.nproc, o.max_restarts, o.master_port), (Nproc::Count(3), 2, 29500));
        assert_eq!(o.run_id.as_deref(), Some("j"));
    }

    #[test]
    fn values_that_make_no_sense_are_refused_with_the_reason() {
        for (line, reason) in [
            ("x --nnodes 2 t", "one host"),
            ("x --grace -1 t", "between 0"),
            ("x --grace soon t", "not a number of seconds"),
            ("x --nproc 0 t", "at least 1"),
            ("x --nproc -1 t", "at least 1"),
            ("x --nproc abc t", "auto, cpu or gpu"),
            ("x --simulate-gpus 0 t", "1..=64"),
            ("x --tee 4 t", "0 none, 1 stdout"),
        ] {
            let error = parse(line).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(reason), "{line}: {error}");
        }
    }
}
