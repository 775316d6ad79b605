//! Images and volumes at another size.
//!
//! ```text
//! nearest:            y[i] = x[floor(i s)]                nearest-exact: x[floor((i + 1/2) s)]
//! linear, bilinear,
//! trilinear, bicubic: y[i] = sum over t of w(p - t) x[t], p = (i + 1/2) s - 1/2 or, with
//!                     align_corners, i (in - 1) / (out - 1)
//! area:               adaptive average pooling
//! ```
//!
//! s is in / out, or 1 / scale_factor. w is the hat of width 2, or the cubic spline with A = -0.75.
//! With `antialias` w is made wider by s where that is more than 1 (A = -0.5), and divided by its sum.
//! All are separable: each dimension is a weighted sum over [`Windows`], done in turn by [`resample`].

use crate::amp::cast_op;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::{
    windows::resample::LinearMap, windows::resample::resample, windows::taps::Windows,
};
use crate::tensor::{Dtype, Tensor};

/// How [`Tensor::interpolate`] finds numbers between those that it has.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::{InterpolateMode, InterpolateOptions};
/// let x = Tensor::from([[[1f32, 3.]]]);
/// let of = |mode| x.interpolate(InterpolateOptions::size(4, mode)).to_vec::<f32>();
/// assert_eq!(of(InterpolateMode::Nearest), [1.0, 1.0, 3.0, 3.0]);
/// assert_eq!(of(InterpolateMode::Linear), [1.0, 1.5, 2.5, 3.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InterpolateMode {
    /// The number before.
    Nearest,
    /// The number that is nearest.
    NearestExact,
    /// A line in one dimension.
    Linear,
    /// Lines in two dimensions.
    Bilinear,
    /// Cubic splines in two dimensions.
    Bicubic,
    /// Lines in three dimensions.
    Trilinear,
    /// The mean over the part of the input.
    Area,
}

/// One number for all dimensions, or a list with one for each.
///
/// ```
/// use torchrs::{Dtype, Tensor};
/// use torchrs::ops::{InterpolateMode, InterpolateOptions, OneOrEach};
/// let x = Tensor::zeros([1, 1, 2, 2], Dtype::F32);
/// let of = |size| x.interpolate(InterpolateOptions::size(size, InterpolateMode::Nearest));
/// assert_eq!(of(OneOrEach::All(3)).shape(), &[1, 1, 3, 3]);
/// assert_eq!(of(OneOrEach::Each(vec![3, 4])).shape(), &[1, 1, 3, 4]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum OneOrEach<T> {
    /// The same for all.
    All(T),
    /// As many as there are dimensions.
    Each(Vec<T>),
}

impl<T: Clone> OneOrEach<T> {
    /// The number for all, or those of each.
    ///
    /// ```
    /// use torchrs::ops::OneOrEach;
    /// assert_eq!(OneOrEach::All(3).as_slice(), [3]);
    /// assert_eq!(OneOrEach::from([3, 4]).as_slice(), [3, 4]);
    /// ```
    pub fn as_slice(&self) -> &[T] {
        match self {
            OneOrEach::All(number) => std::slice::from_ref(number),
            OneOrEach::Each(list) => list,
        }
    }

    /// The numbers of `n` dimensions; `None` for a list of another length.
    fn of(&self, n: usize) -> Option<Vec<T>> {
        match self {
            OneOrEach::All(number) => Some(vec![number.clone(); n]),
            OneOrEach::Each(list) => Some(list.clone()).filter(|list| list.len() == n),
        }
    }
}

impl<T> From<Vec<T>> for OneOrEach<T> {
    fn from(list: Vec<T>) -> Self {
        OneOrEach::Each(list)
    }
}

impl<T, const N: usize> From<[T; N]> for OneOrEach<T> {
    fn from(list: [T; N]) -> Self {
        OneOrEach::Each(list.into())
    }
}

impl From<usize> for OneOrEach<usize> {
    fn from(number: usize) -> Self {
        OneOrEach::All(number)
    }
}

impl From<f64> for OneOrEach<f64> {
    fn from(number: f64) -> Self {
        OneOrEach::All(number)
    }
}

