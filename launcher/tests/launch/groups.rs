//! Process groups of a job over several hosts: launchers that meet over loopback, and workers that reduce over all of
//! them.

use std::net::TcpListener;

use crate::job::{Done, start};
use crate::worker::rust_worker;

/// Runs a launcher per host, `nproc` workers on each; `how` says what they do.
fn over_hosts(nproc: &[usize], how: &str) -> Vec<Done> {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let launcher = |nproc: &usize| {
        let hosts = format!("--nnodes 2 --rdzv-endpoint 127.0.0.1:{port} --rdzv-id {how}");
        start(rust_worker(&format!("{hosts} --nproc {nproc}"), how))
    };
    let jobs: Vec<_> = nproc.iter().map(launcher).collect();
    jobs.into_iter().map(|job| job.finish()).collect()
}

#[test]
fn workers_of_two_launchers_reduce_together() {
    for nproc in [[2, 2], [1, 2]] {
        let done = over_hosts(&nproc, "sum-over-hosts");
        let mut said = String::new();
        for done in &done {
            assert_eq!(done.code, 0, "{}", done.stderr);
            said += &String::from_utf8_lossy(&done.stdout);
        }
        let world: usize = nproc.iter().sum();
        let sum = world * (world + 1) / 2;
        for rank in 0..world {
            assert!(said.contains(&format!("rank {rank} of {world}: sum {sum}")), "{said}");
        }
    }
}

#[test]
fn a_worker_that_dies_is_named_on_the_other_host_too() {
    let done = over_hosts(&[2, 2], "dies-on-rank-3");
    assert!(done.iter().all(|done| done.code != 0));
    let said: String = done.iter().map(|done| done.stderr.as_str()).collect();
    assert!(said.contains("rank 3"), "{said}");
}
