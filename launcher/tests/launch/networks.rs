//! Hosts with several networks, or with IPv6 alone: which of their addresses are listened at, and which lead there.
//! Hosts are network namespaces. Needs root; where that is not so, says so and tests nothing.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Instant;

use crate::apart::Lab;
use crate::job::{Job, LAUNCHER, eventually, start};

/// The file at which workers end.
fn end_of(lab: &Lab) -> PathBuf {
    lab.folder.path().join("end")
}

/// The launcher of a host whose worker sums over all hosts, on and on.
fn summing(lab: &Lab, host: usize, options: &str) -> Job {
    let number = host.to_string();
    let mut command = lab.command(&["exec", &number, LAUNCHER, "--no-build"]);
    command.args(options.split_whitespace()).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "worker::worker", "--nocapture"]);
    command.env("LAUNCH_TEST_WORKER", "sum-until").env("LAUNCH_TEST_END", end_of(lab));
    command.env("TORCHRS_JOB_TOKEN", "a-token-for-the-tests");
    start(command)
}

/// Ends the job, and looks whether all of these have ended well.
#[track_caller]
fn end(lab: &Lab, jobs: Vec<Job>) {
    std::fs::write(end_of(lab), "").unwrap();
    for job in jobs {
        let done = job.finish();
        assert_eq!(done.code, 0, "{}", done.stderr);
    }
}

/// The addresses at which processes of a host listen.
fn listened_at(lab: &Lab, host: usize) -> BTreeSet<IpAddr> {
    let table = lab.does(&format!("exec {host} cat /proc/net/tcp /proc/net/tcp6"));
    let address = |line: &str| -> Option<IpAddr> {
        let mut words = line.split_whitespace();
        let local = words.nth(1)?.split_once(':')?.0.to_owned();
        // TCP_LISTEN
        if words.nth(1)? != "0A" {
            return None;
        }
        // Words in the processor's order.
        let word = |part: &[u8]| {
            let number = u32::from_str_radix(std::str::from_utf8(part).unwrap(), 16).unwrap();
            number.to_ne_bytes()
        };
        let bytes: Vec<u8> = local.as_bytes().chunks(8).flat_map(word).collect();
        Some(match <[u8; 4]>::try_from(&bytes[..]) {
            Ok(v4) => Ipv4Addr::from(v4).into(),
            Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[..]).unwrap()).into(),
        })
    };
    table.lines().filter_map(address).collect()
}

fn addresses(list: &[&str]) -> BTreeSet<IpAddr> {
    list.iter().map(|address| address.parse().unwrap()).collect()
}

/// Each pair shares a network, and no network has all.
#[test]
fn three_hosts_without_a_common_network_survive_their_leader() {
    let Some(lab) = Lab::new(3) else { return };
    (1..=3).for_each(|host| drop(lab.does(&format!("alone {host}"))));
    for (wire, a, b) in [(1, 1, 2), (2, 2, 3), (3, 1, 3)] {
        lab.does(&format!("wire {a} {b} {wire}"));
    }
    lab.calls(1, "10.78.1.1 h1\n10.78.3.1 h1");
    lab.calls(2, "10.78.1.1 h1");
    lab.calls(3, "10.78.3.1 h1");
    let options = "--nnodes 2:3 --rdzv-endpoint h1:29400 --rdzv-conf last_call_timeout=0.5 --max-restarts 3 --grace 2";
    let first = summing(&lab, 1, options);
    first.stderr.wait_for("of at least", 1);
    let others: Vec<Job> = [2, 3].map(|host| summing(&lab, host, options)).into();
    // Each has rank 0's host by a network of its own.
    first.stdout.wait_for("summing on 3 at 10.78.", 1);
    others[0].stdout.wait_for("summing on 3 at 10.78.1.1", 1);
    others[1].stdout.wait_for("summing on 3 at 10.78.3.1", 1);

    let at = Instant::now();
    lab.do_to("crash", 1);
    for job in &others {
        job.stdout.wait_for("summing on 2 at 10.78.2.", 1);
    }
    println!("from the leader's loss of power to the others' next sum: {:.1?}", at.elapsed());
    end(&lab, others);
}

/// A host's virtual machines are on a network of the same addresses everywhere.
#[test]
fn addresses_that_both_hosts_have_lead_nobody_astray() {
    let Some(lab) = Lab::new(2) else { return };
    for host in [1, 2] {
        lab.does(&format!("inner {host} virbr0 192.168.122.1/24"));
        // Nothing tells that this one is no network.
        lab.does(&format!("inner {host} lan1 10.0.0.1/24"));
        // As a name server that knows all addresses of h1 has it.
        lab.calls(host, "10.0.0.1 h1\n192.168.122.1 h1\n10.77.0.1 h1");
    }
    let options = "--nnodes 1:2 --rdzv-endpoint h1:29400 --rdzv-conf last_call_timeout=3 --max-restarts 3 --grace 2";
    let first = summing(&lab, 1, options);
    first.stderr.wait_for("of at least", 1);
    let second = summing(&lab, 2, options);
    second.stdout.wait_for("summing on 2 at 10.77.0.1", 1);
    first.stdout.wait_for("summing on 2 at ", 1);
    let second_at = listened_at(&lab, 2);
    assert_eq!(second_at, addresses(&["10.0.0.1", "10.77.0.2", "fd77::2"]));
    // The endpoint's own, by its name.
    let first_at = listened_at(&lab, 1);
    assert_eq!(first_at, addresses(&["10.0.0.1", "10.77.0.1", "192.168.122.1", "fd77::1"]));
    end(&lab, vec![first, second]);
}

