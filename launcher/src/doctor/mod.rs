//! `torchrs doctor`: what this machine has for training, what is missing, and what to do about it. `torchrs check` looks
//! at hosts for one job; this looks at one machine for any.

mod cgroup;
mod clock;
mod limits;
mod memory;
mod processor;
mod software;

use std::ffi::OsString;
use std::io::Write;

use clap::{Arg, ArgAction, ArgMatches, Command};

use self::cgroup::Limits;
use crate::check::finding::{Finding, OfHost, Report};
use crate::sibling::Sibling;
use crate::system::System;

const AFTER_HELP: &str = "\
Each line is ok, a warning or an error, and says what to do. Exit code: 0, 1 with a warning, 2 with an error.

With --warm it compiles the kernels of training steps into TORCHRS_KERNEL_CACHE instead, for this host's GPUs or for the
architectures that are named. Exit code then: 0, 1 where some do not compile or are left out, 2 where it cannot.

  torchrs doctor
  torchrs doctor --warm
  torchrs doctor --warm=sm_90a,sm_100a
  torchrs doctor --json | jq '.hosts[0].findings[] | select(.level != \"ok\")'";

/// The command line of `torchrs doctor`.
pub fn command() -> Command {
    Command::new("doctor")
        .about("Tell what this machine has for training, what is missing, and what to install")
        .after_help(AFTER_HELP)
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print the report as JSON"),
        )
        .arg(
            Arg::new("warm")
                .long("warm")
                .value_name("SM,..")
                .num_args(0..=1)
                .require_equals(true)
                .default_missing_value("")
                .conflicts_with("json")
                .help("Compile kernels before they are needed, for this host's GPUs or these architectures"),
        )
}

const WARM: Sibling =
    Sibling { command: "torchrs doctor --warm", name: "torchrs-warm", folder: "crates/warm" };

/// What `torchrs-warm` is told.
fn of_warm(architectures: &str) -> Vec<OsString> {
    match architectures {
        "" => vec![],
        names => vec!["--architectures".into(), names.into()],
    }
}

/// Prints the report, or becomes the program that compiles kernels; returns the exit code.
pub fn run(matches: &ArgMatches) -> i32 {
    if let Some(architectures) = matches.get_one::<String>("warm") {
        return WARM.run(of_warm(architectures));
    }
    let host = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    let hosts = vec![OfHost { host, findings: findings(&System::here()) }];
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let report = Report { version, hosts, between: Vec::new(), pairs: Vec::new() };
    let text = if matches.get_flag("json") { report.json() } else { report.text() };
    // A reader that has gone away does not change what was found.
    let _ = std::io::stdout().write_all(text.as_bytes());
    report.exit_code()
}

fn findings(system: &System) -> Vec<Finding> {
    let limits = Limits::of(system);
    let kernel = system.text("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut findings = vec![Finding::ok("Linux", kernel)];
    findings.extend(processor::findings(system, &limits));
    findings.extend(memory::findings(system, &limits));
    findings.extend(limits::findings(system, &limits));
    findings.extend(clock::findings(system));
    findings.extend(software::findings());
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_compiled_for_named_architectures_or_those_that_are_here() {
        let warm = |args: &[&str]| {
            let args = ["doctor"].iter().chain(args);
            let matches = command().try_get_matches_from(args).ok()?;
            matches.get_one::<String>("warm").map(|names| of_warm(names))
        };
        assert_eq!(warm(&[]), None);
        assert_eq!(warm(&["--warm"]).unwrap(), Vec::<OsString>::new());
        assert_eq!(warm(&["--warm=sm_90a,sm_80"]).unwrap(), ["--architectures", "sm_90a,sm_80"]);
        assert_eq!(warm(&["--warm", "--json"]), None, "one or the other");
        assert!(command().try_get_matches_from(["doctor", "--warm", "sm_90a"]).is_err());
    }
}
