//! Modules with parameters or buffers.

use serde_json::Value;
use torchrs::nn::{self, Forward};
use torchrs::ops::{BagMode, ConvTransposeOptions, PadMode};

use super::{Built, Setup, built};
use crate::arg::{Arg, Call, Outcome, lacks};

/// How a module that maps a tensor to a tensor is called.
pub fn forward<M: Forward>(module: &M, call: &Call) -> Outcome {
    Ok(Arg::Tensor(module.forward(call.tensor(0, "input")?)))
}

/// The modules of a tree's entry `sequential`, which may hold others like it.
fn sequential(tree: &Value) -> Outcome<nn::Sequential> {
    let mut layers = nn::Sequential::new();
    for part in tree["sequential"].as_array().into_iter().flatten() {
        if part.get("sequential").is_some() {
            layers = layers.append(sequential(part)?);
            continue;
        }
        let op = part["op"].as_str().unwrap_or("");
        layers = super::with_arguments_of(part, |c| appended(layers, op, c))?;
    }
    Ok(layers)
}

/// `layers` and the module of a tree's entry under a name.
pub fn appended_as(layers: nn::Sequential, name: &str, entry: &Value) -> Outcome<nn::Sequential> {
    let op = entry["op"].as_str().unwrap_or("");
    let one = super::with_arguments_of(entry, |c| appended(nn::Sequential::new(), op, c))?;
    Ok(layers.append_named(name, Renamed(one)))
}

/// The only module of a list of modules, in the place of the list.
struct Renamed(nn::Sequential);

impl nn::Module for Renamed {
    fn visit<'a>(&'a self, visitor: &mut dyn nn::Visitor<'a>) {
        self.0.iter().for_each(|module| module.visit(visitor));
    }
    fn visit_mut(&mut self, visitor: &mut dyn nn::VisitorMut) {
        self.0.iter_mut().for_each(|module| module.visit_mut(visitor));
    }
    fn name(&self) -> &str {
        "Renamed"
    }
}

impl Forward for Renamed {
    fn forward(&self, input: &torchrs::Tensor) -> torchrs::Tensor {
        self.0.forward(input)
    }
}

/// `layers` and one more, of class `op` with the constructor arguments `c`.
fn appended(layers: nn::Sequential, op: &str, c: &Call) -> Outcome<nn::Sequential> {
    let (a, b) = (|| c.count(0, "in", 0), || c.count(1, "out", 0));
    Ok(match op {
        "nn.Linear" => layers.append(nn::Linear::new(a()?, b()?)),
        "nn.Conv2d" => {
            let layer = nn::Conv2d::new(a()?, b()?, c.per_dim::<2>(2, "kernel_size", 1)?)
                .padding(c.per_dim::<2>(4, "padding", 0)?);
            match c.flag(7, "bias", true)? {
                true => layers.append(layer),
                false => layers.append(layer.no_bias()),
            }
        }
        "nn.Embedding" => {
            let layer = nn::Embedding::new(a()?, b()?);
            match c.maybe_int(2, "padding_idx")? {
                Some(index) => layers.append(layer.padding_idx(index)),
                None => layers.append(layer),
            }
        }
        "nn.BatchNorm1d" => layers.append(nn::BatchNorm1d::new(a()?)),
        "nn.BatchNorm2d" => layers.append(nn::BatchNorm2d::new(a()?)),
        "nn.LayerNorm" => layers.append(nn::LayerNorm::new(a()?)),
        "nn.ReLU" => layers.append(nn::ReLU),
        "nn.Tanh" => layers.append(nn::Tanh),
        "nn.GELU" => layers.append(nn::GELU::new()),
        "nn.Softmax" => layers.append(nn::Softmax::new(c.int(0, "dim", -1)?)),
        "nn.MaxPool2d" => layers.append(nn::MaxPool2d::new(a()?)),
        "nn.Dropout" => layers.append(nn::Dropout::new(c.float(0, "p", 0.5)?)),
        "nn.Flatten" => layers.append(nn::Flatten::new()),
        other => return lacks(other),
    })
}

