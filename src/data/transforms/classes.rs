//! Transforms as values, and several of them one after the other.

use serde::{Deserialize, Serialize};

use super::auto::RandAugment;
use super::functional::{self as F, InterpolationMode, PaddingMode};
use super::random::{
    ColorJitter, RandomCrop, RandomErasing, RandomHorizontalFlip, RandomResizedCrop,
    RandomRotation, RandomVerticalFlip,
};
#[cfg(feature = "image")]
use super::region::Region;
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

/// A transform of images.
pub trait Transform: Send + Sync {
    /// What it makes of a tensor `[.., C, H, W]`.
    ///
    /// # Errors
    /// When the tensor is not one that it takes.
    fn forward(&self, image: &Tensor) -> Result<Tensor>;
}

/// Transforms one after the other (`torchvision.transforms.v2.Compose`). It is serialisable, as a field of a dataset
/// has to be.
///
/// ```
/// use torchrs::data::transforms::{Compose, Pad, RandomCrop, Transform};
/// use torchrs::{Dtype, Tensor};
/// let shift = Compose::new([Pad::new([4; 4]).into(), RandomCrop::new([32, 32]).into()]);
/// let image = Tensor::zeros([3, 32, 32], Dtype::U8);
/// assert_eq!(shift.forward(&image)?.shape(), [3, 32, 32]);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Compose {
    steps: Vec<Step>,
}

impl Compose {
    /// The first, then the second, ...
    pub fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        Compose { steps: steps.into_iter().collect() }
    }
}

#[cfg(feature = "image")]
impl Compose {
    /// What it makes of an image of which regions can be read, and of those no more than the first step needs.
    pub(in crate::data) fn of_regions(
        &self,
        size: (usize, usize),
        read: impl FnOnce(Region) -> Result<Tensor>,
    ) -> Result<Tensor> {
        match &self.steps[..] {
            [Step::RandomResizedCrop(step), rest @ ..] => {
                let image = read(step.region(size))?;
                all(rest, &step.resized(&image)?)
            }
            [Step::CenterCrop(step), rest @ ..] if step.region(size).is_some() => {
                let region = step.region(size).expect("it was there");
                all(rest, &read(region)?)
            }
            steps => all(steps, &read(Region::whole(size))?),
        }
    }
}

impl Transform for Compose {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        all(&self.steps, image)
    }
}

/// An image through all steps. Two that follow each other in most programs are one pass.
fn all(steps: &[Step], image: &Tensor) -> Result<Tensor> {
    let mut image = image.clone();
    let mut steps = steps;
    while let [step, rest @ ..] = steps {
        steps = rest;
        if let (Step::ToDtype(to), [Step::Normalize(normalize), rest @ ..]) = (step, steps)
            && (to.dtype, to.scale) == (Dtype::F32, true)
            && let Some(made) = F::scaled_and_normalized(&image, &normalize.mean, &normalize.std)
        {
            image = made;
            steps = rest;
            continue;
        }
        image = step.forward(&image)?;
    }
    Ok(image)
}

macro_rules! steps {
    ($($name:ident)*) => {
        /// A transform of this module, as [`Compose`] holds it: `Resize::new(256)?.into()`.
        #[derive(Debug, Clone, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Step {
            $(
                #[doc = concat!("A [`", stringify!($name), "`].")]
                $name($name),
            )*
        }

        impl Transform for Step {
            fn forward(&self, image: &Tensor) -> Result<Tensor> {
                match self {
                    $(Step::$name(step) => step.forward(image),)*
                }
            }
        }

        $(
            impl From<$name> for Step {
                fn from(step: $name) -> Step {
                    Step::$name(step)
                }
            }

            impl From<$name> for Compose {
                fn from(step: $name) -> Compose {
                    Compose::new([step.into()])
                }
            }
        )*
    };
}
steps! {
    Resize CenterCrop Pad Grayscale GaussianBlur ToDtype Normalize RandomHorizontalFlip RandomVerticalFlip
    RandomCrop RandomResizedCrop RandomRotation ColorJitter RandAugment RandomErasing
}

/// [`functional::resize`](F::resize), bilinear with antialias unless told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Resize {
    size: Vec<usize>,
    interpolation: InterpolationMode,
    max_size: Option<usize>,
    antialias: bool,
}

impl Resize {
    /// The shorter side of the result. For height and width see [`to`](Self::to).
    ///
    /// # Errors
    /// [`Error::Argument`] when it is 0.
    pub fn new(size: usize) -> Result<Self> {
        Self::of(vec![size])
    }

    /// Height and width of the result.
    ///
    /// # Errors
    /// [`Error::Argument`] when one is 0.
    pub fn to(size: [usize; 2]) -> Result<Self> {
        Self::of(size.to_vec())
    }

    fn of(size: Vec<usize>) -> Result<Self> {
        if size.contains(&0) {
            return Err(Error::argument("Resize", "size", format!("{size:?} has a side of 0")));
        }
        let interpolation = InterpolationMode::Bilinear;
        Ok(Resize { size, interpolation, max_size: None, antialias: true })
    }

