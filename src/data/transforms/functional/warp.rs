//! Images turned, sheared and seen askew: each output pixel is looked up at a place of the input.
//!
//! Places are computed in f32 in torchvision's order, so that its choice between two pixels is met.

use super::resize::InterpolationMode;
use crate::data::transforms::image::{Image, Op, Pixel, on_image};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// An image turned by `angle` degrees counter-clockwise around `center` (x, y; its middle by default). With `expand`
/// the result is large enough for all of it. `fill` (one value, or one for each channel) is what lies outside; else 0.
///
/// # Errors
/// [`Error::Argument`] when `interpolation` is neither nearest nor bilinear, or `fill` does not fit the channels.
pub fn rotate(
    image: &Tensor,
    angle: f64,
    interpolation: InterpolationMode,
    expand: bool,
    center: Option<[f64; 2]>,
    fill: Option<&[f32]>,
) -> Result<Tensor> {
    finite("rotate", "angle", &[angle])?;
    let warp = Warp { op: "rotate", interpolation, fill };
    on_image("rotate", image, Rotate { warp, angle: angle.rem_euclid(360.0), expand, center })
}

/// An image turned by `angle` degrees clockwise, moved by `translate` (x, y) pixels, scaled, and sheared by `shear`
/// (x, y) degrees, around `center` (x, y; its middle by default). What lies outside is `fill`, else 0.
///
/// # Errors
/// As [`rotate`], and when `scale` is not above 0.
#[allow(clippy::too_many_arguments)] // They are torchvision's.
pub fn affine(
    image: &Tensor,
    angle: f64,
    translate: [f64; 2],
    scale: f64,
    shear: [f64; 2],
    interpolation: InterpolationMode,
    fill: Option<&[f32]>,
    center: Option<[f64; 2]>,
) -> Result<Tensor> {
    finite("affine", "angle", &[angle, translate[0], translate[1], shear[0], shear[1]])?;
    if !(scale > 0.0 && scale.is_finite()) {
        return Err(Error::argument("affine", "scale", format!("is {scale}, must be above 0")));
    }
    let warp = Warp { op: "affine", interpolation, fill };
    on_image("affine", image, Affine { warp, angle, translate, scale, shear, center })
}

/// An image whose points `startpoints` (x, y; top left, top right, bottom right, bottom left) come to `endpoints`. What
/// lies outside is `fill`, else 0.
///
/// # Errors
/// As [`rotate`], and when three of the points lie on a line.
pub fn perspective(
    image: &Tensor,
    startpoints: [[f64; 2]; 4],
    endpoints: [[f64; 2]; 4],
    interpolation: InterpolationMode,
    fill: Option<&[f32]>,
) -> Result<Tensor> {
    let warp = Warp { op: "perspective", interpolation, fill };
    let Some(coefficients) = coefficients(startpoints, endpoints) else {
        let message = format!("{endpoints:?} are not the corners of a quadrangle");
        return Err(Error::argument("perspective", "endpoints", message));
    };
    on_image("perspective", image, Perspective { warp, coefficients })
}

fn finite(op: &str, argument: &str, values: &[f64]) -> Result<()> {
    match values.iter().find(|value| !value.is_finite()) {
        Some(value) => Err(Error::argument(op, argument, format!("{value} is not finite"))),
        None => Ok(()),
    }
}

/// How places are looked up.
#[derive(Clone, Copy)]
struct Warp<'a> {
    op: &'a str,
    interpolation: InterpolationMode,
    fill: Option<&'a [f32]>,
}

