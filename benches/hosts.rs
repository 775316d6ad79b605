//! A rank of the benchmarks over several hosts. `scripts/bench-vs-torch hosts` makes the hosts (network namespaces),
//! starts torchrs-launch on each, and PyTorch's side, `tools/bench/peer_hosts.py`, in turns with it.
//!
//! Arguments: what the rows' names begin with, and `start`, `allreduce`, `mpi`, `resnet18` or `nanogpt`.

#[allow(dead_code, reason = "two of its models are enough")]
#[path = "common/models.rs"]
mod models;
#[path = "common/ranks.rs"]
mod ranks;

use std::time::{Duration, Instant, SystemTime};

use torchrs::distributed::{DistributedDataParallel, ProcessGroup, ReduceOp, init_process_group};
use torchrs::models::{GPT2LMHeadModel, resnet18};
use torchrs::nn::{Forward, functional as F};
use torchrs::optim::{AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use torchrs::{Dtype, Result, Tensor, manual_seed, set_num_threads};

/// Label, bytes, repetitions; as in `peer_hosts.py`.
const SIZES: [(&str, usize, usize); 4] = [
    ("4KiB", 4 << 10, 200),
    ("256KiB", 256 << 10, 100),
    ("4MiB", 4 << 20, 40),
    ("100MiB", 100 << 20, 7),
];

#[torchrs::main]
fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|a| a != "--bench").collect();
    let [prefix, what] = &arguments[..] else {
        println!("a rank of `scripts/bench-vs-torch hosts`, which starts it on each host");
        return Ok(());
    };
    set_num_threads(1);
    manual_seed(0);
    let group = init_process_group(Default::default())?;
    match &what[..] {
        "start" => start(&group),
        "allreduce" => all_reduce(&group, prefix),
        "mpi" => beside_mpis_own(&group, prefix),
        "resnet18" => {
            let x = Tensor::randn([8, 3, 224, 224], Dtype::F32);
            let y = Tensor::randint(0, 1000, [8], Dtype::I64);
            let options = SGDOptions { lr: 1e-3, momentum: 0.9, ..Default::default() };
            let optimizer = |p| SGD::new(p, options);
            let loss = |scores: Tensor| F::cross_entropy(&scores, &y);
            let name = format!("{prefix}_resnet18_b8_per_rank");
            train(&group, &name, ("img/s", 8), resnet18(1000), &x, optimizer, loss)
        }
        "nanogpt" => {
            let config = models::nanogpt();
            let vocabulary = config.vocab_size as i64;
            let x = Tensor::randint(0, vocabulary, [4, 256], Dtype::I64);
            let y = Tensor::randint(0, vocabulary, [4 * 256], Dtype::I64);
            let optimizer = |p| AdamW::new(p, AdamWOptions { lr: 1e-4, ..Default::default() });
            let loss =
                |scores: Tensor| F::cross_entropy(&scores.reshape([4 * 256, vocabulary]), &y);
            let name = format!("{prefix}_nanogpt_b4_per_rank");
            let model = GPT2LMHeadModel::new(config);
            train(&group, &name, ("tok/s", 4 * 256), model, &x, optimizer, loss)
        }
        other => panic!("`{other}`; expected `start`, `allreduce`, `mpi`, `resnet18` or `nanogpt`"),
    }
}

/// Says when the first collective ended.
fn start(group: &ProcessGroup) -> Result<()> {
    let one = Tensor::ones([1], Dtype::F32);
    group.all_reduce(&one, ReduceOp::Sum)?;
    let ended = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock");
    assert_eq!(one.item(), group.world_size() as f64);
    println!("{}", serde_json::json!({ "ended": ended.as_secs_f64() }));
    Ok(())
}

/// Of an ordinary tensor, each time from a barrier on.
fn all_reduce(group: &ProcessGroup, prefix: &str) -> Result<()> {
    for (label, nbytes, count) in SIZES {
        // The ranks of a wide host share its cores: what is long is repeated less often.
        let count = count.div_ceil(group.world_size() / 2);
        let t = Tensor::ones([nbytes / 4], Dtype::F32);
        group.all_reduce(&t, ReduceOp::Avg)?;
        let mut seconds = Vec::new();
        for _ in 0..count {
            group.barrier()?;
            let start = Instant::now();
            group.all_reduce(&t, ReduceOp::Avg)?;
            seconds.push(start.elapsed().as_secs_f64());
        }
        if group.rank() == 0 {
            seconds.sort_by(f64::total_cmp);
            let (median, least) = (seconds[seconds.len() / 2], seconds[0]);
            let row = serde_json::json!({
                "name": format!("{prefix}_allreduce_{label}"), "threads": 1, "median_s": median,
                "min_s": least, "unit": "GB/s", "rate": nbytes as f64 * 1e-9 / least,
            });
            println!("{row}");
        }
    }
    Ok(())
}

/// Sums of f32: the group's, over MPI, and MPI's own blocking call, in turns.
fn beside_mpis_own(group: &ProcessGroup, prefix: &str) -> Result<()> {
    let limit = Duration::from_secs(60);
    let failed = torchrs_mpi::Failure::into_error;
    let world = torchrs_mpi::Mpi::load(limit)?.world().map_err(failed)?;
    let world = world.duplicate(limit, &mut || None).map_err(failed)?;
    for (label, nbytes, count) in SIZES {
        let (mut bare, ours) = (vec![1f32; nbytes / 4], Tensor::ones([nbytes / 4], Dtype::F32));
        let mut times: [Vec<f64>; 2] = Default::default();
        for turn in 0..2 * count + 2 {
            for way in [turn % 2, 1 - turn % 2] {
                group.barrier()?;
                let start = Instant::now();
                match way {
                    0 => group.all_reduce(&ours, ReduceOp::Sum)?,
                    _ => world.bare_all_reduce(&mut bare).map_err(failed)?,
                }
                if turn >= 2 {
                    times[way].push(start.elapsed().as_secs_f64());
                }
            }
            bare.fill(1.0);
            ours.fill_(1.0);
        }
        for (way, mut seconds) in times.into_iter().enumerate().filter(|_| group.rank() == 0) {
            seconds.sort_by(f64::total_cmp);
            let (median, least) = (seconds[seconds.len() / 2], seconds[0]);
            let row = serde_json::json!({
                "name": format!("{prefix}_allreduce_{label}"), "threads": 1, "median_s": median,
                "min_s": least, "unit": "GB/s", "rate": nbytes as f64 * 1e-9 / least, "bare": way == 1,
            });
            println!("{row}");
        }
    }
    Ok(())
}

/// Training steps of `model`, its gradients averaged.
fn train<M: Forward + 'static, O: Optimizer>(
    group: &ProcessGroup,
    name: &str,
    (unit, work): (&str, usize),
    model: M,
    x: &Tensor,
    optimizer: impl FnOnce(Vec<Tensor>) -> O,
    loss: impl Fn(Tensor) -> Tensor,
) -> Result<()> {
    let net = DistributedDataParallel::new(model, group)?;
    let mut optimizer = optimizer(net.parameters());
    let mut step = || {
        optimizer.zero_grad();
        loss(net.forward(x)).backward();
        optimizer.step();
    };
    (0..2).for_each(|_| step());
    ranks::time_steps(group, name, unit, work, (7, 1), step)
}