    /// How values between pixels are found (default: bilinear).
    #[must_use]
    pub fn interpolation(mut self, interpolation: InterpolationMode) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// The most pixels of the longer side, where the shorter one was given.
    #[must_use]
    pub fn max_size(mut self, max_size: usize) -> Self {
        self.max_size = Some(max_size);
        self
    }

    /// Whether a smaller image averages over all pixels (default: true).
    #[must_use]
    pub fn antialias(mut self, antialias: bool) -> Self {
        self.antialias = antialias;
        self
    }
}

impl Transform for Resize {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        F::resize(image, &self.size, self.interpolation, self.max_size, self.antialias)
    }
}

/// [`functional::center_crop`](F::center_crop).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CenterCrop {
    size: [usize; 2],
}

impl CenterCrop {
    /// Height and width.
    pub fn new(size: [usize; 2]) -> Self {
        CenterCrop { size }
    }
}

#[cfg(feature = "image")]
impl CenterCrop {
    /// The part of an image of this height and width, if it is not larger.
    fn region(&self, (height, width): (usize, usize)) -> Option<Region> {
        let [h, w] = self.size;
        if h == 0 || w == 0 || h > height || w > width {
            return None;
        }
        let (top, left) = (F::middle(height, h) as usize, F::middle(width, w) as usize);
        Some(Region { top, left, height: h, width: w })
    }
}

impl Transform for CenterCrop {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        F::center_crop(image, self.size)
    }
}

/// [`functional::pad`](F::pad), with 0 unless told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pad {
    padding: [usize; 4],
    mode: PaddingMode,
}

impl Pad {
    /// Pixels on the left, at the top, on the right, at the bottom.
    pub fn new(padding: [usize; 4]) -> Self {
        Pad { padding, mode: PaddingMode::Constant(0.0) }
    }

    /// What stands there.
    #[must_use]
    pub fn padding_mode(mut self, mode: PaddingMode) -> Self {
        self.mode = mode;
        self
    }
}

impl Transform for Pad {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        F::pad(image, self.padding, self.mode)
    }
}

/// [`functional::rgb_to_grayscale`](F::rgb_to_grayscale).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Grayscale {
    num_output_channels: usize,
}

impl Grayscale {
    /// 1 channel, or 3 equal ones.
    pub fn new(num_output_channels: usize) -> Self {
        Grayscale { num_output_channels }
    }
}

impl Transform for Grayscale {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        F::rgb_to_grayscale(image, self.num_output_channels)
    }
}

/// [`functional::gaussian_blur`](F::gaussian_blur), with a deviation drawn anew for each image.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GaussianBlur {
    kernel_size: [usize; 2],
    sigma: [f64; 2],
}

impl GaussianBlur {
    /// A kernel of this size (x, y), and a deviation between the two of `sigma`.
    ///
    /// # Errors
    /// [`Error::Argument`] when `sigma` is not above 0 and rising.
    pub fn new(kernel_size: [usize; 2], sigma: [f64; 2]) -> Result<Self> {
        if !(sigma[0] > 0.0 && sigma[0] <= sigma[1]) {
            let message = format!("{sigma:?} must be above 0, the second at least the first");
            return Err(Error::argument("GaussianBlur::new", "sigma", message));
        }
        Ok(GaussianBlur { kernel_size, sigma })
    }
}

impl Transform for GaussianBlur {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        let sigma = super::random::Draws::new().between(self.sigma);
        F::gaussian_blur(image, self.kernel_size, [sigma; 2])
    }
}

/// [`functional::to_dtype`](F::to_dtype).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ToDtype {
    dtype: Dtype,
    scale: bool,
}

impl ToDtype {
    /// u8 or f32, with or without the other scale.
    pub fn new(dtype: Dtype, scale: bool) -> Self {
        ToDtype { dtype, scale }
    }
}

impl Transform for ToDtype {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        F::to_dtype(image, self.dtype, self.scale)
    }
}

/// [`functional::normalize`](F::normalize).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Normalize {
    mean: Vec<f32>,
    std: Vec<f32>,
}

impl Normalize {
    /// Mean and standard deviation of each channel.
    ///
    /// # Errors
    /// [`Error::Argument`] when there are not as many of both, or a deviation is 0.
    pub fn new(mean: &[f32], std: &[f32]) -> Result<Self> {
        let op = "Normalize::new";
        if mean.len() != std.len() || mean.is_empty() {
            let message = format!("{} values beside {} of mean", std.len(), mean.len());
            return Err(Error::argument(op, "std", message));
        }
        if std.contains(&0.0) {
            return Err(Error::argument(op, "std", format!("{std:?} has a 0")));
        }
        Ok(Normalize { mean: mean.to_vec(), std: std.to_vec() })
    }
}

impl Transform for Normalize {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        F::normalize(image, &self.mean, &self.std)
    }
}
