//! Images of another size.

use serde::{Deserialize, Serialize};

use super::crops::crop;
use super::resampling::{Filter, resample};
use crate::data::transforms::image::{Image, Op, Pixel, on_image};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// How values between pixels are found (`torchvision.transforms.InterpolationMode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum InterpolationMode {
    /// The pixel at the corner of each output pixel, as PyTorch has it.
    Nearest,
    /// The pixel at the centre.
    NearestExact,
    /// Between two pixels in each direction.
    Bilinear,
    /// Between four pixels in each direction.
    Bicubic,
}

/// An image of another size: `size` is `[height, width]`, or `[shorter side]`, where `max_size` limits the longer one.
/// `antialias` averages over all pixels that an output pixel covers.
///
/// u8 results are torchvision's bit for bit.
///
/// # Errors
/// [`Error::Argument`] when a size is 0 or `max_size` goes with two sizes; [`Error::Shape`] and [`Error::Dtype`] when
/// `image` is none.
pub fn resize(
    image: &Tensor,
    size: &[usize],
    interpolation: InterpolationMode,
    max_size: Option<usize>,
    antialias: bool,
) -> Result<Tensor> {
    on_image("resize", image, Resize { size, interpolation, max_size, antialias })
}

/// [`crop`], then [`resize`].
///
/// # Errors
/// As these.
#[allow(clippy::too_many_arguments)] // They are torchvision's.
pub fn resized_crop(
    image: &Tensor,
    top: i64,
    left: i64,
    height: usize,
    width: usize,
    size: &[usize],
    interpolation: InterpolationMode,
    antialias: bool,
) -> Result<Tensor> {
    resize(&crop(image, top, left, height, width)?, size, interpolation, None, antialias)
}

struct Resize<'a> {
    size: &'a [usize],
    interpolation: InterpolationMode,
    max_size: Option<usize>,
    antialias: bool,
}

impl Resize<'_> {
    /// Height and width of the result.
    fn sizes(&self, height: usize, width: usize) -> Result<(usize, usize)> {
        let wrong = |argument, message: String| Err(Error::argument("resize", argument, message));
        if self.size.contains(&0) {
            return wrong("size", format!("{:?} has a side of 0", self.size));
        }
        match (self.size, self.max_size) {
            (&[height, width], None) => Ok((height, width)),
            (&[_, _], Some(max)) => {
                wrong("max_size", format!("is {max} beside two sizes; it limits the longer of one"))
            }
            (&[shorter], max) => {
                let (short, long) = (height.min(width), height.max(width));
                let mut sides = (shorter, shorter * long / short);
                if let Some(max) = max {
                    if max <= shorter {
                        return wrong(
                            "max_size",
                            format!("is {max}, must be above size {shorter}"),
                        );
                    }
                    if sides.1 > max {
                        sides = ((max * sides.0 / sides.1).max(1), max);
                    }
                }
                Ok(if width <= height { (sides.1, sides.0) } else { sides })
            }
            _ => wrong("size", format!("{:?} is not [height, width] or [side]", self.size)),
        }
    }
}

impl Op for Resize<'_> {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        let (height, width) = self.sizes(image.height, image.width)?;
        if (height, width) == (image.height, image.width) {
            return Ok(image);
        }
        let filter = match self.interpolation {
            InterpolationMode::Nearest => return Ok(nearest(&image, height, width, 0.0)),
            InterpolationMode::NearestExact => return Ok(nearest(&image, height, width, 0.5)),
            InterpolationMode::Bilinear => Filter::Linear,
            InterpolationMode::Bicubic => Filter::Cubic,
        };
        Ok(resample(&image, height, width, filter, self.antialias))
    }
}

fn nearest<T: Pixel>(image: &Image<T>, height: usize, width: usize, centre: f32) -> Image<T> {
    let sources = |from: usize, to: usize| -> Vec<usize> {
        let scale = from as f32 / to as f32;
        (0..to).map(|i| (((i as f32 + centre) * scale) as usize).min(from - 1)).collect()
    };
    let (rows, columns) = (sources(image.height, height), sources(image.width, width));
    image.planes(height, width, |plane, out| {
        for &y in &rows {
            let row = &plane[y * image.width..][..image.width];
            out.extend(columns.iter().map(|&x| row[x]));
        }
    })
}
