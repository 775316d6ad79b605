//! `torchrs check`: what it says of one host and of several, on the loopback and in namespaces, and that it ends in
//! time whatever is wrong.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use crate::apart::Lab;
use crate::hosts::port;
use crate::job::{Done, Job, run, start};
use crate::ssh::Shell;

const TORCHRS: &str = env!("CARGO_BIN_EXE_torchrs");

fn check(options: &str) -> Command {
    let mut command = Command::new(TORCHRS);
    command.arg("check").args(options.split_whitespace());
    command
}

fn text(done: &Done) -> String {
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Checks that the report says `part`.
#[track_caller]
fn reports(done: &Done, part: &str) {
    let text = text(done);
    assert!(text.contains(part), "expected `{part}` in:\n{text}{}", done.stderr);
}

/// Two checks, each a host of its own.
fn both(options: [&str; 2]) -> [Done; 2] {
    let jobs: Vec<Job> = options.iter().map(|options| start(check(options))).collect();
    let done: Vec<Done> = jobs.into_iter().map(Job::finish).collect();
    done.try_into().unwrap()
}

#[test]
fn one_host_is_looked_at_alone() {
    let done = run(check(""));
    assert!(done.code <= 1, "{}{}", text(&done), done.stderr);
    for part in ["name", "open files", "/dev/shm", "GPUs", "MASTER_PORT", "on 1 host, torchrs "] {
        reports(&done, part);
    }
    let done = run(check("--json"));
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(json["exit_code"], done.code);
    let findings = json["hosts"][0]["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["subject"] == "GPUs"), "{json}");
    let busy = TcpListener::bind("0.0.0.0:0").unwrap();
    let taken = busy.local_addr().unwrap().port();
    let done = run(check(&format!("--master-port {taken}")));
    assert_eq!(done.code, 2);
    reports(&done, &format!("--master-port {taken} is busy"));
}

#[test]
fn two_hosts_are_compared_and_measured() {
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().display();
    let options =
        format!("--nnodes 2 --rdzv-endpoint 127.0.0.1:{} --shared-folder {shared}", port());
    let done = both([&options, &options]);
    assert_eq!(done[0].code, done[1].code, "{done:?}");
    assert!(done[0].code <= 1, "{done:?}");
    // One of them has the report.
    let (with, without): (Vec<&Done>, Vec<&Done>) =
        done.iter().partition(|done| !done.stdout.is_empty());
    assert_eq!((with.len(), without.len()), (1, 1), "{done:?}");
    for part in [
        "2 have met with the same token",
        "the same build on all",
        "clocks",
        "NCCL's network",
        "the same files, content and locks",
        "from row to column",
        " MB/s ",
        "0 errors",
    ] {
        reports(with[0], part);
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_jobs_command_line_is_checked_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let options = format!(
        "--nnodes 1:2 --rdzv-endpoint 127.0.0.1:{} --rdzv-conf last_call_timeout=5 --rdzv-lock {} --scale-up never \
         --grace 3 train --nnodes 9",
        port(),
        folder.path().display()
    );
    let done = both([&options, &options]);
    assert!(done.iter().all(|done| done.code <= 1), "{done:?}");
    for done in &done {
        done.says("torchrs check: not looked at: --grace, the program train");
    }
    let report = done.iter().find(|done| !done.stdout.is_empty()).unwrap();
    reports(report, "2 have met with the same token");
    reports(report, &format!("{}: the same files, content and locks", folder.path().display()));
    reports(report, "the ways' ends");
    // One without it.
    let port_ = port();
    let lock = format!("--rdzv-lock {}", folder.path().display());
    let one = |lock: &str| {
        format!(
            "--nnodes 1:2 --rdzv-endpoint 127.0.0.1:{port_} --rdzv-conf last_call_timeout=5 --deadline 8 {lock}"
        )
    };
    let done = both([&one(&lock), &one("")]);
    assert!(
        done.iter().any(|done| done.code == 2 && text(done).contains("--rdzv-lock")),
        "{done:?}"
    );
}

#[test]
fn hosts_are_checked_through_ssh() {
    let shell =
        Shell::new("denied) echo 'x@denied: Permission denied (publickey).' >&2; exit 255;;");
    let of = |hosts: &str, json: &str| {
        let ssh = shell.path();
        let options = format!(
            "--hosts {hosts} --ssh {} --rdzv-endpoint 127.0.0.1:{} {json}",
            ssh.display(),
            port()
        );
        run(check(&options))
    };
    let done = of("alpha,beta", "");
    assert!(done.code <= 1, "{}{}", text(&done), done.stderr);
    reports(&done, "2 have met with the same token");
    let done = of("alpha,denied,beta", "--json");
    assert_eq!(done.code, 2, "{}{}", text(&done), done.stderr);
    let json: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap();
    let first = json["between"][0]["text"].as_str().unwrap();
    assert!(first.contains("denied: it does not let this user in"), "{json}");
    assert_eq!(
        (json["hosts"].as_array().unwrap().len(), json["pairs"].as_array().unwrap().len()),
        (2, 2)
    );
    let done = of("denied", "");
    assert_eq!((done.code, done.stdout.len()), (2, 0), "{}", done.stderr);
    done.says("ssh-copy-id denied").says("the check was not started");
}

#[test]
fn what_keeps_hosts_from_meeting_is_named_in_time() {
    // Nobody else comes.
    let port_ = port();
    let meet = format!("--nnodes 2 --rdzv-endpoint 127.0.0.1:{port_}");
    let done = run(check(&format!("{meet} --deadline 3")));
    assert_eq!(done.code, 2);
    reports(&done, "meeting");
    assert!(done.took < Duration::from_secs(10), "{:?}", done.took);
    // Nobody is there.
    let done = run(check(&format!("{meet} --deadline 3 --rdzv-conf is_host=0")));
    assert_eq!(done.code, 2);
    reports(&done, "nobody listens at this port");
    // Somebody else has the port.
    let busy = TcpListener::bind(("127.0.0.1", port_)).unwrap();
    let done = run(check(&format!("{meet} --deadline 8 --rdzv-conf is_host=1")));
    assert_eq!(done.code, 2);
    reports(&done, &format!("127.0.0.1:{port_}"));
    drop(busy);
    // Options that are not enough.
    let done = run(check("--nnodes 2"));
    assert_eq!(done.code, 2);
    reports(&done, "--rdzv-endpoint HOST:PORT");
    let done = run(check("--nnodes 2 --rdzv-endpoint 192.0.2.1"));
    reports(&done, "TORCHRS_JOB_TOKEN");
}

#[test]
fn another_token_and_another_release_are_named() {
    let port_ = port();
    let mut right = check(&format!("--nnodes 2 --rdzv-endpoint 127.0.0.1:{port_} --deadline 6"));
    let mut wrong = check(&format!(
        "--nnodes 2 --rdzv-endpoint 127.0.0.1:{port_} --deadline 4 --rdzv-conf is_host=0"
    ));
    right.env("TORCHRS_JOB_TOKEN", "one-token-of-some-length");
    wrong.env("TORCHRS_JOB_TOKEN", "another-token-of-some-length");
    let right = start(right);
    let wrong = run(wrong);
    assert_eq!(wrong.code, 2);
    reports(&wrong, "TORCHRS_JOB_TOKEN");
    assert_eq!(right.finish().code, 2);

    // What a launcher of another release says first.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port_ = other.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in other.incoming() {
            let Ok(mut stream) = stream else { break };
            let _ = stream.write_all(b"torchrs\0\0\x63");
            let _ = stream.read(&mut [0; 100]);
        }
    });
    let done = run(check(&format!(
        "--nnodes 2 --rdzv-endpoint 127.0.0.1:{port_} --deadline 4 --rdzv-conf is_host=0"
    )));
    assert_eq!(done.code, 2);
    reports(&done, "version 99");
}