#[test]
fn only_the_addresses_that_are_named_are_listened_at() {
    let Some(lab) = Lab::new(2) else { return };
    lab.does("wire 1 2 1");
    let all = |host: usize| {
        let all = [format!("10.77.0.{host}"), format!("10.78.1.{host}")];
        let v6 = [format!("fd77::{host}"), format!("fd78:1::{host}")];
        all.iter().chain(&v6).map(|address| address.parse().unwrap()).collect::<BTreeSet<IpAddr>>()
    };
    let common = "--nnodes 2 --rdzv-endpoint h1:29400";
    for (first, second, at) in [
        ("", "", [all(1), all(2)]),
        (
            "--local-addr 10.77.0.1",
            "--local-addr 10.77.0.2",
            [addresses(&["10.77.0.1"]), addresses(&["10.77.0.2"])],
        ),
        (
            "--local-addr 10.77.0.1,fd78:1::1",
            "--local-addr fd78:1::2",
            [addresses(&["10.77.0.1", "fd78:1::1"]), addresses(&["fd78:1::2"])],
        ),
    ] {
        let jobs = [(1, first), (2, second)]
            .map(|(host, own)| summing(&lab, host, &format!("{common} {own}")));
        jobs.iter().for_each(|job| job.stdout.wait_for("summing on 2", 1));
        for (host, at) in [1, 2].into_iter().zip(at) {
            assert_eq!(listened_at(&lab, host), at, "host {host}, {first}");
        }
        end(&lab, jobs.into());
        std::fs::remove_file(end_of(&lab)).unwrap();
    }
    // A job of the loopback stays there.
    let options = "--nnodes 2 --rdzv-endpoint 127.0.0.1:29400";
    let jobs = [1, 1].map(|host| summing(&lab, host, options));
    jobs.iter().for_each(|job| job.stdout.wait_for("summing on 2", 1));
    assert_eq!(listened_at(&lab, 1), addresses(&["127.0.0.1"]));
    end(&lab, jobs.into());

    for (host, options, part) in [
        (
            1,
            "--local-addr 10.78.1.1",
            "names 10.78.1.1, and the job begins on this host at 10.77.0.1:29400",
        ),
        (2, "--local-addr 10.78.1.1", "is 10.78.1.1, where this host cannot listen"),
        (2, "--local-addr 127.0.0.1", "names 127.0.0.1, where other hosts cannot reach this one"),
    ] {
        let done = summing(&lab, host, &format!("{common} {options}")).finish();
        assert_eq!(done.code, 1, "{}", done.stderr);
        done.says("--local-addr").says(part);
    }
}

#[test]
fn a_job_runs_over_ipv6_alone() {
    let Some(lab) = Lab::new(2) else { return };
    if !PathBuf::from("/proc/sys/net/ipv6").exists() {
        return println!("skipped: this system has no IPv6");
    }
    for host in [1, 2] {
        lab.does(&format!("exec {host} ip addr del 10.77.0.{host}/24 dev eth0"));
        lab.calls(host, "fd77::1 h1\nfd77::2 h2");
    }
    let place = |host: usize| format!("--node-rank {}", host - 1);
    for (options, has_place) in [
        ("--nnodes 2 --rdzv-endpoint [fd77::1]:29400", false),
        ("--nnodes 2 --master-addr fd77::1", true),
        ("--nnodes 2 --rdzv-endpoint h1:29400", false),
        ("--nnodes 2 --master-addr h1 --local-addr", true),
    ] {
        let jobs = [1, 2].map(|host| {
            let own =
                if options.ends_with("addr") { format!("fd77::{host}") } else { String::new() };
            let place = if has_place { place(host) } else { String::new() };
            summing(&lab, host, &format!("{options} {own} {place}"))
        });
        for (host, job) in (1..).zip(&jobs) {
            job.stdout.wait_for("summing on 2 at fd77::", 1);
            let v6 = format!("fd77::{host}");
            assert_eq!(listened_at(&lab, host), addresses(&[&v6]), "{options}");
        }
        end(&lab, jobs.into());
        eventually("nobody listens", || (1..=2).all(|host| listened_at(&lab, host).is_empty()));
        std::fs::remove_file(end_of(&lab)).unwrap();
    }
}
