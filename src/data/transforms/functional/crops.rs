//! Parts of images, images with borders, and mirrored ones.

use serde::{Deserialize, Serialize};

use crate::data::transforms::image::{Image, Op, Pixel, on_image};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// What stands around an image (`padding_mode`).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum PaddingMode {
    /// This value.
    Constant(f32),
    /// The nearest pixel.
    Edge,
    /// The image mirrored at its outermost pixels, which do not come twice.
    Reflect,
    /// The image mirrored at its border.
    Symmetric,
}

/// An image with `padding` pixels (left, top, right, bottom) around it.
///
/// # Errors
/// [`Error::Argument`] when a mirror image is not as wide as the padding.
pub fn pad(image: &Tensor, padding: [usize; 4], padding_mode: PaddingMode) -> Result<Tensor> {
    on_image("pad", image, Pad { padding, mode: padding_mode })
}

struct Pad {
    padding: [usize; 4],
    mode: PaddingMode,
}

impl Op for Pad {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        let [left, top, right, bottom] = self.padding;
        let limit = |side: usize| match self.mode {
            PaddingMode::Reflect => side - 1,
            PaddingMode::Symmetric => side,
            PaddingMode::Constant(_) | PaddingMode::Edge => usize::MAX,
        };
        if left.max(right) > limit(image.width) || top.max(bottom) > limit(image.height) {
            let message = format!(
                "{:?} is more than an image of {} x {} has to mirror",
                self.padding, image.height, image.width
            );
            return Err(Error::argument("pad", "padding", message));
        }
        let source = |place: i64, side: usize| -> Option<usize> {
            let side = side as i64;
            let place = match self.mode {
                PaddingMode::Constant(_) => {
                    return (0..side).contains(&place).then_some(place as usize);
                }
                PaddingMode::Edge => place.clamp(0, side - 1),
                PaddingMode::Reflect if place < 0 => -place,
                PaddingMode::Reflect if place >= side => 2 * side - 2 - place,
                PaddingMode::Symmetric if place < 0 => -place - 1,
                PaddingMode::Symmetric if place >= side => 2 * side - 1 - place,
                PaddingMode::Reflect | PaddingMode::Symmetric => place,
            };
            Some(place as usize)
        };
        let (height, width) = (image.height + top + bottom, image.width + left + right);
        let columns: Vec<Option<usize>> =
            (0..width).map(|x| source(x as i64 - left as i64, image.width)).collect();
        let fill = match self.mode {
            PaddingMode::Constant(value) => T::cut(value),
            _ => T::cut(0.0),
        };
        Ok(image.planes(height, width, |plane, out| {
            for y in 0..height {
                match source(y as i64 - top as i64, image.height) {
                    None => out.resize(out.len() + width, fill),
                    Some(y) => {
                        let row = &plane[y * image.width..][..image.width];
                        let pixel = |x: &Option<usize>| x.map_or(fill, |x| row[x]);
                        let (before, rest) = columns.split_at(left);
                        out.extend(before.iter().map(pixel));
                        out.extend_from_slice(row);
                        out.extend(rest[image.width..].iter().map(pixel));
                    }
                }
            }
        }))
    }
}

/// The part of an image that begins at (`top`, `left`). What lies outside of the image is 0.
///
/// # Errors
/// [`Error::Argument`] when the part has no pixels.
pub fn crop(image: &Tensor, top: i64, left: i64, height: usize, width: usize) -> Result<Tensor> {
    on_image("crop", image, Crop { top, left, height, width })
}

struct Crop {
    top: i64,
    left: i64,
    height: usize,
    width: usize,
}

