//! Child processes and channels: time to start one, also from a large parent, of a message there
//! and back, and of `init`. One JSON line per row, as `tools/bench/peer_bench.py` prints them.
//!
//! `cargo bench --bench processes`

use std::time::{Duration, Instant};

use torchrs::multiprocessing::{Channel, Process};
use torchrs::{Dtype, Result, Tensor};

fn nothing(_: ()) {}

fn echo<T: serde::Serialize + serde::de::DeserializeOwned>(
    _: (),
    parent: Channel<T, T>,
) -> Result<()> {
    while let Ok(message) = parent.recv() {
        parent.send(&message)?;
    }
    Ok(())
}

/// Seconds per call, `n` times.
fn sample(n: usize, mut f: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    f()?;
    (0..n)
        .map(|_| {
            let start = Instant::now();
            f()?;
            Ok(start.elapsed().as_secs_f64())
        })
        .collect()
}

fn emit(name: &str, mut seconds: Vec<f64>) {
    seconds.sort_by(f64::total_cmp);
    let (min, median) = (seconds[0], seconds[seconds.len() / 2]);
    let rate = min * 1e6;
    println!(
        r#"{{"name": "{name}", "threads": 1, "median_s": {median:.3e}, "min_s": {min:.3e}, "unit": "us", "rate": {rate:.4}}}"#
    );
}

fn spawn_and_exit() -> Result<()> {
    Process::spawn(nothing, ())?.join()
}

fn round_trips<T>(name: &str, n: usize, message: T) -> Result<()>
where
    T: serde::Serialize + serde::de::DeserializeOwned + 'static,
{
    let (child, channel) = Process::builder().spawn_connected(echo::<T>, ())?;
    let seconds = sample(n, || {
        channel.send(&message)?;
        channel.recv().map(drop)
    })?;
    emit(name, seconds);
    drop(channel);
    child.join_timeout(Duration::from_secs(10))
}

fn main() -> Result<()> {
    let start = Instant::now();
    torchrs::init();
    emit("init", vec![start.elapsed().as_secs_f64()]);

    emit("spawn_exit", sample(100, spawn_and_exit)?);
    // Written, so resident.
    let ballast = vec![1u8; 1 << 30];
    emit("spawn_exit_from_1GiB", sample(100, spawn_and_exit)?);
    assert_eq!(ballast[ballast.len() - 1], 1);
    drop(ballast);

    round_trips("channel_round_trip_8B", 20_000, 7u64)?;
    round_trips("channel_round_trip_1MiB_bytes", 300, "x".repeat(1 << 20))?;
    let tensor = Tensor::zeros([100 << 20], Dtype::U8).share_memory_()?;
    round_trips("channel_round_trip_100MiB_tensor", 5_000, tensor)
}
