//! A model on paper of data-parallel training on up to 64 GPUs: what the step takes when gradients are
//! averaged bucket by bucket behind backward. Everything about GPUs and networks in here is an assumption;
//! the buckets are those of `DistributedDataParallel` for the models' own parameters.

use torchrs::Tensor;
use torchrs::distributed::DDPOptions;
use torchrs::models::{GPT2Config, GPT2LMHeadModel, resnet50};
use torchrs::nn::Module;

/// GPUs that NVLink joins.
const NODE: usize = 8;

/// A way for data: bytes per second and GPU in each direction, and seconds per message.
#[derive(Clone, Copy)]
struct Link {
    bandwidth: f64,
    latency: f64,
}

/// NVLink 3 as all-reduces use it: of 300 GB/s.
const NVLINK: Link = Link { bandwidth: 230e9, latency: 5e-6 };

/// InfiniBand HDR, 25 GB/s per adapter as all-reduces use it, which `sharing` GPUs of a node share.
fn infiniband(sharing: usize) -> Link {
    Link { bandwidth: 20e9 / sharing as f64, latency: 10e-6 }
}

impl Link {
    /// Everyone passes parts on to the next one: each byte is sent twice but for one part of `n`.
    fn ring(self, bytes: f64, n: usize) -> f64 {
        let steps = 2.0 * (n as f64 - 1.0);
        steps / n as f64 * bytes / self.bandwidth + steps * self.latency
    }

    /// Up a tree and down again, in pieces that follow each other.
    fn tree(self, bytes: f64, n: usize) -> f64 {
        2.0 * bytes / self.bandwidth + 2.0 * (n as f64).log2() * self.latency
    }

    fn all_reduce(self, bytes: f64, n: usize) -> f64 {
        self.ring(bytes, n).min(self.tree(bytes, n))
    }
}

/// Within a node a ring; over nodes, each GPU all-reduces its share of its node's sum.
fn all_reduce(bytes: f64, n: usize, network: Link) -> f64 {
    let inside = NVLINK.ring(bytes, n.min(NODE));
    let nodes = n.div_ceil(NODE);
    let share = bytes / NODE as f64;
    if nodes == 1 { inside } else { inside + network.all_reduce(share, nodes) }
}

/// A bucket of gradients: its bytes, and the share of backward after which it is full.
struct Bucket {
    bytes: f64,
    full: f64,
}

struct Training {
    name: &'static str,
    /// Seconds of forward, backward and update on one GPU.
    compute: f64,
    buckets: Vec<Bucket>,
}

/// Backward is taken to need the same time for every parameter.
fn buckets(parameters: &[Tensor]) -> Vec<Bucket> {
    let mut made = 0;
    let bucket = |members: Vec<usize>| {
        made += members.len();
        Bucket {
            bytes: members.iter().map(|&i| 4.0 * parameters[i].numel() as f64).sum(),
            full: made as f64 / parameters.len() as f64,
        }
    };
    DDPOptions::default().bucket_assignment(parameters).into_iter().map(bucket).collect()
}

impl Training {
    /// Seconds of all communication, and of what of it comes after backward.
    fn communication(&self, n: usize, network: Link) -> (f64, f64) {
        // A third forward, two thirds backward.
        let backward = self.compute * 2.0 / 3.0;
        let (mut all, mut end) = (0.0, 0.0f64);
        for bucket in &self.buckets {
            let time = if n == 1 { 0.0 } else { all_reduce(bucket.bytes, n, network) };
            all += time;
            end = end.max(backward * bucket.full) + time;
        }
        (all, end - backward)
    }
}

/// How much longer the slowest of `n` takes, when a step's time varies by 1%.
pub fn slowest(n: usize) -> f64 {
    0.01 * (2.0 * (n as f64).ln()).sqrt()
}

/// Prints the tables.
pub fn print() {
    // 2500 images per second.
    let images = 128.0 / 2500.0;
    let gpt2 = GPT2Config::gpt2();
    let model = GPT2LMHeadModel::new(gpt2);
    let weights: usize = model.parameters().iter().map(Tensor::numel).sum();
    let attention = 12 * gpt2.n_layer * gpt2.n_embd * 1024;
    // 16 sequences of 1024 tokens at 40% of 312 TFLOP/s.
    let tokens = (6 * weights + attention) as f64 * 16.0 * 1024.0 / (0.4 * 312e12);
    let trainings = [
        Training {
            name: "ResNet-50",
            compute: images,
            buckets: buckets(&resnet50(1000).parameters()),
        },
        Training { name: "GPT-2 124M", compute: tokens, buckets: buckets(&model.parameters()) },
    ];
    for training in &trainings {
        let Training { name, compute, buckets } = training;
        let bytes: f64 = buckets.iter().map(|b| b.bytes).sum();
        let last = buckets.last().map_or(0.0, |b| b.bytes);
        println!(
            "\n{name}: {:.1} ms of computing, {:.0} MB of gradients in {} buckets, the last of {:.0} MB\n",
            compute * 1e3,
            bytes / 1e6,
            buckets.len(),
            last / 1e6
        );
        println!(
            "| GPUs | communication | exposed | step | efficiency | one adapter per node: communication | exposed | efficiency |"
        );
        println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
        for n in [1, 2, 4, 8, 16, 32, 64] {
            let step = |exposed: f64| compute * (1.0 + slowest(n)) + exposed;
            let (all, exposed) = training.communication(n, infiniband(1));
            let (all_shared, exposed_shared) = training.communication(n, infiniband(NODE));
            println!(
                "| {n} | {:.2} ms | {:.2} ms | {:.1} ms | {:.3} | {:.2} ms | {:.2} ms | {:.3} |",
                all * 1e3,
                exposed * 1e3,
                step(exposed) * 1e3,
                compute / step(exposed),
                all_shared * 1e3,
                exposed_shared * 1e3,
                compute / step(exposed_shared)
            );
        }
    }
}
