//! The smallest distributed program: every worker joins, meets the others, and says who it is.
//!
//! ```text
//! cargo launch --nproc 4 hello
//! ```

use torchrs::prelude::*;

#[torchrs::main]
fn main() -> Result<()> {
    // How long the process has existed when `main` runs: `benches/launch.rs` reads this line.
    println!("main at {} ns", torchrs::multiprocessing::report::monotonic_ns());
    let group = distributed::init_process_group(Default::default())?;
    group.barrier()?;
    println!(
        "rank {} of {}, process {}, {} KiB resident",
        group.rank(),
        group.world_size(),
        std::process::id(),
        resident_kib()
    );
    Ok(())
}

/// Resident memory of this process, from `/proc/self/status`.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