pub fn build(setup: &Setup) -> Option<Outcome<Built>> {
    let c = &setup.args;
    Some((|| match setup.op.as_str() {
        "nn.Linear" => {
            let (inputs, outputs) = (c.count(0, "in_features", 0)?, c.count(1, "out_features", 0)?);
            let layer = match c.flag(2, "bias", true)? {
                true => nn::Linear::new(inputs, outputs),
                false => nn::Linear::no_bias(inputs, outputs),
            };
            built(setup, layer, forward)
        }
        "nn.EmbeddingBag" => {
            let (rows, width) = (c.count(0, "num_embeddings", 0)?, c.count(1, "embedding_dim", 0)?);
            let mut layer = nn::EmbeddingBag::new(rows, width).mode(
                match c.text(5, "mode", "mean")?.as_str() {
                    "sum" => BagMode::Sum,
                    "mean" => BagMode::Mean,
                    "max" => BagMode::Max,
                    other => return lacks(other),
                },
            );
            if let Some(most) = c.maybe_float(2, "max_norm")? {
                layer = layer.max_norm(most, c.float(3, "norm_type", 2.0)?);
            }
            if c.flag(4, "scale_grad_by_freq", false)? {
                layer = layer.scale_grad_by_freq();
            }
            if c.flag(usize::MAX, "include_last_offset", false)? {
                layer = layer.include_last_offset();
            }
            if let Some(index) = c.maybe_int(usize::MAX, "padding_idx")? {
                layer = layer.padding_idx(index);
            }
            built(setup, layer, |layer, c| {
                let (offsets, weights) =
                    (c.maybe_tensor(1, "offsets")?, c.maybe_tensor(2, "per_sample_weights")?);
                Ok(Arg::Tensor(layer.forward(c.tensor(0, "input")?, offsets, weights)))
            })
        }
        "nn.Conv1d" => convolution!(setup, c, Conv1d, 1),
        "nn.Conv2d" => convolution!(setup, c, Conv2d, 2),
        "nn.Conv3d" => convolution!(setup, c, Conv3d, 3),
        "nn.ConvTranspose1d" => transposed!(setup, c, ConvTranspose1d, 1),
        "nn.ConvTranspose2d" => transposed!(setup, c, ConvTranspose2d, 2),
        "nn.ConvTranspose3d" => transposed!(setup, c, ConvTranspose3d, 3),
        "nn.BatchNorm3d" => batch_norm!(setup, c, BatchNorm3d),
        "nn.InstanceNorm1d" => instance_norm!(setup, c, InstanceNorm1d),
        "nn.InstanceNorm2d" => instance_norm!(setup, c, InstanceNorm2d),
        "nn.InstanceNorm3d" => instance_norm!(setup, c, InstanceNorm3d),
        "nn.Bilinear" => {
            let (a, b) = (c.count(0, "in1_features", 1)?, c.count(1, "in2_features", 1)?);
            let mut layer = nn::Bilinear::new(a, b, c.count(2, "out_features", 1)?);
            if !c.flag(3, "bias", true)? {
                layer = layer.no_bias();
            }
            built(setup, layer, |layer, c| {
                Ok(Arg::Tensor(layer.forward(c.tensor(0, "input1")?, c.tensor(1, "input2")?)))
            })
        }
        "nn.GroupNorm" => {
            let (groups, channels) = (c.count(0, "num_groups", 1)?, c.count(1, "num_channels", 1)?);
            let mut layer = nn::GroupNorm::new(groups, channels).eps(c.float(2, "eps", 1e-5)?);
            if !c.flag(3, "affine", true)? {
                layer = layer.no_affine();
            }
            if !c.flag(usize::MAX, "bias", true)? {
                layer = layer.no_bias();
            }
            built(setup, layer, forward)
        }
        "nn.LocalResponseNorm" => {
            let (alpha, beta) = (c.float(1, "alpha", 1e-4)?, c.float(2, "beta", 0.75)?);
            let k = c.float(3, "k", 1.0)?;
            built(
                setup,
                nn::LocalResponseNorm::new(c.count(0, "size", 1)?, alpha, beta, k),
                forward,
            )
        }
        "nn.BatchNorm1d" => batch_norm!(setup, c, BatchNorm1d),
        "nn.BatchNorm2d" => batch_norm!(setup, c, BatchNorm2d),
        "nn.LayerNorm" => {
            let shape: Vec<usize> = c.sizes(0, "normalized_shape")?;
            let mut layer = nn::LayerNorm::new(&shape[..]).eps(c.float(1, "eps", 1e-5)?);
            if !c.flag(2, "elementwise_affine", true)? {
                layer = layer.no_affine();
            } else if !c.flag(3, "bias", true)? {
                layer = layer.no_bias();
            }
            built(setup, layer, forward)
        }
        "nn.RMSNorm" => {
            let shape: Vec<usize> = c.sizes(0, "normalized_shape")?;
            let mut layer = nn::RMSNorm::new(&shape[..]);
            if let Some(eps) = c.maybe_float(1, "eps")? {
                layer = layer.eps(eps);
            }
            if !c.flag(2, "elementwise_affine", true)? {
                layer = layer.no_affine();
            }
            built(setup, layer, forward)
        }
        "nn.Sequential" => built(setup, sequential(&setup.tree)?, forward),
        "nn.Embedding" => {
            let (rows, width) = (c.count(0, "num_embeddings", 0)?, c.count(1, "embedding_dim", 0)?);
            let mut layer = nn::Embedding::new(rows, width);
            if let Some(index) = c.maybe_int(2, "padding_idx")? {
                layer = layer.padding_idx(index);
            }
            if let Some(most) = c.maybe_float(3, "max_norm")? {
                layer = layer.max_norm(most, c.float(4, "norm_type", 2.0)?);
            }
            if c.flag(5, "scale_grad_by_freq", false)? {
                layer = layer.scale_grad_by_freq();
            }
            built(setup, layer, forward)
        }
        _ => Err(crate::arg::Stop::NotImplemented(String::new())),
    })())
    .filter(|built| !matches!(built, Err(crate::arg::Stop::NotImplemented(why)) if why.is_empty()))
}

