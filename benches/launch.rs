//! Start-up of a job with two workers: from starting `torchrs-launch` to the first line of `main` on
//! both, to the end of a job that only meets at a barrier, and what an idle worker holds in memory; and a worker
//! alone, without the launcher, from its start to its end.
//! Prints JSON lines like `tools/bench/peer_bench.py launch`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use torchrs::multiprocessing::report::monotonic_ns;

const ROUNDS: usize = 30;

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let launcher = build(
        root,
        &["--package", "torchrs-launcher", "--bin", "torchrs-launch"],
        "torchrs-launch",
    );
    let hello = build(root, &["--example", "hello"], "examples/hello");
    let (mut alone, mut first_line, mut whole, mut resident) = (vec![], vec![], vec![], 0);
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let output = Command::new(&hello).output().expect("it starts");
        alone.push(start.elapsed().as_secs_f64());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let (start_ns, start) = (monotonic_ns(), Instant::now());
        let output =
            Command::new(&launcher).args(["--nproc", "2"]).arg(&hello).output().expect("it starts");
        whole.push(start.elapsed().as_secs_f64());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers = |before: &str| -> Vec<u64> {
            let after =
                |line: &str| line.split(before).nth(1)?.split_whitespace().next()?.parse().ok();
            text.lines().filter_map(after).collect()
        };
        let mains = numbers("main at ");
        assert_eq!(mains.len(), 2, "{text}");
        first_line.push((mains.iter().max().expect("two") - start_ns) as f64 * 1e-9);
        let process = |line: &str| line.split(", ").nth(2)?.split(' ').next()?.parse::<u64>().ok();
        resident = resident.max(text.lines().filter_map(process).max().expect("each says so"));
    }
    emit("launch_alone_and_end", &mut alone, resident);
    emit("launch_nproc2_main_on_both_ranks", &mut first_line, resident);
    emit("launch_nproc2_barrier_and_end", &mut whole, resident);
}

fn build(root: &Path, what: &[&str], file: &str) -> PathBuf {
    let mut cargo = Command::new(env!("CARGO"));
    let status =
        cargo.current_dir(root).args(["build", "--release", "--quiet"]).args(what).status();
    assert!(status.expect("cargo runs").success());
    // This bench lies in target/release/deps.
    let bench = std::env::current_exe().expect("its own path");
    bench.ancestors().nth(2).expect("target/release").join(file)
}

fn emit(name: &str, seconds: &mut [f64], resident_kib: u64) {
    seconds.sort_by(f64::total_cmp);
    println!(
        "{{\"name\": \"{name}\", \"threads\": 1, \"median_s\": {:.6}, \"min_s\": {:.6}, \"unit\": \"s\", \
         \"rss_mib_per_worker\": {:.1}}}",
        seconds[seconds.len() / 2],
        seconds[0],
        resident_kib as f64 / 1024.0
    );
}
