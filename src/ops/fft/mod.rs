//! Discrete Fourier transforms (`torch.fft`).
//!
//! | | one dimension | two | any |
//! | --- | --- | --- | --- |
//! | complex to complex | [`fft()`], [`ifft`] | [`fft2`], [`ifft2`] | [`fftn`], [`ifftn`] |
//! | real to the half that determines it | [`rfft`], [`ihfft`] | [`rfft2`], [`ihfft2`] | [`rfftn`], [`ihfftn`] |
//! | and back | [`irfft`], [`hfft`] | [`irfft2`], [`hfft2`] | [`irfftn`], [`hfftn`] |
//!
//! `n` (for several dimensions `s`) cuts the input, or fills it up with zeros, before the transform;
//! for transforms to real numbers it is the length of the result. [`Norm`] says where the result is
//! divided. Integers are taken as f32; f16 and bf16 are refused.
//!
//! ```
//! use torchrs::{Complex, Tensor, fft};
//! let x = Tensor::from([1f64, 2., 3., 4.]);
//! let y = fft::fft(&x, None, -1, fft::Norm::Backward);
//! assert_eq!(y.to_vec::<Complex<f64>>()[1], Complex::new(-2.0, 2.0));
//! assert_eq!(fft::rfft(&x, None, -1, Default::default()).shape(), &[3]);
//! ```

mod cpu;
pub(in crate::ops) mod cuda;
mod direction;
mod plan;
mod shape;
mod stft;
#[cfg(test)]
mod tests;
mod windows;

pub use shape::Norm;
pub use stft::{IstftOptions, StftOptions};

use cpu::{complex_to_complex, complex_to_real, real_to_complex};
use direction::Direction;
use shape::{Axes, at_least_one, promoted, real_input};

use crate::amp::cast_op;
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::tensor::{Tensor, TensorOptions};

/// The complex transform of `x` along `axes`.
#[track_caller]
fn complex(op: &str, x: &Tensor, axes: &Axes, direction: Direction, norm: Norm) -> Tensor {
    let x = axes.fit(&promoted(op, x).to_complex());
    let scale = norm.scale(direction == Direction::Forward, axes.numbers());
    complex_to_complex(&x, &axes.dims, direction, scale)
}

/// The forward transform of real numbers: half of it along the last of `axes`.
#[track_caller]
fn forward_half(op: &str, x: &Tensor, axes: &Axes, norm: Norm) -> Tensor {
    let x = axes.fit(&real_input(op, x));
    let Some((&last, others)) = axes.dims.split_last() else { at_least_one(op) };
    let half = real_to_complex(&x, last, norm.scale(true, axes.numbers()));
    if others.is_empty() {
        return half;
    }
    complex_to_complex(&half, others, Direction::Forward, 1.0)
}

/// The backward transform to real numbers, `n` along the last of `axes`.
#[track_caller]
fn backward_half(op: &str, x: &Tensor, (axes, n): &(Axes, usize), norm: Norm) -> Tensor {
    let x = axes.fit(&promoted(op, x).to_complex());
    let Some((&last, others)) = axes.dims.split_last() else { at_least_one(op) };
    let numbers = axes.lengths[..others.len()].iter().product::<usize>() * n;
    let x = match others.is_empty() {
        true => x,
        false => complex_to_complex(&x, others, Direction::Backward, 1.0),
    };
    complex_to_real(&x, last, *n, norm.scale(false, numbers))
}

/// One length as a list of lengths.
fn list(n: Option<usize>) -> Option<[i64; 1]> {
    n.map(|n| [i64::try_from(n).unwrap_or(i64::MAX)])
}

/// The transform of `x` along `dim` (`torch.fft.fft`).
///
/// ```
/// use torchrs::{fft, Complex, Tensor};
/// let x = Tensor::from([1f64, 0., 0., 0.]);
/// let y = fft::fft(&x, None, -1, Default::default());
/// assert_eq!(y.to_vec::<Complex<f64>>(), [Complex::new(1.0, 0.0); 4]);
/// assert_eq!(fft::fft(&x, Some(6), -1, Default::default()).shape(), &[6]);
/// ```
///
/// # Panics
/// Throws for a dimension that is out of range, a length of 0, and f16 and bf16, as all functions here.
#[track_caller]
pub fn fft(x: &Tensor, n: Option<usize>, dim: i64, norm: Norm) -> Tensor {
    cast_op!("fft", [x = x] => fft(&x, n, dim, norm));
    complex("fft", x, &Axes::one("fft", x, n, dim), Direction::Forward, norm)
}

