//! Window functions: what a piece of a signal is multiplied by before it is transformed
//! (`torch.signal.windows`). A window of n numbers is `symmetric`, or, for Fourier transforms, the
//! first n of a symmetric one of n + 1.

use std::f64::consts::{PI, TAU};

use crate::cpu::numbers::math::special;
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Tensor, TensorOptions};

/// The window of `n` values of `f`, which gets the place i and the last place of the symmetric window.
#[track_caller]
fn window(
    op: &str,
    n: usize,
    symmetric: bool,
    options: TensorOptions,
    f: impl Fn(f64, f64) -> f64,
) -> Tensor {
    if !matches!(options.dtype, Dtype::F32 | Dtype::F64) {
        throw(Error::dtype(op, format!("takes f32 and f64, got {}", options.dtype)));
    }
    let last = if symmetric || n == 1 { n.saturating_sub(1) } else { n } as f64;
    let window: Vec<f64> = (0..n).map(|i| f(i as f64, last)).collect();
    options.finish(Tensor::from(window).to_dtype(options.dtype))
}

/// sum_k (-1)^k a_k cos(2 pi k i / last); 1 in a window of one number.
fn cosines(coefficients: &[f64], i: f64, last: f64) -> f64 {
    if last == 0.0 {
        return 1.0;
    }
    let term = |(k, a): (usize, &f64)| {
        let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
        sign * a * (TAU * k as f64 * i / last).cos()
    };
    coefficients.iter().enumerate().map(term).sum()
}

impl Tensor {
    /// The Hann window, `1/2 - 1/2 cos(2 pi i / (n - 1))` (`torch.signal.windows.hann`,
    /// `torch.hann_window`); over n instead where it is not `symmetric`, for use in a Fourier
    /// transform.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let expected = Tensor::from([0.0, 0.5, 1.0, 0.5, 0.0]);
    /// assert!(Tensor::hann_window(5, true, Dtype::F64).allclose(&expected, Default::default()));
    /// let expected = Tensor::from([0.0, 0.5, 1.0, 0.5]);
    /// assert!(Tensor::hann_window(4, false, Dtype::F64).allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// Throws for types other than f32 and f64, as all windows.
    #[track_caller]
    pub fn hann_window(n: usize, symmetric: bool, options: impl Into<TensorOptions>) -> Tensor {
        window("hann_window", n, symmetric, options.into(), |i, last| cosines(&[0.5, 0.5], i, last))
    }

    /// The Hamming window, `0.54 - 0.46 cos(2 pi i / (n - 1))` (`torch.signal.windows.hamming`,
    /// `torch.hamming_window`); over n instead where it is not `symmetric`.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let expected = Tensor::from([0.08, 1.0, 0.08]);
    /// assert!(Tensor::hamming_window(3, true, Dtype::F64).allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// As [`hann_window`](Self::hann_window).
    #[track_caller]
    pub fn hamming_window(n: usize, symmetric: bool, options: impl Into<TensorOptions>) -> Tensor {
        let f = |i, last| cosines(&[0.54, 0.46], i, last);
        window("hamming_window", n, symmetric, options.into(), f)
    }

    /// `alpha - (1 - alpha) cos(2 pi i / (n - 1))` (`torch.signal.windows.general_hamming`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let expected = Tensor::from([0.5, 1.0, 0.5]);
    /// let y = Tensor::general_hamming_window(3, 0.75, true, Dtype::F64);
    /// assert!(y.allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// As [`hann_window`](Self::hann_window).
    #[track_caller]
    pub fn general_hamming_window(
        n: usize,
        alpha: f64,
        symmetric: bool,
        options: impl Into<TensorOptions>,
    ) -> Tensor {
        let f = |i, last| cosines(&[alpha, 1.0 - alpha], i, last);
        window("general_hamming_window", n, symmetric, options.into(), f)
    }

    /// The Blackman window, `0.42 - 0.5 cos(2 pi i / (n - 1)) + 0.08 cos(4 pi i / (n - 1))`
    /// (`torch.signal.windows.blackman`, `torch.blackman_window`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let expected = Tensor::from([0.0, 0.34, 1.0, 0.34, 0.0]);
    /// assert!(Tensor::blackman_window(5, true, Dtype::F64).allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// As [`hann_window`](Self::hann_window).
    #[track_caller]
    pub fn blackman_window(n: usize, symmetric: bool, options: impl Into<TensorOptions>) -> Tensor {
        let f = |i, last| cosines(&[0.42, 0.5, 0.08], i, last);
        window("blackman_window", n, symmetric, options.into(), f)
    }

    /// The Nuttall window, of four cosines (`torch.signal.windows.nuttall`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let expected = Tensor::from([0.0003628, 1.0, 0.0003628]);
    /// assert!(Tensor::nuttall_window(3, true, Dtype::F64).allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// As [`hann_window`](Self::hann_window).
    #[track_caller]
    pub fn nuttall_window(n: usize, symmetric: bool, options: impl Into<TensorOptions>) -> Tensor {
        let f = |i, last| cosines(&[0.3635819, 0.4891775, 0.1365995, 0.0106411], i, last);
        window("nuttall_window", n, symmetric, options.into(), f)
    }

