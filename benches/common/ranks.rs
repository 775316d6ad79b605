//! Starting a benchmark's ranks, as processes of this host.

use std::time::Instant;

use serde::Serialize;
use serde::de::DeserializeOwned;
use torchrs::distributed::{ProcessGroup, StoreServer};
use torchrs::multiprocessing::Process;
use torchrs::{Result, Tensor};

/// The number of ranks on the command line.
#[allow(dead_code, reason = "not every benchmark is told it")]
pub fn asked() -> Option<usize> {
    std::env::args().find_map(|arg| arg.parse().ok())
}

/// Runs `rank` in `world` processes, which can join a process group.
#[allow(dead_code, reason = "some ranks are told more")]
pub fn spawn(world: usize, rank: impl Fn(()) -> Result<()> + Copy + 'static) -> Result<()> {
    spawn_with(world, rank, ())
}

/// [`spawn`] with an argument for all ranks.
#[allow(dead_code, reason = "a launcher starts the ranks of some benchmarks")]
pub fn spawn_with<A>(
    world: usize,
    rank: impl Fn(A) -> Result<()> + Copy + 'static,
    argument: A,
) -> Result<()>
where
    A: Clone + Serialize + DeserializeOwned + 'static,
{
    torchrs::init();
    let server = StoreServer::start()?;
    let ranks: Vec<Process> = (0..world)
        .map(|i| {
            Process::builder()
                .name(format!("rank {i}"))
                .env("RANK", i.to_string())
                .env("WORLD_SIZE", world.to_string())
                .inherit("TORCHRS_STORE_FD", server.connect()?)
                .spawn(rank, argument.clone())
        })
        .collect::<Result<_>>()?;
    ranks.iter().try_for_each(Process::join)
}

/// Times `samples` times `per_sample` steps on all ranks, each time from a barrier on, and prints a row on
/// rank 0: seconds per step of `batch` samples on each rank, and the processor time of all ranks in it.
#[allow(dead_code, reason = "not every benchmark takes steps")]
pub fn time_steps(
    group: &ProcessGroup,
    name: &str,
    unit: &str,
    batch: usize,
    (samples, per_sample): (usize, usize),
    mut step: impl FnMut(),
) -> Result<()> {
    let mut seconds = Vec::new();
    let before = processor_time();
    for _ in 0..samples {
        group.barrier()?;
        let start = Instant::now();
        (0..per_sample).for_each(|_| step());
        seconds.push(start.elapsed().as_secs_f64() / per_sample as f64);
    }
    let own = (processor_time() - before) / (samples * per_sample) as f64;
    let all = group.all_gather(&Tensor::from([own]))?;
    if group.rank() == 0 {
        let cpu_s: f64 = all.iter().map(|time| time.item()).sum();
        seconds.sort_by(f64::total_cmp);
        println!(
            "{}",
            serde_json::json!({
                "name": name, "threads": 1, "median_s": seconds[seconds.len() / 2],
                "min_s": seconds[0], "cpu_s": cpu_s, "unit": unit,
                "rate": (batch * group.world_size()) as f64 / seconds[0],
            })
        );
    }
    Ok(())
}

/// Seconds that this process has been on a processor.
#[allow(dead_code, reason = "not every benchmark takes steps")]
fn processor_time() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable; the clock is there on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}
