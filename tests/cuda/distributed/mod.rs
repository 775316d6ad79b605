//! Process groups on simulated GPUs, one per rank: NCCL's collectives against those in shared memory,
//! the order of streams, sub-groups, and what happens when something breaks.

#[path = "../../distributed/checks/comm_hooks.rs"]
mod checks;
mod faults;
#[path = "functional.rs"]
mod functional_calls;
#[path = "../../distributed/checks/functional.rs"]
mod functional_checks;
mod graph_faults;
mod graphs;
mod hooks;
mod job;
#[path = "../../distributed/checks/messages.rs"]
mod message_checks;
mod messages;
mod offload;
mod precision;
mod sharded;
mod sharded_runs;

use std::time::{Duration, Instant};

use job::{ADVERSARY, FAULT, Job, LONG, gpu, join_job, reached, run, run_with, wait_for};

use torchrs::cuda::graph::CaptureOptions;
use torchrs::cuda::{self, Graph, Priority, Stream, StreamGuard};
use torchrs::distributed::{DDPOptions, DistributedDataParallel, ProcessGroup, ReduceOp};
use torchrs::multiprocessing::ExitStatus;
use torchrs::nn::{BatchNorm1d, Forward, Linear, Module, Parameter, ReLU, Sequential, functional};
use torchrs::optim::{Optimizer, SGD, SGDOptions};
use torchrs::{Device, Dtype, Error, Result, Tensor};

/// Numbers of a rank whose sums and small products are exact in every dtype.
fn given(rank: usize, shape: &[usize], dtype: Dtype) -> Tensor {
    let numel = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..numel).map(|i| ((rank * 5 + i * 3) % 4) as f32).collect();
    Tensor::from_slice(&values, shape).to_dtype(dtype)
}

/// Calls every collective on `device` and gives all results, on the host.
fn everything(group: &ProcessGroup, device: Device, dtype: Dtype) -> Result<Vec<Tensor>> {
    let (rank, world) = (group.rank(), group.world_size());
    let mine = |shape: &[usize]| given(rank, shape, dtype).to_device(device);
    let mut results = Vec::new();
    for len in [0usize, 1, 5, 40_000] {
        if dtype != Dtype::I16 || device == Device::Cpu {
            for op in
                [ReduceOp::Sum, ReduceOp::Avg, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max]
            {
                if dtype == Dtype::I16 || op.check("", dtype).is_err() {
                    continue;
                }
                let x = mine(&[len]);
                group.all_reduce(&x, op)?;
                results.push(x);
                let x = mine(&[len]);
                group.reduce(&x, world - 1, op)?;
                results.push(x);
                let part = mine(&[len]);
                group.reduce_scatter_tensor(&part, &mine(&[world, len]), op)?;
                results.push(part);
            }
        }
        let x = mine(&[len]);
        group.broadcast(&x, world - 1)?;
        results.push(x);
        results.extend(group.all_gather(&mine(&[len]))?);
        results.extend(group.gather(&mine(&[len]), 0)?.unwrap_or_default());
        let (part, parts) = (mine(&[len]), vec![mine(&[len]); world]);
        group.scatter(&part, (rank == 0).then_some(&parts[..]), 0)?;
        results.push(part);
        let x = mine(&[world, len]);
        let y = x.zeros_like();
        group.all_to_all_single(&y, &x)?;
        results.push(y);
    }
    assert!(results.iter().all(|t| t.device() == device));
    Ok(results.iter().map(Tensor::cpu).collect())
}

/// Tensors on the host and on GPUs in one group, call by call alike.
fn agrees_with_the_host(_: ()) -> Result<()> {
    let group = join_job()?;
    use Dtype::*;
    for dtype in [F32, F64, F16, BF16, I64, I32, I16, I8, U8, Bool] {
        let there = everything(&group, gpu(), dtype)?;
        let here = everything(&group, Device::Cpu, dtype)?;
        assert_eq!(there.len(), here.len());
        for (i, (a, b)) in there.iter().zip(&here).enumerate() {
            assert!(a.to_vec::<f64>() == b.to_vec::<f64>(), "{dtype} {i}: {a} {b}");
        }
    }
    for dtype in [C64, C128] {
        let (there, here) =
            (everything(&group, gpu(), dtype)?, everything(&group, Device::Cpu, dtype)?);
        assert!(there.len() == here.len() && there.iter().all(|t| t.dtype() == dtype));
        assert!(there.iter().zip(&here).all(|(a, b)| a.equal(b)), "{dtype}");
    }
    Ok(())
}

#[test]
fn two_ranks_agree_with_the_host() {
    run(2, agrees_with_the_host);
}

