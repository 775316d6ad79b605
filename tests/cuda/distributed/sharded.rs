//! Sharded training on GPUs: the numbers of data-parallel training, no wait, and no more memory than promised.

use torchrs::checkpoint::distributed::AsyncCheckpointer;
use torchrs::checkpoint::{Checkpoint, CheckpointDir};
use torchrs::cuda::memory;
use torchrs::cuda_graphs::CudaGraph;
use torchrs::distributed::DistributedDataParallel;
use torchrs::nn::parallel::{FullyShardOptions, MixedPrecisionPolicy, fully_shard};
use torchrs::nn::{self, Forward, Linear, Module, Sequential, clip_grad_norm_};
use torchrs::optim::{Adam, AdamOptions, Optimizer};
use torchrs::train::TrainState;
use torchrs::{Device, Dtype, Error, Result, Tensor, catch, cuda};

use super::job::{ADVERSARY, gpu, join_job, run, run_with};

fn blocks(count: usize, width: usize) -> Sequential {
    let block = |_| {
        Sequential::new()
            .append(Linear::new(width, width + 3))
            .append(nn::ReLU)
            .append(Linear::new(width + 3, width))
    };
    (0..count).map(block).fold(Sequential::new(), Sequential::append)
}

fn trains(_: ()) -> Result<()> {
    let group = join_job()?;
    for reshard in [true, false] {
        let made = || {
            torchrs::manual_seed(5);
            blocks(3, 10)
        };
        let (mut plain, mut sharded) = (made(), made());
        plain.to_device(gpu());
        sharded.to_device(gpu());
        let plain = DistributedDataParallel::new(plain, &group)?;
        let options =
            FullyShardOptions { reshard_after_forward: Some(reshard), ..Default::default() };
        for block in sharded.iter_mut() {
            fully_shard(block, &group, options.clone())?;
        }
        let adam = || AdamOptions { lr: 1e-2, ..Default::default() };
        let mut of_plain = Adam::new(plain.parameters(), adam());
        let mut of_shards = Adam::new(sharded.parameters(), adam());
        torchrs::manual_seed(20 + group.rank() as u64);
        for step in 0..6 {
            let x = Tensor::randn([4, 10], Dtype::F32).to_device(gpu());
            let losses = [&*plain, &sharded].map(|module| {
                let loss = module.forward(&x).square().mean();
                loss.backward();
                loss.item()
            });
            assert!((losses[0] - losses[1]).abs() <= 1e-5 * losses[0], "step {step}: {losses:?}");
            let norms = [plain.parameters(), sharded.parameters()];
            let norms = norms.map(|all| clip_grad_norm_(&all, 0.5).item());
            assert!((norms[0] - norms[1]).abs() <= 1e-4 * norms[0], "step {step}: {norms:?}");
            of_plain.step();
            of_shards.step();
            plain.zero_grad();
            sharded.zero_grad();
        }
        let (left, right) = (plain.state_dict(), sharded.state_dict());
        for (name, expected) in left.iter() {
            let apart = (expected - &right[name]).abs().max().item();
            assert!(apart < 1e-4, "`{name}`: {apart}");
        }
    }
    group.barrier()
}

#[test]
fn sharded_training_is_data_parallel_training() {
    run_with(2, [&[(ADVERSARY, "3")], &[]], trains);
    run_with(3, [&[(ADVERSARY, "4")], &[]], trains);
}

/// The host never waits for the GPU.
fn never_waits(_: ()) -> Result<()> {
    let group = join_job()?;
    let mut model = blocks(3, 16);
    model.to_device(gpu());
    let (param_dtype, reduce_dtype) = (Some(Dtype::BF16), Some(Dtype::F32));
    let mp_policy = MixedPrecisionPolicy { param_dtype, reduce_dtype };
    let options = FullyShardOptions { mp_policy, ..Default::default() };
    for block in model.iter_mut() {
        fully_shard(block, &group, options.clone())?;
    }
    let x = Tensor::ones([4, 16], (Dtype::BF16, gpu()));
    let step = || {
        model.zero_grad();
        model.forward(&x).sum().backward();
    };
    step();
    let before = cuda::synchronisations();
    step();
    assert_eq!(cuda::synchronisations(), before);
    assert!(model.parameters().iter().all(|p| p.grad().unwrap().dtype() == Dtype::F32));
    group.barrier()
}