/// The inverse of [`fft()`] (`torch.fft.ifft`).
///
/// ```
/// use torchrs::{fft, Complex, Tensor};
/// let x = Tensor::from([4f64, 0., 0., 0.]);
/// let y = fft::ifft(&x, None, -1, Default::default());
/// assert_eq!(y.to_vec::<Complex<f64>>(), [Complex::new(1.0, 0.0); 4]);
/// ```
///
/// # Panics
/// As [`fft()`].
#[track_caller]
pub fn ifft(x: &Tensor, n: Option<usize>, dim: i64, norm: Norm) -> Tensor {
    cast_op!("ifft", [x = x] => ifft(&x, n, dim, norm));
    complex("ifft", x, &Axes::one("ifft", x, n, dim), Direction::Backward, norm)
}

/// The transform of real numbers along `dim`: the first n/2 + 1 results, of which the others are
/// conjugates (`torch.fft.rfft`).
///
/// ```
/// use torchrs::{fft, Complex, Tensor};
/// let y = fft::rfft(&Tensor::from([1f64, 2., 3., 4.]), None, -1, Default::default());
/// assert_eq!((y.shape(), y.i(0).item_complex()), (&[3][..], Complex::new(10.0, 0.0)));
/// ```
///
/// # Panics
/// As [`fft()`], and for complex numbers.
#[track_caller]
pub fn rfft(x: &Tensor, n: Option<usize>, dim: i64, norm: Norm) -> Tensor {
    cast_op!("rfft", [x = x] => rfft(&x, n, dim, norm));
    forward_half("rfft", x, &Axes::one("rfft", x, n, dim), norm)
}

/// The inverse of [`rfft`]: `n` real numbers, by default 2 (m - 1) for m coefficients
/// (`torch.fft.irfft`).
///
/// ```
/// use torchrs::{Tensor, fft};
/// let x = Tensor::from([1f64, 2., 3., 4., 5.]);
/// let y = fft::rfft(&x, None, -1, fft::Norm::Ortho);
/// let back = fft::irfft(&y, Some(5), -1, fft::Norm::Ortho);
/// assert!((back - x).abs().max().item() < 1e-12);
/// ```
///
/// # Panics
/// As [`fft()`].
#[track_caller]
pub fn irfft(x: &Tensor, n: Option<usize>, dim: i64, norm: Norm) -> Tensor {
    cast_op!("irfft", [x = x] => irfft(&x, n, dim, norm));
    let axes = Axes::half("irfft", x, list(n).as_ref().map(|n| &n[..]), Some(&[dim]));
    backward_half("irfft", x, &axes, norm)
}

/// The transform to real numbers of a signal that is given by its first half, as its others are
/// conjugates (`torch.fft.hfft`).
///
/// ```
/// use torchrs::{fft, Tensor};
/// let y = fft::hfft(&Tensor::from([1f64, 2., 3.]), None, -1, Default::default());
/// assert_eq!(y.to_vec::<f64>(), [8.0, -2.0, 0.0, -2.0]);
/// ```
///
/// # Panics
/// As [`fft()`].
#[track_caller]
pub fn hfft(x: &Tensor, n: Option<usize>, dim: i64, norm: Norm) -> Tensor {
    cast_op!("hfft", [x = x] => hfft(&x, n, dim, norm));
    let axes = Axes::half("hfft", x, list(n).as_ref().map(|n| &n[..]), Some(&[dim]));
    backward_half("hfft", &x.conj(), &axes, norm.swapped())
}

/// The inverse of [`hfft`] (`torch.fft.ihfft`).
///
/// ```
/// use torchrs::{fft, Tensor};
/// let y = fft::ihfft(&Tensor::from([8f64, -2., 0., -2.]), None, -1, Default::default());
/// assert_eq!(y.real().to_vec::<f64>(), [1.0, 2.0, 3.0]);
/// ```
///
/// # Panics
/// As [`fft()`], and for complex numbers.
#[track_caller]
pub fn ihfft(x: &Tensor, n: Option<usize>, dim: i64, norm: Norm) -> Tensor {
    cast_op!("ihfft", [x = x] => ihfft(&x, n, dim, norm));
    forward_half("ihfft", x, &Axes::one("ihfft", x, n, dim), norm.swapped()).conj()
}

