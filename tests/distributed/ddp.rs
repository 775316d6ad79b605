//! Data-parallel training with real processes: equal to one process, equal on all ranks, and clear
//! when ranks differ.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use torchrs::distributed::{DDPOptions, DistributedDataParallel, ReduceOp};
use torchrs::nn::{self, Forward, Module, functional as F};
use torchrs::optim::{AdamW, AdamWOptions, Optimizer};
use torchrs::{Dtype, Tensor, catch, multiprocessing};

use super::job::Job;

#[derive(Module)]
struct Net {
    fc1: nn::Linear,
    norm: nn::LayerNorm,
    fc2: nn::Linear,
}

impl Net {
    fn new() -> Self {
        Net {
            fc1: nn::Linear::new(12, 32),
            norm: nn::LayerNorm::new([32]),
            fc2: nn::Linear::new(32, 5),
        }
    }

    fn logits(&self, x: &Tensor) -> Tensor {
        self.fc2.forward(&self.norm.forward(&self.fc1.forward(x)).gelu())
    }
}

/// Everything in small buckets, so that there are several.
fn small_buckets() -> DDPOptions {
    DDPOptions { first_bucket_mb: 0.0005, bucket_cap_mb: 0.001, ..Default::default() }
}

/// The bytes of all parameters.
fn weights(net: &Net) -> Vec<u32> {
    net.parameters().iter().flat_map(|p| p.to_vec::<f32>()).map(f32::to_bits).collect()
}

/// 50 steps on the same global batches whatever the world; rank 0 writes the curve.
fn fifty_steps(rank: usize, job: Job) {
    let group = job.join(rank);
    torchrs::manual_seed(7 + rank as u64);
    let net = DistributedDataParallel::with_options(Net::new(), &group, small_buckets()).unwrap();
    torchrs::manual_seed(99);
    // The weights of rank 0 are those of seed 7, in every world.
    let mut optimizer =
        AdamW::new(net.parameters(), AdamWOptions { lr: 1e-2, ..Default::default() });
    let mut losses = Vec::new();
    for _ in 0..50 {
        let x = Tensor::randn([16, 12], Dtype::F32);
        let y = x.narrow(1, 0, 5).argmax_dim(1, false);
        let share = 16 / job.world;
        let (x, y) = (x.narrow(0, rank * share, share), y.narrow(0, rank * share, share));
        optimizer.zero_grad();
        let loss = F::cross_entropy(&net.logits(&x), &y);
        loss.backward();
        optimizer.step();
        let mean = loss.detach().to_dtype(Dtype::F64);
        group.all_reduce(&mean, ReduceOp::Avg).unwrap();
        losses.push(mean.item());
    }
    let mine = Tensor::from(weights(&net).into_iter().map(i64::from).collect::<Vec<_>>());
    for (other, theirs) in group.all_gather(&mine).unwrap().iter().enumerate() {
        assert_eq!(
            theirs.to_vec::<i64>(),
            mine.to_vec::<i64>(),
            "weights of ranks {rank} and {other}"
        );
    }
    if rank == 0 {
        std::fs::write(&job.out, serde_json::to_vec(&losses).unwrap()).unwrap();
    }
}

#[test]
fn one_two_and_four_workers_give_the_same_curve_and_the_same_weights_bitwise() {
    let dir = tempfile::tempdir().unwrap();
    let curve = |world: usize| -> Vec<f64> {
        let job = Job::new(world, dir.path().join(format!("{world}.json")));
        multiprocessing::spawn(fifty_steps, job.clone(), world).unwrap();
        serde_json::from_slice(&std::fs::read(&job.out).unwrap()).unwrap()
    };
    let one = curve(1);
    assert!(one[49] < 0.9 * one[0], "the loss falls: {one:?}");
    for world in [2, 4] {
        for (step, (a, b)) in one.iter().zip(curve(world)).enumerate() {
            assert!((a - b).abs() <= 1e-5 * a.abs(), "step {step}: {a} alone, {b} on {world}");
        }
    }
}

