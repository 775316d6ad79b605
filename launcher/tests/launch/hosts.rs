//! Jobs over several hosts, each host a launcher on this machine's loopback: how they meet, what the workers find,
//! how a host's loss is survived, what is said and by whom.

use std::net::TcpListener;
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::job::{Done, Job, eventually, living, run, sh, start};

/// A port that is free now, and the next, too; not of those that the system gives to others.
pub fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let count = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + (std::process::id() as u16 % 100 + count) % 100 * 100 + count % 98;
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if free(port) && free(port + 1) {
            return port;
        }
    }
}

/// The launcher of one host of an elastic job.
pub fn elastic(port: u16, hosts: &str, options: &str, script: &str) -> Command {
    sh(
        &format!(
            "--nnodes {hosts} --rdzv-endpoint 127.0.0.1:{port} --rdzv-conf last_call_timeout=0.3 --rdzv-id test \
             {options}"
        ),
        script,
    )
}

/// Kills all processes of a host, its launcher too.
pub fn kill_host(job: &Job) {
    let mark = job.mark.clone();
    for pid in living(&mark) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    eventually("the host is dead", || living(&mark).is_empty());
}

pub fn sorted(jobs: &[Done]) -> Vec<String> {
    let mut lines: Vec<String> = jobs.iter().flat_map(Done::lines).collect();
    lines.sort();
    lines
}

#[test]
fn workers_of_two_hosts_find_their_places() {
    let port = port();
    let script = "echo $RANK $LOCAL_RANK $GROUP_RANK $ROLE_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_WORLD_SIZE \
                  $MASTER_ADDR $MASTER_PORT $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_RUN_ID";
    // The second host has more workers.
    let launcher = |node: usize| {
        let options = format!(
            "--nnodes 2 --node-rank {node} --master-addr 127.0.0.1 --master-port {port} --nproc {}",
            node + 1
        );
        start(sh(&options, script))
    };
    let jobs: Vec<Job> = [1, 0].into_iter().map(launcher).collect();
    let done: Vec<Done> = jobs.into_iter().map(Job::finish).collect();
    assert!(done.iter().all(|done| done.code == 0), "{done:?}");
    let next = port + 1;
    let line = |rank: usize, local: usize, group: usize, here: usize| {
        format!("[rank{rank}]: {rank} {local} {group} {rank} 3 {here} 2 127.0.0.1 {next} 0 none")
    };
    assert_eq!(sorted(&done), [line(0, 0, 0, 1), line(1, 0, 1, 2), line(2, 1, 1, 2)]);
}

#[test]
fn a_failure_restarts_the_workers_of_all_hosts_and_is_reported_once() {
    let port = port();
    let script = "echo start $RANK $TORCHELASTIC_RESTART_COUNT; [ $RANK = 3 ] && { echo oh no >&2; exit 7; }; sleep 50";
    let options = "--nproc 2 --max-restarts 1 --grace 2";
    let jobs: Vec<Job> = (0..2).map(|_| start(elastic(port, "2", options, script))).collect();
    let done: Vec<Done> = jobs.into_iter().map(Job::finish).collect();
    assert_eq!(done.iter().map(|done| done.code).collect::<Vec<_>>(), [7, 7]);
    let starts = sorted(&done);
    assert_eq!(starts.len(), 8, "{starts:?}");
    let reports: Vec<&Done> =
        done.iter().filter(|done| done.stderr.contains("the job failed")).collect();
    assert_eq!(reports.len(), 1, "{done:?}");
    let other = done.iter().find(|done| !done.stderr.contains("the job failed")).unwrap();
    other.says("the job ended with exit code 7; the launcher on ");
    let report = reports[0].says("the job failed: rank 3 exited with code 7");
    report.says("rank       3 (local rank 1)").says("oh no").says("attempt    2 of 2");
    report.says("rank 3 exited with code 7; starting all workers again (1 of 1 restarts)");
    for rank in 0..3 {
        report.says(&format!("  rank {rank} (pid "));
    }
}

/// Starts launchers one after the other and waits until all workers of a first round run.
pub fn running(port: u16, hosts: &str, count: usize, script: &str) -> Vec<Job> {
    let jobs: Vec<Job> = (0..count)
        .map(|place| {
            let job = start(elastic(port, hosts, "--max-restarts 3 --grace 2", script));
            if place == 0 {
                // So that it leads.
                job.stderr.wait_for("of at least", 1);
            }
            job
        })
        .collect();
    let begun = |job: &&Job| job.stdout.text().contains(": start 0");
    let most = hosts.split(':').next_back().unwrap().parse().unwrap();
    eventually("the first round runs", || jobs.iter().filter(begun).count() == count.min(most));
    jobs
}

/// A script whose workers run until a file is there.
pub fn until(file: &std::path::Path) -> String {
    let file = file.display();
    format!(
        "echo start $TORCHELASTIC_RESTART_COUNT $WORLD_SIZE; until [ -e {file} ]; do sleep 0.02; done"
    )
}

/// Mostly a loss is known at once. Where it is not, as on a busy machine, silent hosts count as lost after 5 seconds, and
/// the next round waits for that; then processes start.
const TO_GO_ON: Duration = Duration::from_secs(20);

