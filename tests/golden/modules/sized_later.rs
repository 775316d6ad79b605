//! Modules that their first input gives a size, and those that are made of windows at random places.

use torchrs::nn::{self, functional::TripletMarginOptions};
use torchrs::ops::{ConvTransposeOptions, PadMode};

use super::layers::forward;
use super::{Built, Setup, built};
use crate::arg::{Arg, Call, Outcome, Stop, lacks};
use crate::ops::further::fractional_size;
use crate::ops::loss::reduction;

macro_rules! convolution {
    ($setup:ident, $c:ident, $lazy:ident, $class:ident, $dims:literal) => {{
        let (out, size) =
            ($c.count(0, "out_channels", 0)?, $c.per_dim::<$dims>(1, "kernel_size", 1)?);
        let (stride, padding) =
            ($c.per_dim::<$dims>(2, "stride", 1)?, $c.per_dim::<$dims>(3, "padding", 0)?);
        let (dilation, groups) =
            ($c.per_dim::<$dims>(4, "dilation", 1)?, $c.count(5, "groups", 1)?);
        let (bias, mode) = ($c.flag(6, "bias", true)?, padding_mode($c)?);
        let layer = nn::$lazy::built_by(move |channels| {
            let mut layer = nn::$class::new(channels, out, size)
                .stride(stride)
                .padding(padding)
                .dilation(dilation);
            if let Some(mode) = mode {
                layer = layer.padding_mode(mode);
            }
            if groups != 1 {
                layer = layer.groups(groups);
            }
            if bias { layer } else { layer.no_bias() }
        });
        built($setup, layer, forward)
    }};
}

macro_rules! transposed {
    ($setup:ident, $c:ident, $lazy:ident, $class:ident, $dims:literal) => {{
        let (out, size) =
            ($c.count(0, "out_channels", 0)?, $c.per_dim::<$dims>(1, "kernel_size", 1)?);
        let options = ConvTransposeOptions {
            stride: $c.per_dim::<$dims>(2, "stride", 1)?,
            padding: $c.per_dim::<$dims>(3, "padding", 0)?,
            output_padding: $c.per_dim::<$dims>(4, "output_padding", 0)?,
            groups: $c.count(5, "groups", 1)?,
            dilation: $c.per_dim::<$dims>(7, "dilation", 1)?,
        };
        let bias = $c.flag(6, "bias", true)?;
        let layer = nn::$lazy::built_by(move |channels| {
            let layer = nn::$class::new(channels, out, size, options);
            if bias { layer } else { layer.no_bias() }
        });
        built($setup, layer, forward)
    }};
}

macro_rules! norm {
    ($setup:ident, $c:ident, $lazy:ident, $class:ident, $on:literal) => {{
        let (eps, momentum) = ($c.float(0, "eps", 1e-5)?, $c.float(1, "momentum", 0.1)?);
        let (affine, tracked) =
            ($c.flag(2, "affine", $on)?, $c.flag(3, "track_running_stats", $on)?);
        let layer = nn::$lazy::built_by(move |channels| {
            nn::$class::new(channels)
                .eps(eps)
                .momentum(momentum)
                .affine(affine)
                .track_running_stats(tracked)
        });
        built($setup, layer, forward)
    }};
}

fn padding_mode(c: &Call) -> Outcome<Option<PadMode>> {
    let modes = [
        ("zeros", None),
        ("reflect", Some(PadMode::Reflect)),
        ("replicate", Some(PadMode::Replicate)),
        ("circular", Some(PadMode::Circular)),
    ];
    c.choice(7, "padding_mode", &modes)
}

macro_rules! fractional {
    ($setup:ident, $c:ident, $class:ident, $dims:literal) => {{
        let size = $c.per_dim::<$dims>(0, "kernel_size", 1)?;
        let mut layer = nn::$class::new(size, fractional_size($c, 1, 2)?);
        let indices = $c.flag(3, "return_indices", false)?;
        if let Some(samples) = $c.maybe_tensor(4, "_random_samples")? {
            layer = layer.samples(samples.clone());
        }
        built($setup, layer, move |layer, c| {
            let (y, places) = layer.forward_with_indices(c.tensor(0, "input")?);
            let both = || Arg::List(vec![Arg::Tensor(y.clone()), Arg::Tensor(places)]);
            Ok(if indices { both() } else { Arg::Tensor(y) })
        })
    }};
}

