//! Checks and times a GPU: the part of `scripts/gpu-check` that is Rust. PyTorch's rows, of the same names, are
//! those of `tools/bench/peer_gpu_bench.py`.
//!
//! ```text
//! gpu_check describe             the libraries and devices that are found
//! gpu_check first CHECK          what a GPU is asked first: libraries, attention, linear, processes, capture, ring, host
//! gpu_check dma                  shared memory is registered, and copied both ways without a wait
//! gpu_check graph                a training step, captured and replayed
//! gpu_check nccl RANKS           collectives, against those in shared memory; ranks may share a GPU
//! gpu_check bench SECTION..      rows of a section as JSON lines
//! gpu_check count SECTION..      what the rows ask of a GPU, counted (see `tools/count-gpu`)
//! ```
//!
//! With `--tiny` sizes are so small that the simulated GPU can do them; `--budget SECONDS` is for each row;
//! `--skip ROW,..` leaves rows out. `--ops` adds the ops to a count.

mod attention;
mod bench;
mod bytes;
mod counts;
mod describe;
mod dma;
mod estimate;
mod first;
mod graph;
mod launches;
mod nccl;
mod products;
mod training;

use std::process::ExitCode;

use torchrs::{Error, Result};

use bench::Bench;

/// Times the rows of a section.
type Section = fn(&Bench) -> Result<()>;

/// The sections of `bench`.
const SECTIONS: [(&str, Section); 11] = [
    ("launches", launches::rows),
    ("bytes", bytes::rows),
    ("products", products::rows),
    ("attention", attention::rows),
    ("optim", training::optimizers),
    ("gpt2", training::gpt2),
    ("llama", training::llama),
    ("bert", training::bert),
    ("resnet50", training::resnet50),
    ("alexnet", training::alexnet),
    ("vgg19", training::vgg19),
];

fn main() -> ExitCode {
    torchrs::init();
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let tiny = take(&mut arguments, "--tiny", 1).is_some();
    let budget = take(&mut arguments, "--budget", 2);
    let budget = budget.map_or(0.2, |text| text.parse().expect("seconds"));
    let skipped = take(&mut arguments, "--skip", 2).unwrap_or_default();
    let skipped: Vec<String> = skipped.split(',').map(String::from).collect();
    let with_ops = take(&mut arguments, "--ops", 1).is_some();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = torchrs::catch(|| match words[..] {
        ["describe"] => describe::everything(),
        ["first", name] => first::check(name),
        ["dma"] => dma::check(),
        ["graph"] => graph::check(),
        ["nccl", ranks] => nccl::check(ranks.parse().expect("a number of ranks")),
        [task @ ("bench" | "count"), ref sections @ ..] => {
            let bench = Bench::new(tiny, budget, skipped.clone())?;
            let bench = if task == "count" { bench.counting(with_ops) } else { bench };
            sections.iter().try_for_each(|section| run(section, &bench))
        }
        _ => Err(Error::config("gpu_check", "see the head of its source for what it does")),
    });
    match outcome.and_then(|result| result) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpu_check: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Removes an option with what belongs to it; its last word.
fn take(arguments: &mut Vec<String>, option: &str, words: usize) -> Option<String> {
    let at = arguments.iter().position(|argument| argument == option)?;
    arguments.drain(at..(at + words).min(arguments.len())).next_back()
}

fn run(section: &str, bench: &Bench) -> Result<()> {
    match SECTIONS.iter().find(|(name, _)| *name == section) {
        Some((_, rows)) => rows(bench),
        None => Err(Error::config("gpu_check bench", format!("there is no section {section}"))),
    }
}