/// Options of [`Tensor::interpolate`].
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::{InterpolateMode, InterpolateOptions};
/// let options = InterpolateOptions {
///     align_corners: Some(true),
///     ..InterpolateOptions::size(3, InterpolateMode::Linear)
/// };
/// assert_eq!(Tensor::from([[[1f32, 3.]]]).interpolate(options).to_vec::<f32>(), [1.0, 2.0, 3.0]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct InterpolateOptions {
    /// The output's last sizes; or else `scale_factor`.
    pub size: Option<OneOrEach<usize>>,
    /// Output sizes by input sizes.
    pub scale_factor: Option<OneOrEach<f64>>,
    /// What is computed.
    pub mode: InterpolateMode,
    /// Whether the first and last numbers keep their places (the linear and cubic modes).
    pub align_corners: Option<bool>,
    /// Whether the rounded output size counts instead of the given factor.
    pub recompute_scale_factor: bool,
    /// Smooths where an image gets smaller (bilinear and bicubic).
    pub antialias: bool,
}

impl InterpolateOptions {
    /// To these sizes.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::{InterpolateMode, InterpolateOptions};
    /// let options = InterpolateOptions::size([1, 4], InterpolateMode::Nearest);
    /// let y = Tensor::from([[[[1f32, 3.]]]]).interpolate(options);
    /// assert_eq!(y.to_vec::<f32>(), [1.0, 1.0, 3.0, 3.0]);
    /// ```
    pub fn size(size: impl Into<OneOrEach<usize>>, mode: InterpolateMode) -> Self {
        InterpolateOptions {
            size: Some(size.into()),
            scale_factor: None,
            mode,
            align_corners: None,
            recompute_scale_factor: false,
            antialias: false,
        }
    }

    /// Larger by this factor, or by these.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::{InterpolateMode, InterpolateOptions};
    /// let options = InterpolateOptions::scale(2.0, InterpolateMode::Nearest);
    /// let y = Tensor::from([[[1f32, 3.]]]).interpolate(options);
    /// assert_eq!(y.to_vec::<f32>(), [1.0, 1.0, 3.0, 3.0]);
    /// ```
    pub fn scale(factor: impl Into<OneOrEach<f64>>, mode: InterpolateMode) -> Self {
        let plain = InterpolateOptions::size(1, mode);
        InterpolateOptions { size: None, scale_factor: Some(factor.into()), ..plain }
    }
}

/// One dimension: its sizes, and the factor if that counts.
#[derive(Clone, Copy)]
struct Axis {
    size: usize,
    out: usize,
    factor: Option<f64>,
    /// Weights are rounded to 16 bits, for bytes.
    rounds: bool,
}

impl Axis {
    fn scale(self) -> f64 {
        self.factor.map_or(self.size as f64 / self.out as f64, f64::recip)
    }

    /// The map of these windows. Of bytes the weights of places are multiples of a power of 2, the least with which the
    /// greatest has 15 bits: sums of bytes are exact then, and are PyTorch's.
    fn map(self, windows: &Windows, mut weights: Vec<f64>) -> LinearMap {
        if self.rounds {
            windows.join_weights(&mut weights);
            let most = weights.iter().copied().fold(0.0, f64::max);
            let fits = |bits: &i32| 0.5 + most * f64::from(bits + 1).exp2() < f64::from(1 << 15);
            let one = f64::from((0..22).take_while(fits).count() as u32).exp2();
            weights.iter_mut().for_each(|w| *w = (*w * one).round() / one);
        }
        windows.weighted(&weights)
    }

    /// Positions as PyTorch finds them, in f32.
    fn nearest(self, shift: f32) -> Windows {
        let scale = match self.factor {
            Some(factor) => (1.0 / factor) as f32,
            None => self.size as f32 / self.out as f32,
        };
        let place = |i: usize| (((i as f32 + shift) * scale).floor() as usize).min(self.size - 1);
        Windows::new(self.size, self.out, 1, |i, _| place(i) as isize)
    }

    /// The point of the input that output `i` is.
    fn point(self, i: usize, align_corners: bool) -> f64 {
        match (align_corners, self.out) {
            (true, 1) => 0.0,
            (true, _) => i as f64 * ((self.size - 1) as f64 / (self.out - 1) as f64),
            (false, _) => self.scale() * (i as f64 + 0.5) - 0.5,
        }
    }

    fn linear(self, align_corners: bool) -> LinearMap {
        let point = |i| self.point(i, align_corners).clamp(0.0, (self.size - 1) as f64);
        let windows = Windows::new(self.size, self.out, 2, |i, t| {
            (point(i) as usize + t).min(self.size - 1) as isize
        });
        let weights = (0..self.out).flat_map(|i| [1.0 - point(i).fract(), point(i).fract()]);
        self.map(&windows, weights.collect())
    }

