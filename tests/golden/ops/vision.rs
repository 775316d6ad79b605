//! Ops of group `vision`.

use torchrs::ops::{
    GridSampleMode, GridSampleOptions, GridSamplePadding, InterpolateMode, InterpolateOptions,
    OneOrEach, PadMode,
};

use super::Table;
use crate::arg::{Arg, Call, Outcome};

/// Names of the interpolations.
pub const MODES: [(&str, InterpolateMode); 7] = [
    ("nearest", InterpolateMode::Nearest),
    ("nearest-exact", InterpolateMode::NearestExact),
    ("linear", InterpolateMode::Linear),
    ("bilinear", InterpolateMode::Bilinear),
    ("bicubic", InterpolateMode::Bicubic),
    ("trilinear", InterpolateMode::Trilinear),
    ("area", InterpolateMode::Area),
];

/// Size and factor, from argument `first` on, and a mode.
pub fn resize(c: &Call, first: usize, mode: InterpolateMode) -> Outcome<InterpolateOptions> {
    let size = match c.get(first, "size") {
        Arg::None => None,
        Arg::List(_) => Some(c.size_list(first, "size")?.into()),
        _ => Some(c.count(first, "size", 0)?.into()),
    };
    let scale_factor = match c.get(first + 1, "scale_factor") {
        Arg::None => None,
        Arg::List(_) => Some(c.floats(first + 1, "scale_factor")?.into()),
        _ => c.maybe_float(first + 1, "scale_factor")?.map(OneOrEach::All),
    };
    Ok(InterpolateOptions { size, scale_factor, ..InterpolateOptions::size(1, mode) })
}

pub fn fill(t: &mut Table) {
    t.op("nn.functional.interpolate", |c| {
        let mode = c.choice(3, "mode", &MODES)?;
        let options = InterpolateOptions {
            align_corners: c.maybe_flag(4, "align_corners")?,
            recompute_scale_factor: c.flag(5, "recompute_scale_factor", false)?,
            antialias: c.flag(6, "antialias", false)?,
            ..resize(c, 1, mode)?
        };
        Ok(c.tensor(0, "input")?.interpolate(options.clone()))
    });
    t.op("nn.functional.upsample_nearest", |c| {
        Ok(c.tensor(0, "input")?.interpolate(resize(c, 1, InterpolateMode::Nearest)?))
    });
    t.op("nn.functional.upsample_bilinear", |c| {
        let options = InterpolateOptions {
            align_corners: Some(true),
            ..resize(c, 1, InterpolateMode::Bilinear)?
        };
        Ok(c.tensor(0, "input")?.interpolate(options.clone()))
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
        let names = [
            ("constant", PadMode::Constant(value)),
            ("reflect", PadMode::Reflect),
            ("replicate", PadMode::Replicate),
            ("circular", PadMode::Circular),
        ];
        let mode = c.choice(2, "mode", &names)?;
        Ok(c.tensor(0, "input")?.pad(&c.ints(1, "pad")?, mode))
    });
    t.op("nn.functional.grid_sample", |c| {
        let modes = [
            ("bilinear", GridSampleMode::Bilinear),
            ("nearest", GridSampleMode::Nearest),
            ("bicubic", GridSampleMode::Bicubic),
        ];
        let paddings = [
            ("zeros", GridSamplePadding::Zeros),
            ("border", GridSamplePadding::Border),
            ("reflection", GridSamplePadding::Reflection),
        ];
        let options = GridSampleOptions {
            mode: c.choice(2, "mode", &modes)?,
            padding_mode: c.choice(3, "padding_mode", &paddings)?,
            align_corners: c.flag(4, "align_corners", false)?,
        };
        Ok(c.tensor(0, "input")?.grid_sample(c.tensor(1, "grid")?, options))
    });
    t.op("nn.functional.affine_grid", |c| {
        let size = c.size_list(1, "size")?;
        Ok(c.tensor(0, "theta")?.affine_grid(&size, c.flag(2, "align_corners", false)?))
    });
}
