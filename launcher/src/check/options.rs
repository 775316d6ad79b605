//! `torchrs check`: the launcher's options of how hosts meet, and a few of its own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, ValueHint};
use serde::{Deserialize, Serialize};

use crate::cli::{self, Options};
use crate::hosts::HostsPlan;
use crate::nproc::Nproc;
use crate::ssh::options::{in_words, words_of};

const DEADLINE_S: &str = "120";

/// The launcher's options that a check has, too.
const OF_LAUNCHER: [&str; 17] = [
    "export",
    "hostfile",
    "hosts",
    "local-addr",
    "master-addr",
    "master-port",
    "nnodes",
    "node-rank",
    "nproc",
    "rdzv-backend",
    "rdzv-conf",
    "rdzv-endpoint",
    "remote-launcher",
    "run-id",
    "ssh",
    "standalone",
    "token-file",
];

const ABOUT: &str = "Look whether this host, or several, are fit for a job, before one is started";
const AFTER_HELP: &str = "\
Each line is ok, a warning or an error, and says what to do. Exit code: 0, 1 with a warning, 2 with an error.

  torchrs check                                             # this host
  torchrs check --hosts node1,node2 --shared-folder /data   # through ssh
  torchrs check --nnodes 2 --rdzv-endpoint node1            # the same line on both
  srun --ntasks-per-node 1 torchrs check";

/// The command line of `torchrs check`.
pub fn check_command() -> Command {
    let launcher = Options::command();
    let taken = launcher
        .get_arguments()
        .filter(|arg| arg.get_long().is_some_and(|long| OF_LAUNCHER.contains(&long)));
    Command::new("check")
        .about(ABOUT)
        .after_help(AFTER_HELP)
        .arg(
            Arg::new("shared-folder")
                .long("shared-folder")
                .value_name("DIR")
                .value_hint(ValueHint::DirPath)
                .value_parser(clap::value_parser!(PathBuf))
                .help("Look whether all hosts see the same files and locks in this folder"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print the report as JSON"),
        )
        .arg(
            Arg::new("deadline")
                .long("deadline")
                .value_name("SECONDS")
                .default_value(DEADLINE_S)
                .value_parser(clap::value_parser!(u64).range(1..=86_400))
                .help("End after this time, with what is known by then"),
        )
        .arg(Arg::new("missing").long("missing").hide(true).action(ArgAction::Append).help(
            "From the launcher that has started this one: a host that it could not reach, and why",
        ))
        .args(taken.cloned())
}

/// What a check is started with.
#[derive(Debug, Serialize, Deserialize)]
pub struct CheckPlan {
    pub hosts: Option<HostsPlan>,
    /// Why the hosts cannot meet, by the options.
    pub misfit: Option<String>,
    pub nproc: Nproc,
    pub master_port: u16,
    pub folder: Option<PathBuf>,
    pub json: bool,
    pub deadline: Duration,
    pub missing: Vec<String>,
}

/// The launcher's options in a check's command line, with what variables and a cluster's starter say.
pub fn options_of(matches: &ArgMatches) -> Options {
    let words = launcher_words(matches);
    let options = cli::options_of(words);
    // What goes to other hosts is in a check's words.
    Options { given: in_words(&check_command(), matches), ..options }
}

/// The launcher's options among a check's, in words.
pub fn launcher_words(matches: &ArgMatches) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["torchrs-launch".into()];
    words.extend(words_of(&check_command(), matches, |option| OF_LAUNCHER.contains(&option)));
    // The launcher cannot be without a program.
    words.push("check".into());
    words
}

impl CheckPlan {
    /// Of a check's own options, and the launcher's.
    pub fn of(matches: &ArgMatches, options: &Options) -> Self {
        let (hosts, misfit) = match HostsPlan::of(options) {
            Ok(hosts) => (hosts, None),
            Err(why) => (None, Some(cli::with_variables(why))),
        };
        let seconds = matches.get_one::<u64>("deadline").copied().unwrap_or_default();
        CheckPlan {
            hosts,
            misfit,
            nproc: options.nproc,
            master_port: options.master_port,
            folder: matches.get_one::<PathBuf>("shared-folder").cloned(),
            json: matches.get_flag("json"),
            deadline: Duration::from_secs(seconds),
            missing: matches.get_many::<String>("missing").into_iter().flatten().cloned().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launchers_options_are_those_of_a_check() {
        crate::tools::command().debug_assert();
        let command = check_command();
        let has = |name: &&str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
        assert!(OF_LAUNCHER.iter().all(has));
        let line =
            "check --nnodes 2 --rdzv-endpoint 127.0.0.1:5 --json --shared-folder /data --nproc gpu";
        let matches = command.try_get_matches_from(line.split(' ')).unwrap();
        let options = options_of(&matches);
        assert_eq!(options.given, ["--shared-folder=/data", "--json"]);
        let plan = CheckPlan::of(&matches, &options);
        assert_eq!(plan.hosts.unwrap().endpoint, ("127.0.0.1".into(), 5));
        assert!(plan.json && plan.misfit.is_none() && plan.deadline == Duration::from_secs(120));
    }
}