#[test]
fn a_killed_hosts_place_is_taken_by_the_spare() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let mut jobs = running(port(), "2:3", 4, &until(&end));
    let started = |job: &Job| job.stdout.text().contains(": start 0");
    let spare = jobs.iter().position(|job| !started(job)).expect("a spare");
    let victim = (1..4).find(|place| *place != spare).unwrap();
    let at = Instant::now();
    kill_host(&jobs[victim]);
    jobs[spare].stdout.wait_for(": start 1 3", 1);
    assert!(at.elapsed() < TO_GO_ON, "{:?}", at.elapsed());
    std::fs::write(&end, "").unwrap();
    jobs.remove(victim);
    for job in jobs {
        assert_eq!(job.finish().code, 0);
    }
}

#[test]
fn the_leaders_host_may_die_too() {
    let folder = tempfile::tempdir().unwrap();
    let end = folder.path().join("end");
    let mut jobs = running(port(), "2:3", 3, &until(&end));
    let at = Instant::now();
    kill_host(&jobs[0]);
    for job in &jobs[1..] {
        job.stdout.wait_for(": start 1 2", 1);
    }
    assert!(at.elapsed() < TO_GO_ON, "{:?}", at.elapsed());
    std::fs::write(&end, "").unwrap();
    let rest: Vec<Done> = jobs.drain(1..).map(Job::finish).collect();
    assert!(rest.iter().all(|done| done.code == 0), "{rest:?}");
    assert!(rest.iter().any(|done| done.stderr.contains("this host leads now")), "{rest:?}");
}

#[test]
fn a_host_that_comes_late_takes_part() {
    let (folder, port) = (tempfile::tempdir().unwrap(), port());
    let end = folder.path().join("end");
    let jobs = running(port, "2:3", 2, &until(&end));
    let late = start(elastic(port, "2:3", "--max-restarts 3 --grace 2", &until(&end)));
    // It is no failure: the count of restarts stays.
    late.stdout.wait_for(": start 0 3", 1);
    jobs.iter().for_each(|job| job.stdout.wait_for(": start 0 3", 1));
    std::fs::write(&end, "").unwrap();
    for job in jobs.into_iter().chain([late]) {
        assert_eq!(job.finish().code, 0);
    }
}

#[test]
fn a_signal_to_one_launcher_ends_a_job_of_fixed_size() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = running(port(), "2", 2, &until(&folder.path().join("never")));
    jobs[1].send(Signal::SIGTERM);
    let done: Vec<Done> = jobs.into_iter().map(Job::finish).collect();
    assert_eq!(done.iter().map(|done| done.code).collect::<Vec<_>>(), [143, 143], "{done:?}");
    assert!(done.iter().any(|done| done.stderr.contains("stopped by SIGTERM")), "{done:?}");
}

#[test]
fn a_signal_to_a_launcher_of_an_elastic_job_takes_that_host_out() {
    for place in [2, 0] {
        let folder = tempfile::tempdir().unwrap();
        let end = folder.path().join("end");
        let mut jobs = running(port(), "2:3", 3, &until(&end));
        jobs[place].send(Signal::SIGTERM);
        assert_eq!(jobs.remove(place).finish().code, 143);
        // The leader's leave is its loss, another host's is no failure.
        let restarts = usize::from(place == 0);
        jobs.iter().for_each(|job| job.stdout.wait_for(&format!(": start {restarts} 2"), 1));
        std::fs::write(&end, "").unwrap();
        for job in jobs {
            assert_eq!(job.finish().code, 0);
        }
    }
}

#[test]
fn a_signal_while_hosts_are_waited_for_ends_the_launcher() {
    let job = start(elastic(port(), "2", "", "echo never"));
    job.stderr.wait_for("1 of at least 2 hosts are there", 1);
    job.send(Signal::SIGINT);
    let done = job.finish();
    assert_eq!((done.code, done.stdout.len()), (130, 0), "{}", done.stderr);
}

#[test]
fn who_does_not_fit_is_told_why() {
    let port = port();
    let first = start(elastic(port, "2", "", "true"));
    first.stderr.wait_for("of at least", 1);
    let conf = "--nnodes 2 --rdzv-conf join_timeout=1,is_host=0 --rdzv-id test";
    let mut other = sh(&format!("{conf} --rdzv-endpoint 127.0.0.1:{port}"), "true");
    other.env("TORCHRS_JOB_TOKEN", "another-token-of-some-length");
    let done = run(other);
    assert_eq!(done.code, 1);
    done.says("TORCHRS_JOB_TOKEN").says(&format!("127.0.0.1:{port}"));
    let id = format!("--nnodes 2 --rdzv-endpoint 127.0.0.1:{port} --rdzv-id other");
    let done = run(sh(&id, "true"));
    assert_eq!(done.code, 1);
    done.says("job `test`").says("`other`").says("--rdzv-id");
    let second = start(elastic(port, "2", "", "true"));
    assert_eq!((first.finish().code, second.finish().code), (0, 0));
}

#[test]
fn what_a_job_over_hosts_needs_is_named_before_anything_starts() {
    for (options, part) in [
        ("--nnodes 2", "--rdzv-endpoint HOST:PORT"),
        ("--nnodes 2 --master-addr h1", "--node-rank"),
        ("--nnodes 2 --rdzv-endpoint 192.0.2.1", "TORCHRS_JOB_TOKEN"),
    ] {
        let done = run(sh(options, "echo started"));
        assert_eq!((done.code, done.stdout.len()), (2, 0));
        done.says(part);
    }
    let nobody = format!(
        "--nnodes 2 --rdzv-endpoint 127.0.0.1:{} --rdzv-conf is_host=false,join_timeout=0.5",
        port()
    );
    let done = run(sh(&nobody, "echo started"));
    assert_eq!((done.code, done.stdout.len()), (1, 0));
    done.says("nobody listens at this port");
}
