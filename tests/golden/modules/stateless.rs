//! Modules without parameters: activations, losses, pools.

use torchrs::Tensor;
use torchrs::nn::functional::{
    BCEWithLogitsOptions, GaussianNLLOptions, PoissonNLLOptions, TripletMarginOptions,
};
use torchrs::nn::{self, Loss, MarginOptions};
use torchrs::ops::{CTCLossOptions, CrossEntropyOptions, NLLLossOptions};

use super::layers::forward;
use super::{Built, Setup, built};
use crate::arg::{Arg, Call, Outcome, Stop, lacks};
use crate::ops::loss::{kl_div, reduction};

/// How a module that compares two tensors is called.
fn loss<M: Loss>(module: &M, call: &Call) -> Outcome {
    let (input, target) = (call.tensor(0, "input")?, call.tensor(1, "target")?);
    Ok(Arg::Tensor(module.forward(input, target)))
}

/// Lengths, given as a tensor or a list.
fn lengths(c: &Call, i: usize) -> Outcome<Tensor> {
    match c.get(i, "lengths") {
        Arg::Tensor(t) => Ok(t.clone()),
        _ => {
            let list = c.ints(i, "lengths")?;
            Ok(Tensor::from_slice(&list, [list.len()]))
        }
    }
}

macro_rules! dropout {
    ($setup:ident, $c:ident, $class:ident) => {{
        if $c.flag(1, "inplace", false)? {
            return lacks("inplace");
        }
        built($setup, nn::$class::new($c.float(0, "p", 0.5)?), forward)
    }};
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
        "nn.Dropout" => dropout!(setup, c, Dropout),
        "nn.Dropout1d" => dropout!(setup, c, Dropout1d),
        "nn.Dropout2d" => dropout!(setup, c, Dropout2d),
        "nn.Dropout3d" => dropout!(setup, c, Dropout3d),
        "nn.AlphaDropout" => dropout!(setup, c, AlphaDropout),
        "nn.FeatureAlphaDropout" => dropout!(setup, c, FeatureAlphaDropout),
        "nn.RReLU" => {
            inplace(2)?;
            let (lower, upper) = (c.float(0, "lower", 0.125)?, c.float(1, "upper", 1.0 / 3.0)?);
            built(setup, nn::RReLU::new(lower, upper), forward)
        }
        "nn.TripletMarginLoss" => {
            let options = TripletMarginOptions {
                margin: c.float(0, "margin", 1.0)?,
                p: c.float(1, "p", 2.0)?,
                eps: c.float(2, "eps", 1e-6)?,
                swap: c.flag(3, "swap", false)?,
                reduction: reduction(c)?,
            };
            built(setup, nn::TripletMarginLoss::with_options(options), |module, c| {
                let (anchor, near) = (c.tensor(0, "anchor")?, c.tensor(1, "positive")?);
                Ok(Arg::Tensor(module.forward(anchor, near, c.tensor(2, "negative")?)))
            })
        }
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
            let options = NLLLossOptions {
                weight: c.maybe_tensor(0, "weight")?.cloned(),
                ignore_index: c.int(usize::MAX, "ignore_index", -100)?,
                reduction: reduction(c)?,
            };
            built(setup, nn::NLLLoss::with_options(options), loss)
        }
        "nn.ReLU6" => inplace(0).and_then(|()| built(setup, nn::ReLU6, forward)),
        "nn.SELU" => inplace(0).and_then(|()| built(setup, nn::SELU, forward)),
        "nn.Mish" => inplace(0).and_then(|()| built(setup, nn::Mish, forward)),
        "nn.Hardswish" => inplace(0).and_then(|()| built(setup, nn::Hardswish, forward)),
        "nn.Hardsigmoid" => inplace(0).and_then(|()| built(setup, nn::Hardsigmoid, forward)),
        "nn.Softsign" => built(setup, nn::Softsign, forward),
        "nn.Tanhshrink" => built(setup, nn::Tanhshrink, forward),
        "nn.LogSigmoid" => built(setup, nn::LogSigmoid, forward),
        "nn.Softmax2d" => built(setup, nn::Softmax2d, forward),
        "nn.Softmin" => built(setup, nn::Softmin::new(c.int(0, "dim", -1)?), forward),
        "nn.GLU" => built(setup, nn::GLU::new(c.int(0, "dim", -1)?), forward),
        "nn.CELU" => {
            inplace(1)?;
            built(setup, nn::CELU::new(c.float(0, "alpha", 1.0)?), forward)
        }
        "nn.Hardshrink" => built(setup, nn::Hardshrink::new(c.float(0, "lambd", 0.5)?), forward),
        "nn.Softshrink" => built(setup, nn::Softshrink::new(c.float(0, "lambd", 0.5)?), forward),
        "nn.Hardtanh" => {
            inplace(2)?;
            let (low, high) = (c.float(0, "min_val", -1.0)?, c.float(1, "max_val", 1.0)?);
            built(setup, nn::Hardtanh::new(low, high), forward)
        }
        "nn.Threshold" => {
            inplace(2)?;
            let (threshold, value) = (c.float(0, "threshold", 0.0)?, c.float(1, "value", 0.0)?);
            built(setup, nn::Threshold::new(threshold, value), forward)
        }
        "nn.Softplus" => {
            let (beta, threshold) = (c.float(0, "beta", 1.0)?, c.float(1, "threshold", 20.0)?);
            built(setup, nn::Softplus::new(beta, threshold), forward)
        }
        "nn.PReLU" => {
            let (count, init) = (c.count(0, "num_parameters", 1)?, c.float(1, "init", 0.25)?);
            built(setup, nn::PReLU::new(count, init), forward)
        }
        "nn.BCELoss" => {
            let mut module = nn::BCELoss::new().reduction(reduction(c)?);
            if let Some(weight) = c.maybe_tensor(0, "weight")? {
                module = module.weight(weight.clone());
            }
            built(setup, module, loss)
        }
        "nn.BCEWithLogitsLoss" => {
            let options = BCEWithLogitsOptions {
                weight: c.maybe_tensor(0, "weight")?.cloned(),
                pos_weight: c.maybe_tensor(usize::MAX, "pos_weight")?.cloned(),
                reduction: reduction(c)?,
            };
            built(setup, nn::BCEWithLogitsLoss::with_options(options), loss)
        }
        "nn.MultiLabelSoftMarginLoss" => {
            let mut module = nn::MultiLabelSoftMarginLoss::new().reduction(reduction(c)?);
            if let Some(weight) = c.maybe_tensor(0, "weight")? {
                module = module.weight(weight.clone());
            }
            built(setup, module, loss)
        }
        "nn.MultiMarginLoss" => {
            let mut module = nn::MultiMarginLoss::new()
                .p(c.count(0, "p", 1)? as u32)
                .margin(c.float(1, "margin", 1.0)?)
                .reduction(reduction(c)?);
            if let Some(weight) = c.maybe_tensor(2, "weight")? {
                module = module.weight(weight.clone());
            }
            built(setup, module, loss)
        }
        "nn.MultiLabelMarginLoss" => {
            built(setup, nn::MultiLabelMarginLoss::new().reduction(reduction(c)?), loss)
        }
        "nn.SoftMarginLoss" => {
            built(setup, nn::SoftMarginLoss::new().reduction(reduction(c)?), loss)
        }
        "nn.HingeEmbeddingLoss" => {
            let margin = c.float(0, "margin", 1.0)?;
            let module = nn::HingeEmbeddingLoss::new().margin(margin).reduction(reduction(c)?);
            built(setup, module, loss)
        }
        "nn.CosineSimilarity" => {
            let module = nn::CosineSimilarity::new(c.int(0, "dim", 1)?, c.float(1, "eps", 1e-8)?);
            built(setup, module, |module, c| {
                Ok(Arg::Tensor(module.forward(c.tensor(0, "x1")?, c.tensor(1, "x2")?)))
            })
        }
        "nn.PairwiseDistance" => {
            let (p, eps) = (c.float(0, "p", 2.0)?, c.float(1, "eps", 1e-6)?);
            let keepdim = c.flag(2, "keepdim", false)?;
            let module = nn::PairwiseDistance::new(nn::PairwiseDistanceOptions { p, eps, keepdim });
            built(setup, module, |module, c| {
                Ok(Arg::Tensor(module.forward(c.tensor(0, "x1")?, c.tensor(1, "x2")?)))
            })
        }
        "nn.CTCLoss" => {
            let options = CTCLossOptions {
                blank: c.count(0, "blank", 0)?,
                reduction: reduction(c)?,
                zero_infinity: c.flag(2, "zero_infinity", false)?,
            };
            built(setup, nn::CTCLoss::with_options(options), |module, c| {
                let (x, targets) = (c.tensor(0, "log_probs")?, c.tensor(1, "targets")?);
                let (steps, labels) = (lengths(c, 2)?, lengths(c, 3)?);
                Ok(Arg::Tensor(module.forward(x, targets, &steps, &labels)))
            })
        }
        "nn.KLDivLoss" => built(setup, nn::KLDivLoss::with_options(kl_div(c)?), |module, c| {
            Ok(Arg::Tensor(module.forward(c.tensor(0, "input")?, c.tensor(1, "target")?)))
        }),
        "nn.PoissonNLLLoss" => {
            let options = PoissonNLLOptions {
                log_input: c.flag(0, "log_input", true)?,
                full: c.flag(1, "full", false)?,
                eps: c.float(usize::MAX, "eps", 1e-8)?,
                reduction: reduction(c)?,
            };
            built(setup, nn::PoissonNLLLoss::with_options(options), |module, c| {
                Ok(Arg::Tensor(module.forward(c.tensor(0, "input")?, c.tensor(1, "target")?)))
            })
        }
        "nn.GaussianNLLLoss" => {
            let options = GaussianNLLOptions {
                full: c.flag(usize::MAX, "full", false)?,
                eps: c.float(usize::MAX, "eps", 1e-6)?,
                reduction: reduction(c)?,
            };
            built(setup, nn::GaussianNLLLoss::with_options(options), |module, c| {
                let (input, target) = (c.tensor(0, "input")?, c.tensor(1, "target")?);
                Ok(Arg::Tensor(module.forward(input, target, c.tensor(2, "var")?)))
            })
        }
        "nn.MarginRankingLoss" => {
            let options =
                MarginOptions { margin: c.float(0, "margin", 0.0)?, reduction: reduction(c)? };
            built(setup, nn::MarginRankingLoss::with_options(options), |module, c| {
                let (a, b) = (c.tensor(0, "input1")?, c.tensor(1, "input2")?);
                Ok(Arg::Tensor(module.forward(a, b, c.tensor(2, "target")?)))
            })
        }
        "nn.CosineEmbeddingLoss" => {
            let options =
                MarginOptions { margin: c.float(0, "margin", 0.0)?, reduction: reduction(c)? };
            built(setup, nn::CosineEmbeddingLoss::with_options(options), |module, c| {
                let (a, b) = (c.tensor(0, "input1")?, c.tensor(1, "input2")?);
                Ok(Arg::Tensor(module.forward(a, b, c.tensor(2, "target")?)))
            })
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