/// The transform along `dim`, by default as many of the last dimensions as `s` has lengths, or all
/// (`torch.fft.fftn`). A length of -1 in `s` is the dimension's own.
///
/// ```
/// use torchrs::{fft, Tensor};
/// let x = Tensor::from([[1f64, 2.], [3., 4.]]);
/// let y = fft::fftn(&x, None, None, Default::default()).real();
/// assert_eq!(y.to_vec::<f64>(), [10.0, -2.0, -4.0, 0.0]);
/// let y = fft::fftn(&x, None, Some(&[0]), Default::default()).real();
/// assert_eq!(y.to_vec::<f64>(), [4.0, 6.0, -2.0, -2.0]);
/// ```
///
/// # Panics
/// As [`fft()`], when a dimension is named twice, and when `s` and `dim` differ in length.
#[track_caller]
pub fn fftn(x: &Tensor, s: Option<&[i64]>, dim: Option<&[i64]>, norm: Norm) -> Tensor {
    cast_op!("fftn", [x = x] => fftn(&x, s, dim, norm));
    complex("fftn", x, &Axes::many("fftn", x, s, dim), Direction::Forward, norm)
}

/// The inverse of [`fftn`] (`torch.fft.ifftn`).
///
/// ```
/// use torchrs::{fft, Tensor};
/// let x = Tensor::from([[10f64, -2.], [-4., 0.]]);
/// let y = fft::ifftn(&x, None, None, Default::default()).real();
/// assert_eq!(y.to_vec::<f64>(), [1.0, 2.0, 3.0, 4.0]);
/// ```
///
/// # Panics
/// As [`fftn`].
#[track_caller]
pub fn ifftn(x: &Tensor, s: Option<&[i64]>, dim: Option<&[i64]>, norm: Norm) -> Tensor {
    cast_op!("ifftn", [x = x] => ifftn(&x, s, dim, norm));
    complex("ifftn", x, &Axes::many("ifftn", x, s, dim), Direction::Backward, norm)
}

/// [`fftn`] of real numbers, of which the last dimension keeps the first n/2 + 1 results
/// (`torch.fft.rfftn`).
///
/// ```
/// use torchrs::{fft, Tensor};
/// let x = Tensor::from([[1f64, 2., 3., 4.], [5., 6., 7., 8.]]);
/// let y = fft::rfftn(&x, None, None, Default::default());
/// assert_eq!((y.shape(), y.i((0, 0)).item_complex().re), (&[2, 3][..], 36.0));
/// ```
///
/// # Panics
/// As [`fftn`], for complex numbers, and when no dimension is transformed.
#[track_caller]
pub fn rfftn(x: &Tensor, s: Option<&[i64]>, dim: Option<&[i64]>, norm: Norm) -> Tensor {
    cast_op!("rfftn", [x = x] => rfftn(&x, s, dim, norm));
    forward_half("rfftn", x, &Axes::many("rfftn", x, s, dim), norm)
}

/// The inverse of [`rfftn`]; `s` are the lengths of the result (`torch.fft.irfftn`).
///
/// ```
/// use torchrs::{fft, Tensor};
/// let x = Tensor::from([[1f64, 2., 3.], [4., 5., 6.]]);
/// let y = fft::rfftn(&x, None, None, Default::default());
/// let back = fft::irfftn(&y, Some(&[2, 3]), None, Default::default());
/// assert!(back.allclose(&x, Default::default()));
/// ```
///
/// # Panics
/// As [`fftn`], and when no dimension is transformed.
#[track_caller]
pub fn irfftn(x: &Tensor, s: Option<&[i64]>, dim: Option<&[i64]>, norm: Norm) -> Tensor {
    cast_op!("irfftn", [x = x] => irfftn(&x, s, dim, norm));
    backward_half("irfftn", x, &Axes::half("irfftn", x, s, dim), norm)
}

/// [`hfft`] in several dimensions, of which the last is given by its first half (`torch.fft.hfftn`).
///
/// ```
/// use torchrs::{fft, Tensor};
/// let x = Tensor::from([[1f64, 2.], [3., 4.]]);
/// let y = fft::hfftn(&x, None, None, Default::default());
/// assert_eq!(y.to_vec::<f64>(), [10.0, -2.0, -4.0, 0.0]);
/// ```
///
/// # Panics
/// As [`irfftn`].
#[track_caller]
pub fn hfftn(x: &Tensor, s: Option<&[i64]>, dim: Option<&[i64]>, norm: Norm) -> Tensor {
    backward_half("hfftn", &x.conj(), &Axes::half("hfftn", x, s, dim), norm.swapped())
}

/// The inverse of [`hfftn`] (`torch.fft.ihfftn`).
///
/// ```
/// use torchrs::{fft, Tensor};
/// let x = Tensor::from([[10f64, -2.], [-4., 0.]]);
/// let y = fft::ihfftn(&x, None, None, Default::default()).real();
/// assert_eq!(y.to_vec::<f64>(), [1.0, 2.0, 3.0, 4.0]);
/// ```
///
/// # Panics
/// As [`rfftn`].
#[track_caller]
pub fn ihfftn(x: &Tensor, s: Option<&[i64]>, dim: Option<&[i64]>, norm: Norm) -> Tensor {
    forward_half("ihfftn", x, &Axes::many("ihfftn", x, s, dim), norm.swapped()).conj()
}

