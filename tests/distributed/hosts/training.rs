//! Training over hosts is training on one.

use torchrs::distributed::{DDPOptions, DistributedDataParallel, ReduceOp};
use torchrs::multiprocessing::Channel;
use torchrs::nn::{self, Forward, Module, functional as F};
use torchrs::optim::{AdamW, AdamWOptions, Optimizer};
use torchrs::{Device, Dtype, Result, Tensor};

use super::{Hosts, LONG, Ranks, gpu, join_job, start, start_on_gpus};

#[derive(Module)]
struct Net {
    fc1: nn::Linear,
    norm: nn::SyncBatchNorm,
    fc2: nn::Linear,
}

/// How many steps a run has.
const STEPS: usize = 50;

/// Steps on the same global batches whatever the layout, on the CPU or a GPU; the losses.
pub fn steps(on_gpu: bool, parent: Channel<Vec<f64>, ()>) -> Result<()> {
    let group = join_job()?;
    let device = if on_gpu { gpu() } else { Device::Cpu };
    let (rank, world) = (group.rank(), group.world_size());
    torchrs::manual_seed(7 + rank as u64);
    let mut net = Net {
        fc1: nn::Linear::new(12, 64),
        norm: nn::SyncBatchNorm::new(64).process_group(&group),
        fc2: nn::Linear::new(64, 5),
    };
    net.to_device(device);
    let options =
        DDPOptions { first_bucket_mb: 0.0005, bucket_cap_mb: 0.001, ..Default::default() };
    let net = DistributedDataParallel::with_options(net, &group, options)?;
    torchrs::manual_seed(99);
    let mut optimizer =
        AdamW::new(net.parameters(), AdamWOptions { lr: 1e-2, ..Default::default() });
    let mut losses = Vec::new();
    for _ in 0..STEPS {
        let x = Tensor::randn([16, 12], Dtype::F32);
        let y = x.narrow(1, 0, 5).argmax_dim(1, false);
        let share = 16 / world;
        let mine = |all: &Tensor| all.narrow(0, rank * share, share).to_device(device);
        let (x, y) = (mine(&x), mine(&y));
        optimizer.zero_grad();
        let logits = net.fc2.forward(&net.norm.forward(&net.fc1.forward(&x)).gelu());
        let loss = F::cross_entropy(&logits, &y);
        loss.backward();
        optimizer.step();
        let mean = loss.detach().cpu().to_dtype(Dtype::F64).to_device(device);
        group.all_reduce(&mean, ReduceOp::Avg)?;
        losses.push(mean.item());
    }
    let weights = net.parameters();
    let weights =
        weights.iter().flat_map(|p| p.cpu().to_vec::<f32>()).map(|v| i64::from(v.to_bits()));
    let mine = Tensor::from(weights.collect::<Vec<_>>());
    for (other, theirs) in group.all_gather(&mine)?.iter().enumerate() {
        let same = theirs.to_vec::<i64>() == mine.to_vec::<i64>();
        assert!(same, "weights of ranks {rank} and {other}");
    }
    parent.send(&losses)
}

/// The losses of a run that ends well.
fn curve((_hosts, ranks): (Hosts, Ranks<(), Vec<f64>>)) -> Vec<f64> {
    let all: Vec<Vec<f64>> =
        ranks.iter().map(|(_, channel)| channel.recv_timeout(LONG).unwrap()).collect();
    ranks.iter().for_each(|(rank, _)| rank.join_timeout(LONG).unwrap());
    assert!(all.iter().all(|losses| *losses == all[0] && losses.len() == STEPS));
    all[0].clone()
}

/// By number of hosts. Ranks check that their weights are the same bits.
fn compare(curves: [(usize, Vec<f64>); 3]) {
    let one = &curves[0].1;
    assert!(one[STEPS - 1] < 0.8 * one[0], "the loss falls: {one:?}");
    for (hosts, other) in &curves[1..] {
        for (step, (a, b)) in one.iter().zip(other).enumerate() {
            let is_near = (a - b).abs() <= 1e-5 * a.abs();
            assert!(is_near, "step {step}: {a} on one host, {b} on {hosts}");
        }
    }
}

const LAYOUTS: [&[usize]; 3] = [&[4], &[2, 2], &[1, 1, 1, 1]];

#[test]
fn one_two_and_four_hosts_give_the_same_curve_and_the_same_weights_bitwise() {
    compare(LAYOUTS.map(|layout| (layout.len(), curve(start(layout, 60.0, steps, &false)))));
}

#[test]
fn so_do_they_on_gpus() {
    let run = |layout: &[usize]| start_on_gpus(layout, 60.0, steps, &true).map(curve);
    let Some(one) = run(LAYOUTS[0]) else { return };
    let others = [1, 2].map(|i| (LAYOUTS[i].len(), run(LAYOUTS[i]).unwrap()));
    let [two, four] = others;
    compare([(1, one), two, four]);
}