/// Gradients accumulated under `no_sync` and sent once equal those of one large batch.
fn accumulate(rank: usize, job: Job) {
    let group = job.join(rank);
    torchrs::manual_seed(3);
    let net = DistributedDataParallel::with_options(Net::new(), &group, small_buckets()).unwrap();
    let x = Tensor::randn([24, 12], Dtype::F32);
    let y = Tensor::randint(0, 5, [24], Dtype::I64);
    let loss = |start: usize, n: usize| {
        F::cross_entropy(&net.logits(&x.narrow(0, start, n)), &y.narrow(0, start, n))
    };
    net.no_sync(|| (loss(12 * rank, 6) * 0.5).backward());
    (loss(12 * rank + 6, 6) * 0.5).backward();
    let sent: Vec<Vec<f32>> = net.parameters().iter().map(|p| p.grad().unwrap().to_vec()).collect();
    net.zero_grad();
    net.no_sync(|| loss(0, 24).backward());
    for (p, sent) in net.parameters().iter().zip(sent) {
        for (a, b) in p.grad().unwrap().to_vec::<f32>().iter().zip(sent) {
            assert!((a - b).abs() < 1e-5, "{a} {b}");
        }
    }
}

#[test]
fn no_sync_accumulates_and_the_next_backward_sends_the_sum() {
    let job = Job::new(2, PathBuf::new());
    multiprocessing::spawn(accumulate, job, 2).unwrap();
}

fn moved_too_late(rank: usize, job: Job) {
    let group = job.join(rank);
    let net = nn::Linear::new(3, 2);
    let mut inside = net.clone();
    let optimizer = AdamW::new(net.parameters(), AdamWOptions::default());
    let ddp = DistributedDataParallel::new(net, &group).unwrap();
    let error = catch(|| inside.double()).unwrap_err().to_string();
    let expected = ["`weight`", "DistributedDataParallel", "move the module first"];
    assert!(expected.iter().all(|e| error.contains(e)), "{error}");
    assert_eq!(inside.weight.dtype(), Dtype::F32);
    drop(ddp);
    inside.double();
    let ddp = DistributedDataParallel::new(inside, &group).unwrap();
    let mut optimizer = optimizer;
    let before = ddp.weight.to_vec::<f64>();
    ddp.forward(&Tensor::ones([1, 3], Dtype::F64)).sum().backward();
    optimizer.step();
    assert!(ddp.weight.grad().is_some_and(|g| g.dtype() == Dtype::F64));
    assert_ne!(ddp.weight.to_vec::<f64>(), before);
}

#[test]
fn a_wrapped_module_is_not_moved_and_one_that_was_moved_can_be_wrapped() {
    multiprocessing::spawn(moved_too_late, Job::new(2, PathBuf::new()), 2).unwrap();
}

/// Rank 1 builds something else; `out` says what.
fn different_models(rank: usize, job: Job) {
    let group = job.join(rank);
    let what = job.out.to_str().unwrap();
    let mut net = Net::new();
    if rank == 1 {
        match what {
            "shape" => net.fc2 = nn::Linear::new(32, 6),
            "dtype" => net.norm.to(Dtype::F64),
            _ => net.fc2.requires_grad_(false),
        }
    }
    let error =
        DistributedDataParallel::new(net, &group).err().expect("the models differ").to_string();
    let expected: &[&str] = match what {
        "shape" => &["`fc2.weight`", "[5, 32]", "[6, 32]", "rank 0", "rank 1"],
        "dtype" => &["`norm.weight`", "f32", "f64", "rank 1"],
        _ => &["`fc2.weight`", "no gradient", "rank 1"],
    };
    assert!(expected.iter().all(|e| error.contains(e)), "rank {rank}: {error}");
}

fn different_names(rank: usize, job: Job) {
    let group = job.join(rank);
    let error = if rank == 0 {
        DistributedDataParallel::new(Net::new(), &group).err()
    } else {
        DistributedDataParallel::new(nn::Linear::new(12, 32), &group).err()
    };
    let error = error.expect("the models differ").to_string();
    assert!(error.contains("`fc1.weight`") && error.contains("`weight`"), "{error}");
}

