//! Sharded models that do not fit one GPU, and their checkpoints.

use torchrs::checkpoint::distributed::AsyncCheckpointer;
use torchrs::checkpoint::{Checkpoint, CheckpointDir};
use torchrs::nn::parallel::fully_shard;
use torchrs::nn::{self, Forward, Linear, Module, Sequential};
use torchrs::optim::{Adam, AdamOptions, Optimizer};
use torchrs::train::TrainState;
use torchrs::{Device, Dtype, Error, Result, Tensor, catch};

use super::job::{ADVERSARY, gpu, join_job, run_with};
use super::sharded::blocks;

/// What is saved from GPUs, at once and in the background while everything changes, is what is loaded to GPUs and CPUs.
fn saves(_: ()) -> Result<()> {
    let group = join_job()?;
    let own = tempfile::tempdir().unwrap();
    let folder = group.broadcast_object(Some(&own.path().to_owned()), 0)?;
    let checkpoints = CheckpointDir::new(folder, 9);
    let made = |seed, device| -> Result<(Sequential, Adam)> {
        torchrs::manual_seed(seed);
        let mut model = blocks(2, 9);
        model.to_device(device);
        for block in model.iter_mut() {
            fully_shard(block, &group, Default::default())?;
        }
        let mut adam = Adam::new(model.parameters(), Default::default());
        model.forward(&Tensor::ones([2, 9], (Dtype::F32, device))).square().mean().backward();
        adam.step();
        Ok((model, adam))
    };
    let values = |model: &Sequential, adam: &Adam| -> Vec<f64> {
        let weights = model.state_dict().into_iter().map(|(_, t)| t.square().sum().item());
        let (states, _) = adam.state_dict().split();
        weights.chain(states.into_values().map(|t| t.square().sum().item())).collect()
    };
    let mut checkpointer = AsyncCheckpointer::new(&group)?;
    let (model, mut adam) = made(1, gpu())?;
    let expected = values(&model, &adam);
    TrainState::new().model(&model).optimizer(&mut adam).save(&checkpoints, 1, &group)?;
    let state = TrainState::new().model(&model).optimizer(&mut adam);
    state.async_save(&mut checkpointer, &checkpoints, 2, &group)?;
    torchrs::no_grad(|| model.parameters().iter().for_each(|p| _ = p.fill_(7.0)));
    checkpointer.wait()?;
    for (step, device) in [(1, gpu()), (2, gpu()), (2, Device::Cpu)] {
        let (model, mut adam) = made(2, device)?;
        assert_ne!(values(&model, &adam), expected);
        let checkpoint = Checkpoint::open(checkpoints.at(step))?;
        TrainState::new().model(&model).optimizer(&mut adam).load(&checkpoint, &group)?;
        let got = values(&model, &adam);
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-6 * b.abs();
        assert!(got.iter().zip(&expected).all(near), "{got:?} {expected:?}");
    }
    group.barrier()
}

#[test]
fn sharded_models_are_saved_and_loaded() {
    run_with(2, [&[(ADVERSARY, "5")], &[]], saves);
}

const SMALL: usize = 32 << 20;

/// Weights, gradients and states are four times a device's memory; the weights alone do not fit.
fn outgrows(_: ()) -> Result<()> {
    const BLOCKS: usize = 33;
    const WIDTH: usize = 512;
    let group = join_job()?;
    let block = || {
        let linear = Linear::no_bias(WIDTH, WIDTH);
        // So that something comes out at the end of many.
        torchrs::no_grad(|| _ = linear.weight.copy_(&Tensor::eye(WIDTH, Dtype::F32)));
        Sequential::new().append(linear).append(nn::Tanh)
    };
    const { assert!(16 * BLOCKS * WIDTH * WIDTH > 4 * SMALL) };
    if group.rank() == 0 {
        let mut whole = (0..BLOCKS).map(|_| block()).fold(Sequential::new(), Sequential::append);
        let error = catch(|| whole.to_device(gpu())).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    }
    let mut model = Sequential::new();
    for _ in 0..BLOCKS {
        let mut block = block();
        block.to_device(gpu());
        fully_shard(&mut block, &group, Default::default())?;
        model = model.append(block);
    }
    let mut adam = Adam::new(model.parameters(), AdamOptions { lr: 1e-4, ..Default::default() });
    let x = Tensor::ones([1, WIDTH], (Dtype::F32, gpu()));
    let losses: Vec<f64> = (0..3)
        .map(|_| {
            adam.zero_grad();
            let loss = (model.forward(&x) - 1.0).square().mean();
            loss.backward();
            adam.step();
            loss.item()
        })
        .collect();
    assert!(losses[2] < losses[1] && losses[1] < losses[0], "{losses:?}");
    group.barrier()
}

#[test]
fn a_model_of_four_times_a_devices_memory_trains_on_eight() {
    run_with(8, [&[("TORCHRS_SIMULATED_MEMORY", "32MiB")], &[]], outgrows);
}
