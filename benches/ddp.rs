//! Training steps of one process and of two data-parallel ones, one thread each: how well they scale.
//! One JSON line per model and number of ranks, with names as PyTorch's side of the benchmarks has
//! them (its section `ddp`).
//!
//! `cargo bench --bench ddp [-- RANKS]` (default: 1, then 2)

#[allow(dead_code, reason = "one of its models is enough")]
#[path = "common/models.rs"]
mod models;
#[path = "common/ranks.rs"]
mod ranks;

use torchrs::distributed::{DistributedDataParallel, ProcessGroup, init_process_group};
use torchrs::nn::{Forward, functional as F};
use torchrs::optim::{Optimizer, SGD, SGDOptions};
use torchrs::{Dtype, Result, Tensor, manual_seed, set_num_threads};

fn main() -> Result<()> {
    torchrs::init();
    let worlds = match ranks::asked() {
        Some(world) => vec![world],
        None => vec![1, 2],
    };
    worlds.into_iter().try_for_each(|world| ranks::spawn(world, measure))
}

fn measure(_: ()) -> Result<()> {
    set_num_threads(1);
    let group = init_process_group(Default::default())?;
    let digits = Tensor::randn([64, 1, 28, 28], Dtype::F32);
    time(&group, "lenet5", models::lenet5(), &digits, 10, 20, 15)?;
    let images = Tensor::randn([8, 3, 224, 224], Dtype::F32);
    time(&group, "resnet18", torchrs::models::resnet18(1000), &images, 1000, 1, 8)
}

fn time<M: Forward + 'static>(
    group: &ProcessGroup,
    name: &str,
    model: M,
    x: &Tensor,
    classes: i64,
    per_sample: usize,
    samples: usize,
) -> Result<()> {
    manual_seed(0);
    let batch = x.shape()[0];
    let y = Tensor::randint(0, classes, [batch], Dtype::I64);
    let net = DistributedDataParallel::new(model, group)?;
    let options = SGDOptions { lr: 1e-3, momentum: 0.9, ..Default::default() };
    let mut optimizer = SGD::new(net.parameters(), options);
    let mut step = || {
        optimizer.zero_grad(true);
        F::cross_entropy(&net.forward(x), &y).backward();
        optimizer.step();
    };
    (0..3).for_each(|_| step());
    let name = format!("ddp{}_{name}_b{batch}_per_rank", group.world_size());
    ranks::time_steps(group, &name, "img/s", batch, (samples, per_sample), step)
}
