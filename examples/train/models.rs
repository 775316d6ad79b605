//! The models of `--model`, and what trains them.

use torchrs::nn::{self, Forward, Module, functional as F, init};
use torchrs::ops::Pool2dOptions;
use torchrs::optim::lr_scheduler::WarmupCosineLR;
use torchrs::optim::{
    Adam, AdamOptions, AdamW, AdamWOptions, Optimizer, ParamGroup, SGD, SGDOptions,
};
use torchrs::{Dtype, Error, Result, Tensor, no_grad};

use crate::args::{Args, ModelKind, OptimizerKind};
use crate::data::Shape;

/// A classifier of images or of the next byte: inputs to logits `[n, classes]`.
pub trait Network: Module {
    /// One row of logits per target.
    fn logits(&self, x: &Tensor) -> Tensor;

    /// Text that the model makes up, if it is a language model.
    fn sample_text(&self, _bytes: usize) -> Option<String> {
        None
    }
}

/// Two hidden layers.
#[derive(Module)]
pub struct Mlp {
    fc1: nn::Linear,
    fc2: nn::Linear,
    fc3: nn::Linear,
}

impl Mlp {
    pub fn new(inputs: usize, classes: usize) -> Self {
        Mlp {
            fc1: nn::Linear::new(inputs, 256),
            fc2: nn::Linear::new(256, 128),
            fc3: nn::Linear::new(128, classes),
        }
    }
}

impl Network for Mlp {
    fn logits(&self, x: &Tensor) -> Tensor {
        let x = self.fc1.forward(&x.flatten(1, -1)).relu();
        self.fc3.forward(&self.fc2.forward(&x).relu())
    }
}

/// Two convolutions, pooling, two linear layers. Images larger than 8x8 are pooled twice more
/// strongly, to 7x7 features at most.
#[derive(Module)]
pub struct Cnn {
    conv1: nn::Conv2d,
    conv2: nn::Conv2d,
    fc1: nn::Linear,
    fc2: nn::Linear,
    #[module(skip)]
    pools: [usize; 2],
}

impl Cnn {
    pub fn new(channels: usize, height: usize, width: usize, classes: usize) -> Self {
        let pools = if height.min(width) < 16 {
            [1, 2]
        } else {
            [2, height.min(width).div_ceil(14).max(2)]
        };
        let features = pools.iter().fold((height, width), |(h, w), p| (h / p, w / p));
        Cnn {
            conv1: nn::Conv2d::new(channels, 32, 3).padding(1),
            conv2: nn::Conv2d::new(32, 64, 3).padding(1),
            fc1: nn::Linear::new(64 * features.0 * features.1, 128),
            fc2: nn::Linear::new(128, classes),
            pools,
        }
    }
}

fn pool(x: Tensor, size: usize) -> Tensor {
    if size == 1 { x } else { x.max_pool2d(Pool2dOptions::new([size; 2])) }
}

impl Network for Cnn {
    fn logits(&self, x: &Tensor) -> Tensor {
        let x = pool(self.conv1.forward(x).relu(), self.pools[0]);
        let x = pool(self.conv2.forward(&x).relu(), self.pools[1]);
        self.fc2.forward(&self.fc1.forward(&x.flatten(1, -1)).relu())
    }
}

/// A pre-norm transformer block.
#[derive(Module)]
struct Block {
    ln_1: nn::LayerNorm,
    attn_qkv: nn::Linear,
    attn_proj: nn::Linear,
    ln_2: nn::LayerNorm,
    mlp_fc: nn::Linear,
    mlp_proj: nn::Linear,
    #[module(skip)]
    heads: usize,
}

impl Block {
    fn new(width: usize, heads: usize) -> Self {
        Block {
            ln_1: nn::LayerNorm::new(width),
            attn_qkv: nn::Linear::new(width, 3 * width),
            attn_proj: nn::Linear::new(width, width),
            ln_2: nn::LayerNorm::new(width),
            mlp_fc: nn::Linear::new(width, 4 * width),
            mlp_proj: nn::Linear::new(4 * width, width),
            heads,
        }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let (b, t, c) = (x.size(0) as i64, x.size(1) as i64, x.size(2) as i64);
        let h = self.heads as i64;
        let qkv = self.attn_qkv.forward(&self.ln_1.forward(x)).view([b, t, 3, h, c / h]);
        let part = |i: i64| qkv.select(2, i).transpose(1, 2);
        let attended = part(0).scaled_dot_product_attention(&part(1), &part(2), None, true, None);
        let attended = attended.transpose(1, 2).reshape([b, t, c]);
        let x = x + self.attn_proj.forward(&attended);
        let hidden = F::gelu_tanh(&self.mlp_fc.forward(&self.ln_2.forward(&x)));
        &x + self.mlp_proj.forward(&hidden)
    }
}

/// A small GPT over bytes: learned positions, pre-norm blocks, the embedding as the output layer.
/// (Radford et al., "Language Models are Unsupervised Multitask Learners", 2019.)
#[derive(Module)]
pub struct Gpt {
    wte: nn::Embedding,
    wpe: nn::Embedding,
    h: Vec<Block>,
    ln_f: nn::LayerNorm,
}

