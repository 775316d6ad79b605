//! The Fourier transform of pieces of a signal, and the signal again from it.
//!
//! ```text
//! S[k, t] = sum_j w[j] x[t hop + j] exp(-2 pi i jk / n)
//! x[p]    = sum_t w[p - t hop] x_t[p - t hop] / sum_t w[p - t hop]^2
//! ```
//!
//! where x_t is the inverse transform of column t. Compositions of other ops; derivatives follow.

use super::cpu::{complex_to_complex, complex_to_real, real_to_complex};
use super::direction::Direction;
use crate::error::{Error, throw};
use crate::ops::PadMode;
use crate::tensor::{Dtype, Tensor};

/// Arguments of [`Tensor::stft`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::{Dtype, Tensor};
/// use torchrs::fft::StftOptions;
/// let x = Tensor::ones([8], Dtype::F64);
/// let options = StftOptions { hop_length: Some(2), center: false, ..Default::default() };
/// let y = x.stft(4, options);
/// assert_eq!((y.shape(), y.i((0, 0)).item_complex().re), (&[3, 3][..], 4.0));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StftOptions<'a> {
    /// Distance of neighbouring pieces; by default a quarter of `n_fft`.
    pub hop_length: Option<usize>,
    /// Length of the window; by default `n_fft`. A shorter one is put into the middle, with zeros
    /// around it.
    pub win_length: Option<usize>,
    /// The window, of `win_length` numbers; by default ones.
    pub window: Option<&'a Tensor>,
    /// The signal is padded on both sides so that piece t has its middle at place `t * hop_length`.
    pub center: bool,
    /// How it is padded.
    pub pad_mode: PadMode,
    /// The result is divided by the root of `n_fft`.
    pub normalized: bool,
    /// Of a real signal's transform keep the half that determines it; by default if signal and window
    /// are real.
    pub onesided: Option<bool>,
    /// A complex tensor, else its `view_as_real`. PyTorch's default is `false` for real signals, which it
    /// deprecates.
    pub return_complex: bool,
}

impl Default for StftOptions<'_> {
    fn default() -> Self {
        StftOptions {
            hop_length: None,
            win_length: None,
            window: None,
            center: true,
            pad_mode: PadMode::Reflect,
            normalized: false,
            onesided: None,
            return_complex: true,
        }
    }
}

/// Arguments of [`Tensor::istft`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::fft::IstftOptions;
/// let x = Tensor::from([1f64, -2., 3., 5., 0., 4., 1., 2.]);
/// let y = x.stft(4, Default::default());
/// let options = IstftOptions { length: Some(6), ..Default::default() };
/// assert!(y.istft(4, options).allclose(&x.narrow(0, 0, 6), Default::default()));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct IstftOptions<'a> {
    /// As in [`StftOptions`].
    pub hop_length: Option<usize>,
    /// As in [`StftOptions`].
    pub win_length: Option<usize>,
    /// As in [`StftOptions`].
    pub window: Option<&'a Tensor>,
    /// As in [`StftOptions`]: the padding is taken away.
    pub center: bool,
    /// As in [`StftOptions`].
    pub normalized: bool,
    /// The frequencies are the first half; by default if they are not `n_fft`.
    pub onesided: Option<bool>,
    /// Cut the signal, or fill it up with zeros, to this length.
    pub length: Option<usize>,
    /// The signal is complex.
    pub return_complex: bool,
}

impl Default for IstftOptions<'_> {
    fn default() -> Self {
        IstftOptions {
            hop_length: None,
            win_length: None,
            window: None,
            center: true,
            normalized: false,
            onesided: None,
            length: None,
            return_complex: false,
        }
    }
}