#[test]
fn row_28_the_first_difference_between_models_is_named_on_every_rank() {
    for what in ["shape", "dtype", "gradient"] {
        multiprocessing::spawn(different_models, Job::new(2, what.into()), 2).unwrap();
    }
    multiprocessing::spawn(different_names, Job::new(2, PathBuf::new()), 2).unwrap();
}

/// Without the option an unused parameter is an error that names it; with it, training goes on.
fn unused(rank: usize, job: Job) {
    let group = job.join(rank);
    let x = Tensor::ones([2, 12], Dtype::F32);
    let options = DDPOptions { find_unused_parameters: true, ..small_buckets() };
    {
        let net = DistributedDataParallel::with_options(Net::new(), &group, options).unwrap();
        // Rank 1 alone uses fc2; nobody uses norm's bias and weight.
        let hidden = net.fc1.forward(&x);
        let loss = if rank == 1 { net.fc2.forward(&hidden).sum() } else { hidden.sum() };
        loss.backward();
        assert!(net.norm.named_parameters().iter().all(|(_, p)| p.grad().is_none()));
        let bias = net.fc2.named_parameters().pop().unwrap().1.grad().unwrap();
        assert_eq!(bias.to_vec::<f32>(), [1.0; 5]);
    }
    let net = DistributedDataParallel::with_options(Net::new(), &group, small_buckets()).unwrap();
    let error = catch(|| net.fc1.forward(&x).sum().backward()).unwrap_err().to_string();
    assert!(error.contains("norm.weight") && error.contains("find_unused_parameters"), "{error}");
}

/// A parameter that is unfrozen after the module was wrapped would be trained by each rank for itself.
fn unfrozen(rank: usize, job: Job) {
    let group = job.join(rank);
    let net = Net::new();
    net.fc1.weight.requires_grad_(false);
    let net = DistributedDataParallel::with_options(net, &group, small_buckets()).unwrap();
    let loss = || net.logits(&Tensor::ones([2, 12], Dtype::F32)).sum();
    loss().backward();
    net.fc1.weight.requires_grad_(true);
    let error = catch(|| loss().backward()).unwrap_err().to_string();
    assert!(error.contains("`fc1.weight` was frozen") && error.contains("wrap"), "{error}");
}

/// One that is frozen meanwhile is no parameter that a step leaves out.
fn frozen(rank: usize, job: Job) {
    let group = job.join(rank);
    let net = DistributedDataParallel::with_options(Net::new(), &group, small_buckets()).unwrap();
    let loss = || net.logits(&Tensor::ones([2, 12], Dtype::F32)).sum();
    loss().backward();
    net.fc1.weight.requires_grad_(false);
    let error = catch(|| loss().backward()).unwrap_err().to_string();
    let is_told =
        error.contains("fc1.weight") && error.contains("frozen after the module was wrapped");
    assert!(is_told && !error.contains("find_unused"), "{error}");
}

#[test]
fn a_parameter_frozen_after_wrapping_is_told_from_an_unused_one() {
    multiprocessing::spawn(frozen, Job::new(2, PathBuf::new()), 2).unwrap();
}

#[test]
fn a_parameter_unfrozen_after_wrapping_is_named() {
    multiprocessing::spawn(unfrozen, Job::new(2, PathBuf::new()), 2).unwrap();
}

#[test]
fn row_29_an_unused_parameter_is_named_or_allowed() {
    multiprocessing::spawn(unused, Job::new(2, PathBuf::new()), 2).unwrap();
}

/// Rank 1 fails between forward and backward; rank 0 is woken from its all-reduce.
fn one_fails(rank: usize, job: Job) {
    let group = job.join(rank);
    let net = DistributedDataParallel::with_options(Net::new(), &group, small_buckets()).unwrap();
    let loss = net.logits(&Tensor::ones([2, 12], Dtype::F32)).sum();
    group.barrier().unwrap();
    if rank == 1 {
        panic!("bad sample");
    }
    let start = Instant::now();
    let error = catch(|| loss.backward()).unwrap_err().to_string();
    assert!(start.elapsed() < Duration::from_secs(5), "woken after {:?}", start.elapsed());
    assert!(error.contains("rank 1"), "{error}");
    std::fs::write(&job.out, error).unwrap();
}

