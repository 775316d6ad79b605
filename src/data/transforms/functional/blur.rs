//! Blurred and sharpened images.

use super::colour::check_factor;
use crate::data::transforms::image::{Image, Op, Pixel, check_colours, on_image};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// An image blurred by a Gaussian of `kernel_size` (along x, along y; odd) and standard deviations `sigma`. Its border
/// is mirrored.
///
/// # Errors
/// [`Error::Argument`] when a size is even, wider than the image can be mirrored, or a deviation not above 0.
pub fn gaussian_blur(image: &Tensor, kernel_size: [usize; 2], sigma: [f64; 2]) -> Result<Tensor> {
    let wrong = |argument, message| Err(Error::argument("gaussian_blur", argument, message));
    if kernel_size.iter().any(|size| size % 2 == 0) {
        return wrong("kernel_size", format!("{kernel_size:?} has an even size; both must be odd"));
    }
    if !sigma.iter().all(|s| *s > 0.0 && s.is_finite()) {
        return wrong("sigma", format!("{sigma:?} must be above 0"));
    }
    on_image("gaussian_blur", image, Blur { size: kernel_size, sigma })
}

struct Blur {
    size: [usize; 2],
    sigma: [f64; 2],
}

/// PyTorch's weights, which are not those of the usual Gaussian.
fn kernel(size: usize, sigma: f64) -> Vec<f32> {
    let limit = (size - 1) as f64 / (2.0 * 2f64.sqrt());
    let step = if size > 1 { 2.0 * limit / (size - 1) as f64 } else { 0.0 };
    let weight = |i| (-((-limit + step * i as f64) / sigma).powi(2)).exp();
    let weights: Vec<f64> = (0..size).map(weight).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|w| (w / sum) as f32).collect()
}

impl Op for Blur {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        let (height, width) = (image.height, image.width);
        let [x_reach, y_reach] = self.size.map(|size| size / 2);
        if x_reach >= width || y_reach >= height {
            let message = format!(
                "{:?} (x, y) reaches over the mirror image of {height} x {width} pixels",
                self.size
            );
            return Err(Error::argument("gaussian_blur", "kernel_size", message));
        }
        let [across, down] = [0, 1].map(|i| kernel(self.size[i], self.sigma[i]));
        let mirrored = |place: i64, side: usize| -> usize {
            let last = side as i64 - 1;
            (if place < 0 {
                -place
            } else if place > last {
                2 * last - place
            } else {
                place
            }) as usize
        };
        let columns: Vec<usize> =
            (-(x_reach as i64)..(width + x_reach) as i64).map(|x| mirrored(x, width)).collect();
        let mut blurred = vec![0f32; height * width];
        let mut wide = vec![0f32; width + 2 * x_reach];
        Ok(image.planes(height, width, |plane, out| {
            for (row, to) in plane.chunks_exact(width).zip(blurred.chunks_exact_mut(width)) {
                wide.iter_mut().zip(&columns).for_each(|(w, &x)| *w = row[x].to_f32());
                to.fill(0.0);
                for (k, weight) in across.iter().enumerate() {
                    to.iter_mut().zip(&wide[k..]).for_each(|(to, from)| *to += weight * from);
                }
            }
            let mut sum = vec![0f32; width];
            for y in 0..height as i64 {
                sum.fill(0.0);
                for (k, weight) in down.iter().enumerate() {
                    let from = mirrored(y + k as i64 - y_reach as i64, height);
                    let row = &blurred[from * width..][..width];
                    sum.iter_mut().zip(row).for_each(|(to, from)| *to += weight * from);
                }
                out.extend(sum.iter().map(|&value| T::round(value)));
            }
        }))
    }
}

/// An image between its blurred self (0), itself (1) and beyond. The outermost pixels stay as they are.
///
/// # Errors
/// [`Error::Argument`] when the factor is negative.
pub fn adjust_sharpness(image: &Tensor, sharpness_factor: f64) -> Result<Tensor> {
    check_factor("adjust_sharpness", "sharpness_factor", sharpness_factor)?;
    on_image("adjust_sharpness", image, Sharpness(sharpness_factor))
}

struct Sharpness(f64);

impl Op for Sharpness {
    fn apply<T: Pixel>(&self, image: Image<T>) -> Result<Image<T>> {
        check_colours("adjust_sharpness", image.channels)?;
        let (height, width) = (image.height, image.width);
        if height <= 2 || width <= 2 {
            return Ok(image);
        }
        let (edge, middle, rest) = (1.0 / 13.0f32, 5.0 / 13.0f32, (1.0 - self.0) as f32);
        Ok(image.planes(height, width, |plane, out| {
            let at = |y: usize, x: usize| plane[y * width + x].to_f32();
            for y in 0..height {
                for x in 0..width {
                    let value = at(y, x);
                    if y == 0 || x == 0 || y == height - 1 || x == width - 1 {
                        out.push(plane[y * width + x]);
                        continue;
                    }
                    let mut blurred = 0.0;
                    for dy in y - 1..=y + 1 {
                        for dx in x - 1..=x + 1 {
                            let weight = if (dy, dx) == (y, x) { middle } else { edge };
                            blurred += weight * at(dy, dx);
                        }
                    }
                    if !T::IS_FLOAT {
                        blurred = blurred.round_ties_even();
                    }
                    out.push(T::cut((value + rest * (blurred - value)).clamp(0.0, T::MAX)));
                }
            }
        }))
    }
}