/// `window`, of `win_length` numbers or ones, in the middle of `n_fft`.
#[track_caller]
fn centered(op: &str, window: Option<&Tensor>, lengths: [usize; 2], like: &Tensor) -> Tensor {
    let [win_length, n_fft] = lengths;
    let window = match window {
        Some(w) if w.shape() != [win_length] => throw(Error::shape(
            op,
            format!("`window` has shape {:?}; win_length is {win_length}", w.shape()),
        )),
        Some(w) => w.clone(),
        None => Tensor::ones([win_length], (like.dtype().to_real(), like.device())),
    };
    let left = (n_fft - win_length) / 2;
    let zeros = |n: usize| Tensor::zeros([n], (window.dtype(), window.device()));
    match n_fft == win_length {
        true => window,
        false => Tensor::cat(&[&zeros(left), &window, &zeros(n_fft - win_length - left)], 0),
    }
}

#[track_caller]
fn check_lengths(op: &str, hop: usize, win_length: usize, n_fft: usize) {
    if hop == 0 {
        throw(Error::argument(op, "hop_length", "0; must be at least 1"));
    }
    if win_length == 0 || win_length > n_fft {
        let why = format!("{win_length}; must be from 1 to n_fft, {n_fft}");
        throw(Error::argument(op, "win_length", why));
    }
}

impl Tensor {
    /// Short-time Fourier transform of a signal, or of a batch of signals, `[batch, length]`: a matrix
    /// of frequencies and pieces (`torch.stft`).
    ///
    /// ```
    /// use torchrs::{Dtype::F32, Tensor, fft::StftOptions};
    /// let window = Tensor::hann_window(16, false, F32);
    /// let options = StftOptions { window: Some(&window), ..Default::default() };
    /// assert_eq!(Tensor::ones([100], F32).stft(16, options).shape(), &[9, 26]);
    /// ```
    ///
    /// # Panics
    /// Throws for integers and half types, for other than one or two dimensions, when `n_fft` is
    /// longer than the signal, when window and lengths do not fit, and for half of a complex
    /// transform.
    #[track_caller]
    pub fn stft(&self, n_fft: usize, options: StftOptions<'_>) -> Tensor {
        if !matches!(self.dtype(), Dtype::F32 | Dtype::F64 | Dtype::C64 | Dtype::C128) {
            let got = self.dtype();
            throw(Error::dtype("stft", format!("takes f32, f64 and complex tensors, got {got}")));
        }
        if !(1..=2).contains(&self.dim()) {
            let shape = self.shape();
            throw(Error::shape("stft", format!("takes 1-dim and 2-dim tensors, got {shape:?}")));
        }
        let hop = options.hop_length.unwrap_or(n_fft / 4);
        let win_length = options.win_length.unwrap_or(n_fft);
        let mut x = if self.dim() == 1 { self.unsqueeze(0) } else { self.clone() };
        if options.center {
            let pad = (n_fft / 2) as i64;
            // Of a batch as of channels.
            x = x.unsqueeze(0).pad(&[pad, pad], options.pad_mode).squeeze_dim(0);
        }
        if n_fft == 0 || n_fft > x.size(1) {
            let why = format!("{n_fft}; must be from 1 to the length of the signal, {}", x.size(1));
            throw(Error::argument("stft", "n_fft", why));
        }
        check_lengths("stft", hop, win_length, n_fft);
        let mut pieces = x.unfold(1, n_fft, hop);
        if options.window.is_some() || win_length < n_fft {
            pieces = pieces * centered("stft", options.window, [win_length, n_fft], self);
        }
        let onesided = options.onesided.unwrap_or(!pieces.is_complex());
        let scale = if options.normalized { 1.0 / (n_fft as f64).sqrt() } else { 1.0 };
        let spectra = match (pieces.is_complex(), onesided) {
            (true, true) => throw(Error::argument(
                "stft",
                "onesided",
                "true; the transform of a complex signal or with a complex window has no half that \
                 determines it",
            )),
            (false, true) => real_to_complex(&pieces, 2, scale),
            _ => complex_to_complex(&pieces.to_complex(), &[2], Direction::Forward, scale),
        };
        let spectra = spectra.transpose(1, 2);
        let spectra = if self.dim() == 1 { spectra.squeeze_dim(0) } else { spectra };
        if options.return_complex { spectra } else { spectra.view_as_real() }
    }

