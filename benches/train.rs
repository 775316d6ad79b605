//! Times and peak memory of whole training steps, one JSON line per model, with names as PyTorch's
//! side of the benchmarks has them (its section `train`). Every model has a process of its own.
//!
//! `cargo bench --bench train -- [FILTER ..] [--threads 1,2] [--budget SECONDS]`: models whose row
//! (`train_` and the name) contains one of the filters.

#[path = "common/bench.rs"]
mod bench;
#[path = "common/models.rs"]
mod models;

use std::process::Command;
use std::time::Instant;

use bench::Bench;
use torchrs::manual_seed;

/// The fast ones first.
const NAMES: [&str; 12] = [
    "lenet5",
    "mnist_cnn",
    "mlp",
    "ncf",
    "lstm",
    "nanogpt",
    "resnet18",
    "mobilenet_v2",
    "alexnet",
    "resnet50",
    "vgg19",
    "gpt2",
];

/// Tells a child process which model is its.
const ONE: &str = "TORCHRS_BENCH_MODEL";

fn main() {
    if let Ok(name) = std::env::var(ONE) {
        return Bench::main(|bench| one(bench, &name));
    }
    Bench::main(|bench| {
        for name in NAMES.into_iter().filter(|name| bench.wants(&format!("train_{name}"))) {
            let status = Command::new(std::env::current_exe().expect("its own path"))
                .args(["--threads", &bench.threads.to_string()])
                .args(["--budget", &bench.budget.to_string()])
                .args(bench.turns.then_some("--turns"))
                .env(ONE, name)
                .status();
            assert!(status.expect("it starts").success(), "{name} failed");
        }
    });
}

fn one(bench: &Bench, name: &str) {
    manual_seed(0);
    let mut training = models::training(name).expect("the name is from the list");
    let mut step = || {
        let start = Instant::now();
        (training.step)();
        start.elapsed().as_secs_f64()
    };
    let row = format!("train_{name}");
    let mut warm = false;
    bench.in_turns(&row, || {
        (0..if warm { 1 } else { 2 }).for_each(|_| _ = step());
        warm = true;
        let samples = bench.samples(6.0, 4, &mut step);
        let peak = [("rss_mib", bench::peak_mib())];
        bench.emit(&row, samples, training.unit, training.work as f64, &peak);
    });
}
