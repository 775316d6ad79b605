//! Training over hosts is training on one.

use torchrs::distributed::{DDPOptions, DistributedDataParallel, ReduceOp};
use torchrs::multiprocessing::Channel;
use torchrs::nn::{self, Forward, Module, functional as F};
use torchrs::optim::{AdamW, AdamWOptions, Optimizer};
use torchrs::{Dtype, Result, Tensor};

use super::{LONG, join_job, start};

#[derive(Module)]
struct Net {
    fc1: nn::Linear,
    norm: nn::SyncBatchNorm,
    fc2: nn::Linear,
}

/// 20 steps on the same global batches whatever the layout; the losses.
pub fn twenty_steps(_: (), parent: Channel<Vec<f64>, ()>) -> Result<()> {
    let group = join_job()?;
    let (rank, world) = (group.rank(), group.world_size());
    torchrs::manual_seed(7 + rank as u64);
    let net = Net {
        fc1: nn::Linear::new(12, 64),
        norm: nn::SyncBatchNorm::new(64).process_group(&group),
        fc2: nn::Linear::new(64, 5),
    };
    let options =
        DDPOptions { first_bucket_mb: 0.0005, bucket_cap_mb: 0.001, ..Default::default() };
    let net = DistributedDataParallel::with_options(net, &group, options)?;
    torchrs::manual_seed(99);
    let mut optimizer =
        AdamW::new(net.parameters(), AdamWOptions { lr: 1e-2, ..Default::default() });
    let mut losses = Vec::new();
    for _ in 0..20 {
        let x = Tensor::randn([16, 12], Dtype::F32);
        let y = x.narrow(1, 0, 5).argmax_dim(1, false);
        let share = 16 / world;
        let (x, y) = (x.narrow(0, rank * share, share), y.narrow(0, rank * share, share));
        optimizer.zero_grad();
        let logits = net.fc2.forward(&net.norm.forward(&net.fc1.forward(&x)).gelu());
        let loss = F::cross_entropy(&logits, &y);
        loss.backward();
        optimizer.step();
        let mean = loss.detach().to_dtype(Dtype::F64);
        group.all_reduce(&mean, ReduceOp::Avg)?;
        losses.push(mean.item());
    }
    let weights = net.parameters();
    let weights = weights.iter().flat_map(|p| p.to_vec::<f32>()).map(|v| i64::from(v.to_bits()));
    let mine = Tensor::from(weights.collect::<Vec<_>>());
    for (other, theirs) in group.all_gather(&mine)?.iter().enumerate() {
        let same = theirs.to_vec::<i64>() == mine.to_vec::<i64>();
        assert!(same, "weights of ranks {rank} and {other}");
    }
    parent.send(&losses)
}

#[test]
fn one_two_and_four_hosts_give_the_same_curve_and_the_same_weights_bitwise() {
    let curve = |layout: &[usize]| {
        let (_hosts, ranks) = start(layout, 60.0, twenty_steps, &());
        let all: Vec<Vec<f64>> =
            ranks.iter().map(|(_, channel)| channel.recv_timeout(LONG).unwrap()).collect();
        ranks.iter().for_each(|(rank, _)| rank.join_timeout(LONG).unwrap());
        all[0].clone()
    };
    let one = curve(&[4]);
    assert!(one[19] < 0.9 * one[0], "the loss falls: {one:?}");
    for layout in [&[2, 2][..], &[1, 1, 1, 1]] {
        for (step, (a, b)) in one.iter().zip(curve(layout)).enumerate() {
            assert!((a - b).abs() <= 1e-5 * a.abs(), "step {step}: {a} on one, {b} on {layout:?}");
        }
    }
}
