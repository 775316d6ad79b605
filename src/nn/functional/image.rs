//! Images resized, padded, sampled and rearranged.

use crate::ops::{GridSampleOptions, InterpolateOptions, PadMode};
use crate::tensor::Tensor;

methods! {
    pad(x, padding: &[i64], mode: PadMode);
    interpolate(x, options: InterpolateOptions);
    grid_sample(x, grid: &Tensor, options: GridSampleOptions);
    affine_grid(x, size: &[usize], align_corners: bool);
    pixel_shuffle(x, upscale_factor: usize);
    pixel_unshuffle(x, downscale_factor: usize);
    channel_shuffle(x, groups: usize);
}
