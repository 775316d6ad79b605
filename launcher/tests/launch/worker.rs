//! What this test binary does when the launcher runs it as a worker.

use std::time::Duration;

use crate::job::program;

/// The launcher with this binary as its program; `how` says what the worker does.
pub fn rust_worker(options: &str, how: &str) -> std::process::Command {
    let own = std::env::current_exe().unwrap();
    let args = [own.to_str().unwrap(), "--exact", "worker::worker", "--nocapture"];
    let mut command = program(options, &args);
    command.env("LAUNCH_TEST_WORKER", how);
    command
}

/// Does nothing as a test.
#[test]
fn worker() {
    let Ok(how) = std::env::var("LAUNCH_TEST_WORKER") else { return };
    torchrs::init();
    let rank = std::env::var("RANK").unwrap();
    match how.as_str() {
        "panic on rank 1" if rank == "1" => deep_inside_the_model(),
        "panic on rank 1" => std::thread::sleep(Duration::from_secs(1000)),
        "rank 1 does not join" if rank == "1" => {}
        "rank 1 fails before it joins" if rank == "1" => std::process::exit(9),
        "rank 1 does not join" | "rank 1 fails before it joins" => {
            let joined = torchrs::distributed::init_process_group(Default::default());
            let error = joined.expect_err("rank 1 is not there");
            torchrs::multiprocessing::report::record(&error);
            std::process::exit(1);
        }
        "sum-over-hosts" => sum_over_hosts(),
        "dies-on-rank-3" if rank == "3" => {
            let _group = torchrs::distributed::init_process_group(Default::default()).unwrap();
            std::process::exit(9);
        }
        "dies-on-rank-3" => sum_over_hosts(),
        other => panic!("no such worker: {other}"),
    }
}

fn sum_over_hosts() {
    let group = torchrs::distributed::init_process_group(Default::default()).unwrap();
    let (rank, world) = (group.rank(), group.world_size());
    let x = torchrs::Tensor::full([100_000], (rank + 1) as f64, torchrs::Dtype::F32);
    group.all_reduce(&x, torchrs::distributed::ReduceOp::Sum).unwrap();
    let x = x.to_vec::<f32>();
    assert!(x.iter().all(|value| *value == x[0]));
    println!("rank {rank} of {world}: sum {}", x[0]);
}

#[inline(never)]
fn deep_inside_the_model() {
    panic!("expected 12 classes, got 7");
}
