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
        "sum-until" => sum_until(std::path::Path::new(&std::env::var("LAUNCH_TEST_END").unwrap())),
        "dies-on-rank-3" if rank == "3" => {
            let _group = torchrs::distributed::init_process_group(Default::default()).unwrap();
            std::process::exit(9);
        }
        "dies-on-rank-3" => sum_over_hosts(),
        "train-on-gpus" => train_on_gpus(),
        "notes" => notes(std::path::Path::new(&std::env::var("LAUNCH_TEST_END").unwrap())),
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

/// All-reduces until a file is there.
fn sum_until(end: &std::path::Path) {
    let group = torchrs::distributed::init_process_group(Default::default()).unwrap();
    let master = std::env::var("MASTER_ADDR").unwrap();
    println!("summing on {} at {master}", group.world_size());
    loop {
        // Above 64 KiB, so that all ranks' connections are used.
        let own = if end.exists() { 1.0 } else { 0.0 };
        let x = torchrs::Tensor::full([100_000], own, torchrs::Dtype::F32);
        group.all_reduce(&x, torchrs::distributed::ReduceOp::Sum).unwrap();
        if x.narrow(0, 0, 1).item() > 0.0 {
            return println!("summed on {}", group.world_size());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Trains and says so, as a program does, until a file is there.
fn notes(end: &std::path::Path) {
    use torchrs::checkpoint::{Checkpoint, CheckpointDir};
    use torchrs::optim::{Optimizer, SGD, SGDOptions};
    use torchrs::train::{Throughput, publish_scalars};

    let parameter = torchrs::Tensor::from([1f32, 2.0]);
    let parameter = match std::env::var_os("TORCHRS_SIMULATE_GPUS") {
        Some(_) => parameter.to_device(torchrs::Device::Cuda(torchrs::cuda::device::current())),
        None => parameter,
    };
    let parameter = parameter.requires_grad_(true);
    let mut optimizer = SGD::new([parameter.clone()], SGDOptions { lr: 0.5, ..Default::default() });
    let mut speed = Throughput::new(torchrs::Device::Cpu).tokens_per_sample(16.0);
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = CheckpointDir::new(folder.path(), 1);
    let mut step = 0;
    while !end.exists() {
        optimizer.zero_grad();
        parameter.square().sum().backward();
        optimizer.step();
        speed.step(4);
        step += 1;
        publish_scalars(step, &[("lr", optimizer.lr(0)), ("bad", f64::NAN)]).unwrap();
        if step == 3 {
            checkpoints.save(step, &Checkpoint::new()).unwrap();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// 50 steps on the same batches however many ranks share them; rank 0 says the losses.
fn train_on_gpus() {
    use torchrs::distributed::{DistributedDataParallel, ReduceOp};
    use torchrs::nn::{Forward, Linear, Module, ReLU, Sequential};
    use torchrs::optim::{Optimizer, SGD, SGDOptions};
    use torchrs::{Device, Dtype, Generator, Tensor};

    let group = torchrs::distributed::init_process_group(Default::default()).unwrap();
    let (rank, world) = (group.rank(), group.world_size());
    let gpu = Device::Cuda(torchrs::cuda::device::current());
    torchrs::manual_seed(7);
    let mut model =
        Sequential::new().append(Linear::new(6, 32)).append(ReLU).append(Linear::new(32, 3));
    model.to_device(gpu);
    let model = DistributedDataParallel::new(model, &group).unwrap();
    let mut optimizer = SGD::new(model.parameters(), SGDOptions { lr: 0.1, ..Default::default() });
    let mut losses = Vec::new();
    for step in 0..50 {
        let all = Generator::new(step).randn([16, 6], Dtype::F32);
        let x = all.narrow(0, rank * 16 / world, 16 / world).to_device(gpu);
        optimizer.zero_grad();
        let loss = (model.forward(&x) - 1.0).square().mean();
        loss.backward();
        optimizer.step();
        let mean = loss.detach();
        group.all_reduce(&mean, ReduceOp::Avg).unwrap();
        losses.push(mean.cpu().item());
    }
    let parameters = model.parameters();
    let bits = parameters.iter().flat_map(|p| p.cpu().to_vec::<f32>()).map(|v| v.to_bits().into());
    let mine = Tensor::from(bits.collect::<Vec<i64>>());
    for theirs in group.all_gather(&mine).unwrap() {
        assert!(theirs.to_vec::<i64>() == mine.to_vec::<i64>(), "weights of rank {rank} differ");
    }
    if rank == 0 {
        println!("losses {losses:?}");
    }
}

#[inline(never)]
fn deep_inside_the_model() {
    panic!("expected 12 classes, got 7");
}