pub fn build(setup: &Setup) -> Option<Outcome<Built>> {
    let c = &setup.args;
    let build = || match setup.op.as_str() {
        "nn.LazyLinear" => {
            let outputs = c.count(0, "out_features", 0)?;
            let layer = match c.flag(1, "bias", true)? {
                true => nn::LazyLinear::new(outputs),
                false => nn::LazyLinear::no_bias(outputs),
            };
            built(setup, layer, forward)
        }
        "nn.LazyConv1d" => convolution!(setup, c, LazyConv1d, Conv1d, 1),
        "nn.LazyConv2d" => convolution!(setup, c, LazyConv2d, Conv2d, 2),
        "nn.LazyConv3d" => convolution!(setup, c, LazyConv3d, Conv3d, 3),
        "nn.LazyConvTranspose1d" => transposed!(setup, c, LazyConvTranspose1d, ConvTranspose1d, 1),
        "nn.LazyConvTranspose2d" => transposed!(setup, c, LazyConvTranspose2d, ConvTranspose2d, 2),
        "nn.LazyConvTranspose3d" => transposed!(setup, c, LazyConvTranspose3d, ConvTranspose3d, 3),
        "nn.LazyBatchNorm1d" => norm!(setup, c, LazyBatchNorm1d, BatchNorm1d, true),
        "nn.LazyBatchNorm2d" => norm!(setup, c, LazyBatchNorm2d, BatchNorm2d, true),
        "nn.LazyBatchNorm3d" => norm!(setup, c, LazyBatchNorm3d, BatchNorm3d, true),
        "nn.LazyInstanceNorm1d" => norm!(setup, c, LazyInstanceNorm1d, InstanceNorm1d, true),
        "nn.LazyInstanceNorm2d" => norm!(setup, c, LazyInstanceNorm2d, InstanceNorm2d, true),
        "nn.LazyInstanceNorm3d" => norm!(setup, c, LazyInstanceNorm3d, InstanceNorm3d, true),
        "nn.FractionalMaxPool2d" => fractional!(setup, c, FractionalMaxPool2d, 2),
        "nn.FractionalMaxPool3d" => fractional!(setup, c, FractionalMaxPool3d, 3),
        "nn.AdaptiveLogSoftmaxWithLoss" => {
            let (features, classes) = (c.count(0, "in_features", 1)?, c.count(1, "n_classes", 1)?);
            let cutoffs = c.size_list(2, "cutoffs")?;
            let options = nn::AdaptiveLogSoftmaxOptions {
                div_value: c.float(3, "div_value", 4.0)?,
                head_bias: c.flag(4, "head_bias", false)?,
            };
            let layer = nn::AdaptiveLogSoftmaxWithLoss::new(features, classes, &cutoffs, options);
            built(setup, layer, |layer, c| {
                let (own, loss) = layer.forward(c.tensor(0, "input")?, c.tensor(1, "target")?);
                Ok(Arg::List(vec![Arg::Tensor(own), Arg::Tensor(loss)]))
            })
        }
        "nn.TripletMarginWithDistanceLoss" => {
            let options = TripletMarginOptions {
                margin: c.float(usize::MAX, "margin", 1.0)?,
                swap: c.flag(usize::MAX, "swap", false)?,
                reduction: reduction(c)?,
                ..Default::default()
            };
            if !matches!(c.keyword("distance_function"), Arg::None) {
                return lacks("a distance function");
            }
            built(setup, nn::TripletMarginWithDistanceLoss::new(options), |loss, c| {
                let (anchor, near) = (c.tensor(0, "anchor")?, c.tensor(1, "positive")?);
                Ok(Arg::Tensor(loss.forward(anchor, near, c.tensor(2, "negative")?)))
            })
        }
        _ => lacks(""),
    };
    Some(build()).filter(|b| !matches!(b, Err(Stop::NotImplemented(why)) if why.is_empty()))
}
