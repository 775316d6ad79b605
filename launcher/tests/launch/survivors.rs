//! Nothing survives the launcher, however it or a worker ends: children of workers, daemons with
//! a session of their own, processes that have thrown their environment away.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

use crate::job::{Job, eventually, living, run, runs, sh, start};

/// Starts a child, a daemon and a daemon without environment, their pids in files of `$D`.
const CHILDREN: &str = "
    sleep 1000 & echo $! > $D/child.$RANK
    (setsid sh -c 'echo $$ > $D/daemon.$RANK; exec sleep 1000' > /dev/null 2>&1 &)
    (setsid env -i D=$D RANK=$RANK sh -c 'echo $$ > $D/hidden.$RANK; exec sleep 1000' &)
    for f in child daemon hidden; do while [ ! -s $D/$f.$RANK ]; do sleep 0.01; done; done
    echo ready";

/// The pids in the files of `folder`.
fn pids(folder: &Path) -> Vec<i32> {
    let files = std::fs::read_dir(folder).unwrap().flatten();
    files.map(|f| std::fs::read_to_string(f.path()).unwrap().trim().parse().unwrap()).collect()
}

/// A job whose two workers have children of all kinds and then do `end`.
fn with_children(folder: &Path, options: &str, end: &str) -> Job {
    let mut command = sh(&format!("--nproc 2 {options}"), &format!("{CHILDREN}; {end}"));
    command.env("D", folder);
    let job = start(command);
    job.stdout.wait_for("ready", 2);
    job
}

/// Waits until the job has no process left; how long that took.
fn gone(job: &Job, pids: &[i32]) -> Duration {
    let start = Instant::now();
    eventually("the end of all processes of the job", || {
        !pids.iter().any(|pid| runs(*pid)) && living(&job.mark).is_empty()
    });
    start.elapsed()
}

#[test]
fn row_12_grandchildren_are_reaped_after_a_success_and_after_a_failure() {
    for (end, code) in [("exit 0", 0), ("exit 5", 5)] {
        let folder = tempfile::tempdir().unwrap();
        let done = with_children(folder.path(), "", end).finish();
        assert_eq!(done.code, code, "{}", done.stderr);
        let pids = pids(folder.path());
        assert_eq!(pids.len(), 6);
        assert!(!pids.iter().any(|pid| runs(*pid)), "a grandchild survived");
    }
}

#[test]
fn row_12_grandchildren_are_reaped_after_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let job = with_children(folder.path(), "", "sleep 1000");
    job.send(Signal::SIGTERM);
    assert_eq!(job.finish().code, 143);
    assert!(!pids(folder.path()).iter().any(|pid| runs(*pid)), "a grandchild survived");
}

#[test]
fn a_deaf_grandchild_does_not_hold_up_a_success() {
    let done =
        run(sh("--nproc 2", "setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & exit 0"));
    assert_eq!(done.code, 0, "{}", done.stderr);
    assert!(done.took < Duration::from_secs(15), "{:?}", done.took);
}

#[test]
fn row_06_killing_the_launcher_ends_everything() {
    let folder = tempfile::tempdir().unwrap();
    let job = with_children(folder.path(), "", "sleep 1000");
    let pids = pids(folder.path());
    job.send(Signal::SIGKILL);
    let took = gone(&job, &pids);
    assert_eq!(job.finish().code, 137);
    // The row says 1 s; the rest is for a machine under load.
    assert!(took < Duration::from_secs(3), "{took:?}");
}

#[test]
fn row_06_killing_the_launchers_process_group_ends_everything() {
    let folder = tempfile::tempdir().unwrap();
    let job = with_children(folder.path(), "", "sleep 1000");
    let pids = pids(folder.path());
    killpg(job.pid(), Signal::SIGKILL).unwrap();
    assert!(gone(&job, &pids) < Duration::from_secs(3));
    assert_eq!(job.finish().code, 137);
}

#[test]
fn row_06_killing_the_supervisor_ends_everything() {
    let folder = tempfile::tempdir().unwrap();
    let job = with_children(folder.path(), "", "sleep 1000");
    let pids = pids(folder.path());
    let front = job.pid();
    let child_of_front = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.split(' ').nth(3) == Some(&front.to_string())
    };
    let supervisor = living(&job.mark).into_iter().find(child_of_front).unwrap();
    kill(Pid::from_raw(supervisor), Signal::SIGKILL).unwrap();
    assert!(gone(&job, &pids) < Duration::from_secs(3));
    let done = job.finish();
    assert_eq!(done.code, 137);
    done.says("the supervisor was killed by SIGKILL");
}

#[test]
fn row_06_a_worker_that_was_never_told_is_gone_too() {
    // Killed while workers are still being started.
    for _ in 0..5 {
        let job = start(sh("--nproc 8", "sleep 1000"));
        eventually("a first worker", || living(&job.mark).len() >= 3);
        job.send(Signal::SIGKILL);
        assert!(gone(&job, &[]) < Duration::from_secs(3));
        job.finish();
    }
}
