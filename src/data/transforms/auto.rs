//! RandAugment (Cubuk, Zoph, Shlens, Le, "RandAugment: Practical automated data augmentation with a reduced search
//! space", 2020).

use serde::{Deserialize, Serialize};

use super::classes::Transform;
use super::functional::{self as F, InterpolationMode};
use super::random::{Draws, size_of};
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

/// Some random operations of fourteen, all of one magnitude.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RandAugment {
    num_ops: usize,
    magnitude: usize,
    num_magnitude_bins: usize,
    interpolation: InterpolationMode,
    fill: Option<Vec<f32>>,
}

/// An operation of [`RandAugment`].
#[derive(Debug, Clone, Copy)]
enum Operation {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
}

const OPERATIONS: [Operation; 14] = {
    use Operation::*;
    [
        Identity,
        ShearX,
        ShearY,
        TranslateX,
        TranslateY,
        Rotate,
        Brightness,
        Color,
        Contrast,
        Sharpness,
        Posterize,
        Solarize,
        AutoContrast,
        Equalize,
    ]
};

impl RandAugment {
    /// `num_ops` operations (2 is usual) of magnitude `magnitude` of 31 (9 is usual).
    ///
    /// # Errors
    /// [`Error::Argument`] when the magnitude is above 30.
    pub fn new(num_ops: usize, magnitude: usize) -> Result<Self> {
        let interpolation = InterpolationMode::Nearest;
        let made =
            RandAugment { num_ops, magnitude, num_magnitude_bins: 31, interpolation, fill: None };
        made.num_magnitude_bins(31)
    }

    /// How many magnitudes there are (default: 31).
    ///
    /// # Errors
    /// [`Error::Argument`] when it is below 2 or not above the magnitude.
    pub fn num_magnitude_bins(mut self, bins: usize) -> Result<Self> {
        if bins < 2 || self.magnitude >= bins {
            let message =
                format!("is {}, must be below the {bins} bins, at least 2", self.magnitude);
            return Err(Error::argument("RandAugment", "magnitude", message));
        }
        self.num_magnitude_bins = bins;
        Ok(self)
    }

    /// How values between pixels are found: nearest (the default) or bilinear.
    #[must_use]
    pub fn interpolation(mut self, interpolation: InterpolationMode) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// What lies outside of images that are moved (default: 0).
    #[must_use]
    pub fn fill(mut self, fill: &[f32]) -> Self {
        self.fill = Some(fill.to_vec());
        self
    }

    /// The image after an operation; `sign` is the direction of those that have two.
    fn apply(&self, operation: Operation, image: &Tensor, sign: f64) -> Result<Tensor> {
        let (height, width) = size_of("RandAugment", image)?;
        // Share of the greatest magnitude.
        let share = self.magnitude as f64 / (self.num_magnitude_bins - 1) as f64;
        let strength = |most: f64| sign * most * share;
        let fill = self.fill.as_deref();
        let affine = |translate, shear, center| {
            F::affine(image, 0.0, translate, 1.0, shear, self.interpolation, fill, center)
        };
        let degrees = |level: f64| level.atan().to_degrees();
        let pixels = |side: usize| strength(150.0 / 331.0 * side as f64).trunc();
        let corner = Some([0.0; 2]);
        match operation {
            Operation::Identity => Ok(image.clone()),
            Operation::ShearX => affine([0.0; 2], [degrees(strength(0.3)), 0.0], corner),
            Operation::ShearY => affine([0.0; 2], [0.0, degrees(strength(0.3))], corner),
            Operation::TranslateX => affine([pixels(width), 0.0], [0.0; 2], None),
            Operation::TranslateY => affine([0.0, pixels(height)], [0.0; 2], None),
            Operation::Rotate => {
                F::rotate(image, strength(30.0), self.interpolation, false, None, fill)
            }
            Operation::Brightness => F::adjust_brightness(image, 1.0 + strength(0.9)),
            Operation::Color => F::adjust_saturation(image, 1.0 + strength(0.9)),
            Operation::Contrast => F::adjust_contrast(image, 1.0 + strength(0.9)),
            Operation::Sharpness => F::adjust_sharpness(image, 1.0 + strength(0.9)),
            Operation::Posterize => F::posterize(image, 8 - (4.0 * share).round_ties_even() as u32),
            Operation::Solarize => {
                let white = if image.dtype() == Dtype::U8 { 255.0 } else { 1.0 };
                F::solarize(image, white * (1.0 - share))
            }
            Operation::AutoContrast => F::autocontrast(image),
            Operation::Equalize => F::equalize(image),
        }
    }
}

impl Transform for RandAugment {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        let mut draws = Draws::new();
        let mut image = image.clone();
        for _ in 0..self.num_ops {
            let operation = OPERATIONS[draws.below(OPERATIONS.len())];
            let sign = if draws.happens(0.5) { -1.0 } else { 1.0 };
            image = self.apply(operation, &image, sign)?;
        }
        Ok(image)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_changes_an_image_in_both_types() {
        let bytes = Tensor::arange(0i64, 3 * 24 * 20, 1i64, Dtype::I64);
        let bytes = (bytes * 37i64).remainder(251i64).to_dtype(Dtype::U8).view([3, 24, 20]);
        for image in [bytes.clone(), bytes.to_dtype(Dtype::F32) * (1.0 / 255.0)] {
            let augment = RandAugment::new(2, 9).unwrap().fill(&[0.5]);
            for operation in OPERATIONS {
                let [a, b] =
                    [-1.0, 1.0].map(|sign| augment.apply(operation, &image, sign).unwrap());
                assert_eq!((a.shape(), a.dtype()), (image.shape(), image.dtype()));
                let is_other = !a.equal(&image) || !b.equal(&image);
                assert_eq!(is_other, !matches!(operation, Operation::Identity), "{operation:?}");
            }
        }
        assert!(RandAugment::new(2, 31).is_err());
    }
}
