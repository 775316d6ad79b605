//! How the cost of a training step grows: with depth, width and batch of a GPT-2 in one process, and with
//! the number of data-parallel ranks. A step should cost what its arithmetic costs, so that the rate stays
//! the same along a table. Costs are processor time, one thread per rank: other programs on the same cores
//! disturb it less, and more ranks than cores change nothing about what a rank has to do. Every point is measured in a process of its own, for its peak memory.
//!
//! `cargo bench --bench growth` prints a JSON line per point, then the tables of `docs/performance/scaling.md`.
//!
//! `cargo bench --bench growth -- --paper` prints that page's models of up to 64 GPUs, and of 1,024.

#[allow(dead_code, reason = "peak memory is enough")]
#[path = "common/bench.rs"]
mod bench;
#[path = "common/paper.rs"]
mod paper;
#[path = "common/processor.rs"]
mod processor;
#[path = "common/sharded_paper.rs"]
mod sharded_paper;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use torchrs::distributed::{DistributedDataParallel, StoreServer, init_process_group};
use torchrs::models::{GPT2Config, GPT2LMHeadModel};
use torchrs::multiprocessing::{Channel, Process};
use torchrs::nn::{Forward, Module, functional as F};
use torchrs::optim::{AdamW, AdamWOptions, Optimizer};
use torchrs::{Dtype, Result, Tensor, manual_seed, set_num_threads};

/// Tokens of a sequence.
const LENGTH: usize = 64;
/// Different tokens.
const VOCABULARY: usize = 512;

/// A point of the tables.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Point {
    depth: usize,
    width: usize,
    /// Sequences of a rank.
    batch: usize,
    world: usize,
}

/// The point that all tables vary.
const BASE: Point = Point { depth: 4, width: 256, batch: 4, world: 1 };

impl Point {
    fn model(&self) -> GPT2LMHeadModel {
        let config = GPT2Config {
            n_layer: self.depth,
            n_embd: self.width,
            n_head: self.width / 64,
            vocab_size: VOCABULARY,
            n_positions: LENGTH,
            ..GPT2Config::gpt2()
        };
        GPT2LMHeadModel::new(config.no_dropout())
    }

    /// Floating-point operations of a rank's step: each weight of a matrix takes part in three products
    /// of two operations per token, and attention in twelve per token, other token and channel.
    fn gflop(&self) -> f64 {
        let Point { depth, width, batch, .. } = *self;
        let weights = 12 * depth * width * width + VOCABULARY * width;
        let attention = 12 * depth * width * LENGTH;
        ((6 * weights + attention) * batch * LENGTH) as f64 / 1e9
    }
}

/// What is measured at a point: the least time of a step, that of a rank's processor and that on the wall,
/// and a rank's peak memory.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Cost {
    processor: f64,
    wall: f64,
    peak_mib: f64,
}

fn main() -> Result<()> {
    torchrs::init();
    if std::env::args().any(|a| a == "--paper") {
        paper::print();
        sharded_paper::print();
        return Ok(());
    }
    let depths = [2, 4, 8, 16, 32].map(|depth| Point { depth, ..BASE });
    let widths = [128, 256, 512, 1024].map(|width| Point { width, ..BASE });
    let batches = [1, 2, 4, 8, 16, 32, 64].map(|batch| Point { batch, ..BASE });
    let worlds = [1, 2, 4, 8].map(|world| Point { world, ..BASE });
    let depth = table("depth", &depths, |p| p.depth)?;
    let width = table("width", &widths, |p| p.width)?;
    let batch = table("batch", &batches, |p| p.batch)?;
    let world = table("ranks", &worlds, |p| p.world)?;
    println!("\n{depth}\n{width}\n{batch}\n{world}");
    Ok(())
}

