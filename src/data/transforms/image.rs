//! The pixels of an image tensor, as the transforms compute with them.

use super::pixelwise::map;
use crate::error::{Error, Result};
use crate::tensor::{Device, Dtype, Element, Tensor};

/// A type of pixels: `u8` from 0 to 255, `f32` from 0 to 1.
pub(super) trait Pixel: Element + Copy + Default + PartialOrd + Send + Sync {
    /// White.
    const MAX: f32;
    const IS_FLOAT: bool;
    fn to_f32(self) -> f32;
    /// Cut off to an integer, if it is one, within its range.
    fn cut(value: f32) -> Self;
    /// The value of a u8.
    fn byte(self) -> usize;
    /// Rounded to an integer, if it is one, halves to even ones.
    fn round(value: f32) -> Self;
}

impl Pixel for u8 {
    const MAX: f32 = 255.0;
    const IS_FLOAT: bool = false;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from(self)
    }
    #[inline(always)]
    fn cut(value: f32) -> u8 {
        value as u8
    }
    #[inline(always)]
    fn byte(self) -> usize {
        usize::from(self)
    }
    #[inline(always)]
    fn round(value: f32) -> u8 {
        value.round_ties_even() as u8
    }
}

impl Pixel for f32 {
    const MAX: f32 = 1.0;
    const IS_FLOAT: bool = true;
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn cut(value: f32) -> f32 {
        value
    }
    #[inline(always)]
    fn byte(self) -> usize {
        self as usize
    }
    #[inline(always)]
    fn round(value: f32) -> f32 {
        value
    }
}

/// The planes of some images of one size: a plane is a channel of an image.
pub(super) struct Image<T> {
    /// The dimensions before channels, height and width.
    pub batch: Vec<usize>,
    pub channels: usize,
    pub height: usize,
    pub width: usize,
    pub pixels: Vec<T>,
}

impl<T: Pixel> Image<T> {
    /// The pixels of a tensor `[.., C, H, W]` of this type on the CPU.
    pub fn of(op: &str, tensor: &Tensor) -> Result<Self> {
        let shape = tensor.shape();
        let [batch @ .., channels, height, width] = shape else {
            let message = format!("an image has shape [.., C, H, W], this tensor {shape:?}");
            return Err(Error::shape(op, message));
        };
        if shape.contains(&0) {
            return Err(Error::shape(op, format!("an image of shape {shape:?} has no pixels")));
        }
        let (batch, channels, height, width) = (batch.to_vec(), *channels, *height, *width);
        Ok(Image { batch, channels, height, width, pixels: tensor.to_vec() })
    }

    pub fn tensor(self) -> Tensor {
        let mut shape = self.batch;
        shape.extend([self.channels, self.height, self.width]);
        Tensor::from_slice(&self.pixels, shape)
    }

    /// The same images with other pixels, of size `height` x `width`.
    pub fn with<U>(&self, height: usize, width: usize, pixels: Vec<U>) -> Image<U> {
        Image { batch: self.batch.clone(), channels: self.channels, height, width, pixels }
    }

    /// The same with each plane replaced by what `f` appends to a list.
    pub fn planes(
        &self,
        height: usize,
        width: usize,
        mut f: impl FnMut(&[T], &mut Vec<T>),
    ) -> Self {
        let plane = self.height * self.width;
        let mut pixels = Vec::with_capacity(self.pixels.len() / plane * height * width);
        self.pixels.chunks_exact(plane).for_each(|plane| f(plane, &mut pixels));
        self.with(height, width, pixels)
    }

    /// Each pixel through `f`.
    pub fn each(&self, f: impl Fn(T) -> T) -> Self {
        let pixels = if T::IS_FLOAT {
            map(&self.pixels, f)
        } else {
            // `f` of each value rather than of each pixel.
            let table: [T; 256] = std::array::from_fn(|value| f(T::cut(value as f32)));
            self.pixels.iter().map(|pixel| table[pixel.byte()]).collect()
        };
        self.with(self.height, self.width, pixels)
    }

    /// The pixels of each image.
    pub fn images(&self) -> std::slice::ChunksExact<'_, T> {
        self.pixels.chunks_exact(self.channels * self.height * self.width)
    }
}

/// What one can do with images of any type of pixels.
pub(super) trait Op {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>>;
}

/// `op` on a tensor of u8 or f32.
pub(super) fn on_image(name: &str, tensor: &Tensor, op: impl Op) -> Result<Tensor> {
    check(name, tensor)?;
    match tensor.dtype() {
        Dtype::U8 => Ok(op.apply(Image::<u8>::of(name, tensor)?)?.tensor()),
        _ => Ok(op.apply(Image::<f32>::of(name, tensor)?)?.tensor()),
    }
}

/// Refuses what is no u8 or f32 tensor on the CPU.
pub(super) fn check(name: &str, tensor: &Tensor) -> Result<()> {
    if tensor.device() != Device::Cpu {
        let message = format!("is on {}, must be on the CPU", tensor.device());
        return Err(Error::argument(name, "image", message));
    }
    match tensor.dtype() {
        Dtype::U8 | Dtype::F32 => Ok(()),
        other => Err(Error::dtype(name, format!("an image is u8 or f32, this tensor {other}"))),
    }
}

/// Refuses other than 1 or 3 channels.
pub(super) fn check_colours(name: &str, channels: usize) -> Result<()> {
    match channels {
        1 | 3 => Ok(()),
        _ => Err(Error::shape(name, format!("an image of {channels} channels, must have 1 or 3"))),
    }
}