impl Op for Crop {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        let Crop { top, left, height, width } = *self;
        if height == 0 || width == 0 {
            let message = format!("{height} x {width} pixels are none");
            return Err(Error::argument("crop", "height", message));
        }
        let zero = T::cut(0.0);
        Ok(image.planes(height, width, |plane, out| {
            for y in top..top + height as i64 {
                if !(0..image.height as i64).contains(&y) {
                    out.resize(out.len() + width, zero);
                    continue;
                }
                let row = &plane[y as usize * image.width..][..image.width];
                let inside = |x: i64| x.clamp(0, image.width as i64) as usize;
                let end = out.len() + width;
                let before = left.saturating_neg().clamp(0, width as i64) as usize;
                out.resize(out.len() + before, zero);
                out.extend_from_slice(&row[inside(left)..inside(left + width as i64)]);
                out.resize(end, zero);
            }
        }))
    }
}

/// The middle of an image: `[height, width]`. One that is too small gets a border of 0.
///
/// # Errors
/// As [`crop`].
pub fn center_crop(image: &Tensor, output_size: [usize; 2]) -> Result<Tensor> {
    on_image("center_crop", image, CenterCrop { size: output_size })
}

struct CenterCrop {
    size: [usize; 2],
}

/// Where the middle part of a side begins. A side that is too short has half of what is missing before it, rounded
/// down; halves of pixels go to even numbers, as Python rounds.
pub(in crate::data::transforms) fn middle(side: usize, part: usize) -> i64 {
    match part > side {
        true => -(((part - side) / 2) as i64),
        false => ((side - part) as f64 / 2.0).round_ties_even() as i64,
    }
}

impl Op for CenterCrop {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        let [height, width] = self.size;
        let (top, left) = (middle(image.height, height), middle(image.width, width));
        Crop { top, left, height, width }.apply(image)
    }
}

/// An image mirrored left to right.
///
/// # Errors
/// [`Error::Shape`] and [`Error::Dtype`] when `image` is none.
pub fn horizontal_flip(image: &Tensor) -> Result<Tensor> {
    on_image("horizontal_flip", image, Flip { vertical: false })
}

/// An image turned upside down by a mirror.
///
/// # Errors
/// As [`horizontal_flip`].
pub fn vertical_flip(image: &Tensor) -> Result<Tensor> {
    on_image("vertical_flip", image, Flip { vertical: true })
}

struct Flip {
    vertical: bool,
}

impl Op for Flip {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        let (height, width) = (image.height, image.width);
        Ok(image.planes(height, width, |plane, out| {
            let rows = plane.chunks_exact(width);
            match self.vertical {
                true => rows.rev().for_each(|row| out.extend_from_slice(row)),
                false => rows.for_each(|row| out.extend(row.iter().rev())),
            }
        }))
    }
}

/// The four corners and the middle: top left, top right, bottom left, bottom right, middle.
///
/// # Errors
/// [`Error::Argument`] when the image is smaller than a part.
pub fn five_crop(image: &Tensor, size: [usize; 2]) -> Result<[Tensor; 5]> {
    let [height, width] = size;
    let &[.., rows, columns] = image.shape() else {
        let message = format!("an image has shape [.., C, H, W], this tensor {:?}", image.shape());
        return Err(Error::shape("five_crop", message));
    };
    if height > rows || width > columns {
        let message = format!("{height} x {width} is larger than the image, {rows} x {columns}");
        return Err(Error::argument("five_crop", "size", message));
    }
    let (bottom, right) = ((rows - height) as i64, (columns - width) as i64);
    let part = |top, left| crop(image, top, left, height, width);
    let middle = center_crop(image, size)?;
    Ok([part(0, 0)?, part(0, right)?, part(bottom, 0)?, part(bottom, right)?, middle])
}

/// [`five_crop`] of an image, then of its mirror image (left to right, or upside down with `vertical_flip`).
///
/// # Errors
/// As [`five_crop`].
pub fn ten_crop(image: &Tensor, size: [usize; 2], vertical: bool) -> Result<[Tensor; 10]> {
    let mirrored = if vertical { vertical_flip(image)? } else { horizontal_flip(image)? };
    let [a, b, c, d, e] = five_crop(image, size)?;
    let [f, g, h, i, j] = five_crop(&mirrored, size)?;
    Ok([a, b, c, d, e, f, g, h, i, j])
}