/// Measures the points, and gives their table in Markdown. `Time per work` is processor time by arithmetic,
/// against the table's least. The exponent is that between a point and the one before, of all ranks'
/// processor time over all ranks' arithmetic: 1 where twice the work takes twice the time.
fn table(axis: &str, points: &[Point], value: impl Fn(&Point) -> usize) -> Result<String> {
    let mut rows = Vec::new();
    for point in points {
        let cost = measured(*point)?;
        println!(
            "{}",
            serde_json::json!({
                "name": format!("growth_{axis}_{}", value(point)), "threads": 1,
                "processor_s": cost.processor, "min_s": cost.wall, "gflop": point.gflop(),
                "peak_mib": cost.peak_mib,
            })
        );
        rows.push((*point, cost));
    }
    let per_work = |(point, cost): &(Point, Cost)| cost.processor / point.gflop();
    let total = |(point, cost): &(Point, Cost)| {
        let world = point.world as f64;
        ((cost.processor * world).ln(), (point.gflop() * world).ln())
    };
    let best = rows.iter().map(per_work).fold(f64::INFINITY, f64::min);
    let mut text = format!(
        "| {axis} | GFLOP | processor time | GFLOP/s | time per work | exponent | on the wall | peak MiB |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n"
    );
    for (i, row @ (point, cost)) in rows.iter().enumerate() {
        let exponent = i.checked_sub(1).map_or(String::new(), |before| {
            let ((time, work), (less_time, less_work)) = (total(row), total(&rows[before]));
            format!("{:.2}", (time - less_time) / (work - less_work))
        });
        text += &format!(
            "| {} | {:.2} | {:.1} ms | {:.0} | {:.2} | {exponent} | {:.1} ms | {:.0} |\n",
            value(point),
            point.gflop(),
            cost.processor * 1e3,
            1.0 / per_work(row),
            per_work(row) / best,
            cost.wall * 1e3,
            cost.peak_mib
        );
    }
    Ok(text)
}

/// The cost of a point, from its rank 0.
fn measured(point: Point) -> Result<Cost> {
    let server = StoreServer::start()?;
    let mut ranks: Vec<(Process, Channel<(), Cost>)> = Vec::new();
    for rank in 0..point.world {
        let process = Process::builder()
            .name(format!("rank {rank}"))
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", point.world.to_string())
            .inherit("TORCHRS_STORE_FD", server.connect()?)
            .spawn_connected(work, point)?;
        ranks.push(process);
    }
    let cost = ranks[0].1.recv()?;
    ranks.iter().try_for_each(|(process, _)| process.join())?;
    Ok(cost)
}

/// A rank's life: steps until there are enough of them.
fn work(point: Point, parent: Channel<Cost, ()>) -> Result<()> {
    set_num_threads(1);
    manual_seed(0);
    let group = init_process_group(Default::default())?;
    let model = DistributedDataParallel::new(point.model(), &group)?;
    let options = AdamWOptions { lr: 1e-4, ..Default::default() };
    let mut optimizer = AdamW::new(model.parameters(), options);
    let (x, y) = (tokens([point.batch, LENGTH]), tokens([point.batch * LENGTH]));
    let mut step = || {
        optimizer.zero_grad();
        let scores = model.forward(&x).reshape([(point.batch * LENGTH) as i64, VOCABULARY as i64]);
        F::cross_entropy(&scores, &y).backward();
        optimizer.step();
    };
    (0..2).for_each(|_| step());
    let (began, mut steps) = (Instant::now(), 0);
    let mut cost = Cost { processor: f64::INFINITY, wall: f64::INFINITY, peak_mib: 0.0 };
    // All ranks have to stop after the same step: rank 0 says when.
    let more = Tensor::from([1f32]);
    while more.item() > 0.0 {
        group.barrier()?;
        let (start, used) = (Instant::now(), processor::seconds());
        step();
        cost.wall = cost.wall.min(start.elapsed().as_secs_f64());
        cost.processor = cost.processor.min(processor::seconds() - used);
        steps += 1;
        let enough = steps >= 5 && began.elapsed() > Duration::from_millis(2500);
        more.fill_(if enough { 0.0 } else { 1.0 });
        group.broadcast(&more, 0)?;
    }
    parent.send(&Cost { peak_mib: bench::peak_mib(), ..cost })
}

fn tokens<const D: usize>(shape: [usize; D]) -> Tensor {
    Tensor::randint(0, VOCABULARY as i64, shape, Dtype::I64)
}