macro_rules! two_dimensional {
    ($($name:ident $general:ident $result:literal;)*) => {$(
        #[doc = concat!("[`", stringify!($general), "`] along two dimensions, by default the last two (`torch.fft.", stringify!($name), "`).")]
        ///
        /// ```
        /// use torchrs::{Tensor, fft};
        /// let x = Tensor::from([[1f64, 2.], [3., 4.]]);
        #[doc = concat!("let y = fft::", stringify!($name), "(&x, None, None, Default::default());")]
        #[doc = concat!("assert_eq!(y.real().to_vec::<f64>(), ", $result, ");")]
        /// ```
        ///
        /// # Panics
        #[doc = concat!("As [`", stringify!($general), "`].")]
        #[track_caller]
        pub fn $name(x: &Tensor, s: Option<&[i64]>, dim: Option<&[i64]>, norm: Norm) -> Tensor {
            $general(x, s, Some(dim.unwrap_or(&[-2, -1])), norm)
        }
    )*};
}
two_dimensional! {
    fft2 fftn "[10.0, -2.0, -4.0, 0.0]";
    ifft2 ifftn "[2.5, -0.5, -1.0, 0.0]";
    rfft2 rfftn "[10.0, -2.0, -4.0, 0.0]";
    irfft2 irfftn "[2.5, -0.5, -1.0, 0.0]";
    hfft2 hfftn "[10.0, -2.0, -4.0, 0.0]";
    ihfft2 ihfftn "[2.5, -0.5, -1.0, 0.0]";
}

/// The frequencies that [`fft()`] of `n` numbers, taken every `d`, gives: 0, 1, ..., then the negative
/// ones, over n d (`torch.fft.fftfreq`).
///
/// ```
/// use torchrs::{fft, Dtype};
/// assert_eq!(fft::fftfreq(4, 0.5, Dtype::F64).to_vec::<f64>(), [0.0, 0.5, -1.0, -0.5]);
/// ```
///
/// # Panics
/// Throws for integer types.
#[track_caller]
pub fn fftfreq(n: usize, d: f64, options: impl Into<TensorOptions>) -> Tensor {
    let place = |i: usize| if i < n.div_ceil(2) { i as f64 } else { i as f64 - n as f64 };
    frequencies("fftfreq", (0..n).map(place), n, d, options.into())
}

/// The frequencies that [`rfft`] gives: 0 to n/2, over n d (`torch.fft.rfftfreq`).
///
/// ```
/// use torchrs::{fft, Dtype};
/// assert_eq!(fft::rfftfreq(4, 0.5, Dtype::F64).to_vec::<f64>(), [0.0, 0.5, 1.0]);
/// ```
///
/// # Panics
/// Throws for integer types.
#[track_caller]
pub fn rfftfreq(n: usize, d: f64, options: impl Into<TensorOptions>) -> Tensor {
    frequencies("rfftfreq", (0..n / 2 + 1).map(|i| i as f64), n, d, options.into())
}

#[track_caller]
fn frequencies(
    op: &str,
    places: impl Iterator<Item = f64>,
    n: usize,
    d: f64,
    options: TensorOptions,
) -> Tensor {
    if !options.dtype.is_floating_point() {
        crate::tensor::dtype::not_floating(op, options.dtype);
    }
    // As PyTorch: whole numbers times the reciprocal.
    let step = 1.0 / (n as f64 * d);
    let all: Vec<f64> = places.collect();
    options.finish(Tensor::from(all).to_dtype(options.dtype) * step)
}

/// Frequency 0 moved to the middle of `dim`, or of all dimensions (`torch.fft.fftshift`).
///
/// ```
/// use torchrs::{fft, Tensor};
/// let y = fft::fftshift(&Tensor::from([0i64, 1, 2, -2, -1]), None);
/// assert_eq!(y.to_vec::<i64>(), [-2, -1, 0, 1, 2]);
/// ```
///
/// # Panics
/// Throws when a dimension is out of range or named twice.
#[track_caller]
pub fn fftshift(x: &Tensor, dim: Option<&[i64]>) -> Tensor {
    shifted("fftshift", x, dim, |n| n / 2)
}

