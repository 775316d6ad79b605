//! Training steps of one process and of two data-parallel ones, one thread each: how well they scale, and
//! where the time of communication goes. Models and rows have the names that PyTorch's side of the
//! benchmarks has (its section `ddp`).
//!
//! `cargo bench --bench ddp [-- RANKS]` prints a JSON line per model and number of ranks (default: 1, then 2).
//!
//! `cargo bench --bench ddp -- --scaling` compares in turns, in the same two processes: one of them alone
//! at work; both, each for itself, which is what the machine allows; both with gradients averaged.
//!
//! `cargo bench --bench ddp -- --trace FOLDER` writes a trace per model and rank, all ranks of a model in
//! one file as well (ui.perfetto.dev shows it), and prints what of the communication lies behind backward.
//!
//! The name of a model, `lenet5` or `resnet18`, leaves out the other.

#[allow(dead_code, reason = "one of its models is enough")]
#[path = "common/models.rs"]
mod models;
#[path = "common/processor.rs"]
mod processor;
#[path = "common/ranks.rs"]
mod ranks;

use std::path::{Path, PathBuf};
use std::time::Instant;

use torchrs::distributed::{DistributedDataParallel, ProcessGroup, init_process_group};
use torchrs::nn::{Forward, functional as F};
use torchrs::optim::{Optimizer, SGD, SGDOptions};
use torchrs::profiler::{self, Category, Overlap, Profile};
use torchrs::{Dtype, Result, Tensor, manual_seed, set_num_threads};

const MODELS: [&str; 2] = ["lenet5", "resnet18"];

/// A model with its batch, and how often its step is timed.
struct Job {
    name: &'static str,
    x: Tensor,
    classes: i64,
    per_sample: usize,
    samples: usize,
}

impl Job {
    fn lenet5() -> Self {
        let x = Tensor::randn([64, 1, 28, 28], Dtype::F32);
        Job { name: "lenet5", x, classes: 10, per_sample: 20, samples: 15 }
    }

    fn resnet18() -> Self {
        let x = Tensor::randn([8, 3, 224, 224], Dtype::F32);
        Job { name: "resnet18", x, classes: 1000, per_sample: 1, samples: 8 }
    }

    /// A step of `model`: gradients to none, forward, loss, backward, update.
    fn step<'a, M: Forward>(&'a self, model: &'a M, parameters: Vec<Tensor>) -> impl FnMut() + 'a {
        let y = Tensor::randint(0, self.classes, [self.x.shape()[0]], Dtype::I64);
        let options = SGDOptions { lr: 1e-3, momentum: 0.9, ..Default::default() };
        let mut optimizer = SGD::new(parameters, options);
        move || {
            optimizer.zero_grad();
            F::cross_entropy(&model.forward(&self.x), &y).backward();
            optimizer.step();
        }
    }
}

fn main() -> Result<()> {
    torchrs::init();
    let arguments: Vec<String> = std::env::args().collect();
    let asked = |name: &&str| arguments.iter().any(|a| a == name);
    let mut models: Vec<&str> = MODELS.into_iter().filter(asked).collect();
    if models.is_empty() {
        models = MODELS.to_vec();
    }
    let models: Vec<String> = models.into_iter().map(str::to_owned).collect();
    if arguments.iter().any(|a| a == "--scaling") {
        return ranks::spawn_with(2, scaling, models);
    }
    if let Some(at) = arguments.iter().position(|a| a == "--trace") {
        let folder = PathBuf::from(arguments.get(at + 1).expect("--trace has a folder"));
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        ranks::spawn_with(2, trace, (folder.clone(), models.clone()))?;
        return models.iter().try_for_each(|name| {
            let ranks = [0, 1].map(|rank| trace_path(&folder, name, rank));
            profiler::merge_chrome_traces(&ranks, folder.join(format!("{name}.json")))
        });
    }
    let worlds = match ranks::asked() {
        Some(world) => vec![world],
        None => vec![1, 2],
    };
    worlds.into_iter().try_for_each(|world| ranks::spawn_with(world, measure, models.clone()))
}

fn start() -> Result<ProcessGroup> {
    set_num_threads(1);
    manual_seed(0);
    init_process_group(Default::default())
}

fn measure(models: Vec<String>) -> Result<()> {
    let group = start()?;
    models.iter().try_for_each(|name| match &name[..] {
        "lenet5" => time(&group, models::lenet5(), &Job::lenet5()),
        _ => time(&group, torchrs::models::resnet18(1000), &Job::resnet18()),
    })
}

fn time<M: Forward + 'static>(group: &ProcessGroup, model: M, job: &Job) -> Result<()> {
    let net = DistributedDataParallel::new(model, group)?;
    let mut step = job.step(net.module(), net.parameters());
    (0..3).for_each(|_| step());
    let batch = job.x.shape()[0];
    let name = format!("ddp{}_{}_b{batch}_per_rank", group.world_size(), job.name);
    ranks::time_steps(group, &name, "img/s", batch, (job.samples, job.per_sample), step)
}

fn scaling(models: Vec<String>) -> Result<()> {
    let group = start()?;
    models.iter().try_for_each(|name| match &name[..] {
        "lenet5" => compare(&group, models::lenet5, &Job::lenet5()),
        _ => compare(&group, || torchrs::models::resnet18(1000), &Job::resnet18()),
    })
}

