//! Modules over images and signals without parameters: pools, padding, resampling.

use torchrs::nn;
use torchrs::ops::{InterpolateOptions, PoolOptions, UnfoldOptions};

use super::layers::forward;
use super::{Built, Setup, built};
use crate::arg::{Arg, Call, Outcome, Stop, lacks};
use crate::ops::vision::{MODES, resize};

/// Window, stride and padding, from position `i` on.
fn windows<const D: usize>(c: &Call, i: usize) -> Outcome<PoolOptions<D>> {
    let mut options = PoolOptions::new(c.per_dim::<D>(i, "kernel_size", 1)?);
    if !matches!(c.get(i + 1, "stride"), Arg::None) {
        options.stride = Some(c.per_dim::<D>(i + 1, "stride", 1)?);
    }
    Ok(options)
}

fn max_windows<const D: usize>(c: &Call) -> Outcome<PoolOptions<D>> {
    Ok(PoolOptions {
        padding: c.per_dim::<D>(2, "padding", 0)?,
        dilation: c.per_dim::<D>(3, "dilation", 1)?,
        ceil_mode: c.flag(5, "ceil_mode", false)?,
        ..windows(c, 0)?
    })
}

fn power_windows<const D: usize>(c: &Call) -> Outcome<PoolOptions<D>> {
    Ok(PoolOptions { ceil_mode: c.flag(3, "ceil_mode", false)?, ..windows(c, 1)? })
}

fn mean_windows<const D: usize>(c: &Call) -> Outcome<PoolOptions<D>> {
    Ok(PoolOptions {
        padding: c.per_dim::<D>(2, "padding", 0)?,
        ceil_mode: c.flag(3, "ceil_mode", false)?,
        count_include_pad: c.flag(4, "count_include_pad", true)?,
        divisor_override: c.maybe_int(5, "divisor_override")?,
        ..windows(c, 0)?
    })
}

/// Windows that become columns, from position `i` on.
fn columns(c: &Call, i: usize) -> Outcome<UnfoldOptions> {
    Ok(UnfoldOptions {
        kernel_size: c.per_dim::<2>(i, "kernel_size", 1)?,
        dilation: c.per_dim::<2>(i + 1, "dilation", 1)?,
        padding: c.per_dim::<2>(i + 2, "padding", 0)?,
        stride: c.per_dim::<2>(i + 3, "stride", 1)?,
    })
}

macro_rules! max_unpool {
    ($setup:ident, $class:ident, $c:ident, $dims:literal) => {{
        let padding = $c.per_dim::<$dims>(2, "padding", 0)?;
        let options = PoolOptions { padding, ..windows($c, 0)? };
        built($setup, nn::$class::with_options(options), |module, c| {
            let size = match c.maybe_ints(2, "output_size")? {
                None => None,
                Some(sizes) => {
                    let last = &sizes[sizes.len().saturating_sub($dims)..];
                    match <[i64; $dims]>::try_from(last) {
                        Ok(sizes) => Some(sizes.map(|n| n as usize)),
                        Err(_) => return lacks("this output_size"),
                    }
                }
            };
            let (x, indices) = (c.tensor(0, "input")?, c.tensor(1, "indices")?);
            Ok(Arg::Tensor(module.forward(x, indices, size)))
        })
    }};
}

/// Output sizes, of which some may be the input's.
fn sizes<const D: usize>(c: &Call) -> Outcome<[Option<usize>; D]> {
    match c.get(0, "output_size") {
        Arg::List(list) if list.len() == D => {
            let mut out = [None; D];
            for (out, size) in out.iter_mut().zip(list) {
                *out = match size {
                    Arg::None => None,
                    Arg::Int(n) if *n >= 0 => Some(*n as usize),
                    _ => return c.odd(0, "output_size"),
                };
            }
            Ok(out)
        }
        _ => Ok(c.per_dim::<D>(0, "output_size", 1)?.map(Some)),
    }
}

fn sides<const N: usize>(c: &Call) -> Outcome<[i64; N]> {
    let list = c.ints(0, "padding")?;
    match (list.len(), <[i64; N]>::try_from(&list[..])) {
        (_, Ok(sides)) => Ok(sides),
        (1, _) => Ok([list[0]; N]),
        _ => c.odd(0, "padding"),
    }
}

macro_rules! table {
    ($setup:ident, $c:ident; $($class:ident: $make:expr;)*) => {
        match $setup.op.as_str() {
            $(concat!("nn.", stringify!($class)) => built($setup, $make, forward),)*
            _ => lacks(""),
        }
    };
}

macro_rules! max_pool {
    ($setup:ident, $module:expr, $indices:expr) => {
        match $indices {
            false => built($setup, $module, forward),
            true => built($setup, $module, |module, c| {
                let (y, places) = module.forward_with_indices(c.tensor(0, "input")?);
                Ok(Arg::List(vec![Arg::Tensor(y), Arg::Tensor(places)]))
            }),
        }
    };
}

