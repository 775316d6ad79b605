//! Values through curves: inverted, posterized, solarized, stretched, equalized.

use super::colour::check_factor;
use crate::data::transforms::image::{Image, Op, Pixel, check_colours, on_image};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// White minus each value.
///
/// # Errors
/// [`Error::Shape`] and [`Error::Dtype`] when `image` is none.
pub fn invert(image: &Tensor) -> Result<Tensor> {
    on_image("invert", image, Invert)
}

struct Invert;

fn inverted<T: Pixel>(pixel: T) -> T {
    T::cut(T::MAX - pixel.to_f32())
}

impl Op for Invert {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        Ok(image.each(inverted))
    }
}

/// The upper `bits` of each value; 8 leave u8 as they are.
///
/// # Errors
/// [`Error::Argument`] when `bits` are more than 8.
pub fn posterize(image: &Tensor, bits: u32) -> Result<Tensor> {
    if bits > 8 {
        let message = format!("is {bits}, must be from 0 to 8");
        return Err(Error::argument("posterize", "bits", message));
    }
    on_image("posterize", image, Posterize(bits))
}

struct Posterize(u32);

impl Op for Posterize {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        let levels = (1u32 << self.0) as f32;
        Ok(image.each(|pixel| match T::IS_FLOAT {
            true => {
                let level = (pixel.to_f32() * levels).floor().clamp(0.0, levels - 1.0);
                T::cut(level * (1.0 / levels))
            }
            false => {
                let mask = ((1u32 << self.0) - 1) << (8 - self.0);
                T::cut((pixel.to_f32() as u32 & mask) as f32)
            }
        }))
    }
}

/// Values from `threshold` on inverted.
///
/// # Errors
/// [`Error::Argument`] when the threshold is above white.
pub fn solarize(image: &Tensor, threshold: f64) -> Result<Tensor> {
    on_image("solarize", image, Solarize(threshold))
}

struct Solarize(f64);

impl Op for Solarize {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        if self.0.is_nan() || self.0 > f64::from(T::MAX) {
            let message = format!("is {}, must be at most {}", self.0, T::MAX);
            return Err(Error::argument("solarize", "threshold", message));
        }
        let is_bright = |pixel: T| f64::from(pixel.to_f32()) >= self.0;
        Ok(image.each(|pixel| if is_bright(pixel) { inverted(pixel) } else { pixel }))
    }
}

/// The values of each channel stretched, so that its darkest is black and its brightest white.
///
/// # Errors
/// [`Error::Shape`] unless the image has 1 or 3 channels.
pub fn autocontrast(image: &Tensor) -> Result<Tensor> {
    on_image("autocontrast", image, Autocontrast)
}

struct Autocontrast;

impl Op for Autocontrast {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        check_colours("autocontrast", image.channels)?;
        Ok(image.planes(image.height, image.width, |plane, out| {
            let values = || plane.iter().map(|pixel| pixel.to_f32());
            let (low, high) = (
                values().fold(f32::INFINITY, f32::min),
                values().fold(f32::NEG_INFINITY, f32::max),
            );
            let (low, scale) = match low == high {
                true => (0.0, 1.0),
                false => (low, (high - low) * (1.0 / T::MAX)),
            };
            out.extend(values().map(|v| T::cut(((v - low) / scale).clamp(0.0, T::MAX))));
        }))
    }
}

/// The values of each channel spread so that all are about equally frequent, by Pillow's table.
///
/// # Errors
/// [`Error::Shape`] and [`Error::Dtype`] when `image` is none.
pub fn equalize(image: &Tensor) -> Result<Tensor> {
    on_image("equalize", image, Equalize)
}

struct Equalize;

impl Op for Equalize {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        Ok(image.planes(image.height, image.width, |plane, out| {
            let byte = |pixel: T| match T::IS_FLOAT {
                true => (pixel.to_f32() * (256.0 - 1e-3)) as u8,
                false => pixel.to_f32() as u8,
            };
            let back = |byte: u8| match T::IS_FLOAT {
                true => T::cut(f32::from(byte) * (1.0 / 255.0)),
                false => T::cut(f32::from(byte)),
            };
            let mut counts = [0usize; 256];
            plane.iter().for_each(|&pixel| counts[usize::from(byte(pixel))] += 1);
            let brightest = counts.iter().rposition(|&count| count > 0).unwrap_or_default();
            let step = (plane.len() - counts[brightest]) / 255;
            if step == 0 {
                out.extend(plane.iter().map(|&pixel| back(byte(pixel))));
                return;
            }
            let mut below = 0;
            let table = counts.map(|count| {
                let value = (below + step / 2) / step;
                below += count;
                value.min(255) as u8
            });
            out.extend(plane.iter().map(|&pixel| back(table[usize::from(byte(pixel))])));
        }))
    }
}

/// `gain * value ^ gamma`, of values from 0 to 1.
///
/// # Errors
/// [`Error::Argument`] when `gamma` is negative.
pub fn adjust_gamma(image: &Tensor, gamma: f64, gain: f64) -> Result<Tensor> {
    check_factor("adjust_gamma", "gamma", gamma)?;
    on_image("adjust_gamma", image, Gamma(gamma as f32, gain as f32))
}

struct Gamma(f32, f32);

impl Op for Gamma {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        let Gamma(gamma, gain) = *self;
        let curve = |value: f32| match gain == 1.0 {
            true => value.powf(gamma),
            false => (value.powf(gamma) * gain).clamp(0.0, 1.0),
        };
        Ok(image.each(|pixel| match T::IS_FLOAT {
            true => T::cut(curve(pixel.to_f32())),
            false => T::cut(curve(pixel.to_f32() * (1.0 / T::MAX)) * (T::MAX + 1.0 - 1e-3)),
        }))
    }
}