#[test]
fn four_ranks_agree_with_the_host_under_the_adversary() {
    run_with(4, [&[(ADVERSARY, "11")], &[]], agrees_with_the_host);
}

/// Streams follow each other both ways, and strided tensors and dropped handles are no exception.
fn keeps_the_order_of_streams(_: ()) -> Result<()> {
    let group = join_job()?;
    assert_eq!(gpu(), Device::Cuda(group.rank()));
    let syncs = cuda::synchronisations();
    let stream = Stream::new(group.rank(), Priority::Normal)?;
    let mut results = Vec::new();
    for round in 0..20 {
        let _other = if round % 2 == 0 { Some(StreamGuard::new(stream)?) } else { None };
        let base = Tensor::full([64, 50], group.rank() as f64 + 1.0, (Dtype::F32, gpu()));
        let x = if round % 3 == 0 { base.t() } else { base.clone() };
        for _ in 0..10 {
            x.add_(1.0);
        }
        let work = group.all_reduce_async(&x, ReduceOp::Sum)?;
        // Not waited for, on memory that is gone at once.
        let lost = Tensor::full([1000], 7.0, (Dtype::F32, gpu()));
        drop(group.all_reduce_async(&lost, ReduceOp::Sum)?);
        drop(lost);
        let garbage = Tensor::full([1000], -1.0, (Dtype::F32, gpu()));
        work.wait()?;
        x.mul_(2.0);
        group.broadcast(&x, 1)?;
        results.push((x, garbage));
        if round % 2 == 0 {
            // What was made on the other stream is looked at from this one.
            Stream::default_of(group.rank())?.wait_stream(stream)?;
        }
    }
    assert_eq!(cuda::synchronisations(), syncs);
    for (x, garbage) in results {
        assert!(x.to_vec::<f32>().iter().all(|&v| v == 46.0));
        assert!(garbage.to_vec::<f32>().iter().all(|&v| v == -1.0));
    }
    let x = Tensor::full([10], 1.0, (Dtype::F32, gpu()));
    let work = group.all_reduce_async(&x, ReduceOp::Sum)?;
    work.wait_timeout(LONG)?;
    assert!(work.is_completed());
    Ok(())
}

#[test]
fn streams_keep_their_order() {
    run(2, keeps_the_order_of_streams);
    run_with(2, [&[(ADVERSARY, "3")], &[]], keeps_the_order_of_streams);
}

fn makes_groups(_: ()) -> Result<()> {
    let group = join_job()?;
    let ones = || Tensor::full([1000], 1.0, (Dtype::F32, gpu()));
    let early = group.new_group(&[0, 3])?;
    group.all_reduce(&ones(), ReduceOp::Sum)?;
    // From here on groups are splits of the communicator.
    let (even, odd) = (group.new_group(&[2, 0])?, group.new_group(&[1, 3])?);
    for group in [&early, &even, &odd].into_iter().filter(|group| group.is_member()) {
        for _ in 0..3 {
            let x = ones();
            group.all_reduce(&x, ReduceOp::Sum)?;
            assert!(x.to_vec::<f32>().iter().all(|&v| v == 2.0));
        }
    }
    let alone = group.new_group(&[group.world_size() - 1])?;
    if alone.is_member() {
        alone.all_reduce(&ones(), ReduceOp::Sum)?;
    }
    group.barrier()
}

#[test]
fn sub_groups_have_communicators_of_their_own() {
    run(4, makes_groups);
}

fn disagrees(_: ()) -> Result<()> {
    let group = join_job()?;
    let zeros = |len: usize| Tensor::zeros([len], (Dtype::F32, gpu()));
    let refused = |call: Result<()>, text: &str| {
        let error = call.unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    };
    refused(
        group.all_reduce(&zeros(3 + group.rank()), ReduceOp::Sum),
        "rank 0 called all_reduce(sum, f32, [3], cuda); rank 1 called all_reduce(sum, f32, [4], cuda)",
    );
    let device = if group.rank() == 0 { gpu() } else { Device::Cpu };
    refused(
        group.broadcast(&zeros(3).to_device(device), 0),
        "rank 0 called broadcast(root 0, f32, [3], cuda); rank 1 called broadcast(root 0, f32, [3])",
    );
    let ints = Tensor::zeros([2], (Dtype::I32, gpu()));
    refused(group.all_reduce(&ints, ReduceOp::Bxor), "all_reduce: NCCL has no bxor of i32");
    let elsewhere = Tensor::zeros([6], (Dtype::F32, Device::Cpu));
    refused(group.all_gather_into_tensor(&elsewhere, &zeros(3)), "argument `output`: is on cpu");
    // All are still in step.
    let x = Tensor::full([5], 1.0, (Dtype::F32, gpu()));
    group.all_reduce(&x, ReduceOp::Sum)?;
    assert_eq!(x.to_vec::<f32>(), [2.0; 5]);
    let other = Tensor::zeros([5], (Dtype::F32, Device::Cuda(1 - group.rank())));
    refused(group.all_reduce(&other, ReduceOp::Sum), "but this rank of the group uses cuda:");
    group.barrier()
}

