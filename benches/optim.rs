//! Times of optimizer steps on the parameters of ResNet-50 and GPT-2, one JSON line per row, with
//! names and units as PyTorch's side of the benchmarks has them (its section `optim`).
//!
//! `cargo bench --bench optim -- [FILTER ..] [--threads 1,2] [--budget SECONDS]`: rows whose name
//! contains one of the filters.

#[path = "common/bench.rs"]
mod bench;

use std::cell::RefCell;

use bench::Bench;
use torchrs::models::{self, GPT2Config, GPT2LMHeadModel};
use torchrs::nn::{Module, clip_grad_norm_};
use torchrs::optim::{Adam, AdamOptions, AdamW, AdamWOptions, Optimizer, SGD, SGDOptions};
use torchrs::{Dtype, Tensor};

fn rows(bench: &Bench, model: &str, parameters: &[Tensor]) {
    let n = parameters.iter().map(Tensor::numel).sum::<usize>();
    for p in parameters {
        p.set_grad(Some(Tensor::randn(p.shape(), Dtype::F32) * 1e-3));
    }
    let row = |name: &str, bytes: usize, optimizer: &dyn Fn() -> Box<dyn Optimizer>| {
        let name = format!("optim_{name}_fused_{model}");
        if bench.wants(&name) {
            let optimizer = RefCell::new(optimizer());
            bench.bytes(&name, bytes * n, || optimizer.borrow_mut().step());
        }
    };
    row("sgd_mom", 20, &|| {
        let options = SGDOptions { lr: 1e-4, momentum: 0.9, ..Default::default() };
        Box::new(SGD::new(parameters.to_vec(), options))
    });
    row("adam", 28, &|| {
        let options = AdamOptions { lr: 1e-5, ..Default::default() };
        Box::new(Adam::new(parameters.to_vec(), options))
    });
    row("adamw", 28, &|| {
        let options = AdamWOptions { lr: 1e-5, ..Default::default() };
        Box::new(AdamW::new(parameters.to_vec(), options))
    });
    let optimizer = RefCell::new(SGD::new(parameters.to_vec(), SGDOptions::default()));
    bench.bytes(&format!("optim_zero_grad_set_to_zero_{model}"), 4 * n, || {
        optimizer.borrow_mut().zero_grad_to_zeros()
    });
    bench.bytes(&format!("optim_clip_grad_norm_{model}"), 4 * n, || {
        clip_grad_norm_(parameters, 1e9)
    });
}

/// Makes a model's parameters.
type Parameters = fn() -> Vec<Tensor>;

const KINDS: [&str; 5] =
    ["sgd_mom_fused", "adam_fused", "adamw_fused", "zero_grad_set_to_zero", "clip_grad_norm"];

fn main() {
    Bench::main(|bench| {
        let models: [(&str, Parameters); 2] = [
            ("25M_resnet50", || models::resnet50(1000).parameters()),
            ("124M_gpt2", || GPT2LMHeadModel::new(GPT2Config::gpt2()).parameters()),
        ];
        for (name, parameters) in models {
            if KINDS.iter().any(|kind| bench.wants(&format!("optim_{kind}_{name}"))) {
                rows(bench, name, &parameters());
            }
        }
    });
}
