//! `torchrs check`: looks, before a job is started, whether this host or several are fit for one.
//!
//! The hosts meet as those of a job do ([`meeting`]), with the launcher's options and the job's token, so that what
//! would keep a job from beginning keeps the check from beginning, and is said. Then each tells the others what it
//! found by itself ([`machine`], [`interfaces`]), looks for the same files ([`folder`]), and measures the ways to
//! the others, a pair at a time ([`network`]). The leader prints the report of all; every host ends with its exit code.

mod between;
pub mod finding;
mod folder;
pub mod interfaces;
pub mod machine;
mod meeting;
mod network;
pub mod options;

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::ArgMatches;
use nix::sys::signal::SigSet;
use torchrs_job::report::monotonic_ns;
use torchrs_links::{Addresses, Listener};

use self::between::{Facts, Heard};
use self::finding::{Finding, Level, OfHost, Pair, Report};
use self::meeting::Meeting;
use self::network::{measure, partner, turns};
use self::options::{CheckPlan, check_command, not_looked_at, options_of};
use crate::console::say;
use crate::failure::{Doing, Failure};
use crate::front::{keep_foreign_descriptors_out, random_id, supervise};
use crate::hosts::HostsPlan;
use crate::preflight;
use crate::process::Process;
use crate::spawn::CHECK;
use crate::ssh::near;
use crate::tool::Overseer;

/// Exit code when something is wrong.
const ERROR: i32 = Level::Error as i32;
/// What is left of the deadline for the report when hosts have not met.
const FOR_REPORT: Duration = Duration::from_secs(2);

/// Of `torchrs check`; returns the exit code.
pub fn main(matches: &ArgMatches) -> i32 {
    let options = options_of(matches);
    if let Some(text) = not_looked_at(matches) {
        say(&format!("torchrs check: {text}\n"));
    }
    keep_foreign_descriptors_out();
    let ended = if options.ssh.names_hosts() {
        near::check(&options)
    } else if let Some(reason) = options.ssh.misfit_without_hosts() {
        let error = check_command().error(clap::error::ErrorKind::ValueValidation, reason);
        error.exit()
    } else {
        let plan = CheckPlan::of(matches, &options);
        Overseer::new().and_then(|mut overseer| supervise(&mut overseer, CHECK, &plan))
    };
    ended.unwrap_or_else(|failure| {
        say(&format!("{failure}\n"));
        ERROR
    })
}

/// In a process of its own, which signals end as they please; returns the exit code.
pub fn run(plan: CheckPlan, _front: Process) -> Result<i32, Failure> {
    SigSet::empty().thread_set_mask().doing(|| "cannot take signals".into())?;
    // The front's death is this process's.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
        .doing(|| "cannot be tied to the process that was started".into())?;
    let until = Instant::now() + plan.deadline;
    let host = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    let check = Check { plan: &plan, host, until, stage: Stage::default() };
    check.stage.watch(plan.deadline, plan.json);
    Ok(check.run())
}

/// What is being done, for whoever finds that it takes too long.
#[derive(Clone, Default)]
struct Stage(Arc<Mutex<(String, Option<OfHost>)>>);

impl Stage {
    fn is(&self, what: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0 = what.to_owned();
    }

    fn found(&self, found: OfHost) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1 = Some(found);
    }

    /// Ends the process after this time, with what is known by then.
    fn watch(&self, deadline: Duration, json: bool) {
        let stage = self.clone();
        std::thread::spawn(move || {
            std::thread::sleep(deadline);
            let (what, found) = stage.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let text =
                format!("the check has not ended within {} s, at: {what}", deadline.as_secs());
            let between = vec![Finding::error("deadline", text)];
            let hosts = found.into_iter().collect();
            print(&report(hosts, between, Vec::new()), json);
            std::process::exit(ERROR);
        });
    }
}

fn report(hosts: Vec<OfHost>, between: Vec<Finding>, pairs: Vec<Pair>) -> Report {
    Report { version: env!("CARGO_PKG_VERSION").into(), hosts, between, pairs }
}

fn print(report: &Report, json: bool) {
    let text = if json { report.json() } else { report.text() };
    // A reader that has gone away does not change what was found.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

struct Check<'a> {
    plan: &'a CheckPlan,
    host: String,
    until: Instant,
    stage: Stage,
}

