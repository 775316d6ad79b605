//! Transforms with random parameters.

use serde::{Deserialize, Serialize};

use super::classes::Transform;
use super::functional::{self as F, InterpolationMode, PaddingMode};
use super::region::Region;
use crate::cpu::numbers::philox::PhiloxStream;
use crate::error::{Error, Result};
use crate::tensor::{Dtype, Tensor};

/// Random numbers of one call, of the default generator.
pub(super) struct Draws(PhiloxStream);

impl Draws {
    pub fn new() -> Self {
        let seed = Tensor::randint(0, i64::MAX, [1], Dtype::I64).item_i64();
        Draws(PhiloxStream::new(seed as u64, 0))
    }

    /// From 0 to 1.
    pub fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    pub fn between(&mut self, [low, high]: [f64; 2]) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Whether what has this probability happens.
    pub fn happens(&mut self, p: f64) -> bool {
        self.uniform() < p
    }

    /// A place from 0 to below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    /// A normal number of mean 0 and deviation 1.
    pub fn normal(&mut self) -> f32 {
        self.0.normal_pair()[0]
    }

    /// A number of the beta distribution with both parameters `alpha`.
    pub fn beta(&mut self, alpha: f64) -> f64 {
        let (a, b) = (self.gamma(alpha), self.gamma(alpha));
        if a + b > 0.0 { a / (a + b) } else { f64::from(u8::from(self.happens(0.5))) }
    }

    /// Marsaglia and Tsang, "A simple method for generating gamma variables" (2000).
    fn gamma(&mut self, alpha: f64) -> f64 {
        if alpha < 1.0 {
            let u = 1.0 - self.uniform();
            return self.gamma(alpha + 1.0) * u.powf(1.0 / alpha);
        }
        let d = alpha - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = f64::from(self.normal());
            let v = (1.0 + c * x).powi(3);
            let u = 1.0 - self.uniform();
            if v > 0.0 && u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }
}

/// Refuses what is no probability.
fn probability(op: &str, p: f64) -> Result<f64> {
    match (0.0..=1.0).contains(&p) {
        true => Ok(p),
        false => Err(Error::argument(op, "p", format!("is {p}, must be from 0 to 1"))),
    }
}

/// Refuses a range that falls or leaves `limits`.
fn range(op: &str, argument: &str, [low, high]: [f64; 2], limits: [f64; 2]) -> Result<()> {
    match limits[0] <= low && low <= high && high <= limits[1] {
        true => Ok(()),
        false => {
            let message = format!("[{low}, {high}] must rise and lie in {limits:?}");
            Err(Error::argument(op, argument, message))
        }
    }
}

/// Height and width of an image.
pub(super) fn size_of(op: &str, image: &Tensor) -> Result<(usize, usize)> {
    match image.shape() {
        &[.., _, height, width] if height > 0 && width > 0 => Ok((height, width)),
        shape => {
            let message = format!("an image has shape [.., C, H, W], this tensor {shape:?}");
            Err(Error::shape(op, message))
        }
    }
}

/// The image mirrored left to right, with probability `p`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RandomHorizontalFlip {
    p: f64,
}

impl RandomHorizontalFlip {
    /// With probability `p`.
    ///
    /// # Errors
    /// [`Error::Argument`] when it is not from 0 to 1.
    pub fn new(p: f64) -> Result<Self> {
        Ok(RandomHorizontalFlip { p: probability("RandomHorizontalFlip::new", p)? })
    }
}

impl Transform for RandomHorizontalFlip {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        if Draws::new().happens(self.p) { F::horizontal_flip(image) } else { Ok(image.clone()) }
    }
}

/// The image upside down, with probability `p`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RandomVerticalFlip {
    p: f64,
}

impl RandomVerticalFlip {
    /// With probability `p`.
    ///
    /// # Errors
    /// [`Error::Argument`] when it is not from 0 to 1.
    pub fn new(p: f64) -> Result<Self> {
        Ok(RandomVerticalFlip { p: probability("RandomVerticalFlip::new", p)? })
    }
}

impl Transform for RandomVerticalFlip {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        if Draws::new().happens(self.p) { F::vertical_flip(image) } else { Ok(image.clone()) }
    }
}

