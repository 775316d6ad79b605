//! Brightness, contrast, saturation, and images in grey.

use crate::data::transforms::image::{Image, Op, Pixel, check_colours, on_image};
use crate::data::transforms::pixelwise::{map, map_into, mix_into, of_colours, sum};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Refuses a negative factor.
pub(super) fn check_factor(op: &str, argument: &str, factor: f64) -> Result<()> {
    match factor >= 0.0 && factor.is_finite() {
        true => Ok(()),
        false => Err(Error::argument(op, argument, format!("is {factor}, must be at least 0"))),
    }
}

/// How bright a colour is.
#[inline(always)]
fn grey(r: f32, g: f32, b: f32) -> f32 {
    r * 0.2989 + g * 0.587 + b * 0.114
}

/// `a` in the given ratio, and `b`.
#[inline(always)]
fn blend<T: Pixel>(a: T, b: f32, ratio: f64) -> T {
    let mixed = a.to_f32() * ratio as f32 + b * (1.0 - ratio) as f32;
    T::cut(mixed.clamp(0.0, T::MAX))
}

/// The grey values of an image, which are integers where its pixels are.
fn greys<T: Pixel>(pixels: &[T], channels: usize) -> Vec<f32> {
    let whole = |value: f32| if T::IS_FLOAT { value } else { value.floor() };
    match channels {
        1 => map(pixels, T::to_f32),
        _ => {
            let plane = pixels.len() / 3;
            let (r, rest) = pixels.split_at(plane);
            let (g, b) = rest.split_at(plane);
            of_colours([r, g, b], |r, g, b| whole(grey(r.to_f32(), g.to_f32(), b.to_f32())))
        }
    }
}

/// An image in grey, of 1 channel or of 3 equal ones.
///
/// # Errors
/// [`Error::Argument`] when `num_output_channels` is neither 1 nor 3.
pub fn rgb_to_grayscale(image: &Tensor, num_output_channels: usize) -> Result<Tensor> {
    on_image("rgb_to_grayscale", image, Grey { channels: num_output_channels })
}

struct Grey {
    channels: usize,
}

impl Op for Grey {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        check_colours("rgb_to_grayscale", image.channels)?;
        if !matches!(self.channels, 1 | 3) {
            let message = format!("is {}, must be 1 or 3", self.channels);
            return Err(Error::argument("rgb_to_grayscale", "num_output_channels", message));
        }
        let mut pixels = Vec::new();
        for one in image.images() {
            let values: Vec<T> = map(&greys(one, image.channels), T::cut);
            (0..self.channels).for_each(|_| pixels.extend_from_slice(&values));
        }
        let made = image.with(image.height, image.width, pixels);
        Ok(Image { channels: self.channels, ..made })
    }
}

/// Each value times `brightness_factor`.
///
/// # Errors
/// [`Error::Argument`] when the factor is negative.
pub fn adjust_brightness(image: &Tensor, brightness_factor: f64) -> Result<Tensor> {
    check_factor("adjust_brightness", "brightness_factor", brightness_factor)?;
    on_image("adjust_brightness", image, Brightness(brightness_factor as f32))
}

struct Brightness(f32);

impl Op for Brightness {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        check_colours("adjust_brightness", image.channels)?;
        Ok(image.each(|pixel| T::cut((pixel.to_f32() * self.0).clamp(0.0, T::MAX))))
    }
}

/// Each value's distance from the image's mean grey, times `contrast_factor`.
///
/// # Errors
/// [`Error::Argument`] when the factor is negative.
pub fn adjust_contrast(image: &Tensor, contrast_factor: f64) -> Result<Tensor> {
    check_factor("adjust_contrast", "contrast_factor", contrast_factor)?;
    on_image("adjust_contrast", image, Contrast(contrast_factor))
}

struct Contrast(f64);

impl Op for Contrast {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        check_colours("adjust_contrast", image.channels)?;
        let mut pixels = vec![T::default(); image.pixels.len()];
        let size = pixels.len() / image.images().len();
        for (one, to) in image.images().zip(pixels.chunks_exact_mut(size)) {
            let greys = greys(one, image.channels);
            let mean = (sum(&greys) / greys.len() as f64) as f32;
            map_into(one, to, |pixel| blend(pixel, mean, self.0));
        }
        Ok(image.with(image.height, image.width, pixels))
    }
}

/// Each value's distance from its pixel's grey, times `saturation_factor`. Grey images stay as they are.
///
/// # Errors
/// [`Error::Argument`] when the factor is negative.
pub fn adjust_saturation(image: &Tensor, saturation_factor: f64) -> Result<Tensor> {
    check_factor("adjust_saturation", "saturation_factor", saturation_factor)?;
    on_image("adjust_saturation", image, Saturation(saturation_factor))
}

struct Saturation(f64);

impl Op for Saturation {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        check_colours("adjust_saturation", image.channels)?;
        if image.channels == 1 {
            return Ok(image);
        }
        let plane = image.height * image.width;
        let mut pixels = vec![T::default(); image.pixels.len()];
        for (one, to) in image.images().zip(pixels.chunks_exact_mut(3 * plane)) {
            let greys = greys(one, 3);
            for (plane, to) in one.chunks_exact(plane).zip(to.chunks_exact_mut(plane)) {
                mix_into(plane, &greys, to, |pixel, grey| blend(pixel, grey, self.0));
            }
        }
        Ok(image.with(image.height, image.width, pixels))
    }
}