impl Check<'_> {
    fn run(&self) -> i32 {
        self.stage.is("this host's limits and devices");
        let mut between: Vec<Finding> =
            self.plan.missing.iter().map(|why| Finding::error("hosts", why.clone())).collect();
        if let Some(why) = &self.plan.misfit {
            between.push(Finding::error("options", why.clone()));
        }
        let (facts, mut own) = self.look_here();
        self.stage.found(OfHost { host: self.host.clone(), findings: own.clone() });
        let Some(hosts) = &self.plan.hosts else {
            own.extend(self.alone());
            let report = report(
                vec![OfHost { host: self.host.clone(), findings: own }],
                between,
                Vec::new(),
            );
            print(&report, self.plan.json);
            return report.exit_code();
        };
        match self.with_others(hosts, facts, own.clone(), &mut between) {
            Ok(code) => code,
            Err(why) => {
                between.push(Finding::error("meeting", why));
                let report = report(
                    vec![OfHost { host: self.host.clone(), findings: own }],
                    between,
                    Vec::new(),
                );
                print(&report, self.plan.json);
                ERROR
            }
        }
    }

    /// What one host finds by itself.
    fn look_here(&self) -> (Facts, Vec<Finding>) {
        let others = self.plan.hosts.is_some();
        let mut findings = vec![machine::name(&self.host, others)];
        let (gpus, of_gpus) = machine::gpus(self.plan.nproc);
        match self.plan.nproc.resolve(None) {
            Ok(nproc) => findings.push(machine::files(nproc)),
            Err(_) => findings.push(machine::files(1)),
        }
        findings.push(machine::shared_memory(gpus.count));
        findings.extend(of_gpus);
        let facts = Facts { host: self.host.clone(), build: build(), gpus, ..Facts::default() };
        (facts, findings)
    }

    /// What matters to a job on one host.
    fn alone(&self) -> Vec<Finding> {
        let mut findings = vec![match preflight::master_port(self.plan.master_port) {
            Ok(port) => Finding::ok("MASTER_PORT", format!("{port} is free")),
            Err(failure) => Finding::error("MASTER_PORT", failure.message),
        }];
        let (_marks, in_folders) = self.put_marks(&mut Facts::default());
        findings.extend(in_folders);
        findings
    }

    fn with_others(
        &self,
        hosts: &HostsPlan,
        mut facts: Facts,
        own: Vec<Finding>,
        between: &mut Vec<Finding>,
    ) -> Result<i32, String> {
        let (endpoint, port) = &hosts.endpoint;
        self.stage.is(&format!("meeting the other hosts at {endpoint}:{port}"));
        let nproc = self.plan.nproc.resolve(None).unwrap_or(1);
        let mut config = hosts.config_for(nproc).map_err(|failure| failure.message)?;
        let left = self.until.saturating_duration_since(Instant::now());
        let patience = left.saturating_sub(FOR_REPORT).max(left / 2);
        // As a person reads it.
        let patience = Duration::from_millis(patience.as_millis() as u64 / 100 * 100);
        config.settings.join_timeout = config.settings.join_timeout.min(patience);
        let print = |text: String| say(&format!("torchrs check: {text}\n"));
        let key = config.token.key(&format!("torchrs check\n{}", config.settings.job));
        let mut meeting = Meeting::join(config, self.until, &print)?;
        // Where workers would listen.
        let addresses = meeting.own_addresses();
        let address = addresses.first().copied();
        let at: Vec<SocketAddr> =
            addresses.iter().map(|address| SocketAddr::new(*address, 0)).collect();
        let listener = Listener::bind(&at, &[], key).map_err(|error| error.to_string())?;
        let (marks, mut in_folders) = match meeting.place {
            0 => self.put_marks(&mut facts),
            _ => Default::default(),
        };
        facts.address = address;
        facts.listener = listener.addresses().encode();
        facts.clock_ns = wall_less_leaders(meeting.clock_offset());
        facts.findings = own;
        self.stage.is("what the other hosts are");
        let all = meeting.gather(&facts)?;
        if let Some(first) = all.first().filter(|_| meeting.place != 0) {
            self.stage.is("the shared folder");
            for (folder, content) in self.plan.folders.iter().zip(&first.contents) {
                in_folders.extend(content.as_ref().map(|content| folder::look(folder, content)));
            }
        }
        // Some look longer than others, and no pair waits long for its other half.
        meeting.gather(&Vec::<u8>::new())?;
        let mut heard = self.measure_all(&mut meeting, &listener, &all)?;
        heard.findings.extend(in_folders);
        heard.findings.push(nccl_of(&heard, address, facts.gpus.count));
        self.stage.is("what the other hosts have measured");
        let heard = meeting.gather(&heard)?;
        drop(marks);
        between.extend(between::compare(&all));
        let (pairs, of_pairs) = between::ways(&all, &heard);
        between.extend(of_pairs);
        let hosts = all.iter().zip(&heard).map(|(facts, heard)| OfHost {
            host: facts.host.clone(),
            findings: facts.findings.iter().chain(&heard.findings).cloned().collect(),
        });
        let report = report(hosts.collect(), std::mem::take(between), pairs);
        if meeting.leads {
            self::print(&report, self.plan.json);
        }
        self.stage.is("the end of the other hosts");
        meeting.part(report.exit_code())
    }

    /// On the first host: a file in each folder that is shared; what it finds of the folders.
    fn put_marks(&self, facts: &mut Facts) -> (Vec<folder::Mark>, Vec<Finding>) {
        let (mut marks, mut findings) = (Vec::new(), Vec::new());
        for folder in &self.plan.folders {
            let content = random_id().unwrap_or_default();
            match folder::put(folder, &content) {
                Ok(mark) => {
                    facts.contents.push(Some(content));
                    marks.push(mark);
                    findings.push(folder::of_first(folder));
                }
                Err(finding) => {
                    facts.contents.push(None);
                    findings.push(finding);
                }
            }
        }
        (marks, findings)
    }

    /// In turns, so that no pair disturbs another.
    fn measure_all(
        &self,
        meeting: &mut Meeting,
        listener: &Listener,
        all: &[Facts],
    ) -> Result<Heard, String> {
        let (hosts, own) = (meeting.hosts(), meeting.place);
        let addresses =
            |place: usize| Addresses::decode(&all[place].listener).map_err(|e| e.to_string());
        let mut heard = Heard::default();
        for turn in 0..turns(hosts) {
            self.stage.is(&format!(
                "the ways between hosts, turn {} of {}",
                turn + 1,
                turns(hosts)
            ));
            if let Some(other) = partner(hosts, turn, own) {
                let (first, second) = (own.min(other), own.max(other));
                let (a, b) = (addresses(first)?, addresses(second)?);
                let name = format!("check/{first}-{second}");
                let measured = measure(listener, [&a, &b], &name, own == first);
                heard.ways.push((other, measured));
            }
            // Nobody begins the next turn before all have ended this one.
            meeting.gather(&Vec::<u8>::new())?;
        }
        Ok(heard)
    }
}