/// A part of this size at a random place, of the image with a border.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RandomCrop {
    size: [usize; 2],
    padding: [usize; 4],
    pad_if_needed: bool,
    mode: PaddingMode,
}

impl RandomCrop {
    /// Height and width.
    pub fn new(size: [usize; 2]) -> Self {
        RandomCrop { size, padding: [0; 4], pad_if_needed: false, mode: PaddingMode::Constant(0.0) }
    }

    /// Pixels around the image (left, top, right, bottom) before a part is cut out.
    #[must_use]
    pub fn padding(mut self, padding: [usize; 4]) -> Self {
        self.padding = padding;
        self
    }

    /// Whether an image that is too small gets a border (default: false, an error).
    #[must_use]
    pub fn pad_if_needed(mut self, pad_if_needed: bool) -> Self {
        self.pad_if_needed = pad_if_needed;
        self
    }

    /// What stands in the border (default: 0).
    #[must_use]
    pub fn padding_mode(mut self, mode: PaddingMode) -> Self {
        self.mode = mode;
        self
    }
}

impl Transform for RandomCrop {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        let (mut height, mut width) = size_of("RandomCrop", image)?;
        let [mut left, mut top, mut right, mut bottom] = self.padding;
        (height, width) = (height + top + bottom, width + left + right);
        let [rows, columns] = self.size;
        if self.pad_if_needed {
            let missing = rows.saturating_sub(height);
            (top, bottom, height) = (top + missing, bottom + missing, height + 2 * missing);
            let missing = columns.saturating_sub(width);
            (left, right, width) = (left + missing, right + missing, width + 2 * missing);
        }
        if height < rows || width < columns {
            let message =
                format!("{rows} x {columns} is larger than the image, {height} x {width}");
            return Err(Error::argument("RandomCrop", "size", message));
        }
        let padded = match [left, top, right, bottom] {
            [0, 0, 0, 0] => image.clone(),
            padding => F::pad(image, padding, self.mode)?,
        };
        let mut draws = Draws::new();
        let (y, x) = (draws.below(height - rows + 1), draws.below(width - columns + 1));
        F::crop(&padded, y as i64, x as i64, rows, columns)
    }
}

/// A part of random area and shape, at a random place, scaled to one size.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RandomResizedCrop {
    size: [usize; 2],
    scale: [f64; 2],
    ratio: [f64; 2],
    interpolation: InterpolationMode,
    antialias: bool,
}

impl RandomResizedCrop {
    /// Height and width of the result.
    ///
    /// # Errors
    /// [`Error::Argument`] when one is 0.
    pub fn new(size: [usize; 2]) -> Result<Self> {
        if size.contains(&0) {
            let message = format!("{size:?} has a side of 0");
            return Err(Error::argument("RandomResizedCrop::new", "size", message));
        }
        let interpolation = InterpolationMode::Bilinear;
        let (scale, ratio) = ([0.08, 1.0], [3.0 / 4.0, 4.0 / 3.0]);
        Ok(RandomResizedCrop { size, scale, ratio, interpolation, antialias: true })
    }

    /// Which share of the image's area the part has (default: 0.08 to 1).
    ///
    /// # Errors
    /// [`Error::Argument`] when it falls or is not from 0 to 1.
    pub fn scale(mut self, scale: [f64; 2]) -> Result<Self> {
        range("RandomResizedCrop::scale", "scale", scale, [0.0, 1.0])?;
        self.scale = scale;
        Ok(self)
    }

    /// Width by height of the part (default: 3/4 to 4/3).
    ///
    /// # Errors
    /// [`Error::Argument`] when it falls or is not above 0.
    pub fn ratio(mut self, ratio: [f64; 2]) -> Result<Self> {
        range("RandomResizedCrop::ratio", "ratio", ratio, [f64::MIN_POSITIVE, f64::MAX])?;
        self.ratio = ratio;
        Ok(self)
    }

    /// How values between pixels are found (default: bilinear).
    #[must_use]
    pub fn interpolation(mut self, interpolation: InterpolationMode) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// Whether a smaller image averages over all pixels (default: true).
    #[must_use]
    pub fn antialias(mut self, antialias: bool) -> Self {
        self.antialias = antialias;
        self
    }

