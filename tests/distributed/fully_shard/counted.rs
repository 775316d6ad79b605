//! What a step communicates, in bytes and in calls.

use torchrs::distributed::{DistributedDataParallel, ProcessGroup};
use torchrs::nn::parallel::{FullyShardOptions, fully_shard};
use torchrs::nn::{Forward, Linear, Module, Sequential};
use torchrs::optim::{AdamW, Optimizer, ZeroRedundancyOptimizer};
use torchrs::profiler::{Category, Profile, profile};
use torchrs::{Dtype, Tensor};

use super::on;
use crate::job::Job;

const LAYERS: usize = 3;
const WIDTH: usize = 64;

/// Of sizes that need no padding.
fn layers() -> Sequential {
    (0..LAYERS).fold(Sequential::new(), |net, _| net.append(Linear::new(WIDTH, WIDTH)))
}

/// Calls of a collective, and the bytes that this rank gives in them.
fn given(profile: &Profile, name: &str) -> (usize, usize) {
    let is_call = |e: &&torchrs::profiler::Event| {
        e.name == name && e.category == Category::Communication && e.bytes.is_some()
    };
    let calls: Vec<usize> =
        profile.events().iter().filter(is_call).filter_map(|e| e.bytes).collect();
    (calls.len(), calls.iter().sum())
}

fn step(forward: &dyn Fn(&Tensor) -> Tensor) {
    // Its gradient needs the first layer's parameters, too.
    let x = Tensor::ones([2, WIDTH], Dtype::F32).requires_grad_(true);
    forward(&x).square().mean().backward();
}

/// The second step's, in which all is as it stays.
fn second(forward: &dyn Fn(&Tensor) -> Tensor) -> Profile {
    step(forward);
    profile(|| step(forward)).1
}

fn sharded(group: &ProcessGroup, reshard: bool) -> Sequential {
    let mut net = layers();
    let options =
        FullyShardOptions { reshard_after_forward: Some(reshard.into()), ..Default::default() };
    for layer in net.iter_mut() {
        fully_shard(layer, group, options.clone()).unwrap();
    }
    net
}

fn counts(rank: usize, (job, ()): (Job, ())) {
    let group = job.join(rank);
    let world = group.world_size();
    let all: usize = layers().parameters().iter().map(|p| p.numel() * 4).sum();

    // ZeRO-3: the last layer is still there when backward begins.
    let net = sharded(&group, true);
    let step = second(&|x| net.forward(x));
    let gathers = 2 * LAYERS - 1;
    assert_eq!(given(&step, "all_gather"), (gathers, all / LAYERS * gathers / world));
    assert_eq!(given(&step, "reduce_scatter"), (LAYERS, all));
    assert_eq!(given(&step, "all_reduce").0, 0);

    // ZeRO-2.
    let net = sharded(&group, false);
    let step = second(&|x| net.forward(x));
    assert_eq!(given(&step, "reduce_scatter"), (LAYERS, all));
    // Backward has given them back, so that forward gathers them once.
    assert_eq!(given(&step, "all_gather"), (LAYERS, all / world));

    // DDP: an all-reduce is a reduce-scatter and an all-gather.
    let net = DistributedDataParallel::new(layers(), &group).unwrap();
    let step = second(&|x| net.forward(x));
    let [inner, outer] = ["all_reduce", "all_reduce_bucket"].map(|name| given(&step, name).1);
    let bytes = inner.max(outer);
    assert_eq!(bytes, all, "{:?}", step.key_averages());
    for name in ["all_gather", "reduce_scatter"] {
        assert_eq!(given(&step, name).0, 0);
    }
}

/// ZeRO-1: states in parts, gradients whole until the last of the batches that add up to one step.
fn counts_of_states_in_parts(rank: usize, (job, ()): (Job, ())) {
    const BATCHES: usize = 3;
    let group = job.join(rank);
    let world = group.world_size();
    let all: usize = layers().parameters().iter().map(|p| p.numel() * 4).sum();

    let mut net = layers();
    let options =
        FullyShardOptions { reshard_after_forward: Some(false.into()), ..Default::default() };
    let handle = fully_shard(&mut net, &group, options).unwrap();
    let mut optimizer = AdamW::new(net.parameters(), Default::default());
    let mut steps = || {
        for batch in 1..=BATCHES {
            handle.set_requires_gradient_sync(batch == BATCHES);
            handle.set_reshard_after_backward(batch == BATCHES);
            step(&|x| net.forward(x));
        }
        optimizer.step();
        optimizer.zero_grad();
    };
    steps();
    let profile_of_steps = profile(steps).1;
    assert_eq!(given(&profile_of_steps, "all_gather"), (1, all / world));
    assert_eq!(given(&profile_of_steps, "reduce_scatter"), (1, all));
    assert_eq!(given(&profile_of_steps, "all_reduce").0, 0);

    // Around DDP every rank has every gradient, as ZeroRedundancyOptimizer's users in PyTorch do: one time more.
    let net = DistributedDataParallel::new(layers(), &group).unwrap();
    let mut optimizer = ZeroRedundancyOptimizer::new(net.parameters(), &group, |own| {
        AdamW::new(own, Default::default())
    })
    .unwrap();
    let mut steps = || {
        step(&|x| net.forward(x));
        optimizer.step();
    };
    steps();
    let profile_of_steps = profile(steps).1;
    let [inner, outer] =
        ["all_reduce", "all_reduce_bucket"].map(|name| given(&profile_of_steps, name).1);
    assert_eq!(inner.max(outer), all);
    let (calls, bytes) = given(&profile_of_steps, "all_gather");
    // Owners have whole parameters, the largest of which is filled up for.
    let weight = WIDTH * WIDTH * 4;
    assert!(calls == 1 && bytes * world >= all && bytes <= all / world + weight, "{bytes}");
}

#[test]
fn a_step_with_states_in_parts_communicates_as_much_as_without() {
    on(2, counts_of_states_in_parts, &());
    on(4, counts_of_states_in_parts, &());
}

#[test]
fn a_step_communicates_what_the_formulas_say() {
    on(2, counts, &());
    on(4, counts, &());
}