impl Warp<'_> {
    /// The image whose pixel (row, column) is looked up at `place`, as x and y from -1 to 1 over the input.
    fn apply<T: Pixel>(
        &self,
        image: &Image<T>,
        height: usize,
        width: usize,
        place: impl Fn(usize, usize) -> (f32, f32),
    ) -> Result<Image<T>> {
        let bilinear = match self.interpolation {
            InterpolationMode::Nearest => false,
            InterpolationMode::Bilinear => true,
            other => {
                let message = format!("is {other:?}, must be Nearest or Bilinear");
                return Err(Error::argument(self.op, "interpolation", message));
            }
        };
        let fill = self.fill.unwrap_or(&[]);
        if fill.len() > 1 && fill.len() != image.channels {
            let message = format!("{} values for {} channels", fill.len(), image.channels);
            return Err(Error::argument(self.op, "fill", message));
        }
        let (rows, columns) = (image.height as f32, image.width as f32);
        let unscaled = |(x, y): (f32, f32)| {
            (((x + 1.0) * columns - 1.0) / 2.0, ((y + 1.0) * rows - 1.0) / 2.0)
        };
        let mut places = Vec::with_capacity(height * width);
        for y in 0..height {
            places.extend((0..width).map(|x| unscaled(place(y, x))));
        }
        let mut channel = 0;
        if !bilinear {
            // Once for all channels.
            let pixel = |&(x, y): &(f32, f32)| -> usize {
                let (x, y) = (x.round_ties_even(), y.round_ties_even());
                let inside = y >= 0.0 && y < rows && x >= 0.0 && x < columns;
                if inside { y as usize * image.width + x as usize } else { usize::MAX }
            };
            let pixels: Vec<usize> = places.iter().map(pixel).collect();
            return Ok(image.planes(height, width, |plane, out| {
                let fill = if fill.is_empty() { 0.0 } else { fill[channel % fill.len()] };
                let fill = T::round(fill);
                out.extend(pixels.iter().map(|&pixel| plane.get(pixel).copied().unwrap_or(fill)));
                channel = (channel + 1) % image.channels;
            }));
        }
        Ok(image.planes(height, width, |plane, out| {
            let at = |y: f32, x: f32| -> Option<f32> {
                let inside = y >= 0.0 && y < rows && x >= 0.0 && x < columns;
                inside.then(|| plane[y as usize * image.width + x as usize].to_f32())
            };
            let fill = (!fill.is_empty()).then(|| fill[channel % fill.len()]);
            out.extend(places.iter().map(|&(x, y)| {
                let (value, share) = between(at, y, x);
                T::round(match fill {
                    None => value,
                    Some(fill) => (value - fill) * share + fill,
                })
            }));
            channel = (channel + 1) % image.channels;
        }))
    }
}

/// The value between four pixels, and how much of it lies inside.
fn between(at: impl Fn(f32, f32) -> Option<f32>, y: f32, x: f32) -> (f32, f32) {
    let (top, left) = (y.floor(), x.floor());
    let (south, east) = (y - top, x - left);
    let (north, west) = (1.0 - south, 1.0 - east);
    let corners = [
        (top, left, north * west),
        (top, left + 1.0, north * east),
        (top + 1.0, left, south * west),
        (top + 1.0, left + 1.0, south * east),
    ];
    let mut sums = (0.0, 0.0);
    for (y, x, weight) in corners {
        if let Some(value) = at(y, x) {
            sums = (sums.0 + value * weight, sums.1 + weight);
        }
    }
    sums
}

/// The matrix by which places of the result become places of the image, from its middle.
fn inverse_matrix(
    center: [f64; 2],
    angle: f64,
    translate: [f64; 2],
    scale: f64,
    shear: [f64; 2],
) -> [f64; 6] {
    let rotation = angle.to_radians();
    let [sx, sy] = shear.map(f64::to_radians);
    let (cx, cy) = (center[0], center[1]);
    let (tx, ty) = (cx + translate[0], cy + translate[1]);
    let a = (rotation - sy).cos() / sy.cos();
    let b = -(a * sx.tan() + rotation.sin());
    let c = (rotation - sy).sin() / sy.cos();
    let d = rotation.cos() - c * sx.tan();
    let mut m = [d / scale, -b / scale, 0.0, -c / scale, a / scale, 0.0];
    m[2] += cx - m[0] * tx - m[1] * ty;
    m[5] += cy - m[3] * tx - m[4] * ty;
    m
}

/// `center` from the middle of an image.
fn from_middle<T>(center: Option<[f64; 2]>, image: &Image<T>) -> [f64; 2] {
    let half = [image.width as f64 * 0.5, image.height as f64 * 0.5];
    center.map_or([0.0; 2], |center| [center[0] - half[0], center[1] - half[1]])
}

/// An image looked up through a matrix, of `height` x `width`.
fn through_matrix<T: Pixel>(
    warp: &Warp<'_>,
    image: &Image<T>,
    matrix: [f64; 6],
    height: usize,
    width: usize,
) -> Result<Image<T>> {
    let m = matrix.map(|value| value as f32);
    let (half_width, half_height) = (0.5 * image.width as f32, 0.5 * image.height as f32);
    let x_row = [m[0] / half_width, m[1] / half_width, m[2] / half_width];
    let y_row = [m[3] / half_height, m[4] / half_height, m[5] / half_height];
    let from_middle = |i: usize, side: usize| i as f32 - (side as f32 - 1.0) * 0.5;
    warp.apply(image, height, width, |row, column| {
        let (x, y) = (from_middle(column, width), from_middle(row, height));
        (x * x_row[0] + y * x_row[1] + x_row[2], x * y_row[0] + y * y_row[1] + y_row[2])
    })
}

struct Affine<'a> {
    warp: Warp<'a>,
    angle: f64,
    translate: [f64; 2],
    scale: f64,
    shear: [f64; 2],
    center: Option<[f64; 2]>,
}

impl Op for Affine<'_> {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        let center = from_middle(self.center, &image);
        let matrix = inverse_matrix(center, self.angle, self.translate, self.scale, self.shear);
        through_matrix(&self.warp, &image, matrix, image.height, image.width)
    }
}

