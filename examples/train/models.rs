//! The models of `--model`, and what trains them.

use std::path::Path;

use torchrs::distributed::DeviceMesh;
use torchrs::models::{
    GPT2Config, GPT2LMHeadModel, GenerateOptions, MobileNetV2, ResNet, mobilenet_v2, resnet18,
};
use torchrs::nn::parallel::FullyShardOptions;
use torchrs::nn::{self, Forward, Module, functional as F};
use torchrs::ops::Pool2dOptions;
use torchrs::optim::lr_scheduler::WarmupCosineLR;
use torchrs::optim::{
    Adam, AdamOptions, AdamW, AdamWOptions, Optimizer, ParamGroup, SGD, SGDOptions,
};
use torchrs::{Error, Result, Tensor};

use crate::args::{ModelKind, OptimizerKind};
use crate::data::Shape;
use crate::llama;
use crate::settings::Settings;
use crate::sharding::shard_each;

/// A classifier of images or of the next byte: inputs to logits `[n, classes]`.
pub trait Network: Module {
    /// One row of logits per target.
    fn logits(&self, x: &Tensor) -> Tensor;

    /// The mean cross entropy against `y`.
    fn loss(&self, x: &Tensor, y: &Tensor) -> Tensor {
        F::cross_entropy(&self.logits(x), &y.flatten(0, -1))
    }

    /// Text that the model makes up, if it is a language model, with so many tokens before each.
    fn sample_text(&self, _bytes: usize, _context: usize) -> Option<String> {
        None
    }

    /// Shards the model's blocks, each by itself, if it has some.
    fn shard_blocks(&mut self, _: &DeviceMesh, _: &FullyShardOptions) -> Result<()> {
        Ok(())
    }

    /// Writes a folder of files that other programs read. All ranks of a sharded model call it, and one writes.
    fn export(&self, _folder: &Path, _writes: bool) -> Result<()> {
        Err(Error::config("--export", "is for --model llama"))
    }
}