    /// `sum_k (-1)^k a_k cos(2 pi k i / (n - 1))` (`torch.signal.windows.general_cosine`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let window = Tensor::general_cosine_window(3, &[0.75, 0.25], true, Dtype::F64);
    /// assert!(window.allclose(&Tensor::from([0.5, 1.0, 0.5]), Default::default()));
    /// ```
    ///
    /// # Panics
    /// As [`hann_window`](Self::hann_window), and when there are no coefficients.
    #[track_caller]
    pub fn general_cosine_window(
        n: usize,
        coefficients: &[f64],
        symmetric: bool,
        options: impl Into<TensorOptions>,
    ) -> Tensor {
        if coefficients.is_empty() {
            throw(Error::argument("general_cosine_window", "coefficients", "none are given"));
        }
        let f = |i, last| cosines(coefficients, i, last);
        window("general_cosine_window", n, symmetric, options.into(), f)
    }

    /// The triangle from 0 to 1 and back (`torch.signal.windows.bartlett`, `torch.bartlett_window`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let expected = Tensor::from([0.0, 0.5, 1.0, 0.5, 0.0]);
    /// assert!(Tensor::bartlett_window(5, true, Dtype::F64).allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// As [`hann_window`](Self::hann_window).
    #[track_caller]
    pub fn bartlett_window(n: usize, symmetric: bool, options: impl Into<TensorOptions>) -> Tensor {
        let f = |i: f64, last: f64| match last {
            0.0 => 1.0,
            _ => 1.0 - (2.0 * i / last - 1.0).abs(),
        };
        window("bartlett_window", n, symmetric, options.into(), f)
    }

    /// Half a wave, `sin(pi (i + 1/2) / n)` (`torch.signal.windows.cosine`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let expected = Tensor::from([0.5, 1.0, 0.5]);
    /// assert!(Tensor::cosine_window(3, true, Dtype::F64).allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// As [`hann_window`](Self::hann_window).
    #[track_caller]
    pub fn cosine_window(n: usize, symmetric: bool, options: impl Into<TensorOptions>) -> Tensor {
        let f = |i: f64, last: f64| (PI * (i + 0.5) / (last + 1.0)).sin();
        window("cosine_window", n, symmetric, options.into(), f)
    }

    /// The bell `exp(-(i - center)^2 / (2 std^2))` (`torch.signal.windows.gaussian`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let expected = Tensor::from([(-0.5f64).exp(), 1.0, (-0.5f64).exp()]);
    /// let y = Tensor::gaussian_window(3, 1.0, true, Dtype::F64);
    /// assert!(y.allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// As [`hann_window`](Self::hann_window), and when `std` is not above 0.
    #[track_caller]
    pub fn gaussian_window(
        n: usize,
        std: f64,
        symmetric: bool,
        options: impl Into<TensorOptions>,
    ) -> Tensor {
        if std <= 0.0 || std.is_nan() {
            throw(Error::argument("gaussian_window", "std", format!("{std}; must be above 0")));
        }
        let f = |i: f64, last: f64| (-0.5 * ((i - last / 2.0) / std).powi(2)).exp();
        window("gaussian_window", n, symmetric, options.into(), f)
    }

    /// `exp(-|i - center| / tau)`; the center is in the middle unless it is given, which a symmetric
    /// window does not allow (`torch.signal.windows.exponential`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let window = Tensor::exponential_window(3, None, 1.0, true, Dtype::F64);
    /// assert!(window.allclose(&Tensor::from([(-1f64).exp(), 1.0, (-1f64).exp()]), Default::default()));
    /// ```
    ///
    /// # Panics
    /// As [`hann_window`](Self::hann_window), when `tau` is not above 0, and for a center of a
    /// symmetric window.
    #[track_caller]
    pub fn exponential_window(
        n: usize,
        center: Option<f64>,
        tau: f64,
        symmetric: bool,
        options: impl Into<TensorOptions>,
    ) -> Tensor {
        let fail = |name: &str, why: String| -> ! {
            throw(Error::argument("exponential_window", name, why))
        };
        if tau <= 0.0 || tau.is_nan() {
            fail("tau", format!("{tau}; must be above 0"));
        }
        if let (Some(center), true) = (center, symmetric) {
            fail("center", format!("{center}; a symmetric window has its center in the middle"));
        }
        let f = |i: f64, last: f64| (-(i - center.unwrap_or(last / 2.0)).abs() / tau).exp();
        window("exponential_window", n, symmetric, options.into(), f)
    }

    /// The Kaiser window, `I0(beta sqrt(1 - (2 i / (n - 1) - 1)^2)) / I0(beta)`
    /// (`torch.signal.windows.kaiser`, `torch.kaiser_window`); PyTorch's `beta` is 12 by default.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let expected = Tensor::from([0.7898483148251121, 1.0, 0.7898483148251121]);
    /// let y = Tensor::kaiser_window(3, 1.0, true, Dtype::F64);
    /// assert!(y.allclose(&expected, Default::default()));
    /// ```
    ///
    /// # Panics
    /// As [`hann_window`](Self::hann_window), and when `beta` is negative.
    #[track_caller]
    pub fn kaiser_window(
        n: usize,
        beta: f64,
        symmetric: bool,
        options: impl Into<TensorOptions>,
    ) -> Tensor {
        if beta < 0.0 || beta.is_nan() {
            throw(Error::argument("kaiser_window", "beta", format!("{beta}; must be at least 0")));
        }
        let f = |i: f64, last: f64| {
            let place = if last == 0.0 { 0.0 } else { 2.0 * i / last - 1.0 };
            special::i0(beta * (1.0 - place * place).max(0.0).sqrt()) / special::i0(beta)
        };
        window("kaiser_window", n, symmetric, options.into(), f)
    }
}