#[test]
fn a_sharded_step_does_not_wait_for_the_gpu() {
    run(2, never_waits);
}

/// The bounds of PyTorch's own test, in bytes: of what this rank has allocated at most in each phase.
fn takes_memory(_: ()) -> Result<()> {
    const BLOCKS: usize = 4;
    const WIDTH: usize = 256;
    let group = join_job()?;
    let device = cuda::device::current();
    let bytes = |count: usize| count * 4;
    let one = bytes(2 * WIDTH * (WIDTH + 3) + 2 * WIDTH + 3);
    let (whole, slack) = (BLOCKS * one, 256 << 10);
    let shards = whole / group.world_size();
    let peak = |what: &str, most: usize, f: &mut dyn FnMut()| -> Result<()> {
        memory::reset_peak(device)?;
        f();
        let got = memory::statistics(device)?.allocated.peak;
        assert!(got <= most + slack, "{what}: {got} bytes at most, {most} and {slack} allowed");
        Ok(())
    };
    for reshard in [true, false] {
        let mut model = Sequential::new();
        let options =
            FullyShardOptions { reshard_after_forward: Some(reshard), ..Default::default() };
        peak("init", shards + 2 * one, &mut || {
            for _ in 0..BLOCKS {
                let mut block = blocks(1, WIDTH);
                block.to_device(gpu());
                fully_shard(&mut block, &group, options.clone()).unwrap();
                model = std::mem::take(&mut model).append(block);
            }
        })?;
        let mut optimizer = Adam::new(model.parameters(), Default::default());
        let x = Tensor::ones([1, WIDTH], (Dtype::F32, gpu()));
        for step in 0..2 {
            let states = if step == 0 { 0 } else { 2 * shards };
            let (mut loss, kept) = (Tensor::from([0f32]), if reshard { 0 } else { whole });
            peak("forward", shards + states + kept + 3 * one, &mut || {
                loss = model.forward(&x).square().mean();
            })?;
            peak("backward", 2 * shards + states + kept + 3 * one, &mut || loss.backward())?;
            peak("step", 4 * shards + one, &mut || optimizer.step())?;
            optimizer.zero_grad();
            let got = memory::statistics(device)?.allocated.current;
            assert!(got <= 3 * shards + slack, "after a step: {got} bytes, of {whole} in all");
        }
    }
    group.barrier()
}

#[test]
fn no_rank_takes_more_memory_than_promised() {
    run(2, takes_memory);
    run(4, takes_memory);
}

/// A graph has fixed addresses, and sharded parameters have none.
fn is_not_recorded(_: ()) -> Result<()> {
    let group = join_job()?;
    let mut model = blocks(1, 8);
    model.to_device(gpu());
    let handle = fully_shard(&mut model, &group, Default::default())?;
    let x = Tensor::ones([2, 8], (Dtype::F32, gpu()));
    let forward = || torchrs::no_grad(|| model.forward(&x));
    let error =
        CudaGraph::capture(|| catch(forward).map(drop)).map(drop).expect_err("nothing is gathered");
    assert!(error.to_string().contains("fully_shard"), "{error}");
    // Gathered before, they could not be given back.
    handle.unshard()?;
    let (graph, _y) = CudaGraph::capture(|| Ok(forward()))?;
    let error = catch(|| handle.reshard()).unwrap_err().to_string();
    assert!(error.contains("drop the graph") && error.contains("weight"), "{error}");
    drop(graph);
    handle.reshard();
    forward();
    group.barrier()
}

#[test]
fn sharded_modules_are_not_recorded() {
    run(2, is_not_recorded);
}

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
    assert!(16 * BLOCKS * WIDTH * WIDTH > 4 * SMALL);
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