impl Gpt {
    const WIDTH: usize = 128;
    const HEADS: usize = 4;
    const LAYERS: usize = 4;

    pub fn new(vocabulary: usize, context: usize) -> Self {
        let gpt = Gpt {
            wte: nn::Embedding::new(vocabulary, Self::WIDTH),
            wpe: nn::Embedding::new(context, Self::WIDTH),
            h: (0..Self::LAYERS).map(|_| Block::new(Self::WIDTH, Self::HEADS)).collect(),
            ln_f: nn::LayerNorm::new(Self::WIDTH),
        };
        // GPT-2's initial values: the residual branches' last layers are scaled down by depth.
        let residual = 0.02 / (2.0 * Self::LAYERS as f64).sqrt();
        for (name, p) in gpt.named_parameters() {
            match name.rsplit('.').next() {
                Some("bias") => init::zeros_(&p),
                Some("weight") if p.dim() == 2 => {
                    init::normal_(&p, 0.0, if name.contains("proj") { residual } else { 0.02 })
                }
                _ => {}
            }
        }
        gpt
    }

    fn context(&self) -> usize {
        self.wpe.weight.size(0)
    }

    /// Logits `[batch, length, vocabulary]` for tokens `[batch, length]`.
    fn forward(&self, tokens: &Tensor) -> Tensor {
        let positions = Tensor::range(tokens.size(1));
        let mut x = self.wte.forward(tokens) + self.wpe.forward(&positions);
        for block in &self.h {
            x = block.forward(&x);
        }
        self.ln_f.forward(&x).matmul(&self.wte.weight.t())
    }
}

impl Network for Gpt {
    fn logits(&self, x: &Tensor) -> Tensor {
        self.forward(x).flatten(0, 1)
    }

    fn sample_text(&self, bytes: usize) -> Option<String> {
        self.eval();
        let mut text: Vec<i64> = vec![i64::from(b'\n')];
        no_grad(|| {
            while text.len() <= bytes {
                let start = text.len().saturating_sub(self.context());
                let tokens = Tensor::from_slice(&text[start..], [1, text.len() - start]);
                // A little below 1: fewer slips, still varied.
                let last = self.forward(&tokens).select(0, 0).select(0, -1) / 0.8;
                text.push(last.softmax(-1).multinomial(1, true).item_i64());
            }
        });
        let bytes: Vec<u8> = text[1..].iter().map(|&b| b as u8).collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The model that `--model` and the data ask for.
pub fn build(args: &Args, shape: Shape) -> Result<Box<dyn Network>> {
    Ok(match (args.model(), shape) {
        (ModelKind::Mlp, Shape::Images { channels, height, width, classes }) => {
            Box::new(Mlp::new(channels * height * width, classes))
        }
        (ModelKind::Cnn, Shape::Images { channels, height, width, classes }) => {
            Box::new(Cnn::new(channels, height, width, classes))
        }
        (ModelKind::Gpt, Shape::Text { vocabulary }) => {
            Box::new(Gpt::new(vocabulary, args.context_length))
        }
        (ModelKind::Gpt, Shape::Images { .. }) => {
            return Err(Error::config("--model", "gpt needs --data text:FILE"));
        }
        (_, Shape::Text { .. }) => return Err(Error::config("--model", "text needs --model gpt")),
    })
}

/// The optimizer that `--optimizer` asks for; biases and gains do not decay.
pub fn optimizer(args: &Args, parameters: Vec<Tensor>, lr: f64) -> Box<dyn Optimizer> {
    let (matrices, vectors): (Vec<Tensor>, Vec<Tensor>) =
        parameters.into_iter().partition(|p| p.dim() >= 2);
    macro_rules! grouped {
        ($optimizer:ident, $options:expr) => {{
            let options = |weight_decay: f64| $options(weight_decay);
            Box::new($optimizer::with_groups([
                ParamGroup::new(matrices, options(args.weight_decay)),
                ParamGroup::new(vectors, options(0.0)),
            ]))
        }};
    }
    match args.optimizer {
        OptimizerKind::Sgd => grouped!(SGD, |weight_decay| SGDOptions {
            lr,
            momentum: 0.9,
            nesterov: true,
            weight_decay,
            ..Default::default()
        }),
        OptimizerKind::Adam => {
            grouped!(Adam, |weight_decay| AdamOptions { lr, weight_decay, ..Default::default() })
        }
        OptimizerKind::Adamw => {
            grouped!(AdamW, |weight_decay| AdamWOptions { lr, weight_decay, ..Default::default() })
        }
    }
}

/// A short warm-up, then half a cosine down to a hundredth.
pub fn schedule(optimizer: &mut dyn Optimizer, steps: u64) -> WarmupCosineLR {
    WarmupCosineLR::new(optimizer, (steps / 20).min(200), steps.max(1), 0.01)
}

/// Share of rows whose largest logit is the target's, times the number of rows.
pub fn correct(logits: &Tensor, targets: &Tensor) -> f64 {
    logits.argmax_dim(-1, false).eq(targets).to_dtype(Dtype::F32).sum().item()
}
