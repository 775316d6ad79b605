//! Ten steps of Adam: losses and weights of the sharded run and of DDP are the same bits.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use torchrs::distributed::{DeviceMesh, DistributedDataParallel, ProcessGroup};
use torchrs::nn::parallel::{FullyShardOptions, fully_shard};
use torchrs::nn::{self, Forward, Module};
use torchrs::optim::{Adam, AdamOptions, Optimizer};
use torchrs::{Dtype, Tensor};

use super::on;
use crate::job::Job;

#[derive(Module)]
struct Block {
    fc1: nn::Linear,
    norm: nn::LayerNorm,
    fc2: nn::Linear,
}

impl Block {
    fn new(width: usize, hidden: usize) -> Self {
        let norm = nn::LayerNorm::new([hidden]);
        Block { fc1: nn::Linear::new(width, hidden), norm, fc2: nn::Linear::new(hidden, width) }
    }
}

impl Forward for Block {
    fn forward(&self, x: &Tensor) -> Tensor {
        maybe_late(Place::Gather);
        if x.requires_grad() {
            // The gradients of the block behind are there by then.
            x.register_hook(|_| {
                maybe_late(Place::ReduceScatter);
                None
            });
        }
        x + self.fc2.forward(&self.norm.forward(&self.fc1.forward(x)).gelu())
    }
}

#[derive(Module)]
struct Net {
    embedding: nn::Embedding,
    blocks: Vec<Block>,
    head: nn::Linear,
}

impl Net {
    /// Of the same values for the same seed.
    fn new(seed: u64, width: usize, hidden: usize) -> Self {
        torchrs::manual_seed(seed);
        Net {
            embedding: nn::Embedding::new(11, width),
            blocks: (0..3).map(|_| Block::new(width, hidden)).collect(),
            head: nn::Linear::new(width, 3),
        }
    }
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.blocks.iter().fold(self.embedding.forward(x), |x, block| block.forward(&x));
        self.head.forward(&x)
    }
}

/// A way to shard.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Way {
    width: usize,
    hidden: usize,
    /// Each block in a group of its own.
    blocks: bool,
    reshard_after_forward: Option<bool>,
    /// Backwards in a step, of which the last reduces.
    accumulate: usize,
    /// Ranks that have the same shards; with more than one sums are in another order than DDP's.
    replicas: usize,
    /// Over how many ranks wholes are cut between forward and backward, if not over all.
    fewer: Option<usize>,
    /// Where the last rank is late: a bit for each [`Place`].
    late: u8,
}

fn shard(net: &mut Net, group: &ProcessGroup, way: Way) -> Vec<nn::parallel::FullyShard> {
    let dims = [("replicate", way.replicas as isize), ("shard", -1)];
    let mesh = DeviceMesh::new(group, dims).unwrap();
    let group = if way.replicas > 1 { mesh } else { group.into() };
    let group = &group;
    let reshard_after_forward = way.reshard_after_forward.map(Into::into);
    let reshard_after_forward = way.fewer.map(Into::into).or(reshard_after_forward);
    let options = FullyShardOptions { reshard_after_forward, ..Default::default() };
    let mut handles = Vec::new();
    if way.blocks {
        for block in &mut net.blocks {
            handles.push(fully_shard(block, group, options.clone()).unwrap());
        }
    }
    handles.push(fully_shard(net, group, options).unwrap());
    handles
}

fn are_same([theirs, ours]: &[Vec<f32>; 2], way: Way) -> bool {
    let is_near = |a: f32, b: f32| (a - b).abs() <= 1e-5 + 1e-4 * a.abs();
    theirs.len() == ours.len()
        && theirs.iter().zip(ours).all(|(&a, &b)| match way.replicas {
            1 => a.to_bits() == b.to_bits(),
            _ => is_near(a, b),
        })
}

