//! Sharded training over several hosts: near data-parallel training, which adds in another order there.

use std::path::PathBuf;

use torchrs::checkpoint::{Checkpoint, CheckpointDir};
use torchrs::distributed::{DeviceMesh, DistributedDataParallel};
use torchrs::multiprocessing::Channel;
use torchrs::nn::parallel::fully_shard;
use torchrs::nn::{Forward, Linear, Module, ReLU, Sequential, clip_grad_norm_};
use torchrs::optim::{Adam, Optimizer, ZeroRedundancyOptimizer};
use torchrs::train::TrainState;
use torchrs::{Dtype, Result, Tensor};

use super::{join_job, run};

fn model() -> Sequential {
    // More than what goes in one message, and uneven.
    Sequential::new().append(Linear::new(300, 211)).append(ReLU).append(Linear::new(211, 5))
}

fn trains(replicas: isize, _parent: Channel<(), ()>) -> Result<()> {
    let group = join_job()?;
    let model = || {
        torchrs::manual_seed(6);
        model()
    };
    let plain = DistributedDataParallel::new(model(), &group)?;
    let spread = DistributedDataParallel::new(model(), &group)?;
    let mut sharded = model();
    let mesh = match replicas {
        1 => DeviceMesh::from(&group),
        _ => DeviceMesh::new(&group, [("replicate", replicas), ("shard", -1)])?,
    };
    for layer in sharded.iter_mut().filter(|layer| !layer.parameters().is_empty()) {
        fully_shard(layer, &mesh, Default::default())?;
    }
    let adam = |parameters| Adam::new(parameters, Default::default());
    let mut optimizers: [Box<dyn Optimizer>; 3] = [
        Box::new(adam(plain.parameters())),
        Box::new(ZeroRedundancyOptimizer::new(spread.parameters(), &group, adam)?),
        Box::new(adam(sharded.parameters())),
    ];
    let models = [&*plain, &*spread, &sharded];
    torchrs::manual_seed(30 + group.rank() as u64);
    for step in 0..4 {
        let x = Tensor::randn([3, 300], Dtype::F32);
        let seen = models.map(|model| {
            let loss = model.forward(&x).square().mean();
            loss.backward();
            [loss.item(), clip_grad_norm_(&model.parameters(), 0.5).item()]
        });
        for other in &seen[1..] {
            let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 * b.abs();
            assert!(other.iter().zip(&seen[0]).all(near), "step {step}: {seen:?}");
        }
        for optimizer in &mut optimizers {
            optimizer.step();
            optimizer.zero_grad();
        }
    }
    group.barrier()
}

#[test]
fn shards_and_states_over_hosts() {
    run(&[2, 1], trains, &1);
    run(&[2, 2], trains, &2);
}

/// What two hosts write is read on three, and the other way round, by `fully_shard` and by data-parallel ranks.
fn saves((folder, from, to): (PathBuf, u64, u64), _parent: Channel<(), ()>) -> Result<()> {
    let group = join_job()?;
    let checkpoints = CheckpointDir::new(folder, 9);
    let shard = |seed| -> Result<Sequential> {
        torchrs::manual_seed(seed);
        let mut sharded = model();
        if seed % 2 == 1 {
            fully_shard(&mut sharded, &group, Default::default())?;
        }
        Ok(sharded)
    };
    let values =
        |model: &Sequential| model.state_dict().iter().map(|(_, t)| t.sum().item()).collect();
    if to == 0 {
        TrainState::new().model(&shard(from)?).sharded().save(&checkpoints, from, &group)?;
        return group.barrier();
    }
    let expected: Vec<f64> = values(&shard(from)?);
    let other = shard(to)?;
    TrainState::new().model(&other).load(&Checkpoint::open(checkpoints.at(from))?, &group)?;
    let got: Vec<f64> = values(&other);
    assert_eq!(got, expected);
    group.barrier()
}

#[test]
fn checkpoints_over_hosts() {
    let folder = tempfile::tempdir().unwrap();
    let path = || folder.path().to_owned();
    run(&[2, 1], saves, &(path(), 1, 0));
    run(&[1, 1, 2], saves, &(path(), 1, 8));
    run(&[1, 2], saves, &(path(), 1, 9));
    run(&[1, 1], saves, &(path(), 2, 0));
    run(&[2, 2], saves, &(path(), 2, 7));
    run(&[3], saves, &(path(), 2, 6));
}
