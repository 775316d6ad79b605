//! Types and scales of values, and parts overwritten.

use crate::data::transforms::image::{Image, check, on_image};
use crate::data::transforms::image::{Op, Pixel};
use crate::error::{Error, Result};
use crate::tensor::{Device, Dtype, Tensor};

/// An image of another type, u8 or f32; with `scale` 0 to 255 become 0 to 1 and the other way round.
///
/// # Errors
/// [`Error::Dtype`] when `dtype` is neither.
pub fn to_dtype(image: &Tensor, dtype: Dtype, scale: bool) -> Result<Tensor> {
    check("to_dtype", image)?;
    match (image.dtype(), dtype) {
        (from, to) if from == to => Ok(image.clone()),
        (Dtype::U8, Dtype::F32) if scale => {
            let image = Image::<u8>::of("to_dtype", image)?;
            let pixels = image.pixels.iter().map(|&p| f32::from(p) * (1.0 / 255.0)).collect();
            Ok(image.with(image.height, image.width, pixels).tensor())
        }
        (Dtype::F32, Dtype::U8) if scale => {
            let image = Image::<f32>::of("to_dtype", image)?;
            let pixels = image.pixels.iter().map(|p| (p * (256.0 - 1e-3)) as u8).collect();
            Ok(image.with(image.height, image.width, pixels).tensor())
        }
        (_, Dtype::U8 | Dtype::F32) => Ok(image.to_dtype(dtype)),
        (_, other) => {
            Err(Error::dtype("to_dtype", format!("{other} is no type of images: u8 or f32")))
        }
    }
}

/// `(value - mean) / std` by channel, of an f32 image.
///
/// # Errors
/// [`Error::Dtype`] when it is u8, [`Error::Argument`] when there are not as many values as channels (or one), or a
/// deviation is 0.
pub fn normalize(image: &Tensor, mean: &[f32], std: &[f32]) -> Result<Tensor> {
    check("normalize", image)?;
    if image.dtype() != Dtype::F32 {
        let message = "takes f32 images, this one is u8: to_dtype(image, Dtype::F32, true) first";
        return Err(Error::dtype("normalize", message));
    }
    let image = Image::<f32>::of("normalize", image)?;
    for (argument, values) in [("mean", mean), ("std", std)] {
        if values.len() != 1 && values.len() != image.channels {
            let message = format!("{} values for {} channels", values.len(), image.channels);
            return Err(Error::argument("normalize", argument, message));
        }
    }
    if let Some(place) = std.iter().position(|&s| s == 0.0) {
        return Err(Error::argument("normalize", "std", format!("value {place} is 0")));
    }
    let mut channel = 0;
    let made = image.planes(image.height, image.width, |plane, out| {
        let of = |values: &[f32]| values[channel % values.len()];
        let (mean, std) = (of(mean), of(std));
        out.extend(plane.iter().map(|value| (value - mean) / std));
        channel = (channel + 1) % image.channels;
    });
    Ok(made.tensor())
}

/// [`normalize`] of [`to_dtype`] with another scale, for u8 images in one pass. `None`: they have to be called.
pub(in crate::data::transforms) fn scaled_and_normalized(
    image: &Tensor,
    mean: &[f32],
    std: &[f32],
) -> Option<Tensor> {
    let fits = |values: &[f32], channels| values.len() == 1 || values.len() == channels;
    let &[.., channels, height, width] = image.shape() else { return None };
    let is_plain = image.device() == Device::Cpu && image.dtype() == Dtype::U8 && image.numel() > 0;
    if !is_plain || !fits(mean, channels) || !fits(std, channels) || std.contains(&0.0) {
        return None;
    }
    let pixels = image.to_vec::<u8>();
    let mut made = vec![0.0; pixels.len()];
    let planes = pixels.chunks_exact(height * width).zip(made.chunks_exact_mut(height * width));
    for (plane, (from, to)) in planes.enumerate() {
        let of = |values: &[f32]| values[plane % channels % values.len()];
        let (mean, std) = (of(mean), of(std));
        let values: [f32; 256] =
            std::array::from_fn(|value| (value as f32 * (1.0 / 255.0) - mean) / std);
        to.iter_mut().zip(from).for_each(|(to, from)| *to = values[usize::from(*from)]);
    }
    Some(Tensor::from_slice(&made, image.shape()))
}

/// A part overwritten: with one value, one for each channel, or one for each pixel of the part in each channel.
///
/// # Errors
/// [`Error::Argument`] when the part is not inside of the image, or the number of values is another.
pub fn erase(
    image: &Tensor,
    top: usize,
    left: usize,
    height: usize,
    width: usize,
    value: &[f32],
) -> Result<Tensor> {
    on_image("erase", image, Erase { top, left, height, width, value })
}

struct Erase<'a> {
    top: usize,
    left: usize,
    height: usize,
    width: usize,
    value: &'a [f32],
}

impl Op for Erase<'_> {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        let Erase { top, left, height, width, value } = *self;
        let wrong = |argument, message| Err(Error::argument("erase", argument, message));
        if top + height > image.height || left + width > image.width {
            return wrong(
                "height",
                format!(
                    "{height} x {width} from ({top}, {left}) is not inside of {} x {}",
                    image.height, image.width
                ),
            );
        }
        let (channels, area) = (image.channels, height * width);
        if ![1, channels, channels * area].contains(&value.len()) {
            let all = channels * area;
            return wrong(
                "value",
                format!("{} values, must be 1, {channels} or {all}", value.len()),
            );
        }
        let mut channel = 0;
        Ok(image.planes(image.height, image.width, |plane, out| {
            let start = out.len();
            out.extend_from_slice(plane);
            for y in 0..height {
                for x in 0..width {
                    let value = match value.len() {
                        1 => value[0],
                        n if n == channels => value[channel],
                        _ => value[channel * area + y * width + x],
                    };
                    out[start + (top + y) * image.width + left + x] = T::cut(value);
                }
            }
            channel = (channel + 1) % channels;
        }))
    }
}
