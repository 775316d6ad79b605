//! From the command line to what the launchers of several hosts are started with.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use torchrs_job::cluster::ClusterTask;
use torchrs_rendezvous::token::{JobToken, TOKEN};

use super::address::is_here;
use super::exported;
use super::list::Target;
use super::trouble::Way;
use super::wire::{REMOTE_END, Start};
use crate::cli::Options;
use crate::executable::on_path;
use crate::failure::{Failure, NOT_FOUND};
use crate::front::random_id;
use crate::nproc::Nproc;
use crate::plan::LIBRARY;
use crate::program;
use crate::simulate;
use crate::tool::Overseer;

/// How long a first round waits for hosts that are not named: nobody expects them.
const LAST_CALL: &str = "last_call_timeout=3";
/// Exit code where an option cannot be used.
const USAGE: i32 = 2;

/// What the launchers of several hosts are started with.
#[derive(Debug, Serialize, Deserialize)]
pub struct SshPlan {
    pub hosts: Vec<HostToCall>,
    /// The remote shell.
    pub shell: Vec<OsString>,
    /// Where the launcher lies on other hosts.
    pub launcher: String,
    /// The same for all, but for options.
    pub start: Start,
    /// With its arguments.
    pub program: Vec<OsString>,
    /// Workers of a host that names no number, as `--nproc` takes it.
    pub nproc: String,
    /// The fewest hosts, and the most.
    pub nnodes: (u32, u32),
    /// Where to meet, if the user says so.
    pub endpoint: Option<(String, u16)>,
    /// At which port, if the user says no more.
    pub port: Option<u16>,
    pub conf: String,
    pub run_id: String,
    pub grace: Duration,
}

/// A host, and whether it is this one.
#[derive(Debug, Serialize, Deserialize)]
pub struct HostToCall {
    pub target: Target,
    pub is_here: bool,
}

fn usage(why: impl Into<String>) -> Failure {
    Failure::with_code(USAGE, why)
}

/// The number of hosts that take part.
fn nnodes(options: &Options, named: usize) -> Result<(u32, u32), String> {
    let named = named as u32;
    match options.nnodes {
        None => Ok((named, named)),
        Some((fewest, _)) if fewest > named => Err(format!(
            "--nnodes asks for {fewest} hosts at least, and {named} are named: name more"
        )),
        Some((fewest, most)) if fewest == most && most != named => Err(format!(
            "--nnodes says {most} hosts, and {named} are named: name as many, or say MIN:MAX to have the rest as spares"
        )),
        Some(range) => Ok(range),
    }
}

/// The reason why an option makes no sense with `--hosts`.
fn misfit(options: &Options) -> Option<String> {
    let conf = options.rdzv_conf.as_deref().unwrap_or("");
    let with = [
        (options.standalone, "--standalone says that this host is alone"),
        (
            options.node_rank.is_some(),
            "--node-rank is a single host's; here the order of the list counts",
        ),
        (options.local_addr.is_some(), "--local-addr is a single host's"),
        (
            options.rdzv_backend.as_deref() == Some("static"),
            "--rdzv-backend static needs a launcher that you start on each host",
        ),
        (
            conf.contains("is_host"),
            "--rdzv-conf is_host is a single host's; here the first of the list begins",
        ),
        (
            options.master_addr.is_some() && options.rdzv_endpoint.is_some(),
            "--master-addr and --rdzv-endpoint both say where to meet",
        ),
    ];
    if let Some((_, why)) = with.into_iter().find(|(given, _)| *given) {
        return Some(format!("{why}: leave it out, or leave out --hosts and --hostfile"));
    }
    let task = ClusterTask::from_env()?;
    Some(format!(
        "{} has started this launcher as {} ({}), and each would start all --hosts: leave --hosts out, or start one \
         launcher alone",
        task.starter,
        task.place(),
        task.evidence()
    ))
}

