//! The models of `--model`, and what trains them.

use torchrs::models::{
    GPT2Config, GPT2LMHeadModel, GenerateOptions, MobileNetV2, ResNet, mobilenet_v2, resnet18,
};
use torchrs::nn::{self, Forward, Module};
use torchrs::ops::Pool2dOptions;
use torchrs::optim::lr_scheduler::WarmupCosineLR;
use torchrs::optim::{
    Adam, AdamOptions, AdamW, AdamWOptions, Optimizer, ParamGroup, SGD, SGDOptions,
};
use torchrs::train::{Throughput, transformer_flops};
use torchrs::{Device, Error, Result, Tensor};

use crate::args::{ModelKind, OptimizerKind};
use crate::data::Shape;
use crate::settings::Settings;

/// A classifier of images or of the next byte: inputs to logits `[n, classes]`.
pub trait Network: Module {
    /// One row of logits per target.
    fn logits(&self, x: &Tensor) -> Tensor;

    /// Text that the model makes up, if it is a language model.
    fn sample_text(&self, _bytes: usize) -> Option<String> {
        None
    }
}

impl<N: Network + ?Sized> Network for Box<N> {
    fn logits(&self, x: &Tensor) -> Tensor {
        (**self).logits(x)
    }
    fn sample_text(&self, bytes: usize) -> Option<String> {
        (**self).sample_text(bytes)
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
fn gpt_config(vocabulary: usize, context: usize) -> GPT2Config {
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

    fn sample_text(&self, bytes: usize) -> Option<String> {
        self.eval();
        let mut text: Vec<i64> = vec![i64::from(b'\n')];
        // A little below 1: fewer slips, still varied.
        let options =
            GenerateOptions { do_sample: true, temperature: 0.8, top_k: 0, ..Default::default() };
        let context = self.config().n_positions;
        if context < 2 {
            return None;
        }
        while text.len() <= bytes {
            // When the context is full, its second half is where the text goes on.
            let known = text.len().min(context.div_ceil(2));
            let prompt = Tensor::from_slice(&text[text.len() - known..], [1, known]);
            let max_new_tokens = (context - known).min(bytes + 1 - text.len());
            let longer = self.generate(&prompt, GenerateOptions { max_new_tokens, ..options });
            text.extend(&longer.select(0, 0).to_vec::<i64>()[known..]);
        }
        let bytes: Vec<u8> = text[1..].iter().map(|&b| b as u8).collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }
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
        (ModelKind::Gpt, Shape::Images { .. }) => {
            return Err(Error::config("--model", "gpt needs --data text:FILE"));
        }
        (_, Shape::Text { .. }) => return Err(Error::config("--model", "text needs --model gpt")),
    })
}

/// Counts samples; of a language model, also tokens and operations.
pub fn throughput(settings: &Settings, device: Device, parameters: usize) -> Throughput {
    let speed = Throughput::new(device);
    if settings.model != ModelKind::Gpt {
        return speed;
    }
    let tokens = settings.context_length;
    let GPT2Config { n_layer, n_embd, .. } = gpt_config(1, tokens);
    speed
        .tokens_per_sample(tokens as f64)
        .flops_per_sample(transformer_flops(parameters, n_layer, n_embd, tokens))
}

/// The optimizer that `--optimizer` asks for; biases and gains do not decay.
pub fn optimizer(settings: &Settings, parameters: Vec<Tensor>) -> Box<dyn Optimizer> {
    let lr = settings.lr;
    let (matrices, vectors): (Vec<Tensor>, Vec<Tensor>) =
        parameters.into_iter().partition(|p| p.dim() >= 2);
    macro_rules! grouped {
        ($optimizer:ident, $options:expr) => {{
            let options = |weight_decay: f64| $options(weight_decay);
            Box::new($optimizer::with_groups([
                ParamGroup::new(matrices, options(settings.weight_decay)),
                ParamGroup::new(vectors, options(0.0)),
            ]))
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