    /// The part of an image: top, left, height, width.
    fn part(&self, height: usize, width: usize, draws: &mut Draws) -> [usize; 4] {
        let logs = self.ratio.map(f64::ln);
        for _ in 0..10 {
            let area = (height * width) as f64 * draws.between(self.scale);
            let ratio = draws.between(logs).exp();
            let w = (area * ratio).sqrt().round_ties_even() as usize;
            let h = (area / ratio).sqrt().round_ties_even() as usize;
            if 0 < w && w <= width && 0 < h && h <= height {
                return [draws.below(height - h + 1), draws.below(width - w + 1), h, w];
            }
        }
        let ratio = width as f64 / height as f64;
        let (h, w) = if ratio < self.ratio[0] {
            ((width as f64 / self.ratio[0]).round_ties_even() as usize, width)
        } else if ratio > self.ratio[1] {
            (height, (height as f64 * self.ratio[1]).round_ties_even() as usize)
        } else {
            (height, width)
        };
        let (h, w) = (h.clamp(1, height), w.clamp(1, width));
        [(height - h) / 2, (width - w) / 2, h, w]
    }
}

impl RandomResizedCrop {
    /// A part of an image of this height and width.
    pub(super) fn region(&self, (height, width): (usize, usize)) -> Region {
        let [top, left, height, width] = self.part(height, width, &mut Draws::new());
        Region { top, left, height, width }
    }

    /// A part at the size of the result.
    pub(super) fn resized(&self, part: &Tensor) -> Result<Tensor> {
        F::resize(part, &self.size, self.interpolation, None, self.antialias)
    }
}

impl Transform for RandomResizedCrop {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        let size = size_of("RandomResizedCrop", image)?;
        let Region { top, left, height, width } = self.region(size);
        self.resized(&F::crop(image, top as i64, left as i64, height, width)?)
    }
}

/// The image turned by a random angle.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RandomRotation {
    degrees: [f64; 2],
    interpolation: InterpolationMode,
    expand: bool,
    fill: Option<Vec<f32>>,
}

impl RandomRotation {
    /// By an angle between these.
    ///
    /// # Errors
    /// [`Error::Argument`] when they fall.
    pub fn new(degrees: [f64; 2]) -> Result<Self> {
        range("RandomRotation::new", "degrees", degrees, [f64::MIN, f64::MAX])?;
        let interpolation = InterpolationMode::Nearest;
        Ok(RandomRotation { degrees, interpolation, expand: false, fill: None })
    }

    /// How values between pixels are found: nearest (the default) or bilinear.
    #[must_use]
    pub fn interpolation(mut self, interpolation: InterpolationMode) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// Whether the result is large enough for all of the image (default: false).
    #[must_use]
    pub fn expand(mut self, expand: bool) -> Self {
        self.expand = expand;
        self
    }

    /// What lies outside (default: 0).
    #[must_use]
    pub fn fill(mut self, fill: &[f32]) -> Self {
        self.fill = Some(fill.to_vec());
        self
    }
}

impl Transform for RandomRotation {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        let angle = Draws::new().between(self.degrees);
        F::rotate(image, angle, self.interpolation, self.expand, None, self.fill.as_deref())
    }
}

/// Brightness, contrast, saturation and hue changed at random, in random order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ColorJitter {
    factors: [Option<[f64; 2]>; 4],
}

impl ColorJitter {
    /// Factors from `max(0, 1 - x)` to `1 + x` for brightness, contrast and saturation, and a hue from `-hue` to
    /// `hue`. 0 leaves as it is.
    ///
    /// ```
    /// use torchrs::data::transforms::ColorJitter;
    /// assert!(ColorJitter::new(0.4, 0.4, 0.4, 0.1).is_ok());
    /// let error = ColorJitter::new(0.4, 0.4, 0.4, 0.6).unwrap_err().to_string();
    /// assert!(error.contains("`hue`: is 0.6, must be from 0 to 0.5"));
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when one is negative or `hue` above 0.5.
    pub fn new(brightness: f64, contrast: f64, saturation: f64, hue: f64) -> Result<Self> {
        let names = ["brightness", "contrast", "saturation", "hue"];
        let mut factors = [None; 4];
        for (i, value) in [brightness, contrast, saturation, hue].into_iter().enumerate() {
            let most = if i == 3 { 0.5 } else { f64::MAX };
            if !(0.0..=most).contains(&value) {
                let most = if i == 3 { "from 0 to 0.5" } else { "at least 0" };
                let message = format!("is {value}, must be {most}");
                return Err(Error::argument("ColorJitter::new", names[i], message));
            }
            let around = match i {
                3 => [-value, value],
                _ => [(1.0 - value).max(0.0), 1.0 + value],
            };
            factors[i] = (value > 0.0).then_some(around);
        }
        Ok(ColorJitter { factors })
    }
}

