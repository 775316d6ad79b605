//! Collectives between processes of this host over shared memory, as rank 0 sees them: each call is
//! timed from a barrier on. One JSON line per row, under the names that `tools/bench/peer_bench.py`
//! has for gloo. `shared`: the tensor lives in the group's shared memory, as DDP's buckets do.
//! `private`: it is an ordinary tensor. `raw`: started on the communication thread and waited for.
//!
//! `cargo bench --bench collectives [-- RANKS]` (default 2, and joining a group of one)

#[path = "common/ranks.rs"]
mod ranks;

use std::time::{Duration, Instant};

use torchrs::distributed::{ProcessGroup, ReduceOp, init_process_group};
use torchrs::{Dtype, Result, Tensor};

/// Label, bytes, repetitions.
const SIZES: [(&str, usize, usize); 8] = [
    ("4B", 4, 20_000),
    ("4KiB", 4 << 10, 20_000),
    ("64KiB", 64 << 10, 5000),
    ("256KiB", 256 << 10, 3000),
    ("1MiB", 1 << 20, 1000),
    ("4MiB", 4 << 20, 400),
    ("25MiB", 25 << 20, 60),
    ("100MiB", 100 << 20, 20),
];

fn main() -> Result<()> {
    if let Some(world) = ranks::asked() {
        return ranks::spawn(world, measure);
    }
    ranks::spawn(1, |()| join().map(drop))?;
    ranks::spawn(2, measure)
}

fn join() -> Result<ProcessGroup> {
    let start = Instant::now();
    let group = init_process_group(Default::default())?;
    group.barrier()?;
    let seconds = vec![start.elapsed().as_secs_f64()];
    let name = format!("ddp{}_init_process_group_plus_barrier", group.world_size());
    emit(&group, &name, 1.0, "s", seconds);
    Ok(group)
}

fn measure(_: ()) -> Result<()> {
    let group = join()?;
    for (label, nbytes, n) in SIZES {
        let (len, gigabytes) = (nbytes / 4, nbytes as f64 * 1e-9);
        let shared = group.empty_shared(&[len], Dtype::F32)?;
        shared.fill_(1.0);
        let private = Tensor::ones([len], Dtype::F32);
        let buffer = group.alloc_shared(nbytes)?;
        let slice = buffer.slice(0, len, Dtype::F32)?;
        let seconds = sample(&group, n, || group.all_reduce(&shared, ReduceOp::Avg))?;
        emit(&group, &format!("allreduce_shm_{label}"), gigabytes, "GB/s", seconds);
        let seconds = sample(&group, n, || group.all_reduce(&private, ReduceOp::Avg))?;
        emit(&group, &format!("allreduce_shm_private_{label}"), gigabytes, "GB/s", seconds);
        let raw = || group.all_reduce_raw(slice.clone(), ReduceOp::Avg)?.wait();
        let seconds = sample(&group, n.min(2000), raw)?;
        emit(&group, &format!("allreduce_shm_raw_{label}"), gigabytes, "GB/s", seconds);
    }
    let t = Tensor::zeros([1 << 20], Dtype::F32);
    let seconds = sample(&group, 400, || group.broadcast(&t, 0))?;
    emit(&group, "broadcast_shm_4MiB", 4.0 * 1.048_576e-3, "GB/s", seconds);
    let gathered = Tensor::zeros([group.world_size() << 20], Dtype::F32);
    let seconds = sample(&group, 400, || group.all_gather_into_tensor(&gathered, &t))?;
    emit(&group, "allgather_shm_4MiB", 4.0 * 1.048_576e-3, "GB/s", seconds);
    let barriers = (0..20_000).map(|_| {
        let start = Instant::now();
        group.barrier().map(|()| start.elapsed().as_secs_f64())
    });
    let seconds = barriers.collect::<Result<_>>()?;
    emit(&group, "barrier_shm", 0.0, "us", seconds);
    Ok(())
}

/// Seconds per call, each from a barrier on; for at most a few seconds in all, as rank 0 decides.
fn sample(group: &ProcessGroup, n: usize, call: impl Fn() -> Result<()>) -> Result<Vec<f64>> {
    let go_on = Tensor::zeros([1], Dtype::U8);
    let begin = Instant::now();
    call()?;
    let mut seconds = Vec::new();
    while seconds.len() < n {
        for _ in 0..n.div_ceil(10) {
            group.barrier()?;
            let start = Instant::now();
            call()?;
            seconds.push(start.elapsed().as_secs_f64());
        }
        go_on.fill_(if begin.elapsed() < Duration::from_secs(5) { 1.0 } else { 0.0 });
        group.broadcast(&go_on, 0)?;
        if go_on.item() == 0.0 {
            break;
        }
    }
    Ok(seconds)
}

fn emit(group: &ProcessGroup, name: &str, work: f64, unit: &str, mut seconds: Vec<f64>) {
    if group.rank() != 0 {
        return;
    }
    seconds.sort_by(f64::total_cmp);
    let (min, median) = (seconds[0], seconds[seconds.len() / 2]);
    let rate = match unit {
        "us" => min * 1e6,
        "s" => min,
        _ => work / min,
    };
    let ranks = group.world_size();
    println!(
        r#"{{"name": "{name}", "threads": 1, "median_s": {median:.4e}, "min_s": {min:.4e}, "unit": "{unit}", "rate": {rate:.4}, "ranks": {ranks}}}"#
    );
}
