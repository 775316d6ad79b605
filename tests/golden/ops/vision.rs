//! Ops of group `vision`.

use torchrs::ops::{
    GridSampleMode, GridSampleOptions, GridSamplePadding, InterpolateMode, InterpolateOptions,
    PadMode,
};

use super::Table;
use crate::arg::{Arg, Call, Outcome, Stop};

fn unwritable<T>(what: &str, value: &str) -> Outcome<T> {
    Err(Stop::Unwritable(format!("{what} {value:?}")))
}

fn resize(c: &Call, mode: InterpolateMode) -> Outcome<InterpolateOptions> {
    let size = match c.maybe_ints(1, "size")? {
        Some(list) if list.len() == 1 && matches!(c.get(1, "size"), Arg::Int(_)) => {
            let n = c.tensor(0, "input")?.dim().saturating_sub(2);
            Some(vec![list[0] as usize; n])
        }
        Some(list) => Some(list.iter().map(|&v| v as usize).collect()),
        None => None,
    };
    let scale_factor = match c.get(2, "scale_factor") {
        Arg::None => None,
        Arg::List(list) => Some(
            list.iter()
                .map(|v| match v {
                    Arg::Float(v) => Ok(*v),
                    Arg::Int(v) => Ok(*v as f64),
                    _ => unwritable("scale_factor", &format!("{v:?}")),
                })
                .collect::<Outcome<Vec<f64>>>()?,
        ),
        _ => c.maybe_float(2, "scale_factor")?.map(|f| vec![f]),
    };
    Ok(InterpolateOptions {
        size,
        scale_factor,
        mode,
        align_corners: None,
        recompute_scale_factor: false,
        antialias: false,
    })
}

pub fn fill(t: &mut Table) {
    t.op("nn.functional.interpolate", |c| {
        let mode = match c.text(3, "mode", "nearest")?.as_str() {
            "nearest" => InterpolateMode::Nearest,
            "nearest-exact" => InterpolateMode::NearestExact,
            "linear" => InterpolateMode::Linear,
            "bilinear" => InterpolateMode::Bilinear,
            "bicubic" => InterpolateMode::Bicubic,
            "trilinear" => InterpolateMode::Trilinear,
            "area" => InterpolateMode::Area,
            other => return unwritable("mode", other),
        };
        let options = InterpolateOptions {
            align_corners: match c.get(4, "align_corners") {
                Arg::Bool(v) => Some(*v),
                _ => None,
            },
            recompute_scale_factor: c.flag(5, "recompute_scale_factor", false)?,
            antialias: c.flag(6, "antialias", false)?,
            ..resize(c, mode)?
        };
        Ok(c.tensor(0, "input")?.interpolate(&options))
    });
    t.op("nn.functional.upsample_nearest", |c| {
        Ok(c.tensor(0, "input")?.interpolate(&resize(c, InterpolateMode::Nearest)?))
    });
    t.op("nn.functional.upsample_bilinear", |c| {
        let options = InterpolateOptions {
            align_corners: Some(true),
            ..resize(c, InterpolateMode::Bilinear)?
        };
        Ok(c.tensor(0, "input")?.interpolate(&options))
    });
    t.op("nn.functional.pixel_shuffle", |c| {
        Ok(c.tensor(0, "input")?.pixel_shuffle(c.count(1, "upscale_factor", 1)?))
    });
    t.op("nn.functional.pixel_unshuffle", |c| {
        Ok(c.tensor(0, "input")?.pixel_unshuffle(c.count(1, "downscale_factor", 1)?))
    });
    t.op("nn.functional.channel_shuffle", |c| {
        Ok(c.tensor(0, "input")?.channel_shuffle(c.count(1, "groups", 1)?))
    });
    t.op("nn.functional.pad", |c| {
        let value = c.maybe_number(3, "value")?.unwrap_or(0.into());
        let mode = match c.text(2, "mode", "constant")?.as_str() {
            "constant" => PadMode::Constant(value),
            "reflect" => PadMode::Reflect,
            "replicate" => PadMode::Replicate,
            "circular" => PadMode::Circular,
            other => return unwritable("mode", other),
        };
        Ok(c.tensor(0, "input")?.pad(&c.ints(1, "pad")?, mode))
    });
    t.op("nn.functional.grid_sample", |c| {
        let options = GridSampleOptions {
            mode: match c.text(2, "mode", "bilinear")?.as_str() {
                "bilinear" => GridSampleMode::Bilinear,
                "nearest" => GridSampleMode::Nearest,
                "bicubic" => GridSampleMode::Bicubic,
                other => return unwritable("mode", other),
            },
            padding_mode: match c.text(3, "padding_mode", "zeros")?.as_str() {
                "zeros" => GridSamplePadding::Zeros,
                "border" => GridSamplePadding::Border,
                "reflection" => GridSamplePadding::Reflection,
                other => return unwritable("padding_mode", other),
            },
            align_corners: c.flag(4, "align_corners", false)?,
        };
        Ok(c.tensor(0, "input")?.grid_sample(c.tensor(1, "grid")?, options))
    });
    t.op("nn.functional.affine_grid", |c| {
        let size: Vec<usize> = c.ints(1, "size")?.iter().map(|&v| v as usize).collect();
        Ok(c.tensor(0, "theta")?.affine_grid(&size, c.flag(2, "align_corners", false)?))
    });
}
