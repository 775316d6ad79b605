//! The default training step of `examples/train` on two data-parallel processes: the digits CNN,
//! AdamW, 16 samples per rank, gradients clipped. PyTorch's side is `tools/bench/peer_train_step.py`.
//! Prints one JSON line: seconds per step as rank 0 sees them, the validation and the loader apart.
//!
//! `cargo bench --bench train_step [-- RANKS]` (default 2)

#[path = "common/ranks.rs"]
mod ranks;

use torchrs::distributed::{DistributedDataParallel, init_process_group};
use torchrs::nn::{self, Forward, Module, functional as F};
use torchrs::ops::Pool2dOptions;
use torchrs::optim::{AdamW, AdamWOptions, Optimizer};
use torchrs::{Dtype, Result, Tensor, manual_seed, set_num_threads};

const BATCH: usize = 16;
const STEPS: usize = 20;

/// The `Cnn` of `examples/train/models.rs` for 1x8x8 images and 10 classes.
#[derive(Module)]
struct Cnn {
    conv1: nn::Conv2d,
    conv2: nn::Conv2d,
    fc1: nn::Linear,
    fc2: nn::Linear,
}

impl Cnn {
    fn new() -> Self {
        Cnn {
            conv1: nn::Conv2d::new(1, 32, 3).padding(1),
            conv2: nn::Conv2d::new(32, 64, 3).padding(1),
            fc1: nn::Linear::new(64 * 4 * 4, 128),
            fc2: nn::Linear::new(128, 10),
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.conv2.forward(&self.conv1.forward(x).relu()).relu();
        let x = x.max_pool2d(Pool2dOptions::new([2, 2]));
        self.fc2.forward(&self.fc1.forward(&x.flatten(1, -1)).relu())
    }
}

fn main() -> Result<()> {
    ranks::spawn(ranks::asked().unwrap_or(2), measure)
}

fn measure(_: ()) -> Result<()> {
    set_num_threads(1);
    let group = init_process_group(Default::default())?;
    manual_seed(0);
    let net = DistributedDataParallel::new(Cnn::new(), &group)?;
    let options = AdamWOptions { lr: 2e-3, ..Default::default() };
    let mut optimizer = AdamW::new(net.parameters(), options);
    let x = Tensor::randn([BATCH, 1, 8, 8], Dtype::F32);
    let y: Vec<i64> = (0..BATCH as i64).map(|i| i % 10).collect();
    let y = Tensor::from_slice(&y, [BATCH]);
    let mut step = || {
        optimizer.zero_grad();
        F::cross_entropy(&net.forward(&x), &y).backward();
        nn::clip_grad_norm_(&net.parameters(), 1.0);
        optimizer.step();
    };
    (0..20).for_each(|_| step());
    let name = format!("train_step_ddp{}_digits_cnn", group.world_size());
    ranks::time_steps(&group, &name, "sample/s", BATCH, (30, STEPS), step)
}