/// FAULTS row 23 on GPUs.
#[test]
fn different_calls_are_an_error_that_names_both_sides() {
    run(2, disagrees);
}

/// Reduces twice; the second time this rank's GPU, or a peer's, does not finish.
fn second_hangs(timeout: Duration) -> Result<Error> {
    let group = join_job()?.with_timeout(timeout);
    let x = Tensor::full([100], 1.0, (Dtype::F32, gpu()));
    group.all_reduce(&x, ReduceOp::Sum)?;
    assert_eq!(x.to_vec::<f32>(), [2.0; 100]);
    let start = Instant::now();
    let work = group.all_reduce_async(&x, ReduceOp::Sum)?;
    reached("all-reduce", group.rank())?;
    if std::env::var("TORCHRS_TEST_EXIT").is_ok() {
        wait_for("all-reduce", [0])?;
        std::process::exit(9);
    }
    let error = work.wait_timeout(LONG).unwrap_err();
    assert!(start.elapsed() < LONG / 2);
    // The device is free again, and every further call says why.
    cuda::device::synchronize(group.rank())?;
    assert!(group.all_reduce(&x, ReduceOp::Sum).is_err() && group.barrier().is_err());
    Ok(error)
}

fn outlives_a_peer(_: ()) -> Result<()> {
    let error = second_hangs(LONG)?;
    assert!(matches!(error, Error::PeerDied { rank: 1, .. }), "{error}");
    // The peer may end before this rank's communication thread has come to the call.
    assert!(error.to_string().contains("all_reduce(sum, f32, [100], cuda)"), "{error}");
    Ok(())
}

/// A peer that ends while its GPU is busy.
#[test]
fn a_death_ends_the_others_collectives() {
    let own = [(FAULT, "nccl-hang@2"), ("TORCHRS_TEST_EXIT", "1")];
    let Some(job) = Job::start(2, [&[], &own], outlives_a_peer) else { return };
    job.ranks[0].join_timeout(LONG).unwrap();
    assert_eq!(job.ranks[1].wait_timeout(LONG).unwrap(), ExitStatus::Exited(9));
}

fn runs_out_of_time(_: ()) -> Result<()> {
    let error = second_hangs(Duration::from_secs(1))?;
    assert!(matches!(error, Error::Timeout { .. } | Error::Aborted(_)), "{error}");
    assert!(error.to_string().contains("all_reduce(sum, f32, [100], cuda)"), "{error}");
    Ok(())
}

/// FAULTS row 24 on GPUs.
#[test]
fn a_collective_that_never_ends_is_ended_by_its_deadline() {
    run_with(2, [&[], &[(FAULT, "nccl-hang@2")]], runs_out_of_time);
}

fn hears_of_a_failure(_: ()) -> Result<()> {
    let error = second_hangs(LONG)?;
    assert!(error.to_string().contains("unhandled system error"), "{error}");
    Ok(())
}

#[test]
fn an_asynchronous_error_reaches_all_ranks() {
    run_with(2, [&[], &[(FAULT, "nccl-error@2")]], hears_of_a_failure);
}

fn shares_a_device(_: ()) -> Result<()> {
    let group = join_job()?;
    let x = Tensor::zeros([1], (Dtype::F32, Device::Cuda(0)));
    let error = group.all_reduce(&x, ReduceOp::Sum).unwrap_err().to_string();
    assert!(error.contains("ranks 0 and 1 of the group use the same GPU"), "{error}");
    Ok(())
}

#[test]
fn ranks_that_share_a_gpu_are_told_so() {
    run(2, shares_a_device);
}

/// A step with a collective in its middle, recorded once and replayed.
fn replays(_: ()) -> Result<()> {
    let group = join_job()?;
    let stream = Stream::new(group.rank(), Priority::Normal)?;
    let _current = StreamGuard::new(stream)?;
    let x = Tensor::full([1000], 1.0, (Dtype::F32, gpu()));
    let step = || {
        x.mul_(2.0);
        group.all_reduce(&x, ReduceOp::Sum)?;
        x.add_(1.0);
        Ok(())
    };
    step()?;
    stream.synchronize()?;
    let (graph, ()) = Graph::capture(stream, CaptureOptions::default(), step)?;
    assert!(x.to_vec::<f32>().iter().all(|&v| v == 5.0), "{x}");
    for _ in 0..3 {
        graph.replay(stream)?;
    }
    assert!(x.to_vec::<f32>().iter().all(|&v| v == 341.0), "{x}");
    group.barrier()
}