impl<N: Network + ?Sized> Network for Box<N> {
    fn logits(&self, x: &Tensor) -> Tensor {
        (**self).logits(x)
    }
    fn loss(&self, x: &Tensor, y: &Tensor) -> Tensor {
        (**self).loss(x, y)
    }
    fn sample_text(&self, bytes: usize, context: usize) -> Option<String> {
        (**self).sample_text(bytes, context)
    }
    fn shard_blocks(&mut self, mesh: &DeviceMesh, options: &FullyShardOptions) -> Result<()> {
        (**self).shard_blocks(mesh, options)
    }
    fn export(&self, folder: &Path, writes: bool) -> Result<()> {
        (**self).export(folder, writes)
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

/// What torchvision's models take: a grey image three times.
fn colours(x: &Tensor) -> Tensor {
    match *x.shape() {
        [n, 1, h, w] => x.expand(&[n, 3, h, w]),
        _ => x.clone(),
    }
}

impl Network for ResNet {
    fn logits(&self, x: &Tensor) -> Tensor {
        self.forward(&colours(x))
    }
}

impl Network for MobileNetV2 {
    fn logits(&self, x: &Tensor) -> Tensor {
        self.forward(&colours(x))
    }
}

/// A small GPT-2 over bytes.
pub fn gpt_config(vocabulary: usize, context: usize) -> GPT2Config {
    GPT2Config {
        vocab_size: vocabulary,
        n_positions: context,
        n_embd: 128,
        n_layer: 4,
        n_head: 4,
        ..Default::default()
    }
    .no_dropout()
}

impl Network for GPT2LMHeadModel {
    fn logits(&self, x: &Tensor) -> Tensor {
        self.forward(x).flatten(0, 1)
    }

    fn loss(&self, x: &Tensor, y: &Tensor) -> Tensor {
        self.token_loss(x, y)
    }

    fn sample_text(&self, bytes: usize, context: usize) -> Option<String> {
        let generate = |prompt: &Tensor, options: GenerateOptions| self.generate(prompt, options);
        sample_bytes(self, bytes, context, generate)
    }

    fn shard_blocks(&mut self, mesh: &DeviceMesh, options: &FullyShardOptions) -> Result<()> {
        shard_each(&mut self.transformer.h, mesh, options)
    }
}

/// Text from a model of bytes.
pub fn sample_bytes(
    model: &dyn Module,
    bytes: usize,
    context: usize,
    generate: impl Fn(&Tensor, GenerateOptions) -> Tensor,
) -> Option<String> {
    if context < 2 {
        return None;
    }
    model.eval();
    let device = model.parameters().first()?.device();
    let mut text: Vec<i64> = vec![i64::from(b'\n')];
    // A little below 1: fewer slips, still varied.
    let options =
        GenerateOptions { do_sample: true, temperature: 0.8, top_k: 0, ..Default::default() };
    while text.len() <= bytes {
        // When the context is full, its second half is where the text goes on.
        let known = text.len().min(context.div_ceil(2));
        let prompt = Tensor::from_slice(&text[text.len() - known..], [1, known]);
        let max_new_tokens = (context - known).min(bytes + 1 - text.len());
        let options = GenerateOptions { max_new_tokens, ..options.clone() };
        let longer = generate(&prompt.to_device(device), options);
        text.extend(&longer.select(0, 0).to_vec::<i64>()[known..]);
    }
    // Of a larger vocabulary than that of bytes some tokens are none.
    let bytes: Vec<u8> = text[1..].iter().map(|&b| u8::try_from(b).unwrap_or(b'?')).collect();
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The model that `--model` and the data ask for.
pub fn build(settings: &Settings, shape: Shape) -> Result<Box<dyn Network>> {
    Ok(match (settings.model, shape) {
        (ModelKind::Mlp, Shape::Images { channels, height, width, classes }) => {
            Box::new(Mlp::new(channels * height * width, classes))
        }
        (ModelKind::Cnn, Shape::Images { channels, height, width, classes }) => {
            Box::new(Cnn::new(channels, height, width, classes))
        }
        (ModelKind::Resnet18, Shape::Images { classes, .. }) => Box::new(resnet18(classes)),
        (ModelKind::MobilenetV2, Shape::Images { classes, .. }) => Box::new(mobilenet_v2(classes)),
        (ModelKind::Gpt, Shape::Text { vocabulary }) => {
            Box::new(GPT2LMHeadModel::new(gpt_config(vocabulary, settings.context_length)))
        }
        (ModelKind::Llama, Shape::Text { vocabulary }) => {
            Box::new(llama::build(settings, vocabulary)?)
        }
        (ModelKind::Gpt, Shape::Images { .. }) => {
            return Err(Error::config("--model", "gpt needs --data text:FILE"));
        }
        (ModelKind::Llama, Shape::Images { .. }) => {
            let message = "llama needs --data text:FILE, tokens-u16:FILE or tokens-u32:FILE";
            return Err(Error::config("--model", message));
        }
        (_, Shape::Text { .. }) => {
            return Err(Error::config("--model", "text needs --model gpt or llama"));
        }
    })
}

/// Parameters that decay, and biases and gains, which do not.
pub fn decaying(parameters: Vec<Tensor>) -> Vec<Vec<Tensor>> {
    let (matrices, vectors) = parameters.into_iter().partition(|p| p.dim() >= 2);
    vec![matrices, vectors]
}

/// The optimizer that `--optimizer` asks for, of those two groups.
pub fn optimizer(settings: &Settings, groups: Vec<Vec<Tensor>>) -> Box<dyn Optimizer> {
    let lr = settings.lr;
    let decays = [settings.weight_decay, 0.0];
    macro_rules! grouped {
        ($optimizer:ident, $options:expr) => {{
            let options = |weight_decay: f64| $options(weight_decay);
            let groups = groups.into_iter().zip(decays);
            let groups = groups.map(|(group, decay)| ParamGroup::new(group, options(decay)));
            Box::new($optimizer::with_groups(groups))
        }};
    }
    match settings.optimizer {
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
