//! `torchrs check`: the launcher's options of how hosts meet, and a few of its own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, CommandFactory, ValueHint};
use serde::{Deserialize, Serialize};

use crate::cli::{self, Options};
use crate::hosts::HostsPlan;
use crate::nproc::Nproc;
use crate::parts::{InCheck, in_check, is_of_each_host};
use crate::ssh::options::words_of;

const DEADLINE_S: &str = "120";

const ABOUT: &str = "Look whether this host, or several, are fit for a job, before one is started";
const AFTER_HELP: &str = "\
Each line is ok, a warning or an error, and says what to do. Exit code: 0, 1 with a warning, 2 with an error.
The launcher's command line is taken as it is; what a check does not look at, it names.

  torchrs check                                             # this host
  torchrs check --hosts node1,node2 --shared-folder /data   # through ssh
  torchrs check --nnodes 2 --rdzv-endpoint node1            # the same line on both
  srun --ntasks-per-node 1 torchrs check";

/// The command line of `torchrs check`.
pub fn check_command() -> Command {
    let launcher = Options::command();
    let taken = launcher.get_arguments().filter_map(|arg| {
        let arg = arg.clone();
        let Some(long) = arg.get_long() else {
            // The program.
            return Some(arg.required(false).hide(true));
        };
        match in_check(long)? {
            InCheck::Used => Some(arg),
            InCheck::Ignored => Some(arg.hide(true)),
            InCheck::Absent => None,
        }
    });
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
        .args(taken)
}

/// What a check is started with.
#[derive(Debug, Serialize, Deserialize)]
pub struct CheckPlan {
    pub hosts: Option<HostsPlan>,
    /// Why the hosts cannot meet, by the options.
    pub misfit: Option<String>,
    pub nproc: Nproc,
    pub master_port: u16,
    /// Folders that all hosts have to share.
    pub folders: Vec<PathBuf>,
    pub json: bool,
    pub deadline: Duration,
    pub missing: Vec<String>,
}

/// The launcher's options in a check's command line, with what variables and a cluster's starter say.
pub fn options_of(matches: &ArgMatches) -> Options {
    let words = launcher_words(matches);
    let options = cli::options_of(words);
    // What goes to other hosts is in a check's words.
    let goes = |option: &str| !is_of_each_host(option) && !is_ignored(option);
    Options { given: words_of(&check_command(), matches, goes), ..options }
}

fn is_ignored(option: &str) -> bool {
    in_check(option) == Some(InCheck::Ignored)
}

/// What was given and is not looked at, for the user's eyes. `None` where there is nothing.
pub fn not_looked_at(matches: &ArgMatches) -> Option<String> {
    let words = words_of(&check_command(), matches, is_ignored);
    let name = |word: &OsString| {
        let word = word.to_string_lossy().into_owned();
        word.split_once('=').map_or(word.clone(), |(name, _)| name.to_owned())
    };
    let mut names: Vec<String> = words.iter().map(name).collect();
    names.dedup();
    let program = matches.get_many::<OsString>("command").and_then(|mut words| words.next());
    names.extend(program.map(|program| format!("the program {}", program.to_string_lossy())));
    (!names.is_empty()).then(|| format!("not looked at: {}", names.join(", ")))
}

/// The launcher's options among a check's, in words.
pub fn launcher_words(matches: &ArgMatches) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["torchrs-launch".into()];
    words.extend(words_of(&check_command(), matches, |option| {
        in_check(option) == Some(InCheck::Used)
    }));
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
        let shared = matches.get_one::<PathBuf>("shared-folder").cloned();
        let lock = options.rdzv_lock.clone().filter(|lock| shared.as_ref() != Some(lock));
        let seconds = matches.get_one::<u64>("deadline").copied().unwrap_or_default();
        CheckPlan {
            hosts,
            misfit,
            nproc: options.nproc,
            master_port: options.master_port,
            folders: shared.into_iter().chain(lock).collect(),
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
        let line =
            "check --nnodes 2 --rdzv-endpoint 127.0.0.1:5 --json --shared-folder /data --nproc gpu";
        let matches = command.try_get_matches_from(line.split(' ')).unwrap();
        let options = options_of(&matches);
        assert_eq!(options.given, ["--shared-folder=/data", "--json"]);
        let plan = CheckPlan::of(&matches, &options);
        assert_eq!(plan.hosts.unwrap().endpoint, ("127.0.0.1".into(), 5));
        assert!(plan.json && plan.misfit.is_none() && plan.deadline == Duration::from_secs(120));
        assert_eq!((plan.folders, not_looked_at(&matches)), (vec!["/data".into()], None));
    }

    #[test]
    fn a_jobs_command_line_is_taken_as_it_is() {
        let line = "check --nnodes 1:2 --rdzv-endpoint 127.0.0.1:5 --rdzv-lock /locks --scale-up never --grace 3 \
                    --tee=3 --max-restarts 2 --no-build train --nnodes 7 --lr 0.1";
        let matches = check_command().try_get_matches_from(line.split_whitespace()).unwrap();
        let options = options_of(&matches);
        let plan = CheckPlan::of(&matches, &options);
        assert_eq!(plan.folders, [PathBuf::from("/locks")]);
        let settings = plan.hosts.unwrap().settings;
        assert_eq!((settings.hosts, settings.max_restarts, settings.lock), ((1, 2), 2, true));
        assert_eq!(settings.scale_up, torchrs_rendezvous::settings::ScaleUp::Never);
        // As the launcher has them.
        let said = not_looked_at(&matches).unwrap();
        assert_eq!(said, "not looked at: --tee, --grace, --no-build, the program train");
        let goes = ["--max-restarts=2", "--scale-up=never", "--rdzv-lock=/locks"];
        assert_eq!(options.given, goes);
        assert!(check_command().try_get_matches_from(["check", "--bogus"]).is_err());
    }
}
