//! Modules without parameters: activations, losses, pools.

use torchrs::nn::{self, Loss};
use torchrs::ops::{CrossEntropyOptions, NllLossOptions, Reduction};

use super::layers::forward;
use super::{Built, Setup, built};
use crate::arg::{Arg, Call, Outcome, Stop, lacks};

pub fn reduction(c: &Call) -> Outcome<Reduction> {
    for old in ["size_average", "reduce"] {
        if c.given(usize::MAX, old) && !matches!(c.keyword(old), Arg::None) {
            return lacks(old);
        }
    }
    Ok(match c.text(usize::MAX, "reduction", "mean")?.as_str() {
        "mean" => Reduction::Mean,
        "sum" => Reduction::Sum,
        "none" => Reduction::None,
        other => return lacks(other),
    })
}

/// How a module that compares two tensors is called.
fn loss<M: Loss>(module: &M, call: &Call) -> Outcome {
    let (input, target) = (call.tensor(0, "input")?, call.tensor(1, "target")?);
    Ok(Arg::Tensor(module.forward(input, target)))
}

pub fn build(setup: &Setup) -> Option<Outcome<Built>> {
    let c = &setup.args;
    let inplace = |i: usize| match c.flag(i, "inplace", false)? {
        true => lacks("inplace"),
        false => Ok(()),
    };
    let build = || match setup.op.as_str() {
        "nn.Identity" => built(setup, nn::Identity, forward),
        "nn.ReLU" => inplace(0).and_then(|()| built(setup, nn::ReLU, forward)),
        "nn.SiLU" => inplace(0).and_then(|()| built(setup, nn::SiLU, forward)),
        "nn.Tanh" => built(setup, nn::Tanh, forward),
        "nn.Sigmoid" => built(setup, nn::Sigmoid, forward),
        "nn.LeakyReLU" => {
            inplace(1)?;
            built(setup, nn::LeakyReLU::new(c.float(0, "negative_slope", 0.01)?), forward)
        }
        "nn.ELU" => {
            inplace(1)?;
            built(setup, nn::ELU::new(c.float(0, "alpha", 1.0)?), forward)
        }
        "nn.GELU" => match c.text(0, "approximate", "none")?.as_str() {
            "tanh" => built(setup, nn::GELU::tanh(), forward),
            _ => built(setup, nn::GELU::new(), forward),
        },
        "nn.Softmax" => built(setup, nn::Softmax::new(c.int(0, "dim", -1)?), forward),
        "nn.LogSoftmax" => built(setup, nn::LogSoftmax::new(c.int(0, "dim", -1)?), forward),
        "nn.Flatten" => {
            let (start, end) = (c.int(0, "start_dim", 1)?, c.int(1, "end_dim", -1)?);
            built(setup, nn::Flatten::dims(start, end), forward)
        }
        "nn.CrossEntropyLoss" => {
            let options = CrossEntropyOptions {
                weight: c.maybe_tensor(0, "weight")?.cloned(),
                ignore_index: c.int(usize::MAX, "ignore_index", -100)?,
                reduction: reduction(c)?,
                label_smoothing: c.float(usize::MAX, "label_smoothing", 0.0)?,
            };
            built(setup, nn::CrossEntropyLoss::with_options(options), loss)
        }
        "nn.NLLLoss" => {
            let options = NllLossOptions {
                weight: c.maybe_tensor(0, "weight")?.cloned(),
                ignore_index: c.int(usize::MAX, "ignore_index", -100)?,
                reduction: reduction(c)?,
            };
            built(setup, nn::NLLLoss::with_options(options), loss)
        }
        "nn.MSELoss" => built(setup, nn::MSELoss::new().reduction(reduction(c)?), loss),
        "nn.L1Loss" => built(setup, nn::L1Loss::new().reduction(reduction(c)?), loss),
        "nn.SmoothL1Loss" => {
            let beta = c.float(usize::MAX, "beta", 1.0)?;
            built(setup, nn::SmoothL1Loss::new().beta(beta).reduction(reduction(c)?), loss)
        }
        "nn.HuberLoss" => {
            let delta = c.float(usize::MAX, "delta", 1.0)?;
            built(setup, nn::HuberLoss::new().delta(delta).reduction(reduction(c)?), loss)
        }
        _ => lacks(""),
    };
    Some(build()).filter(|b| !matches!(b, Err(Stop::NotImplemented(why)) if why.is_empty()))
}
