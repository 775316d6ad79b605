//! What a row asks of a GPU: launches, bytes and floating-point operations, and what the host needs for that.

use std::collections::BTreeMap;
use std::time::Instant;

use torchrs::Result;
use torchrs::cuda::synchronisations;
use torchrs::profiler::{self, ProfilerOptions, SortBy, Traffic};

use crate::estimate::{Counted, estimates};

/// How often a call is timed on the host.
const TIMES: usize = 3;

/// Seconds since this process was started, from the system's clock of hundredths: loading the program counts too.
fn since_start() -> Option<f64> {
    let read = |path| std::fs::read_to_string(path).ok();
    let (stat, uptime) = (read("/proc/self/stat")?, read("/proc/uptime")?);
    // Behind the program's name, which may have spaces, the start is the twentieth.
    let ticks: f64 = stat.rsplit(')').next()?.split_whitespace().nth(19)?.parse().ok()?;
    let now: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    Some((now - ticks / 100.0).max(0.0))
}

/// Prints the counts of the second call, when all that is kept between calls is there.
pub fn row(name: &str, with_ops: bool, call: &mut dyn FnMut()) -> Result<()> {
    call();
    let first = since_start();
    let mut host = f64::INFINITY;
    for _ in 0..TIMES {
        let begin = Instant::now();
        call();
        host = host.min(begin.elapsed().as_secs_f64());
    }
    let waits = synchronisations();
    let options =
        ProfilerOptions { with_traffic: true, with_flops: true, ..ProfilerOptions::default() };
    let ((), profile) = profiler::profile_with(options, call);
    let waits = synchronisations() - waits;
    let all = profile.device_calls().values().fold(Traffic::default(), |all, one| all + *one);
    let flops: u64 = profile.events().iter().map(|event| event.flops).sum();
    let counted = Counted {
        launches: all.launches,
        bytes: all.bytes,
        library_calls: all.library_calls,
        flops,
        host,
    };
    let estimates: BTreeMap<&str, f64> = estimates(&counted).into_iter().collect();
    let estimated = name.ends_with("bf16").then_some(estimates);
    println!(
        "{}",
        serde_json::json!({
            "name": name, "launches": all.launches, "bytes": all.bytes, "library_calls": all.library_calls,
            "library_bytes": all.library_bytes, "flops": flops, "waits": waits, "host_us": host * 1e6,
            "first_step_s": first, "estimated_ms": estimated,
        })
    );
    if with_ops {
        let averages = profile.key_averages();
        println!("{}", averages.table(SortBy::DeviceBytes, None));
        let mut calls: Vec<_> = profile.device_calls().iter().collect();
        calls.sort_by_key(|(_, traffic)| std::cmp::Reverse(traffic.bytes + traffic.library_bytes));
        println!("{:<40} {:>8} {:>12} {:>8} {:>12}", "call", "launches", "MB", "library", "MB");
        for (name, t) in calls {
            let mb = |bytes: u64| bytes as f64 * 1e-6;
            println!(
                "{name:<40} {:>8} {:>12.1} {:>8} {:>12.1}",
                t.launches,
                mb(t.bytes),
                t.library_calls,
                mb(t.library_bytes)
            );
        }
    }
    Ok(())
}