/// The inverse of [`fftshift`] (`torch.fft.ifftshift`).
///
/// ```
/// use torchrs::{fft, Tensor};
/// let y = fft::ifftshift(&Tensor::from([-2i64, -1, 0, 1, 2]), None);
/// assert_eq!(y.to_vec::<i64>(), [0, 1, 2, -2, -1]);
/// ```
///
/// # Panics
/// As [`fftshift`].
#[track_caller]
pub fn ifftshift(x: &Tensor, dim: Option<&[i64]>) -> Tensor {
    shifted("ifftshift", x, dim, |n| n.div_ceil(2))
}

#[track_caller]
fn shifted(op: &str, x: &Tensor, dim: Option<&[i64]>, by: fn(usize) -> usize) -> Tensor {
    let dims: Vec<i64> = match dim {
        Some(dims) => {
            let dims = crate::tensor::normalize_dims(op, dims, x.dim());
            dims.iter().map(|&d| d as i64).collect()
        }
        None => (0..x.dim() as i64).collect(),
    };
    // A 0-dim tensor has nothing to move.
    if dims.is_empty() || x.dim() == 0 {
        return x.clone_contiguous();
    }
    let shifts: Vec<i64> = dims.iter().map(|&d| by(x.size(d)) as i64).collect();
    x.roll(&shifts, &dims)
}

crate::ops::table::ops! {
    self { samples, kernels: [cuda::TRANSFORMS] }
}

/// Real samples; complex results are seen as pairs.
#[cfg(test)]
pub(super) fn samples() -> Vec<OpSample> {
    type Op = fn(&Tensor) -> Tensor;
    let sample = |name: &'static str, shape: &[usize], f: Op| {
        OpSample::new(name, [values(shape, 3)], move |x| {
            let y = f(&x[0]);
            if y.is_complex() { y.view_as_real() } else { y }
        })
        .no_half()
        .slack(10.0)
    };
    vec![
        sample("fft", &[2, 6], |x| fft(x, None, -1, Norm::Backward)),
        sample("fft(n=7, dim=0, ortho), complex", &[5, 3, 2], |x| {
            fft(&x.contiguous().view_as_complex(), Some(7), 0, Norm::Ortho)
        }),
        sample("ifft(n=3), complex", &[2, 5, 2], |x| {
            ifft(&x.contiguous().view_as_complex(), Some(3), -1, Norm::Backward)
        }),
        sample("rfft(n=5)", &[2, 7], |x| rfft(x, Some(5), -1, Norm::Forward)),
        sample("rfft(n=8, dim=0)", &[6, 2], |x| rfft(x, Some(8), 0, Norm::Backward)),
        sample("irfft(n=6)", &[3, 4, 2], |x| {
            irfft(&x.contiguous().view_as_complex(), None, -1, Norm::Backward)
        }),
        sample("irfft(n=7, dim=0)", &[3, 2, 2], |x| {
            irfft(&x.contiguous().view_as_complex(), Some(7), 0, Norm::Ortho)
        }),
        sample("hfft", &[2, 4, 2], |x| {
            hfft(&x.contiguous().view_as_complex(), Some(5), -1, Norm::Backward)
        }),
        sample("ihfft", &[2, 6], |x| ihfft(x, None, -1, Norm::Backward)),
        sample("fft2", &[3, 4], |x| fft2(x, None, None, Norm::Ortho)),
        sample("rfftn", &[2, 3, 4], |x| rfftn(x, Some(&[4, 3]), Some(&[0, 2]), Norm::Backward)),
        sample("irfftn", &[2, 3, 3, 2], |x| {
            irfftn(&x.contiguous().view_as_complex(), None, None, Norm::Backward)
        }),
        sample("hfftn", &[2, 3, 2], |x| {
            hfftn(&x.contiguous().view_as_complex(), Some(&[3, 5]), None, Norm::Forward)
        }),
        sample("ihfftn", &[3, 4], |x| ihfftn(x, None, None, Norm::Backward)),
        sample("fftshift, ifftshift", &[3, 4], |x| fftshift(x, None) * ifftshift(x, Some(&[-1]))),
        sample("stft", &[20], |x| {
            let window = Tensor::hann_window(6, false, (x.dtype(), x.device()));
            let window = Some(&window);
            let options = StftOptions {
                hop_length: Some(3),
                win_length: Some(6),
                window,
                ..Default::default()
            };
            x.stft(8, options)
        }),
        sample("istft", &[2, 5, 6, 2], |x| {
            let window = Tensor::hann_window(8, false, (x.dtype(), x.device())) + 0.1;
            let options = IstftOptions { window: Some(&window), ..Default::default() };
            x.contiguous().view_as_complex().istft(8, options)
        }),
    ]
}