macro_rules! convolution {
    ($setup:ident, $c:ident, $class:ident, $dims:literal) => {{
        let (inputs, outputs) = ($c.count(0, "in_channels", 0)?, $c.count(1, "out_channels", 0)?);
        let by_name = matches!($c.get(4, "padding"), Arg::Str(_));
        let same = by_name && $c.choice(4, "padding", &[("valid", false), ("same", true)])?;
        let modes = [
            ("zeros", None),
            ("reflect", Some(PadMode::Reflect)),
            ("replicate", Some(PadMode::Replicate)),
            ("circular", Some(PadMode::Circular)),
        ];
        let mode = $c.choice(8, "padding_mode", &modes)?;
        let mut layer = nn::$class::new(inputs, outputs, $c.per_dim::<$dims>(2, "kernel_size", 1)?)
            .stride($c.per_dim::<$dims>(3, "stride", 1)?)
            .dilation($c.per_dim::<$dims>(5, "dilation", 1)?);
        if !by_name {
            layer = layer.padding($c.per_dim::<$dims>(4, "padding", 0)?);
        }
        if same {
            layer = layer.same_padding();
        }
        if let Some(mode) = mode {
            layer = layer.padding_mode(mode);
        }
        let groups = $c.count(6, "groups", 1)?;
        if groups != 1 {
            layer = layer.groups(groups);
        }
        if !$c.flag(7, "bias", true)? {
            layer = layer.no_bias();
        }
        built($setup, layer, forward)
    }};
}
use convolution;

macro_rules! batch_norm {
    ($setup:ident, $c:ident, $class:ident) => {{
        let mut layer =
            nn::$class::new($c.count(0, "num_features", 0)?).eps($c.float(1, "eps", 1e-5)?);
        if $c.given(2, "momentum") {
            layer = layer.momentum($c.maybe_float(2, "momentum")?);
        }
        layer = layer.affine($c.flag(3, "affine", true)?).track_running_stats($c.flag(
            4,
            "track_running_stats",
            true,
        )?);
        built($setup, layer, forward)
    }};
}
use batch_norm;

macro_rules! transposed {
    ($setup:ident, $c:ident, $class:ident, $dims:literal) => {{
        let (inputs, outputs) = ($c.count(0, "in_channels", 0)?, $c.count(1, "out_channels", 0)?);
        let options = ConvTransposeOptions {
            stride: $c.per_dim::<$dims>(3, "stride", 1)?,
            padding: $c.per_dim::<$dims>(4, "padding", 0)?,
            output_padding: $c.per_dim::<$dims>(5, "output_padding", 0)?,
            groups: $c.count(6, "groups", 1)?,
            dilation: $c.per_dim::<$dims>(8, "dilation", 1)?,
        };
        let size = $c.per_dim::<$dims>(2, "kernel_size", 1)?;
        let mut layer = nn::$class::new(inputs, outputs, size, options);
        if !$c.flag(7, "bias", true)? {
            layer = layer.no_bias();
        }
        built($setup, layer, forward)
    }};
}
use transposed;

macro_rules! instance_norm {
    ($setup:ident, $c:ident, $class:ident) => {{
        let layer = nn::$class::new($c.count(0, "num_features", 0)?)
            .eps($c.float(1, "eps", 1e-5)?)
            .momentum($c.float(2, "momentum", 0.1)?)
            .affine($c.flag(3, "affine", false)?)
            .track_running_stats($c.flag(4, "track_running_stats", false)?);
        built($setup, layer, forward)
    }};
}
use instance_norm;