    /// The signal, or batch of signals, whose [`stft`](Self::stft) this is, as far as there is one
    /// (`torch.istft`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f64, -2., 3., 5., 0., 4., 1., 2.]);
    /// let y = x.stft(4, Default::default()).istft(4, Default::default());
    /// assert!(y.allclose(&x, Default::default()));
    /// ```
    ///
    /// # Panics
    /// Throws for real tensors, other than two or three dimensions, when the number of frequencies,
    /// window and lengths do not fit, and when the windows together are 0 somewhere.
    #[track_caller]
    pub fn istft(&self, n_fft: usize, options: IstftOptions<'_>) -> Tensor {
        let fail = |name: &str, why: String| -> ! { throw(Error::argument("istft", name, why)) };
        if !self.is_complex() {
            let got = self.dtype();
            throw(Error::dtype("istft", format!("takes complex tensors, got {got}")));
        }
        if !(2..=3).contains(&self.dim()) || self.numel() == 0 {
            let shape = self.shape();
            let why = format!("takes [frequencies, pieces], maybe with a batch, got {shape:?}");
            throw(Error::shape("istft", why));
        }
        let hop = options.hop_length.unwrap_or(n_fft / 4);
        let win_length = options.win_length.unwrap_or(n_fft);
        let (frequencies, count) = (self.size(-2), self.size(-1));
        let onesided = options.onesided.unwrap_or(frequencies != n_fft);
        let expected = if onesided { n_fft / 2 + 1 } else { n_fft };
        if frequencies != expected {
            let why = format!(
                "{n_fft} has {expected} frequencies where onesided is {onesided}, got {frequencies}"
            );
            fail("n_fft", why);
        }
        check_lengths("istft", hop, win_length, n_fft);
        if hop > win_length {
            fail("hop_length", format!("{hop}; must be at most win_length, {win_length}"));
        }
        if options.window.is_some_and(Tensor::is_complex) && !options.return_complex {
            fail("window", "is complex; then `return_complex` must be true".into());
        }
        let window = centered("istft", options.window, [win_length, n_fft], self);
        let spectra = if self.dim() == 2 { self.unsqueeze(0) } else { self.clone() };
        let spectra = spectra.transpose(1, 2);
        let scale = super::Norm::Backward.scale(false, n_fft);
        let scale = if options.normalized { scale.sqrt() } else { scale };
        let pieces = match options.return_complex {
            true if onesided => fail("onesided", "true; of a complex signal all are needed".into()),
            true => complex_to_complex(&spectra, &[2], Direction::Backward, scale),
            false => complex_to_real(&spectra.narrow(2, 0, n_fft / 2 + 1), 2, n_fft, scale),
        };
        let total = n_fft + hop * (count - 1);
        let add = |pieces: &Tensor| pieces.overlapped(1, total, hop);
        let sum = |pieces: &Tensor| match pieces.is_complex() {
            true => Tensor::complex(&add(&pieces.real()), &add(&pieces.imag())),
            false => add(pieces),
        };
        let signal = sum(&(pieces * &window));
        let envelope = sum(&window.square().expand(&[1, count, n_fft]));
        // Without padding, and as long as was asked for.
        let start = if options.center { n_fft / 2 } else { 0 };
        let end = match options.length {
            Some(length) => start + length,
            None if options.center => total - n_fft / 2,
            None => total,
        };
        let kept = end.min(total).saturating_sub(start);
        if kept == 0 {
            fail("length", format!("nothing is left of {total} numbers from {start} to {end}"));
        }
        let cut = |t: &Tensor| t.narrow(1, start, kept);
        let (signal, envelope) = (cut(&signal), cut(&envelope));
        if envelope.detach().abs().min().lt(1e-11).is_true_or(false) {
            fail("window", "the squares of the windows add up to 0 somewhere".into());
        }
        let signal = super::shape::resized(&(signal / envelope), 1, end - start);
        if self.dim() == 2 { signal.squeeze_dim(0) } else { signal }
    }
}