impl Transform for ColorJitter {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        let mut draws = Draws::new();
        let mut order = [0, 1, 2, 3];
        (1..4).rev().for_each(|last| order.swap(last, draws.below(last + 1)));
        let mut image = image.clone();
        for i in order {
            let Some(around) = self.factors[i] else { continue };
            let factor = draws.between(around);
            image = match i {
                0 => F::adjust_brightness(&image, factor)?,
                1 => F::adjust_contrast(&image, factor)?,
                2 => F::adjust_saturation(&image, factor)?,
                _ => F::adjust_hue(&image, factor)?,
            };
        }
        Ok(image)
    }
}

/// A random rectangle overwritten, with a probability.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RandomErasing {
    p: f64,
    scale: [f64; 2],
    ratio: [f64; 2],
    /// `None`: normal numbers.
    value: Option<Vec<f32>>,
}

impl RandomErasing {
    /// With probability `p`, by 0, 2% to 33% of the image's area.
    ///
    /// # Errors
    /// [`Error::Argument`] when `p` is not from 0 to 1.
    pub fn new(p: f64) -> Result<Self> {
        let p = probability("RandomErasing::new", p)?;
        Ok(RandomErasing { p, scale: [0.02, 0.33], ratio: [0.3, 3.3], value: Some(vec![0.0]) })
    }

    /// Which share of the image's area the rectangle has.
    ///
    /// # Errors
    /// [`Error::Argument`] when it falls or is not from 0 to 1.
    pub fn scale(mut self, scale: [f64; 2]) -> Result<Self> {
        range("RandomErasing::scale", "scale", scale, [0.0, 1.0])?;
        self.scale = scale;
        Ok(self)
    }

    /// Height by width of the rectangle.
    ///
    /// # Errors
    /// [`Error::Argument`] when it falls or is not above 0.
    pub fn ratio(mut self, ratio: [f64; 2]) -> Result<Self> {
        range("RandomErasing::ratio", "ratio", ratio, [f64::MIN_POSITIVE, f64::MAX])?;
        self.ratio = ratio;
        Ok(self)
    }

    /// What the pixels become: one value, one for each channel, or with `None` normal random numbers.
    #[must_use]
    pub fn value(mut self, value: Option<&[f32]>) -> Self {
        self.value = value.map(<[f32]>::to_vec);
        self
    }
}

impl Transform for RandomErasing {
    fn forward(&self, image: &Tensor) -> Result<Tensor> {
        let mut draws = Draws::new();
        let (height, width) = size_of("RandomErasing", image)?;
        if !draws.happens(self.p) {
            return Ok(image.clone());
        }
        let logs = self.ratio.map(f64::ln);
        for _ in 0..10 {
            let area = (height * width) as f64 * draws.between(self.scale);
            let ratio = draws.between(logs).exp();
            let h = (area * ratio).sqrt().round_ties_even() as usize;
            let w = (area / ratio).sqrt().round_ties_even() as usize;
            if h < height && w < width {
                let channels = image.shape()[image.shape().len() - 3];
                let value = match &self.value {
                    Some(value) => value.clone(),
                    None => (0..channels * h * w).map(|_| draws.normal()).collect(),
                };
                let (top, left) = (draws.below(height - h + 1), draws.below(width - w + 1));
                if h == 0 || w == 0 {
                    return Ok(image.clone());
                }
                return F::erase(image, top, left, h, w, &value);
            }
        }
        Ok(image.clone())
    }
}