#[test]
fn collectives_are_part_of_graphs() {
    run(2, replays);
}

/// `x * weight + bias`, element by element.
#[derive(Module)]
struct Affine {
    weight: Parameter,
    bias: Parameter,
    scale: Parameter,
}

impl Affine {
    fn new(len: usize, device: Device) -> Affine {
        let parameter =
            |value: f64, dtype| Parameter::new(Tensor::full([len], value, (dtype, device)));
        Affine {
            weight: parameter(2.0, Dtype::F32),
            bias: parameter(1.0, Dtype::F32),
            scale: parameter(3.0, Dtype::F64),
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        (x * &*self.weight + &*self.bias).to_dtype(Dtype::F64) * &*self.scale
    }
}

fn trains(_: ()) -> Result<()> {
    let group = join_job()?;
    let (rank, len) = (group.rank() as f64, 100_000);
    let options = DDPOptions { first_bucket_mb: 0.1, bucket_cap_mb: 0.1, ..DDPOptions::default() };
    for device in [gpu(), Device::Cpu] {
        let model = Affine::new(len, device);
        if group.rank() == 1 {
            torchrs::no_grad(|| model.weight.fill_(77.0));
        }
        let model = DistributedDataParallel::with_options(model, &group, options.clone())?;
        for step in 0..3 {
            let x = Tensor::full([len], rank + 1.0, (Dtype::F32, device));
            let y = model.forward(&x);
            let ones = y.ones_like();
            let syncs = cuda::synchronisations();
            torchrs::autograd::backward(&[&y], &[Some(&ones)], torchrs::autograd::GraphMode::Free);
            assert_eq!(cuda::synchronisations(), syncs);
            let all = |t: &Tensor, value: f64| {
                assert!(t.to_vec::<f64>().iter().all(|&v| v == value), "{device} {step}: {t}");
            };
            // Of x = 1 and x = 2 on average.
            all(&model.weight.grad().unwrap(), 3.0 * 1.5 * f64::from(step + 1));
            all(&model.bias.grad().unwrap(), 3.0 * f64::from(step + 1));
            all(&model.scale.grad().unwrap(), 4.0 * f64::from(step + 1));
        }
    }
    Ok(())
}

#[test]
fn gradients_on_gpus_are_averaged() {
    run(2, trains);
    run_with(2, [&[(ADVERSARY, "5")], &[]], trains);
}

/// Trains a classifier for a few steps; its parameters and buffers, on the host.
fn train_on(group: &ProcessGroup, device: Device) -> Result<Vec<Tensor>> {
    torchrs::manual_seed(7);
    let mut model = Sequential::new()
        .append(Linear::new(20, 32))
        .append(BatchNorm1d::new(32))
        .append(ReLU)
        .append(Linear::new(32, 5));
    model.to_device(device);
    let model = DistributedDataParallel::new(model, group)?;
    let mut optimizer = SGD::new(model.parameters(), SGDOptions { lr: 0.1, ..Default::default() });
    torchrs::manual_seed(100 + group.rank() as u64);
    for _ in 0..4 {
        let x = Tensor::randn([16, 20], Dtype::F32).to_device(device);
        let labels = Tensor::randint(0, 5, [16], Dtype::I64).to_device(device);
        optimizer.zero_grad_to_zeros();
        functional::cross_entropy(&model.forward(&x), &labels).backward();
        optimizer.step();
    }
    let named = model.named_parameters().into_iter().chain(model.named_buffers());
    Ok(named.map(|(_, t)| t.detach().cpu()).collect())
}

fn trains_a_classifier(_: ()) -> Result<()> {
    let group = join_job()?;
    let (there, here) = (train_on(&group, gpu())?, train_on(&group, Device::Cpu)?);
    for (a, b) in there.iter().zip(&here) {
        let (a, b) = (a.to_vec::<f64>(), b.to_vec::<f64>());
        assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-4), "{a:?} {b:?}");
        let all = group.all_gather(&Tensor::from_slice(&a, [a.len()]))?;
        assert!(all[0].equal(&all[1]));
    }
    Ok(())
}

#[test]
fn training_on_gpus_goes_as_on_the_host() {
    run(2, trains_a_classifier);
}