pub fn build(setup: &Setup) -> Option<Outcome<Built>> {
    let c = &setup.args;
    let value = || c.float(1, "value", 0.0);
    let indices = || c.flag(4, "return_indices", false);
    let adaptive = || c.flag(1, "return_indices", false);
    let build = || match setup.op.as_str() {
        "nn.MaxPool1d" => {
            max_pool!(setup, nn::MaxPool1d::with_options(max_windows(c)?), indices()?)
        }
        "nn.MaxPool2d" => {
            max_pool!(setup, nn::MaxPool2d::with_options(max_windows(c)?), indices()?)
        }
        "nn.MaxPool3d" => {
            max_pool!(setup, nn::MaxPool3d::with_options(max_windows(c)?), indices()?)
        }
        "nn.AdaptiveMaxPool1d" => {
            max_pool!(setup, nn::AdaptiveMaxPool1d::with_sizes(sizes(c)?), adaptive()?)
        }
        "nn.AdaptiveMaxPool2d" => {
            max_pool!(setup, nn::AdaptiveMaxPool2d::with_sizes(sizes(c)?), adaptive()?)
        }
        "nn.AdaptiveMaxPool3d" => {
            max_pool!(setup, nn::AdaptiveMaxPool3d::with_sizes(sizes(c)?), adaptive()?)
        }
        "nn.MaxUnpool1d" => max_unpool!(setup, MaxUnpool1d, c, 1),
        "nn.MaxUnpool2d" => max_unpool!(setup, MaxUnpool2d, c, 2),
        "nn.MaxUnpool3d" => max_unpool!(setup, MaxUnpool3d, c, 3),
        _ => table! { setup, c;
            AvgPool1d: nn::AvgPool1d::with_options(mean_windows(c)?);
            AvgPool2d: nn::AvgPool2d::with_options(mean_windows(c)?);
            AvgPool3d: nn::AvgPool3d::with_options(mean_windows(c)?);
            AdaptiveAvgPool1d: nn::AdaptiveAvgPool1d::with_sizes(sizes(c)?);
            AdaptiveAvgPool2d: nn::AdaptiveAvgPool2d::with_sizes(sizes(c)?);
            AdaptiveAvgPool3d: nn::AdaptiveAvgPool3d::with_sizes(sizes(c)?);
            LPPool1d: nn::LPPool1d::new(c.float(0, "norm_type", 2.0)?, power_windows(c)?);
            LPPool2d: nn::LPPool2d::new(c.float(0, "norm_type", 2.0)?, power_windows(c)?);
            LPPool3d: nn::LPPool3d::new(c.float(0, "norm_type", 2.0)?, power_windows(c)?);
            ZeroPad1d: nn::ZeroPad1d::new(sides(c)?);
            ZeroPad2d: nn::ZeroPad2d::new(sides(c)?);
            ZeroPad3d: nn::ZeroPad3d::new(sides(c)?);
            ReflectionPad1d: nn::ReflectionPad1d::new(sides(c)?);
            ReflectionPad2d: nn::ReflectionPad2d::new(sides(c)?);
            ReflectionPad3d: nn::ReflectionPad3d::new(sides(c)?);
            ReplicationPad1d: nn::ReplicationPad1d::new(sides(c)?);
            ReplicationPad2d: nn::ReplicationPad2d::new(sides(c)?);
            ReplicationPad3d: nn::ReplicationPad3d::new(sides(c)?);
            CircularPad1d: nn::CircularPad1d::new(sides(c)?);
            CircularPad2d: nn::CircularPad2d::new(sides(c)?);
            CircularPad3d: nn::CircularPad3d::new(sides(c)?);
            ConstantPad1d: nn::ConstantPad1d::new(sides(c)?, value()?);
            ConstantPad2d: nn::ConstantPad2d::new(sides(c)?, value()?);
            ConstantPad3d: nn::ConstantPad3d::new(sides(c)?, value()?);
            PixelShuffle: nn::PixelShuffle::new(c.count(0, "upscale_factor", 1)?);
            Unflatten: nn::Unflatten::new(c.int(0, "dim", 0)?, c.ints(1, "unflattened_size")?);
            PixelUnshuffle: nn::PixelUnshuffle::new(c.count(0, "downscale_factor", 1)?);
            ChannelShuffle: nn::ChannelShuffle::new(c.count(0, "groups", 1)?);
            Unfold: nn::Unfold::new(columns(c, 0)?);
            Fold: nn::Fold::new(c.per_dim::<2>(0, "output_size", 1)?, columns(c, 1)?);
            Upsample: nn::Upsample::new(upsampling(c)?);
        },
    };
    Some(build()).filter(|b| !matches!(b, Err(Stop::NotImplemented(why)) if why.is_empty()))
}

fn upsampling(c: &Call) -> Outcome<InterpolateOptions> {
    Ok(InterpolateOptions {
        align_corners: c.maybe_flag(3, "align_corners")?,
        recompute_scale_factor: c.flag(4, "recompute_scale_factor", false)?,
        ..resize(c, 0, c.choice(2, "mode", &MODES)?)?
    })
}