    fn cubic(self, align_corners: bool) -> LinearMap {
        let point = |i| self.point(i, align_corners);
        let windows = Windows::new(self.size, self.out, 4, |i, t| {
            (point(i).floor() as isize + t as isize - 1).clamp(0, self.size as isize - 1)
        });
        let weight = |i, t: usize| spline(point(i) - point(i).floor() - (t as f64 - 1.0), -0.75);
        let weights = (0..self.out).flat_map(|i| (0..4).map(move |t| weight(i, t)));
        self.map(&windows, weights.collect())
    }

    fn antialiased(self, cubic: bool, align_corners: bool) -> LinearMap {
        let scale = match (align_corners, self.out) {
            (true, 1) => 0.0,
            (true, _) => (self.size - 1) as f64 / (self.out - 1) as f64,
            (false, _) => self.scale(),
        };
        let wide = scale.max(1.0);
        let support = if cubic { 2.0 } else { 1.0 } * wide;
        let center = |i: usize| scale * (i as f64 + 0.5);
        let ranges: Vec<_> = (0..self.out)
            .map(|i| {
                let from = (center(i) - support + 0.5).max(0.0) as usize;
                from..((center(i) + support + 0.5) as usize).min(self.size).max(from)
            })
            .collect();
        let taps = ranges.iter().map(|r| r.len()).max().unwrap_or(0);
        let mut weights = Vec::with_capacity(self.out * taps);
        for (i, range) in ranges.iter().enumerate() {
            let weight = |p: usize| {
                let x = (p as f64 - center(i) + 0.5) / wide;
                if cubic { spline(x, -0.5) } else { (1.0 - x.abs()).max(0.0) }
            };
            let sum: f64 = range.clone().map(weight).sum();
            weights.extend(range.clone().map(|p| weight(p) / sum));
            weights.resize((i + 1) * taps, 0.0);
        }
        self.map(&Windows::ranges(self.size, &ranges), weights)
    }
}

/// Keys' cubic convolution kernel.
fn spline(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * a
    } else {
        0.0
    }
}

impl Tensor {
    /// The image, line or volume (`[N, C, ..]`) at another size (`torch.nn.functional.interpolate`). Images may be of
    /// bytes.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when the number of dimensions does not fit the mode or the sizes, or a
    /// size is 0, and [`Error::Argument`] for options that exclude each other.
    ///
    /// ```
    /// use torchrs::{Tensor, ops::{InterpolateMode, InterpolateOptions}};
    /// let x = Tensor::from([[[1f32, 3.]]]);
    /// let y = x.interpolate(InterpolateOptions::size([4], InterpolateMode::Linear));
    /// assert_eq!(y.to_vec::<f32>(), [1., 1.5, 2.5, 3.]);
    /// ```
    #[track_caller]
    pub fn interpolate(&self, options: InterpolateOptions) -> Tensor {
        cast_op!("interpolate", [x = self] => x.interpolate(options));
        let options = &options;
        use InterpolateMode::*;
        let axes = axes(self, options);
        let n = axes.len();
        let align = options.align_corners.unwrap_or(false);
        if options.mode == Area {
            let out = |d: usize| Some(axes[d].out);
            return match n {
                1 => self.adaptive_avg_pool1d(axes[0].out),
                2 => self.adaptive_avg_pool2d([out(0), out(1)]),
                _ => self.adaptive_avg_pool3d([out(0), out(1), out(2)]),
            };
        }
        let nearest = |shift: f32| {
            let windows: Vec<_> = axes.iter().map(|axis| axis.nearest(shift)).collect();
            Windows::pick("interpolate", self, 2, &windows)
        };
        let map = |axis: &Axis| match options.mode {
            mode if options.antialias => axis.antialiased(mode == Bicubic, align),
            Bicubic => axis.cubic(align),
            _ => axis.linear(align),
        };
        match options.mode {
            Nearest => nearest(0.0),
            NearestExact => nearest(0.5),
            Bilinear | Bicubic if self.dtype() == Dtype::U8 => {
                // Columns first, and bytes between the two. In f64 sums of small weights are exact, too.
                let byte = |x: Tensor| (x + 0.5).floor().clamp(0.0, 255.0);
                let x = self.to_dtype(Dtype::F64);
                let x = byte(resample("interpolate", &x, 3, [map(&axes[1])]));
                byte(resample("interpolate", &x, 2, [map(&axes[0])])).to_dtype(Dtype::U8)
            }
            _ => resample("interpolate", self, 2, axes.iter().map(map).collect::<Vec<_>>()),
        }
    }
}