#[test]
fn row_32_an_exception_on_one_rank_wakes_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let job = Job::new(2, dir.path().join("seen"));
    let context = multiprocessing::start_processes(one_fails, job.clone(), 2).unwrap();
    // Waited for one by one: `join` would end rank 0 itself.
    let statuses: Vec<_> = context
        .processes()
        .iter()
        .map(|p| p.wait_timeout(Duration::from_secs(60)).expect("it ends by itself"))
        .collect();
    assert!(statuses[0].success() && !statuses[1].success(), "{statuses:?}");
    assert!(std::fs::read_to_string(&job.out).unwrap().contains("rank 1"));
}

/// Rank 0 has 5 batches and leaves, rank 1 has 7.
fn uneven_batches(rank: usize, job: Job) {
    let group = job.join(rank);
    let net = DistributedDataParallel::with_options(Net::new(), &group, small_buckets()).unwrap();
    let step = || net.logits(&Tensor::ones([2, 12], Dtype::F32)).sum().backward();
    (0..5).for_each(|_| step());
    if rank == 1 {
        let start = Instant::now();
        let error = catch(step).unwrap_err().to_string();
        assert!(start.elapsed() < Duration::from_secs(5), "told after {:?}", start.elapsed());
        std::fs::write(&job.out, error).unwrap();
    }
}

#[test]
fn row_30_a_rank_with_fewer_batches_is_named_to_those_with_more() {
    let dir = tempfile::tempdir().unwrap();
    let job = Job::new(2, dir.path().join("seen"));
    multiprocessing::spawn(uneven_batches, job.clone(), 2).unwrap();
    let error = std::fs::read_to_string(&job.out).unwrap();
    assert!(error.contains("rank 0") && error.contains("all_reduce"), "{error}");
}

/// Rank 1 sums the gradients once more in the middle of a step, rank 0 does not.
fn rank_dependent_control_flow(rank: usize, job: Job) {
    let group = job.join(rank);
    let net = DistributedDataParallel::with_options(Net::new(), &group, small_buckets()).unwrap();
    let loss = net.logits(&Tensor::ones([2, 12], Dtype::F32)).sum();
    let result = catch(|| {
        if rank == 1 {
            group.barrier().unwrap_or_else(|e| std::panic::panic_any(e));
        }
        loss.backward();
    });
    std::fs::write(format!("{}{rank}", job.out.display()), result.unwrap_err().to_string())
        .unwrap();
}

#[test]
fn row_31_a_call_that_only_one_rank_makes_is_an_error_on_both() {
    let dir = tempfile::tempdir().unwrap();
    let job = Job::new(2, dir.path().join("seen"));
    multiprocessing::spawn(rank_dependent_control_flow, job.clone(), 2).unwrap();
    for rank in 0..2 {
        let error = std::fs::read_to_string(format!("{}{rank}", job.out.display())).unwrap();
        assert!(error.contains("barrier") && error.contains("all_reduce"), "{error}");
    }
}

/// Two models of one shape, whose backwards run in another order on one rank.
fn other_order(rank: usize, job: Job) {
    let group = job.join(rank);
    let model = || DistributedDataParallel::new(nn::Linear::new(3, 2), &group).unwrap();
    let models = [model(), model()];
    let run = |order: [usize; 2]| {
        for place in order {
            models[place].forward(&Tensor::ones([1, 3], Dtype::F32)).sum().backward();
        }
        group.barrier().unwrap_or_else(|error| std::panic::panic_any(error));
    };
    run([0, 1]);
    let error = catch(|| run([[0, 1], [1, 0]][rank])).unwrap_err().to_string();
    assert!(error.contains("(model 2)") && error.contains("rank 1"), "{error}");
}

#[test]
fn models_of_one_shape_are_not_taken_for_each_other() {
    multiprocessing::spawn(other_order, Job::new(2, PathBuf::new()), 2).unwrap();
}
