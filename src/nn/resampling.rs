//! Modules that change the size or order of images (`torch/nn/modules/{upsampling,pixelshuffle,fold}.py`).

use super::{Forward, Module};
use crate::Tensor;
use crate::ops::{InterpolateOptions, UnfoldOptions};

/// Resizes the last dimensions (`torch.nn.Upsample`); see [`Tensor::interpolate`].
#[derive(Module, Clone, Debug)]
pub struct Upsample {
    #[module(skip)]
    options: InterpolateOptions,
}

impl Upsample {
    /// To a size or by a factor, as the options say.
    pub fn new(options: InterpolateOptions) -> Self {
        Upsample { options }
    }
}

impl Forward for Upsample {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Tensor {
        input.interpolate(&self.options)
    }
}

/// Channels into pixels (`torch.nn.PixelShuffle`); see [`Tensor::pixel_shuffle`].
#[derive(Module, Clone, Copy, Debug)]
pub struct PixelShuffle {
    upscale_factor: usize,
}

impl PixelShuffle {
    /// By this factor in both directions.
    pub fn new(upscale_factor: usize) -> Self {
        PixelShuffle { upscale_factor }
    }
}

impl Forward for PixelShuffle {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Tensor {
        input.pixel_shuffle(self.upscale_factor)
    }
}

/// Sliding windows as columns (`torch.nn.Unfold`); see [`Tensor::unfold2d`].
#[derive(Module, Clone, Copy, Debug)]
pub struct Unfold {
    #[module(skip)]
    options: UnfoldOptions,
}

impl Unfold {
    /// Of the windows that the options describe.
    pub fn new(options: UnfoldOptions) -> Self {
        Unfold { options }
    }
}

impl Forward for Unfold {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Tensor {
        input.unfold2d(self.options)
    }
}

/// Splits a dimension (`torch.nn.Unflatten`); see [`Tensor::unflatten`].
#[derive(Module, Clone, Debug)]
pub struct Unflatten {
    dim: i64,
    sizes: Vec<i64>,
}

impl Unflatten {
    /// Into these sizes, of which one may be -1.
    pub fn new(dim: i64, sizes: impl Into<Vec<i64>>) -> Self {
        Unflatten { dim, sizes: sizes.into() }
    }
}

impl Forward for Unflatten {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Tensor {
        input.unflatten(self.dim, &self.sizes)
    }
}
