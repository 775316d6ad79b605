//! Every process that descends from this one. The front and the supervisor are child subreapers:
//! whoever loses its parent becomes their child, whatever session, process group or environment
//! it has moved to, so nothing that a worker started can slip away.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::console::say;
use crate::deadline::poll_timeout;
use crate::process::{peek_ended_child, reap};
use crate::signals::Signals;

/// Processes that descend from this one and are not the launcher's: a shell that became the launcher by
/// `exec` leaves it its background jobs, such as the `tee` of `> >(tee log)`.
static STRANGERS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Takes down who descends from this process before it has started anybody. They are left alone.
pub fn leave_alone_who_is_here() {
    let here = descendants();
    with_strangers(|strangers| *strangers = here);
}

fn with_strangers<T>(f: impl FnOnce(&mut Vec<Pid>) -> T) -> T {
    f(&mut STRANGERS.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Reaps ended children up to one that `keep` claims. True when no child is left at all,
/// strangers aside.
pub fn reap_orphans(keep: impl Fn(Pid) -> bool) -> bool {
    loop {
        match peek_ended_child() {
            Ok(Some(pid)) if keep(pid) => return false,
            Ok(Some(pid)) => {
                // The number may come back as another process's.
                with_strangers(|strangers| strangers.retain(|stranger| *stranger != pid));
                reap(pid);
            }
            Ok(None) => {
                return with_strangers(|strangers| !strangers.is_empty()) && children().is_empty();
            }
            Err(Errno::EINTR) => {}
            Err(_) => return true,
        }
    }
}

/// The children of this process, strangers left out.
pub fn children() -> Vec<Pid> {
    children_of_all().remove(&Pid::this()).unwrap_or_default()
}

/// All descendants of this process, strangers and their descendants left out.
pub fn descendants() -> Vec<Pid> {
    let children = children_of_all();
    let mut found = children.get(&Pid::this()).cloned().unwrap_or_default();
    let mut next = 0;
    while next < found.len() {
        found.extend(children.get(&found[next]).into_iter().flatten());
        next += 1;
    }
    found
}

/// The descendants that `accept` takes and that do not descend from one it takes.
pub fn topmost(accept: impl Fn(Pid) -> bool) -> Vec<Pid> {
    let children = children_of_all();
    let (mut accepted, mut parents) = (Vec::new(), vec![Pid::this()]);
    while let Some(parent) = parents.pop() {
        for &child in children.get(&parent).into_iter().flatten() {
            if accept(child) { &mut accepted } else { &mut parents }.push(child);
        }
    }
    accepted
}

/// The children of every process of the machine, strangers left out.
fn children_of_all() -> HashMap<Pid, Vec<Pid>> {
    let mut children: HashMap<Pid, Vec<Pid>> = HashMap::new();
    let strangers: HashSet<Pid> = with_strangers(|strangers| strangers.iter().copied().collect());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok());
    for pid in pids.filter(|pid| !strangers.contains(&Pid::from_raw(*pid))) {
        if let Some(parent) = parent_of(pid) {
            children.entry(Pid::from_raw(parent)).or_default().push(Pid::from_raw(pid));
        }
    }
    children
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, spaces and parentheses too: fields count from its end.
    stat[stat.rfind(')')? + 1..].split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Sends `signal` to every descendant.
pub fn signal_all(signal: Signal) {
    for pid in descendants() {
        // One that ended meanwhile, or runs as another user, cannot be helped.
        let _ = kill(pid, signal);
    }
}

/// How long killed processes may take to be gone.
pub const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// Kills and reaps every descendant; whoever forks meanwhile is caught in the next round. What is
/// still there after [`KILL_PATIENCE`] (stuck in the kernel, or another user's) is named.
pub fn kill_all(signals: &Signals) {
    let until = Instant::now() + KILL_PATIENCE;
    while !reap_orphans(|_| false) {
        signal_all(Signal::SIGKILL);
        if Instant::now() >= until {
            say(&format!("torchrs-launch: {}\n", could_not_end()));
            return;
        }
        let mut events = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut events, poll_timeout(Some(until)));
        // Only SIGCHLD matters here: there is nothing left that another signal could ask for.
        while signals.next().is_some() {}
    }
}

/// Names what survived SIGKILL.
pub fn could_not_end() -> String {
    const SHOWN: usize = 20;
    let pids: Vec<i32> = descendants().into_iter().map(Pid::as_raw).collect();
    let shown = &pids[..pids.len().min(SHOWN)];
    let more = match pids.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} others"),
    };
    format!("these processes could not be ended: {shown:?}{more}")
}
