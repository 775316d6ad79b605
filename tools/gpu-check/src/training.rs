//! Whole training steps, and optimizers on GPT-2's parameters.

use torchrs::amp::autocast;
use torchrs::models::{self, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM};
use torchrs::nn::functional as F;
use torchrs::nn::{
    Conv2d, Flatten, Forward, Linear, MaxPool2d, Module, ReLU, Sequential, TransformerActivation,
    TransformerEncoder, TransformerEncoderLayer, TransformerOptions, clip_grad_norm_,
};
use torchrs::optim::{AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use torchrs::{Device, Dtype, Result, Tensor};

use crate::bench::{Bench, GPU, normal, short};

/// The smallest that has every layer.
const TINY_GPT2: GPT2Sizes = GPT2Sizes { layers: 1, width: 32, vocabulary: 128, length: 32 };
/// That of the 124 million parameters.
const GPT2: GPT2Sizes = GPT2Sizes { layers: 12, width: 768, vocabulary: 50257, length: 1024 };

/// What differs between the two.
struct GPT2Sizes {
    layers: usize,
    width: usize,
    vocabulary: usize,
    length: usize,
}

impl GPT2Sizes {
    fn of(bench: &Bench) -> GPT2Sizes {
        if bench.tiny { TINY_GPT2 } else { GPT2 }
    }

    fn model(&self, bench: &Bench) -> GPT2LMHeadModel {
        let config = GPT2Config {
            n_layer: self.layers,
            n_embd: self.width,
            n_head: if self.width == GPT2.width { 12 } else { 2 },
            vocab_size: self.vocabulary,
            n_positions: self.length,
            ..GPT2Config::gpt2()
        };
        made(|| GPT2LMHeadModel::new(config.no_dropout()), bench)
    }
}

/// Runs `f` in a row's precision.
fn precision<T>(dtype: Dtype, f: impl FnOnce() -> T) -> T {
    if dtype == Dtype::F32 { f() } else { autocast(GPU, dtype, f) }
}

/// Tokens per second of training in bf16.
pub fn gpt2(bench: &Bench) -> Result<()> {
    let sizes = GPT2Sizes::of(bench);
    let (batch, length, vocabulary) = (bench.size(16, 2), sizes.length, sizes.vocabulary as i64);
    let model = sizes.model(bench);
    let x = Tensor::randint(0, vocabulary, [batch, length], Dtype::I64).to_device(GPU);
    let y = Tensor::randint(0, vocabulary, [batch, length], Dtype::I64).to_device(GPU);
    let options = AdamWOptions { lr: 1e-4, ..Default::default() };
    let mut optimizer = AdamW::new(model.parameters(), options);
    bench.device("train_gpt2_124M_bf16", "tok/s", (batch * length) as f64, move || {
        optimizer.zero_grad();
        precision(Dtype::BF16, || model.token_loss(&x, &y)).backward();
        optimizer.step();
    });
    Ok(())
}

/// Tokens per second of training blocks of Llama 3.2 1B, with its vocabulary, in bf16.
pub fn llama(bench: &Bench) -> Result<()> {
    let full = LlamaConfig {
        num_hidden_layers: 4,
        max_position_embeddings: 2048,
        rope_scaling: None,
        ..LlamaConfig::llama3_2_1b()
    };
    let tiny = LlamaConfig {
        vocab_size: 128,
        hidden_size: 64,
        intermediate_size: 128,
        num_hidden_layers: 1,
        num_attention_heads: 4,
        num_key_value_heads: Some(2),
        head_dim: Some(16),
        max_position_embeddings: 32,
        ..full.clone()
    };
    let config = if bench.tiny { tiny } else { full };
    let (batch, length) = (bench.size(4, 2), config.max_position_embeddings);
    let vocabulary = config.vocab_size as i64;
    let model = made(|| LlamaForCausalLM::new(config), bench);
    let x = Tensor::randint(0, vocabulary, [batch, length], Dtype::I64).to_device(GPU);
    let options = AdamWOptions { lr: 1e-4, ..Default::default() };
    let mut optimizer = AdamW::new(model.parameters(), options);
    bench.device("train_llama_4_blocks_bf16", "tok/s", (batch * length) as f64, move || {
        optimizer.zero_grad();
        precision(Dtype::BF16, || model.loss(&x, &x)).backward();
        optimizer.step();
    });
    Ok(())
}

/// Tokens per second of training the encoder of BERT base, in bf16.
pub fn bert(bench: &Bench) -> Result<()> {
    let (layers, width) = (bench.size(12, 1), bench.size(768, 32));
    let (batch, length) = (bench.size(32, 2), bench.size(512, 16));
    let options = TransformerOptions {
        dim_feedforward: 4 * width,
        dropout: 0.0,
        activation: TransformerActivation::Gelu,
        batch_first: true,
        ..Default::default()
    };
    let heads = bench.size(12, 2);
    let layer = || TransformerEncoderLayer::new(width, heads, options);
    let build = || TransformerEncoder::new((0..layers).map(|_| layer()).collect(), None);
    let model = made(build, bench);
    let x = normal(&[batch, length, width], Dtype::F32);
    let options = AdamWOptions { lr: 1e-4, ..Default::default() };
    let mut optimizer = AdamW::new(model.parameters(), options);
    bench.device("train_bert_base_bf16", "tok/s", (batch * length) as f64, move || {
        optimizer.zero_grad();
        precision(Dtype::BF16, || model.forward(&x, None, None)).square().mean().backward();
        optimizer.step();
    });
    Ok(())
}

/// A model on the GPU; one that is only counted has no values.
fn made<M: Module>(build: impl FnOnce() -> M, bench: &Bench) -> M {
    if bench.is_counting() {
        let mut model = Device::Meta.scope(build);
        model.to_empty(GPU);
        return model;
    }
    let mut model = build();
    model.to_device(GPU);
    model
}

/// Steps of optimizers, in GB/s of what has to be read and written.
pub fn optimizers(bench: &Bench) -> Result<()> {
    let parameters = GPT2Sizes::of(bench).model(bench).parameters();
    let n = parameters.iter().map(Tensor::numel).sum::<usize>() as f64 * 1e-9;
    for p in &parameters {
        p.set_grad(Some(normal(p.shape(), Dtype::F32) * 1e-3));
    }
    let options = AdamWOptions { lr: 1e-5, ..Default::default() };
    let mut adamw = AdamW::new(parameters.clone(), options);
    bench.device("optim_adamw_124M", "GB/s", 28.0 * n, || adamw.step());
    let options = SGDOptions { lr: 1e-4, momentum: 0.9, ..Default::default() };
    let mut sgd = SGD::new(parameters.clone(), options);
    bench.device("optim_sgd_momentum_124M", "GB/s", 20.0 * n, || sgd.step());
    bench.device("optim_clip_grad_norm_124M", "GB/s", 12.0 * n, || {
        drop(clip_grad_norm_(&parameters, 1.0))
    });
    Ok(())
}

/// Images per second of training, in f32 and in bf16.
fn images<M: Forward + 'static>(bench: &Bench, name: &str, batch: usize, model: fn() -> M) {
    for dtype in [Dtype::F32, Dtype::BF16] {
        let (batch, side) = (bench.size(batch, 2), bench.size(224, 32));
        let mut model = match bench.tiny {
            true => tiny_network(),
            false => Sequential::new().append(model()),
        };
        model.to_device(GPU);
        let x = normal(&[batch, 3, side, side], Dtype::F32);
        let y = Tensor::randint(0, 10, [batch], Dtype::I64).to_device(GPU);
        let options = SGDOptions { lr: 1e-3, momentum: 0.9, ..Default::default() };
        let mut optimizer = SGD::new(model.parameters(), options);
        bench.device(&format!("train_{name}_{}", short(dtype)), "img/s", batch as f64, move || {
            optimizer.zero_grad();
            precision(dtype, || F::cross_entropy(&model.forward(&x), &y)).backward();
            optimizer.step();
        });
    }
}

/// Kinds of layers that all three have, for images of 32 x 32.
fn tiny_network() -> Sequential {
    Sequential::new()
        .append(Conv2d::new(3, 8, 11).stride(4).padding(2))
        .append(ReLU)
        .append(MaxPool2d::new(3).stride(2))
        .append(Flatten::new())
        .append(Linear::new(8 * 3 * 3, 10))
}

/// ResNet-50.
pub fn resnet50(bench: &Bench) -> Result<()> {
    images(bench, "resnet50", 128, || models::resnet50(1000));
    Ok(())
}

/// AlexNet.
pub fn alexnet(bench: &Bench) -> Result<()> {
    images(bench, "alexnet", 256, || models::alexnet(1000));
    Ok(())
}

/// VGG-19.
pub fn vgg19(bench: &Bench) -> Result<()> {
    images(bench, "vgg19", 64, || models::vgg19(1000));
    Ok(())
}