fn ten_steps(rank: usize, (job, way): (Job, Way)) {
    let group = job.join(rank);
    LATE.store(if rank + 1 == job.world { way.late } else { 0 }, Relaxed);
    // Ranks begin with other values: those of rank 0 count.
    let seed = 7 + rank as u64;
    let ddp = Net::new(seed, way.width, way.hidden);
    let ddp = DistributedDataParallel::new(ddp, &group).unwrap();
    let mut sharded = Net::new(seed, way.width, way.hidden);
    let handles = shard(&mut sharded, &group, way);
    let options = || AdamOptions { lr: 1e-2, ..Default::default() };
    let mut of_ddp = Adam::new(ddp.parameters(), options());
    let mut of_shards = Adam::new(sharded.parameters(), options());
    torchrs::manual_seed(100 + rank as u64);
    for step in 0..10 {
        for micro in 0..way.accumulate {
            let is_last = micro + 1 == way.accumulate;
            let x = Tensor::randint(0, 11, [4, 5], Dtype::I64);
            let loss = ddp.forward(&x).square().mean();
            match is_last {
                true => loss.backward(),
                false => ddp.no_sync(|| loss.backward()),
            }
            handles.iter().for_each(|handle| handle.set_requires_gradient_sync(is_last));
            let same = sharded.forward(&x).square().mean();
            maybe_late(Place::Forward);
            same.backward();
            let losses = [loss, same].map(|loss| vec![loss.item() as f32]);
            assert!(are_same(&losses, way), "rank {rank}, step {step}, batch {micro}: {losses:?}");
        }
        // Too large a bound to clip anything: a norm that is summed in another order is not the same to the bit.
        let order = [2.0, 1.0, 3.0, f64::INFINITY][step % 4];
        let norms = [ddp.parameters(), sharded.parameters()]
            .map(|all| nn::clip_grad_norm_with(&all, 1e9, order, true).unwrap().item());
        assert!((norms[0] - norms[1]).abs() <= 1e-5 * norms[0], "step {step}: {norms:?}");
        maybe_late(Place::Step);
        of_ddp.step();
        of_shards.step();
        ddp.zero_grad();
        sharded.zero_grad();
    }
    let (left, right) = (ddp.state_dict(), sharded.state_dict());
    let names: Vec<&str> = left.keys().collect();
    assert_eq!(names, right.keys().collect::<Vec<_>>());
    for name in names {
        let both = [&left, &right].map(|dict| dict[name].to_vec::<f32>());
        assert!(are_same(&both, way), "rank {rank}, `{name}`: {both:?}");
    }
    let shapes = |all: Vec<Tensor>| all.iter().map(|t| t.numel()).sum::<usize>();
    let (own, all) = (shapes(sharded.parameters()), shapes(ddp.parameters()));
    assert!(own <= all.div_ceil(job.world / way.replicas) + 100, "{own} of {all} elements");
}

/// Where a rank is late.
#[derive(Clone, Copy)]
enum Place {
    Gather,
    ReduceScatter,
    Forward,
    Step,
}

/// Those of this process.
static LATE: AtomicU8 = AtomicU8::new(0);

fn maybe_late(place: Place) {
    if LATE.load(Relaxed) >> place as u8 & 1 == 1 {
        std::thread::sleep(Duration::from_millis(2));
    }
}

const SMALL: Way = Way {
    width: 8,
    hidden: 16,
    blocks: true,
    reshard_after_forward: None,
    accumulate: 1,
    replicas: 1,
    fewer: None,
    late: 0,
};

#[test]
fn sharded_and_replicated_training_give_the_same_bits() {
    for world in [1, 2, 3, 4, 8] {
        on(world, ten_steps, &SMALL);
    }
}

#[test]
fn uneven_and_empty_shards_give_the_same_bits() {
    for (width, hidden) in [(7, 15), (15, 3), (17, 8)] {
        for world in [2, 4] {
            on(world, ten_steps, &Way { width, hidden, ..SMALL });
        }
    }
}

#[test]
fn whatever_is_given_back_and_whatever_is_one_group_the_bits_are_the_same() {
    for reshard_after_forward in [Some(true), Some(false)] {
        for blocks in [true, false] {
            on(2, ten_steps, &Way { blocks, reshard_after_forward, ..SMALL });
        }
    }
}

#[test]
fn accumulated_gradients_give_the_same_bits() {
    on(2, ten_steps, &Way { accumulate: 3, ..SMALL });
}

#[test]
fn replicas_of_shards_are_near() {
    on(4, ten_steps, &Way { replicas: 2, ..SMALL });
    on(2, ten_steps, &Way { replicas: 2, ..SMALL });
}

#[test]
fn wholes_that_are_cut_over_fewer_ranks_give_the_same_bits() {
    let fewer = Some(2);
    on(4, ten_steps, &Way { fewer, ..SMALL });
    on(4, ten_steps, &Way { fewer, width: 7, hidden: 15, ..SMALL });
    on(4, ten_steps, &Way { fewer, accumulate: 2, blocks: false, ..SMALL });
}

#[test]
fn a_rank_that_is_late_changes_no_bit() {
    for late in [1, 2, 4, 8, 15] {
        on(2, ten_steps, &Way { late, ..SMALL });
    }
    on(4, ten_steps, &Way { late: 15, width: 7, hidden: 15, ..SMALL });
}