/// The dimensions, after all checks.
#[track_caller]
fn axes(x: &Tensor, options: &InterpolateOptions) -> Vec<Axis> {
    use InterpolateMode::*;
    let n = x.dim().saturating_sub(2);
    let fail = |argument: &str, rule: String| -> ! {
        throw(Error::argument("interpolate", argument, rule))
    };
    let fits = match options.mode {
        Linear => n == 1,
        Bilinear | Bicubic => n == 2,
        Trilinear => n == 3,
        _ => (1..=3).contains(&n),
    };
    if !fits || x.shape()[1..].contains(&0) {
        throw(Error::shape(
            "interpolate",
            format!(
                "input {:?} must be [N, C, ..], not empty but for N, with as many dimensions as \
                 {:?} has",
                x.shape(),
                options.mode
            ),
        ));
    }
    let smooth = matches!(options.mode, Linear | Bilinear | Bicubic | Trilinear);
    if options.align_corners.is_some() && !smooth {
        fail("align_corners", format!("{:?} has no corners to align", options.mode));
    }
    if options.antialias && !matches!(options.mode, Bilinear | Bicubic) {
        fail("antialias", "only Bilinear and Bicubic have it".into());
    }
    let wrong = || -> ! { fail("size", format!("size or scale_factor must have {n} numbers")) };
    let factors =
        options.scale_factor.as_ref().map(|factor| factor.of(n).unwrap_or_else(|| wrong()));
    let size = options.size.as_ref().map(|size| size.of(n).unwrap_or_else(|| wrong()));
    let sizes = match (size, &factors) {
        (Some(size), None) if options.recompute_scale_factor => {
            fail("recompute_scale_factor", format!("there is a size {size:?} and no factor"))
        }
        (Some(size), None) => size,
        (None, Some(factors)) => {
            // Beyond that no memory holds the result.
            let possible = |(d, f): (usize, &f64)| {
                f.is_finite() && x.shape()[d + 2] as f64 * f <= f64::from(u32::MAX)
            };
            if !factors.iter().enumerate().all(possible) {
                fail("scale_factor", format!("{factors:?} for input {:?}", x.shape()));
            }
            let size = |(d, f): (usize, &f64)| (x.shape()[d + 2] as f64 * f).floor() as usize;
            factors.iter().enumerate().map(size).collect()
        }
        (Some(_), Some(_)) | (None, None) => {
            fail("size", "give either size or scale_factor".into())
        }
    };
    if sizes.contains(&0) {
        throw(Error::shape("interpolate", format!("output sizes {sizes:?} must not be 0")));
    }
    let factors = factors.filter(|_| !options.recompute_scale_factor);
    let axis = |(d, &out): (usize, &usize)| Axis {
        size: x.shape()[d + 2],
        out,
        factor: factors.as_ref().map(|f| f[d]),
        rounds: x.dtype() == Dtype::U8,
    };
    sizes.iter().enumerate().map(axis).collect()
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    use InterpolateMode::*;
    let sample = |name: &str, shape: &[usize], options: InterpolateOptions| {
        let call = move |x: &[Tensor]| x[0].interpolate(options.clone());
        OpSample::new(format!("interpolate({name})"), [values(shape, 1)], call).slack(2.0)
    };
    let plane = [2, 2, 4, 5];
    vec![
        sample("nearest", &plane, InterpolateOptions::size([7, 3], Nearest)),
        sample("nearest-exact, factor", &plane, InterpolateOptions::scale(1.7, NearestExact)),
        sample("linear", &[2, 3, 4], InterpolateOptions::scale(0.6, Linear)),
        sample("bilinear", &plane, InterpolateOptions::size([3, 9], Bilinear)),
        sample(
            "bicubic, align_corners",
            &plane,
            InterpolateOptions {
                align_corners: Some(true),
                ..InterpolateOptions::size([6, 3], Bicubic)
            },
        ),
        sample(
            "bilinear, antialias",
            &plane,
            InterpolateOptions { antialias: true, ..InterpolateOptions::size([2, 8], Bilinear) },
        ),
        sample("trilinear", &[1, 2, 2, 3, 2], InterpolateOptions::size([3, 2, 4], Trilinear)),
        sample("area", &plane, InterpolateOptions::size([3, 2], Area)),
    ]
}
