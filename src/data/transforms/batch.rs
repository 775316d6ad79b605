//! Pairs of a batch's images mixed: MixUp (Zhang, Cisse, Dauphin, Lopez-Paz, 2018) and CutMix (Yun and others, 2019).
//! The partner of an image is the one before it in the batch.

use serde::{Deserialize, Serialize};

use super::image::check;
use super::random::Draws;
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

/// Each image mixed with its partner.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MixUp {
    alpha: f64,
    num_classes: usize,
}

/// A random rectangle of each image taken from its partner.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CutMix {
    alpha: f64,
    num_classes: usize,
}

fn check_options(op: &str, alpha: f64, num_classes: usize) -> Result<()> {
    if !(alpha > 0.0 && alpha.is_finite()) {
        return Err(Error::argument(op, "alpha", format!("is {alpha}, must be above 0")));
    }
    if num_classes == 0 {
        return Err(Error::argument(op, "num_classes", "is 0, must be at least 1"));
    }
    Ok(())
}

/// Images `[n, C, H, W]`, and their labels `[n]` of i64 as shares of classes, `[n, num_classes]` of f32.
fn labels_of(op: &str, images: &Tensor, labels: &Tensor, num_classes: usize) -> Result<Tensor> {
    check(op, images)?;
    let (shape, n) = (images.shape(), images.shape().first().copied().unwrap_or_default());
    if shape.len() != 4 || n == 0 {
        let message = format!("images have shape [n, C, H, W], these {shape:?}");
        return Err(Error::shape(op, message));
    }
    if labels.dtype() != Dtype::I64 || labels.shape() != [n] {
        let message = format!(
            "labels of {n} images are i64 [{n}], these are {} {:?}",
            labels.dtype(),
            labels.shape()
        );
        return Err(Error::shape(op, message));
    }
    let mut shares = vec![0f32; n * num_classes];
    for (i, label) in labels.to_vec::<i64>().into_iter().enumerate() {
        if !(0..num_classes as i64).contains(&label) {
            let message = format!("label {i} is {label}, must be below num_classes {num_classes}");
            return Err(Error::argument(op, "labels", message));
        }
        shares[i * num_classes + label as usize] = 1.0;
    }
    Ok(Tensor::from_slice(&shares, [n, num_classes]))
}

/// `lam` of each row and the rest of the one before.
fn mixed(rows: &Tensor, lam: f64) -> Tensor {
    let values = rows.to_vec::<f32>();
    let width = values.len() / rows.shape()[0];
    let (own, other) = (lam as f32, (1.0 - lam) as f32);
    let before = |i: usize| values[(i + values.len() - width) % values.len()];
    let mixed: Vec<f32> =
        values.iter().enumerate().map(|(i, value)| before(i) * other + value * own).collect();
    Tensor::from_slice(&mixed, rows.shape())
}

impl MixUp {
    /// With shares of a beta distribution (`alpha` 1: uniform), for labels of so many classes.
    ///
    /// # Errors
    /// [`Error::Argument`] when `alpha` is not above 0 or there is no class.
    pub fn new(alpha: f64, num_classes: usize) -> Result<Self> {
        check_options("MixUp::new", alpha, num_classes)?;
        Ok(MixUp { alpha, num_classes })
    }

    /// f32 images `[n, C, H, W]` and labels `[n]`: mixed images, and shares of classes `[n, num_classes]`.
    ///
    /// # Errors
    /// [`Error::Dtype`] when the images are u8, [`Error::Shape`] and [`Error::Argument`] when labels do not go with
    /// them.
    pub fn forward(&self, images: &Tensor, labels: &Tensor) -> Result<(Tensor, Tensor)> {
        self.mix(images, labels, Draws::new().beta(self.alpha))
    }

    /// [`forward`](Self::forward) with a given share of each image.
    ///
    /// # Errors
    /// As there, and when `lam` is not from 0 to 1.
    pub fn mix(&self, images: &Tensor, labels: &Tensor, lam: f64) -> Result<(Tensor, Tensor)> {
        let shares = labels_of("MixUp", images, labels, self.num_classes)?;
        if images.dtype() != Dtype::F32 {
            let message =
                "takes f32 images, these are u8: to_dtype(images, Dtype::F32, true) first";
            return Err(Error::dtype("MixUp", message));
        }
        if !(0.0..=1.0).contains(&lam) {
            let message = format!("is {lam}, must be from 0 to 1");
            return Err(Error::argument("MixUp", "lam", message));
        }
        Ok((mixed(images, lam), mixed(&shares, lam)))
    }
}

impl CutMix {
    /// With areas of a beta distribution (`alpha` 1: uniform), for labels of so many classes.
    ///
    /// # Errors
    /// [`Error::Argument`] when `alpha` is not above 0 or there is no class.
    pub fn new(alpha: f64, num_classes: usize) -> Result<Self> {
        check_options("CutMix::new", alpha, num_classes)?;
        Ok(CutMix { alpha, num_classes })
    }

    /// Images `[n, C, H, W]` and labels `[n]`: images with rectangles of others, and shares of classes
    /// `[n, num_classes]` by area.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::Argument`] when labels do not go with the images.
    pub fn forward(&self, images: &Tensor, labels: &Tensor) -> Result<(Tensor, Tensor)> {
        let &[_, _, height, width] = images.shape() else {
            let message = format!("images have shape [n, C, H, W], these {:?}", images.shape());
            return Err(Error::shape("CutMix", message));
        };
        let mut draws = Draws::new();
        let lam = draws.beta(self.alpha);
        let (x, y) = (draws.below(width.max(1)), draws.below(height.max(1)));
        let half = |side: usize| (0.5 * (1.0 - lam).sqrt() * side as f64) as usize;
        let (across, down) = (half(width), half(height));
        let left_top = [x.saturating_sub(across), y.saturating_sub(down)];
        let right_bottom = [(x + across).min(width), (y + down).min(height)];
        self.mix(images, labels, left_top, right_bottom)
    }

    /// [`forward`](Self::forward) with a given rectangle, from (x, y) to before (x, y).
    ///
    /// # Errors
    /// As there, and when the rectangle is not inside of the images.
    pub fn mix(
        &self,
        images: &Tensor,
        labels: &Tensor,
        [left, top]: [usize; 2],
        [right, bottom]: [usize; 2],
    ) -> Result<(Tensor, Tensor)> {
        let shares = labels_of("CutMix", images, labels, self.num_classes)?;
        let [n, height, width] = [0, 2, 3].map(|dim| images.shape()[dim]);
        if left > right || top > bottom || right > width || bottom > height {
            let message = format!(
                "({left}, {top}) to ({right}, {bottom}) is not inside of {width} x {height} pixels"
            );
            return Err(Error::argument("CutMix", "box", message));
        }
        let result = images.clone_contiguous();
        let (w, h) = (right - left, bottom - top);
        if w > 0 && h > 0 {
            let part = |t: &Tensor, i: usize| {
                t.select(0, i as i64).narrow(1, top as i64, h).narrow(2, left as i64, w)
            };
            for i in 0..n {
                part(&result, i).copy_(&part(images, (i + n - 1) % n));
            }
        }
        let lam = 1.0 - (w * h) as f64 / (width * height) as f64;
        Ok((result, mixed(&shares, lam)))
    }
}