struct Rotate<'a> {
    warp: Warp<'a>,
    angle: f64,
    expand: bool,
    center: Option<[f64; 2]>,
}

impl Op for Rotate<'_> {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        let (height, width) = (image.height, image.width);
        if self.center.is_none() {
            let turns = match self.angle {
                0.0 => return Ok(image),
                180.0 => 2,
                90.0 if self.expand || height == width => 1,
                270.0 if self.expand || height == width => 3,
                _ => 0,
            };
            if turns > 0 {
                return Ok(quarter_turns(&image, turns));
            }
        }
        let center = from_middle(self.center, &image);
        let matrix = inverse_matrix(center, -self.angle, [0.0; 2], 1.0, [0.0; 2]);
        let (rows, columns) = match self.expand {
            true => expanded(matrix, height, width),
            false => (height, width),
        };
        through_matrix(&self.warp, &image, matrix, rows, columns)
    }
}

/// An image turned counter-clockwise by right angles.
fn quarter_turns<T: Pixel>(image: &Image<T>, turns: usize) -> Image<T> {
    let (height, width) = (image.height, image.width);
    let (rows, columns) = if turns == 2 { (height, width) } else { (width, height) };
    image.planes(rows, columns, |plane, out| {
        for y in 0..rows {
            out.extend((0..columns).map(|x| {
                let (y, x) = match turns {
                    1 => (x, width - 1 - y),
                    2 => (height - 1 - y, width - 1 - x),
                    _ => (height - 1 - x, y),
                };
                plane[y * width + x]
            }));
        }
    })
}

/// Height and width of all of an image behind a matrix.
fn expanded(matrix: [f64; 6], height: usize, width: usize) -> (usize, usize) {
    let m = matrix.map(|value| value as f32);
    let (half_width, half_height) = (0.5 * width as f32, 0.5 * height as f32);
    let corners = [(-1.0, -1.0), (-1.0, 1.0), (1.0, 1.0), (1.0, -1.0)];
    let length = |row: [f32; 3], half: f32| {
        let at = |(x, y): (f32, f32)| x * half_width * row[0] + y * half_height * row[1] + row[2];
        let places = corners.map(at);
        // Cut to four places, so that an error of rounding makes no pixel.
        let cut = |value: f32| (value * 1e4).trunc() * 1e-4;
        let low = places.iter().copied().fold(f32::INFINITY, f32::min) + half;
        let high = places.iter().copied().fold(f32::NEG_INFINITY, f32::max) + half;
        (cut(high).ceil() - cut(low).floor()) as usize
    };
    (length([m[3], m[4], m[5]], half_height), length([m[0], m[1], m[2]], half_width))
}

struct Perspective<'a> {
    warp: Warp<'a>,
    coefficients: [f64; 8],
}

impl Op for Perspective<'_> {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        let (height, width) = (image.height, image.width);
        let c = self.coefficients.map(|value| value as f32);
        let (half_width, half_height) = (0.5 * width as f32, 0.5 * height as f32);
        let x_row = [c[0] / half_width, c[1] / half_width, c[2] / half_width];
        let y_row = [c[3] / half_height, c[4] / half_height, c[5] / half_height];
        self.warp.apply(&image, height, width, |row, column| {
            let (x, y) = (column as f32 + 0.5, row as f32 + 0.5);
            let along = |row: &[f32; 3]| x * row[0] + y * row[1] + row[2];
            let depth = x * c[6] + y * c[7] + 1.0;
            (along(&x_row) / depth - 1.0, along(&y_row) / depth - 1.0)
        })
    }
}

/// The perspective that has `ends` where `starts` are to be looked up: eight equations, by elimination.
fn coefficients(starts: [[f64; 2]; 4], ends: [[f64; 2]; 4]) -> Option<[f64; 8]> {
    let mut rows = [[0.0; 9]; 8];
    for (i, ([sx, sy], [ex, ey])) in starts.into_iter().zip(ends).enumerate() {
        rows[2 * i] = [ex, ey, 1.0, 0.0, 0.0, 0.0, -sx * ex, -sx * ey, sx];
        rows[2 * i + 1] = [0.0, 0.0, 0.0, ex, ey, 1.0, -sy * ex, -sy * ey, sy];
    }
    for column in 0..8 {
        let size = |row: &usize| rows[*row][column].abs();
        let pivot = (column..8).max_by(|a, b| size(a).total_cmp(&size(b)))?;
        if size(&pivot).is_nan() || size(&pivot) <= 1e-9 {
            return None;
        }
        rows.swap(column, pivot);
        for row in 0..8 {
            if row != column {
                let factor = rows[row][column] / rows[column][column];
                for k in column..9 {
                    rows[row][k] -= factor * rows[column][k];
                }
            }
        }
    }
    Some(std::array::from_fn(|i| rows[i][8] / rows[i][i]))
}