impl SshPlan {
    /// Of these options.
    pub fn of(overseer: &mut Overseer, options: &Options, is_check: bool) -> Result<Self, Failure> {
        if let Some(why) = misfit(options) {
            return Err(usage(why));
        }
        let targets = options.ssh.targets().map_err(usage)?;
        let nnodes = nnodes(options, targets.len()).map_err(usage)?;
        let here = |target: Target| HostToCall { is_here: is_here(target.host()), target };
        let hosts: Vec<HostToCall> = targets.into_iter().map(here).collect();
        let environment = exported::variables(&options.ssh.export, std::env::vars_os());
        let mut environment = environment.map_err(usage)?;
        let takes_part = hosts.iter().any(|host| host.is_here);
        let program = match is_check {
            true => Vec::new(),
            false => vec![find_program(overseer, options, takes_part)?],
        };
        if let (Some(gpus), [program]) = (options.simulate_gpus, &program[..]) {
            let name = &options.command[0];
            let found = simulate::find(overseer, gpus, Path::new(program), name, options.no_build)?;
            environment.push((LIBRARY.into(), found.library.into()));
        }
        let endpoint = options.rdzv_endpoint.clone().map(|endpoint| (endpoint.host, endpoint.port));
        let port = Some(options.master_port).filter(|port| *port != 0);
        let by_address = options
            .master_addr
            .clone()
            .map(|host| (host, port.unwrap_or(crate::hosts::STATIC_PORT)));
        let given = options.rdzv_conf.as_deref().filter(|conf| !conf.trim().is_empty());
        let conf = match given {
            Some(given) if given.contains("last_call_timeout") => given.to_owned(),
            Some(given) => format!("{given},{LAST_CALL}"),
            None => LAST_CALL.to_owned(),
        };
        Ok(SshPlan {
            shell: shell(options, &hosts)?,
            launcher: launcher(options)?,
            start: Start {
                folder: std::env::current_dir().map_err(|error| {
                    Failure::new(format!("the working folder cannot be found: {error}"))
                })?,
                environment,
                args: options.given.clone(),
                token: Some(token(options)?),
                is_check,
            },
            program: program.into_iter().chain(options.command[1..].iter().cloned()).collect(),
            nproc: nproc_in_words(options.nproc),
            nnodes,
            endpoint: endpoint.or(by_address),
            port,
            conf,
            run_id: options.run_id.clone().map_or_else(random_id, Ok)?,
            grace: options.grace,
            hosts,
        })
    }

    /// What is run for a host's launcher.
    pub fn command(&self, host: &HostToCall) -> Vec<OsString> {
        if host.is_here {
            return vec![self.own_launcher(), REMOTE_END.into()];
        }
        let quoted = shlex::try_quote(&self.launcher).expect("checked to hold no NUL");
        let command = format!("exec {quoted} {REMOTE_END}");
        let words = [host.target.destination.clone().into(), command.into()];
        self.shell.iter().cloned().chain(words).collect()
    }

    /// The way to a host, in words.
    pub fn way(&self, place: usize) -> Way<'_> {
        let host = &self.hosts[place];
        let shell =
            Path::new(&self.shell[0]).file_name().and_then(|name| name.to_str()).unwrap_or("ssh");
        let shell = if host.is_here { "torchrs-launch" } else { shell };
        Way { destination: &host.target.destination, shell, launcher: &self.launcher }
    }

    fn own_launcher(&self) -> OsString {
        std::env::current_exe().map_or_else(|_| self.launcher.clone().into(), Into::into)
    }

    /// What the host with this number begins with.
    pub fn start_of(&self, place: usize, meeting: &MeetingPoint) -> Start {
        let host = &self.hosts[place];
        let nproc = host.target.slots.map_or_else(|| self.nproc.clone(), |slots| slots.to_string());
        let (fewest, most) = meeting.nnodes;
        let mut args = self.start.args.clone();
        let mut give =
            |option: &str, value: String| args.push(format!("--{option}={value}").into());
        give("nproc", nproc);
        give("run-id", self.run_id.clone());
        if most > 1 {
            let (name, port) = &meeting.endpoint;
            let name = if name.contains(':') { format!("[{name}]") } else { name.clone() };
            let is_host = meeting.first.map(|first| format!(",is_host={}", first == place));
            give("nnodes", format!("{fewest}:{most}"));
            give("rdzv-endpoint", format!("{name}:{port}"));
            give("rdzv-conf", format!("{}{}", self.conf, is_host.unwrap_or_default()));
            let rank = meeting.hosts.iter().position(|host| *host == place);
            if let Some(rank) = rank.filter(|_| meeting.hosts.len() <= most as usize) {
                give("node-rank", rank.to_string());
            }
        }
        if self.start.is_check {
            meeting.missing.iter().for_each(|why| give("missing", why.clone()));
        } else {
            args.push("--no-build".into());
        }
        args.extend(self.program.iter().cloned());
        Start { args, ..self.start.clone() }
    }
}