/// Times a step alone, beside an independent process, and data-parallel, in turns, since the machine is not
/// equally fast all the time: on the wall, until the slower rank is through, and rank 0's processor time. The
/// ratios are those of the least times, the last one the median of the turns' own.
fn compare<M: Forward + 'static>(
    group: &ProcessGroup,
    model: impl Fn() -> M,
    job: &Job,
) -> Result<()> {
    let own = model();
    let mut own_step = job.step(&own, own.parameters());
    let net = DistributedDataParallel::new(model(), group)?;
    let mut net_step = job.step(net.module(), net.parameters());
    (0..3).for_each(|_| net_step());
    (0..3).for_each(|_| own_step());
    let mut turns = Vec::new();
    for _ in 0..2 * job.samples {
        let seconds = |step: &mut dyn FnMut(), works: bool| -> Result<[f64; 2]> {
            group.barrier()?;
            let (start, used) = (Instant::now(), processor::seconds());
            if works {
                (0..job.per_sample).for_each(|_| step());
            }
            let used = processor::seconds() - used;
            // Until the slower one is through.
            group.barrier()?;
            Ok([start.elapsed().as_secs_f64(), used].map(|s| s / job.per_sample as f64))
        };
        let alone = seconds(&mut own_step, group.rank() == 0)?;
        let beside = seconds(&mut own_step, true)?;
        turns.push([alone, beside, seconds(&mut net_step, true)?]);
    }
    if group.rank() == 0 {
        for (i, clock) in ["wall", "processor"].into_iter().enumerate() {
            let least = |way: usize| turns.iter().map(|t| t[way][i]).fold(f64::INFINITY, f64::min);
            let [alone, beside, ddp] = [0, 1, 2].map(least);
            let mut of_that: Vec<f64> = turns.iter().map(|t| t[1][i] / t[2][i]).collect();
            of_that.sort_by(f64::total_cmp);
            println!(
                "{}",
                serde_json::json!({
                    "name": format!("scaling2_{}_b{}_per_rank", job.name, job.x.shape()[0]),
                    "clock": clock, "alone_s": alone, "beside_s": beside, "ddp_s": ddp,
                    "efficiency": alone / ddp, "machine_allows": alone / beside,
                    "of_that": beside / ddp, "of_that_by_turn": of_that[of_that.len() / 2],
                })
            );
        }
    }
    Ok(())
}

fn trace((folder, models): (PathBuf, Vec<String>)) -> Result<()> {
    let group = start()?;
    models.iter().try_for_each(|name| match &name[..] {
        "lenet5" => profiled(&group, models::lenet5(), &Job::lenet5(), &folder),
        _ => profiled(&group, torchrs::models::resnet18(1000), &Job::resnet18(), &folder),
    })
}

fn trace_path(folder: &Path, name: &str, rank: usize) -> PathBuf {
    folder.join(format!("{name}_rank{rank}.json"))
}

fn profiled<M: Forward + 'static>(
    group: &ProcessGroup,
    model: M,
    job: &Job,
    folder: &Path,
) -> Result<()> {
    let net = DistributedDataParallel::new(model, group)?;
    let mut step = job.step(net.module(), net.parameters());
    (0..5).for_each(|_| step());
    group.barrier()?;
    let ((), profile) = profiler::profile(|| {
        for _ in 0..job.samples {
            let _span = profiler::record_function("step");
            step();
        }
    });
    group.barrier()?;
    profile.export_chrome_trace(trace_path(folder, job.name, group.rank()))?;
    if group.rank() == 0 {
        print_overlap(job.name, &profile);
    }
    Ok(())
}

/// A line per step, then their median, from rank 0's spans.
fn print_overlap(name: &str, profile: &Profile) {
    let ms = |ns: u64| ns as f64 / 1e6;
    let steps = profile.events().iter().filter(|e| e.category == Category::User);
    let steps: Vec<f64> = steps.map(|e| ms(e.duration_ns)).collect();
    let passes = profile.communication_overlap();
    println!("\n{name}: milliseconds on rank 0");
    println!(
        "| step | whole step | backward | communication | of that waits | hidden behind backward | exposed \
         | buckets | early |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let line = |label: &str, step: f64, pass: &Overlap| {
        let share = 100.0 * pass.hidden_ns as f64 / pass.communication_ns.max(1) as f64;
        println!(
            "| {label} | {step:.2} | {:.2} | {:.3} | {:.3} | {:.3} ({share:.0}%) | {:.3} | {} | {} |",
            ms(pass.backward_ns),
            ms(pass.communication_ns),
            ms(pass.waiting_ns),
            ms(pass.hidden_ns),
            ms(pass.exposed_ns),
            pass.buckets,
            pass.early_buckets
        );
    };
    for (i, (step, pass)) in steps.iter().zip(&passes).enumerate() {
        line(&i.to_string(), *step, pass);
    }
    let median = |of: &dyn Fn(&Overlap) -> u64| {
        let mut all: Vec<u64> = passes.iter().map(of).collect();
        all.sort_unstable();
        all[all.len() / 2]
    };
    let mut steps = steps;
    steps.sort_by(f64::total_cmp);
    let middle = Overlap {
        backward_ns: median(&|p| p.backward_ns),
        communication_ns: median(&|p| p.communication_ns),
        waiting_ns: median(&|p| p.waiting_ns),
        hidden_ns: median(&|p| p.hidden_ns),
        exposed_ns: median(&|p| p.exposed_ns),
        buckets: passes[0].buckets,
        early_buckets: median(&|p| p.early_buckets as u64) as usize,
    };
    line("median", steps[steps.len() / 2], &middle);
}
