//! `torchrs doctor`: what this machine has for training, what is missing, and what to do about it. `torchrs check` looks
//! at hosts for one job; this looks at one machine for any.

mod cgroup;
mod clock;
mod limits;
mod memory;
mod processor;
mod software;

use std::io::Write;

use clap::{Arg, ArgAction, ArgMatches, Command};

use self::cgroup::Limits;
use crate::check::finding::{Finding, OfHost, Report};
use crate::system::System;

const AFTER_HELP: &str = "\
Each line is ok, a warning or an error, and says what to do. Exit code: 0, 1 with a warning, 2 with an error.

  torchrs doctor
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
}

/// Prints the report; returns the exit code.
pub fn run(matches: &ArgMatches) -> i32 {
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