/// Where the hosts meet, and which.
#[derive(Debug, Clone)]
pub struct MeetingPoint {
    pub endpoint: (String, u16),
    /// The host that begins there, if that is not for the address to say.
    pub first: Option<usize>,
    /// Those that take part, in their order.
    pub hosts: Vec<usize>,
    /// The fewest, and the most.
    pub nnodes: (u32, u32),
    /// Why others do not take part.
    pub missing: Vec<String>,
}

/// The program as all hosts find it.
fn find_program(
    overseer: &mut Overseer,
    options: &Options,
    takes_part: bool,
) -> Result<OsString, Failure> {
    let name = &options.command[0];
    let is_path = name.as_encoded_bytes().contains(&b'/');
    let found = match program::find(overseer, name, options.no_build) {
        // Where nothing runs here, it need not be here.
        Err(failure) if failure.code == NOT_FOUND && is_path && !takes_part => name.into(),
        found => found?,
    };
    let found = std::path::absolute(&found);
    found.map(Into::into).map_err(|error| Failure::new(format!("the path of the program: {error}")))
}

fn shell(options: &Options, hosts: &[HostToCall]) -> Result<Vec<OsString>, Failure> {
    let words = options.ssh.shell().map_err(usage)?;
    let mut words: Vec<OsString> = words.into_iter().map(Into::into).collect();
    if hosts.iter().any(|host| !host.is_here) && !words[0].as_encoded_bytes().contains(&b'/') {
        let found = on_path(&words[0]).unwrap_or_else(|| {
            let name = words[0].display();
            let why = format!(
                "no program `{name}` on PATH to reach --hosts by: install OpenSSH's client, or name another by --ssh"
            );
            Err(Failure::with_code(NOT_FOUND, why))
        });
        words[0] = found?.into();
    }
    Ok(words)
}

/// Where the launcher lies on other hosts.
fn launcher(options: &Options) -> Result<String, Failure> {
    let path = match &options.ssh.remote_launcher {
        Some(path) => path.clone(),
        None => std::env::current_exe()
            .map_err(|error| Failure::new(format!("the launcher's own path: {error}")))?,
    };
    path.to_str().map(str::to_owned).ok_or_else(|| {
        usage(format!("--remote-launcher {}: a path in a command has to be text", path.display()))
    })
}

/// The user's, or a new one.
fn token(options: &Options) -> Result<String, Failure> {
    let set = std::env::var(TOKEN).ok().filter(|text| !text.is_empty());
    let (source, text) = match (&options.token_file, set) {
        (Some(path), _) => {
            JobToken::from_file(path).map_err(|error| usage(error.to_string()))?;
            let text = std::fs::read_to_string(path).map_err(|error| usage(error.to_string()))?;
            (path.display().to_string(), text)
        }
        (None, Some(text)) => (TOKEN.to_owned(), text),
        (None, None) => return random_id(),
    };
    JobToken::new(&source, &text).map_err(|error| usage(error.to_string()))?;
    Ok(text)
}

fn nproc_in_words(nproc: Nproc) -> String {
    match nproc {
        Nproc::Count(count) => count.to_string(),
        Nproc::Auto => "auto".into(),
        Nproc::Cpu => "cpu".into(),
        Nproc::Gpu => "gpu".into(),
    }
}
