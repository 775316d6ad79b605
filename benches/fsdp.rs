//! Training steps of a small GPT in one process, data-parallel and sharded, one thread a process. Model and rows have the
//! names that PyTorch's side of the benchmarks has (`tools/bench/peer_fsdp.py`).
//!
//! `cargo bench --bench fsdp [-- WIDTH...] [-- none|ddp|fsdp|fsdp_keep...] [alone]` prints a JSON line per width and mode;
//! `alone` runs them in a world of one.

#[path = "common/ranks.rs"]
mod ranks;

use torchrs::distributed::{DistributedDataParallel, init_process_group};
use torchrs::nn::parallel::{FullyShardOptions, fully_shard};
use torchrs::nn::{self, Forward, Module, functional as F};
use torchrs::optim::{AdamW, AdamWOptions, Optimizer};
use torchrs::{Dtype, Result, Tensor, manual_seed, set_num_threads};

const LAYERS: usize = 4;
const BATCH: usize = 4;
const TOKENS: usize = 64;
const WORDS: usize = 256;

#[derive(Module)]
struct Block {
    l1: nn::LayerNorm,
    l2: nn::LayerNorm,
    qkv: nn::Linear,
    o: nn::Linear,
    f: nn::Linear,
    p: nn::Linear,
    #[module(skip)]
    width: usize,
}

impl Block {
    fn new(width: usize) -> Self {
        Block {
            l1: nn::LayerNorm::new([width]),
            l2: nn::LayerNorm::new([width]),
            qkv: nn::Linear::new(width, 3 * width),
            o: nn::Linear::new(width, width),
            f: nn::Linear::new(width, 4 * width),
            p: nn::Linear::new(4 * width, width),
            width,
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let heads =
            |part: &Tensor| part.reshape([BATCH as i64, TOKENS as i64, -1, 32]).transpose(1, 2);
        let parts = self.qkv.forward(&self.l1.forward(x)).split(self.width, 2);
        let [q, k, v] = [0, 1, 2].map(|part| heads(&parts[part]));
        let seen = q.scaled_dot_product_attention(&k, &v, None, true, None).transpose(1, 2);
        let x = x + self.o.forward(&seen.reshape([BATCH as i64, TOKENS as i64, -1]));
        &x + self.p.forward(&self.f.forward(&self.l2.forward(&x)).gelu_tanh())
    }
}

#[derive(Module)]
struct Gpt {
    te: nn::Embedding,
    pe: nn::Embedding,
    b: Vec<Block>,
    ln: nn::LayerNorm,
    head: nn::Linear,
}

impl Gpt {
    fn new(width: usize) -> Self {
        Gpt {
            te: nn::Embedding::new(WORDS, width),
            pe: nn::Embedding::new(TOKENS, width),
            b: (0..LAYERS).map(|_| Block::new(width)).collect(),
            ln: nn::LayerNorm::new([width]),
            head: nn::Linear::no_bias(width, WORDS),
        }
    }

    fn logits(&self, tokens: &Tensor) -> Tensor {
        let places = Tensor::arange(0, TOKENS, 1, Dtype::I64);
        let x = self.te.forward(tokens) + self.pe.forward(&places);
        let x = self.b.iter().fold(x, |x, block| block.forward(&x));
        self.head.forward(&self.ln.forward(&x))
    }
}

fn main() -> Result<()> {
    torchrs::init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let or = |asked: Vec<String>, all: &[&str]| match asked.is_empty() {
        true => all.iter().map(|&one| one.to_owned()).collect(),
        false => asked,
    };
    let is_width = |argument: &&String| argument.parse::<usize>().is_ok();
    let widths = arguments.iter().filter(is_width).cloned().collect();
    let is_alone = arguments.iter().any(|argument| argument == "alone");
    let modes = ["none", "ddp", "fsdp", "fsdp_keep"];
    let asked = arguments.iter().filter(|argument| modes.contains(&argument.as_str())).cloned();
    let asked = or(asked.collect(), &modes);
    for width in or(widths, &["128", "256", "512", "1024"]) {
        for mode in &asked {
            let world = if mode == "none" || is_alone { 1 } else { 2 };
            let width: usize = width.parse().expect("a width is a number");
            ranks::spawn_with(world, measure, (width, mode.clone()))?;
        }
    }
    Ok(())
}

fn measure((width, mode): (usize, String)) -> Result<()> {
    set_num_threads(1);
    manual_seed(0);
    let group = init_process_group(Default::default())?;
    let mut net = Gpt::new(width);
    let name = format!("gpt4_{width}_{mode}{}_adamw_fused", group.world_size());
    let x = Tensor::randint(0, WORDS as i64, [BATCH, TOKENS], Dtype::I64);
    let y = Tensor::randint(0, WORDS as i64, [BATCH * TOKENS], Dtype::I64);
    let samples = if width > 512 { 12 } else { 30 };
    let time = |net: &Gpt| {
        let options = AdamWOptions { lr: 1e-4, ..Default::default() };
        let mut optimizer = AdamW::new(net.parameters(), options);
        let mut step = || {
            optimizer.zero_grad();
            F::cross_entropy(&net.logits(&x).flatten(0, 1), &y).backward();
            optimizer.step();
        };
        (0..3).for_each(|_| step());
        ranks::time_steps(&group, &name, "tok/s", BATCH * TOKENS, (samples, 1), step)
    };
    match &*mode {
        "none" => time(&net),
        "ddp" => time(&*DistributedDataParallel::new(net, &group)?),
        mode => {
            let gives_back = |reshard: bool| FullyShardOptions {
                reshard_after_forward: Some(reshard.into()),
                ..Default::default()
            };
            for block in &mut net.b {
                fully_shard(block, &group, gives_back(mode == "fsdp"))?;
            }
            fully_shard(&mut net, &group, gives_back(false))?;
            time(&net)
        }
    }
}