/// A check on a host of a lab.
fn of_lab(lab: &Lab, host: &str, options: &str) -> Job {
    let mut command = lab.command(&["exec", host, TORCHRS, "check", "--nnodes", "2"]);
    command.args(["--rdzv-endpoint", "h1:29400"]).args(options.split_whitespace());
    command.env("TORCHRS_JOB_TOKEN", "a-token-for-the-tests");
    start(command)
}

#[test]
fn hosts_that_are_apart_find_what_lies_between_them() {
    let Some(lab) = Lab::new(2) else { return };
    // Each host of a lab has a /dev/shm of its own.
    let jobs = ["1", "2"].map(|host| of_lab(&lab, host, "--shared-folder /dev/shm --deadline 30"));
    let done = jobs.map(Job::finish);
    assert_eq!(done.each_ref().map(|done| done.code), [2, 2], "{done:?}");
    let report = done.iter().find(|done| !done.stdout.is_empty()).unwrap();
    reports(report, "mount the same folder on all hosts");
    reports(report, "h1 10.77.0.1, h2 10.77.0.2");
    reports(report, "NCCL would take eth0 (10.77.0.1)");

    // A firewall between the workers: new connections only to ports that the system chooses are dropped.
    for filter in ["iptables", "ip6tables"] {
        let rule = "-A INPUT -p tcp --syn --dport 32768:60999 -j DROP";
        let shut = ["exec", "1", filter].into_iter().chain(rule.split(' '));
        let shut: Vec<&str> = shut.collect();
        if !lab.command(&shut).status().is_ok_and(|status| status.success()) {
            println!("skipped: no {filter}");
            return;
        }
    }
    let jobs = ["1", "2"].map(|host| of_lab(&lab, host, "--deadline 40"));
    let done = jobs.map(Job::finish);
    assert_eq!(done.each_ref().map(|done| done.code), [2, 2], "{done:?}");
    let report = done.iter().find(|done| !done.stdout.is_empty()).unwrap();
    reports(report, "no connection between h1 and h2");
    reports(report, "ip_local_port_range");

    // A link that is down.
    lab.do_to("cut", 2);
    let jobs = ["1", "2"].map(|host| of_lab(&lab, host, "--deadline 4"));
    for done in jobs.map(Job::finish) {
        assert_eq!(done.code, 2);
        assert!(done.took < Duration::from_secs(12), "{:?}", done.took);
        reports(&done, "meeting");
    }
}
