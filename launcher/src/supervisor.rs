//! The process that runs a job: it starts the workers, starts them again after a failure if it
//! may, and says at the end what happened. It lives in a session of its own, so that what
//! reaches the front (a terminal's Ctrl-C, a kill of its process group) reaches it as a choice.

use std::env::ArgsOs;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, SystemTime};

use nix::sys::prctl;
use nix::unistd::{Pid, getppid};
use serde::de::DeserializeOwned;
use torchrs_job::store::StoreServer;

use crate::console;
use crate::dashboard::Dashboard;
use crate::failure::{Doing, Failure};
use crate::group::{Group, Outcome, Watch};
use crate::hosts;
use crate::logs;
use crate::place::Place;
use crate::plan::{self, Plan};
use crate::process::Process;
use crate::report::Report;
use crate::status::{Status, socket};

/// How long the report may wait for somebody to read standard error.
const REPORT_PATIENCE: Duration = Duration::from_secs(5);

/// `args`: the pipe that the plan comes through, the front's pid. Returns the exit code.
pub fn main(args: ArgsOs) -> i32 {
    of_plan(args, run)
}

/// Runs the plan that comes through a pipe; `run` is given the front, too. `args`: the pipe, the front's pid. Returns
/// the exit code.
pub fn of_plan<P: DeserializeOwned>(
    args: ArgsOs,
    run: impl FnOnce(P, Process) -> Result<i32, Failure>,
) -> i32 {
    let numbers: Vec<i32> = args.filter_map(|arg| arg.to_str()?.parse().ok()).collect();
    let &[plan, front] = numbers.as_slice() else {
        console::say("torchrs-launch: the supervisor is started by torchrs-launch only\n");
        return 2;
    };
    // SAFETY: the front passed this descriptor to this process for this one use.
    let plan = unsafe { OwnedFd::from_raw_fd(plan) };
    let ended = begin(plan, Pid::from_raw(front)).and_then(|begun| match begun {
        Some((plan, front)) => run(plan, front),
        // The front died before it could be watched.
        None => Ok(1),
    });
    ended.unwrap_or_else(|failure| {
        say(format!("{failure}\n"));
        failure.code
    })
}

/// The plan and the front, unless that has died already.
fn begin<P: DeserializeOwned>(plan: OwnedFd, front: Pid) -> Result<Option<(P, Process)>, Failure> {
    let what = || "cannot set up the supervisor".to_owned();
    prctl::set_name(c"torchrs-launch").doing(what)?;
    prctl::set_child_subreaper(true).doing(what)?;
    let plan = plan::receive(plan).doing(what)?;
    let front_process = Process::open(front).doing(what)?;
    if getppid() != front {
        return Ok(None);
    }
    Ok(Some((plan, front_process)))
}

fn run(plan: Plan, front: Process) -> Result<i32, Failure> {
    let what = || "cannot set up the supervisor".to_owned();
    let status = Status::new(&plan);
    let watch = Watch::new(front, status.clone()).doing(what)?;
    socket::listen(status.clone());
    let dashboard = plan.dashboard.as_ref().map(|plan| Dashboard::start(plan, &status));
    let dashboard = dashboard.transpose()?;
    if let Some(dashboard) = &dashboard {
        let notice = dashboard.notice(&plan, &status);
        // One of many hosts' is enough, if somebody sees all of them.
        if plan.under_launcher && plan.hosts.is_some() {
            status.say_when_leading(notice);
        } else {
            say(notice);
        }
    }
    let code = run_rounds(&plan, &watch)?;
    status.ended(code);
    if let Some(dashboard) = dashboard {
        dashboard.finish();
    }
    Ok(code)
}

/// From the first start of workers to the job's exit code.
fn run_rounds(plan: &Plan, watch: &Watch) -> Result<i32, Failure> {
    let started_at = SystemTime::now();
    if let Some(hosts) = &plan.hosts {
        let keep = |attempt, outcome: &Outcome| keep_records(plan, attempt, outcome);
        return hosts::run(plan, hosts, watch, &say, &keep);
    }
    for attempt in 0.. {
        let place = Place::alone(attempt, plan.nproc, &plan.master_addr, plan.master_port);
        let store = StoreServer::start().doing(|| "cannot start the store".into())?;
        let outcome = Group::start(plan, watch, &place, &store)?.run();
        keep_records(plan, attempt, &outcome);
        let report = Report { plan, attempt, started_at, outcome: &outcome };
        let restarts_left = plan.max_restarts - attempt;
        match report.root_cause() {
            Some(_) if restarts_left > 0 && outcome.signal.is_none() => {
                watch.status.restarting(&report.restart_notice());
                say(report.restart_notice())
            }
            _ => {
                say(report.text());
                return Ok(report.exit_code());
            }
        }
    }
    unreachable!("the last attempt allowed returns")
}

fn keep_records(plan: &Plan, attempt: u32, outcome: &Outcome) {
    let Some(folder) = &plan.run_folder else { return };
    for worker in outcome.workers.iter().filter(|w| !w.record.is_empty()) {
        if let Some(warning) = logs::keep_record(folder, attempt, worker.rank, &worker.record) {
            say(warning + "\n");
        }
    }
}

/// Writes `text` to standard error, unless nobody takes it in time.
pub fn say(text: String) {
    if text.is_empty() {
        return;
    }
    let (said, heard) = channel();
    let speaker = thread::Builder::new().spawn(move || {
        console::say(&text);
        let _ = said.send(());
    });
    if speaker.is_ok() {
        let _ = heard.recv_timeout(REPORT_PATIENCE);
    }
}
