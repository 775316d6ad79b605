//! The options that name other hosts and the way to them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, ValueHint};

use super::list::{HostList, Target, hosts_of_file};
use crate::parts::is_of_each_host;

/// The remote shell, unless another is named: it asks nothing, gives up where nobody answers, and notices a line
/// that is dead.
const SSH: &str =
    "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=4";

/// Stands for `--ssh`.
pub const SSH_VARIABLE: &str = "TORCHRS_SSH";

/// Hosts whose launchers this one starts.
#[derive(Debug, Default, Args)]
pub struct SshOptions {
    /// Run the job on these hosts: `node1,node2:4,user@node3`, where `:4` is --nproc there. This launcher starts
    /// theirs by ssh; on this host one runs only if it is named, too.
    #[arg(long, value_name = "HOST[:SLOTS],...", value_hint = ValueHint::Hostname, conflicts_with = "hostfile")]
    pub hosts: Option<HostList>,

    /// The same from a file, a host in each line: `node1 slots=4`, `node1:4` or `node1`. `#` begins a comment.
    #[arg(long, value_name = "FILE", visible_alias = "machinefile", value_hint = ValueHint::FilePath)]
    pub hostfile: Option<PathBuf>,

    /// Give the workers of all --hosts this variable: with its value here, with another, or all that begin with
    /// PREFIX. CUDA_*, NCCL_*, OMP_*, RUST_*, TORCHRS_* and LD_LIBRARY_PATH need not be named.
    #[arg(short = 'x', long, value_name = "NAME[=VALUE]|PREFIX*")]
    pub export: Vec<String>,

    /// How --hosts are reached: a program with options, which is given a host and a command for the shell there
    /// [default: what TORCHRS_SSH holds, else ssh, which must not have to ask for a password].
    #[arg(long, alias = "rsh-agent", value_name = "COMMAND")]
    pub ssh: Option<String>,

    /// Where torchrs-launch lies on the other --hosts [default: where it lies here].
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub remote_launcher: Option<PathBuf>,
}

impl SshOptions {
    pub fn names_hosts(&self) -> bool {
        self.hosts.is_some() || self.hostfile.is_some()
    }

    /// The reason why an option makes no sense where no hosts are named. One that a variable sets waits for them.
    pub fn misfit_without_hosts(&self) -> Option<String> {
        let by_variable = std::env::var_os(SSH_VARIABLE).is_some();
        let given = [
            (self.ssh.is_some() && !by_variable, "--ssh"),
            (!self.export.is_empty(), "--export"),
            (self.remote_launcher.is_some(), "--remote-launcher"),
        ];
        let (_, option) = given.into_iter().find(|(given, _)| *given)?;
        Some(format!(
            "{option} concerns other hosts, and none are named: give --hosts or --hostfile"
        ))
    }

    /// The hosts that are named, in their order.
    ///
    /// # Errors
    /// Why the file cannot be read as one of hosts.
    pub fn targets(&self) -> Result<Vec<Target>, String> {
        if let Some(HostList(targets)) = &self.hosts {
            return Ok(targets.clone());
        }
        let path = self.hostfile.as_deref().unwrap_or_else(|| "".as_ref());
        let wrong = |why: String| format!("--hostfile {}: {why}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        hosts_of_file(&text).map_err(wrong)
    }

    /// The remote shell, word by word.
    ///
    /// # Errors
    /// Why its text is no command.
    pub fn shell(&self) -> Result<Vec<String>, String> {
        let text = self.ssh.as_deref().unwrap_or(SSH);
        let words = shlex::split(text).filter(|words| !words.is_empty());
        words.ok_or_else(|| format!("--ssh `{text}` is no command with balanced quotes"))
    }
}

/// The options of `command` that were given and hold on all hosts, in words.
pub fn in_words(command: &Command, matches: &ArgMatches) -> Vec<OsString> {
    words_of(command, matches, |option| !is_of_each_host(option))
}

/// The options of `command` that were given and that `takes` accepts, in words.
pub fn words_of(
    command: &Command,
    matches: &ArgMatches,
    takes: impl Fn(&str) -> bool,
) -> Vec<OsString> {
    let mut words = Vec::new();
    for arg in command.get_arguments() {
        let (id, Some(long)) = (arg.get_id().as_str(), arg.get_long()) else { continue };
        let given = matches.value_source(id) == Some(ValueSource::CommandLine);
        if !given || !takes(long) {
            continue;
        }
        if !arg.get_action().takes_values() {
            words.push(format!("--{long}").into());
            continue;
        }
        for value in matches.get_raw(id).into_iter().flatten() {
            let mut word = OsString::from(format!("--{long}="));
            word.push(value);
            words.push(word);
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Options;

    fn words(line: &str) -> String {
        let matches = Options::command().try_get_matches_from(line.split(' ')).unwrap();
        let words = in_words(&Options::command(), &matches);
        words.iter().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn options_that_hold_on_all_hosts_go_along() {
        let line = "x --hosts a,b:2 --nproc 4 -x A=1 --max-restarts 3 --grace 2 --tee 0:3 --token-file f t --role r";
        assert_eq!(words(line), "--max-restarts=3 --tee=0:3 --grace=2");
        assert_eq!(words("x t"), "");
    }

    #[test]
    fn a_remote_shell_is_read_as_a_shell_does() {
        let of = |text: &str| SshOptions { ssh: Some(text.into()), ..Default::default() }.shell();
        assert_eq!(of("ssh -p 22 -i 'a key'").unwrap(), ["ssh", "-p", "22", "-i", "a key"]);
        assert!(of("").is_err() && of("ssh 'x").is_err());
        assert_eq!(SshOptions::default().shell().unwrap()[..3], ["ssh", "-o", "BatchMode=yes"]);
    }
}