/// What NCCL would take, beside the addresses by which the others were reached; `else_by`: where none was.
fn nccl_of(heard: &Heard, else_by: Option<IpAddr>, gpus: usize) -> Finding {
    let measured = heard.ways.iter().filter_map(|(_, way)| way.as_ref().ok());
    let mut reached: Vec<IpAddr> = measured.map(|way| way.own).collect();
    if reached.is_empty() {
        reached.extend(else_by);
    }
    let rule = std::env::var("NCCL_SOCKET_IFNAME").ok();
    interfaces::nccl(&interfaces::interfaces(), rule.as_deref(), &reached, gpus)
}

/// Of this executable: the same number means the same bytes.
fn build() -> u64 {
    let mut hash = DefaultHasher::new();
    let mut buffer = vec![0; 1 << 20];
    if let Ok(mut file) = std::fs::File::open("/proc/self/exe") {
        while let Ok(count @ 1..) = file.read(&mut buffer) {
            hash.write(&buffer[..count]);
        }
    }
    hash.finish()
}

/// The wall clock less the leader's CLOCK_MONOTONIC, in nanoseconds: on all hosts the same, if their clocks are right.
fn wall_less_leaders(offset: i64) -> i64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i64;
    wall - monotonic_ns().saturating_add_signed(offset) as i64
}
