//! The environment of a worker: torchrun's contract, and private variables that torchrs's
//! own `init` reads.

use std::collections::BTreeMap;
use std::ffi::{CString, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStringExt;

use torchrs_job::environment::{BOARD_FD, MAX_CONNECTIONS, PARENT_PID, ROUND, STORE_FD};
use torchrs_rendezvous::token::TOKEN;

use crate::console::{is_terminal, terminal_size};
use crate::lines::prefix;
use crate::nproc::cores;
use crate::numa;
use crate::outputs::Stream;
use crate::place::Place;
use crate::plan::Plan;

/// What differs between workers and attempts.
pub struct Of<'a> {
    pub plan: &'a Plan,
    pub place: &'a Place,
    pub local_rank: usize,
    /// The supervisor's pid.
    pub parent: i32,
    /// Where the worker writes its error record.
    pub error_fd: RawFd,
    /// Its connection to the store.
    pub store_fd: RawFd,
    /// The board, in which it has the slot of its local rank, if there is one.
    pub board_fd: Option<RawFd>,
}

/// The environment of this process, as it is.
pub fn own() -> Vec<CString> {
    pairs(std::env::vars_os())
}

/// The same without the job's secret, which is no business of a remote shell's.
pub fn without_token() -> Vec<CString> {
    pairs(std::env::vars_os().filter(|(name, _)| name != TOKEN))
}

/// The environment of this process with the contract's variables set.
pub fn of_worker(of: &Of) -> Vec<CString> {
    let mut all: BTreeMap<OsString, OsString> = std::env::vars_os().collect();
    if !all.contains_key("OMP_NUM_THREADS".as_ref() as &std::ffi::OsStr) {
        let threads = match &of.plan.cores {
            Some(bound) => numa::threads(bound, of.local_rank).min(cores()),
            None => (cores() / of.plan.nproc).max(1),
        };
        all.insert("OMP_NUM_THREADS".into(), threads.to_string().into());
    }
    let (connections, most) = MAX_CONNECTIONS;
    all.entry(connections.into()).or_insert_with(|| most.into());
    for (name, value) in contract(of) {
        all.insert(name.into(), value.into());
    }
    if let Some(simulated) = &of.plan.simulated {
        all.extend(simulated.variables().map(|(name, value)| (name.into(), value)));
    }
    pairs(all)
}

fn contract(of: &Of) -> Vec<(&'static str, String)> {
    let (plan, place) = (of.plan, of.place);
    let (rank, world) = (place.rank(of.local_rank).to_string(), place.world_size.to_string());
    let mut set = vec![
        ("RANK", rank.clone()),
        ("LOCAL_RANK", of.local_rank.to_string()),
        ("ROLE_RANK", rank),
        ("GROUP_RANK", place.group_rank.to_string()),
        ("ROLE_NAME", plan.role.clone()),
        ("WORLD_SIZE", world.clone()),
        ("LOCAL_WORLD_SIZE", place.nproc.to_string()),
        ("ROLE_WORLD_SIZE", world),
        ("GROUP_WORLD_SIZE", place.hosts.to_string()),
        ("MASTER_ADDR", place.master_addr.clone()),
        ("MASTER_PORT", place.master_port.to_string()),
        ("TORCHELASTIC_RESTART_COUNT", place.restarts.to_string()),
        ("TORCHELASTIC_MAX_RESTARTS", plan.max_restarts.to_string()),
        ("TORCHELASTIC_RUN_ID", plan.run_id.clone()),
        ("TORCHELASTIC_ERROR_FILE", format!("/proc/self/fd/{}", of.error_fd)),
        (ROUND, place.attempt.to_string()),
        (STORE_FD, of.store_fd.to_string()),
        (PARENT_PID, of.parent.to_string()),
        ("TORCHRS_JOB_ID", plan.job_id.clone()),
    ];
    set.extend(of.board_fd.map(|fd| (BOARD_FD, fd.to_string())));
    set.extend(terminal(plan, place, of.local_rank));
    set
}

/// A worker writes into a pipe; if a person sees the other end, it may still draw a progress bar
/// (lines that end in a carriage return), as wide as the terminal less the prefix.
fn terminal(plan: &Plan, place: &Place, local_rank: usize) -> Vec<(&'static str, String)> {
    let shown = |s: &Stream| plan.outputs[local_rank][*s as usize].terminal && is_terminal(*s);
    let streams: Vec<Stream> = Stream::BOTH.into_iter().filter(shown).collect();
    if streams.is_empty() {
        return Vec::new();
    }
    let names: Vec<&str> = streams.iter().map(|s| s.name()).collect();
    let mut set = vec![("TORCHRS_TERMINAL", names.join(","))];
    if let Some(size) = terminal_size(streams[0]) {
        let several = place.world_size > 1;
        let prefix = if several { prefix(place.rank(local_rank)).len() } else { 0 };
        let columns = usize::from(size.columns).saturating_sub(prefix).max(1);
        set.extend([("COLUMNS", columns.to_string()), ("LINES", size.lines.to_string())]);
    }
    set
}

fn pairs(all: impl IntoIterator<Item = (OsString, OsString)>) -> Vec<CString> {
    let joined = all.into_iter().map(|(mut name, value)| {
        name.push("=");
        name.push(value);
        CString::new(name.into_vec()).expect("an environment variable holds no NUL")
    });
    joined.collect()
}
