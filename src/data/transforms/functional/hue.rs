//! Hues turned around the circle of colours.

use crate::data::transforms::image::{Image, Op, Pixel, check_colours, on_image};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// The hue of each pixel moved by `hue_factor`, a part of the circle from -0.5 to 0.5. Grey images stay as they are.
///
/// # Errors
/// [`Error::Argument`] when the factor is not in that range.
pub fn adjust_hue(image: &Tensor, hue_factor: f64) -> Result<Tensor> {
    if !(-0.5..=0.5).contains(&hue_factor) {
        let message = format!("is {hue_factor}, must be from -0.5 to 0.5");
        return Err(Error::argument("adjust_hue", "hue_factor", message));
    }
    on_image("adjust_hue", image, Hue(hue_factor as f32))
}

struct Hue(f32);

impl Op for Hue {
    fn apply<T: Pixel>(&self, mut image: Image<T>) -> Result<Image<T>> {
        check_colours("adjust_hue", image.channels)?;
        if image.channels == 1 {
            return Ok(image);
        }
        let plane = image.height * image.width;
        for one in image.pixels.chunks_exact_mut(3 * plane) {
            let (r, rest) = one.split_at_mut(plane);
            let (g, b) = rest.split_at_mut(plane);
            for ((r, g), b) in r.iter_mut().zip(g).zip(b) {
                let scaled = |value: T| match T::IS_FLOAT {
                    true => value.to_f32(),
                    false => value.to_f32() * (1.0 / T::MAX),
                };
                let turned = turn([scaled(*r), scaled(*g), scaled(*b)], self.0);
                // As `to_dtype` makes integers of floats.
                let back = |value: f32| match T::IS_FLOAT {
                    true => T::cut(value),
                    false => T::cut(value * (T::MAX + 1.0 - 1e-3)),
                };
                [*r, *g, *b] = turned.map(back);
            }
        }
        Ok(image)
    }
}

/// A colour with its hue moved: Pillow's way to hue, saturation and value, and back.
fn turn([r, g, b]: [f32; 3], by: f32) -> [f32; 3] {
    let (low, high) = (r.min(g).min(b), r.max(g).max(b));
    let range = high - low;
    let grey = low == high;
    let s = range / if grey { 1.0 } else { high };
    let divisor = if grey { 1.0 } else { range };
    let [rc, gc, bc] = [r, g, b].map(|c| (high - c) / divisor);
    let h = if high == r {
        bc - gc
    } else if high == g {
        rc + 2.0 - bc
    } else {
        gc + 4.0 - rc
    };
    let h = (h * (1.0 / 6.0) + 1.0) % 1.0;
    let h6 = (h + by).rem_euclid(1.0) * 6.0;
    let i = h6.floor();
    let f = h6 - i;
    let (sf, rest) = (s * f, 1.0 - s);
    let q = ((1.0 - sf) * high).clamp(0.0, 1.0);
    let t = ((sf + rest) * high).clamp(0.0, 1.0);
    let p = (rest * high).clamp(0.0, 1.0);
    match (i as i32).rem_euclid(6) {
        0 => [high, t, p],
        1 => [q, high, p],
        2 => [p, high, t],
        3 => [p, q, high],
        4 => [t, p, high],
        _ => [high, p, q],
    }
}
