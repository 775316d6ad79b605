//! Whole training steps, and optimizers on GPT-2's parameters.

use torchrs::amp::autocast;
use torchrs::models::{self, GPT2Config, GPT2LMHeadModel};
use torchrs::nn::functional as F;
use torchrs::nn::{
    Conv2d, Flatten, Forward, Linear, MaxPool2d, Module, ReLU, Sequential, clip_grad_norm_,
};
use torchrs::optim::{AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use torchrs::{Dtype, Result, Tensor};

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

    fn model(&self) -> GPT2LMHeadModel {
        let config = GPT2Config {
            n_layer: self.layers,
            n_embd: self.width,
            n_head: if self.width == GPT2.width { 12 } else { 2 },
            vocab_size: self.vocabulary,
            n_positions: self.length,
            ..GPT2Config::gpt2()
        };
        let mut model = GPT2LMHeadModel::new(config.no_dropout());
        model.to_device(GPU);
        model
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
    let model = sizes.model();
    let x = Tensor::randint(0, vocabulary, [batch, length], Dtype::I64).to_device(GPU);
    let y = Tensor::randint(0, vocabulary, [batch * length], Dtype::I64).to_device(GPU);
    let options = AdamWOptions { lr: 1e-4, ..Default::default() };
    let mut optimizer = AdamW::new(model.parameters(), options);
    bench.device("train_gpt2_124M_bf16", "tok/s", (batch * length) as f64, move || {
        optimizer.zero_grad();
        let loss = precision(Dtype::BF16, || {
            let scores = model.forward(&x).reshape([(batch * length) as i64, vocabulary]);
            F::cross_entropy(&scores, &y)
        });
        loss.backward();
        optimizer.step();
    });
    Ok(())
}

/// Steps of optimizers, in GB/s of what has to be read and written.
pub fn optimizers(bench: &Bench) -> Result<()> {
    let parameters = GPT2Sizes::of(bench).model().parameters();
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
