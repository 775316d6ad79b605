//! Strength of frequencies over time.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, catch};
use crate::ops::fft::StftOptions;
use crate::tensor::{Dtype, Tensor};

/// Options of [`Spectrogram`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SpectrogramOptions {
    /// Values of a Fourier transform (default: 400).
    pub n_fft: usize,
    /// Values of the window (Hann); by default `n_fft`.
    pub win_length: Option<usize>,
    /// Distance of neighbouring windows; by default half of the window.
    pub hop_length: Option<usize>,
    /// 1 for magnitudes, 2 for powers (the default).
    pub power: f64,
    /// Whether results are divided by the window's length, as a root of its squares' sum (default: false).
    pub normalized: bool,
    /// Whether the waveform is mirrored at its ends, so that window t has its middle at `t * hop_length` (default:
    /// true).
    pub center: bool,
}

impl Default for SpectrogramOptions {
    fn default() -> Self {
        SpectrogramOptions {
            n_fft: 400,
            win_length: None,
            hop_length: None,
            power: 2.0,
            normalized: false,
            center: true,
        }
    }
}

impl SpectrogramOptions {
    pub(super) fn check(&self, op: &str) -> Result<()> {
        let wrong = |argument, message| Err(Error::argument(op, argument, message));
        let window = self.window_length();
        if self.n_fft == 0 || window == 0 || window > self.n_fft {
            return wrong(
                "win_length",
                format!("is {window}, must be from 1 to n_fft, {}", self.n_fft),
            );
        }
        if self.hop() == 0 {
            return wrong("hop_length", "is 0, must be at least 1".to_owned());
        }
        if !(self.power > 0.0 && self.power.is_finite()) {
            return wrong("power", format!("is {}, must be above 0", self.power));
        }
        Ok(())
    }

    fn window_length(&self) -> usize {
        self.win_length.unwrap_or(self.n_fft)
    }

    fn hop(&self) -> usize {
        self.hop_length.unwrap_or(self.window_length() / 2)
    }
}

/// Strength of frequencies over time (`torchaudio.transforms.Spectrogram`): of `[.., frames]` it makes
/// `[.., n_fft / 2 + 1, windows]`.
///
/// ```
/// use torchrs::data::audio::{Spectrogram, SpectrogramOptions};
/// use torchrs::{Dtype, Tensor};
/// let options = SpectrogramOptions { n_fft: 64, ..Default::default() };
/// let strengths = Spectrogram::new(options)?.forward(&Tensor::ones([3, 320], Dtype::F32))?;
/// assert_eq!(strengths.shape(), [3, 33, 11]);
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spectrogram {
    options: SpectrogramOptions,
}

impl Spectrogram {
    /// With these options.
    ///
    /// # Errors
    /// [`Error::Argument`] when one has a value that cannot be.
    pub fn new(options: SpectrogramOptions) -> Result<Self> {
        options.check("Spectrogram::new")?;
        Ok(Spectrogram { options })
    }

    /// The spectrogram of a waveform.
    ///
    /// # Errors
    /// [`Error::Dtype`] unless it is f32 or f64, [`Error::Argument`] when it is shorter than a window.
    pub fn forward(&self, waveform: &Tensor) -> Result<Tensor> {
        let op = "Spectrogram";
        if !matches!(waveform.dtype(), Dtype::F32 | Dtype::F64) {
            let message = format!("a waveform is f32 or f64, this one {}", waveform.dtype());
            return Err(Error::dtype(op, message));
        }
        let Some((&frames, batch)) = waveform.shape().split_last() else {
            return Err(Error::shape(op, "a waveform has shape [.., frames], this tensor none"));
        };
        let SpectrogramOptions { n_fft, power, .. } = self.options;
        let least = if self.options.center { n_fft / 2 + 1 } else { n_fft };
        if frames < least {
            let message = format!("has {frames} frames, n_fft {n_fft} needs at least {least}");
            return Err(Error::argument(op, "waveform", message));
        }
        let count: usize = batch.iter().product();
        let options = (waveform.dtype(), waveform.device());
        let window = Tensor::hann_window(self.options.window_length(), false, options);
        let stft = StftOptions {
            hop_length: Some(self.options.hop()),
            win_length: Some(self.options.window_length()),
            window: Some(&window),
            center: self.options.center,
            ..StftOptions::default()
        };
        let rows = waveform.contiguous().view([count as i64, frames as i64]);
        // The transform's own words where something is amiss.
        let mut strengths = catch(|| rows.stft(n_fft, stft).abs())?;
        if self.options.normalized {
            let norm = window
                .to_dtype(Dtype::F64)
                .to_vec::<f64>()
                .iter()
                .map(|w| w * w)
                .sum::<f64>()
                .sqrt();
            strengths /= norm;
        }
        if power != 1.0 {
            strengths = strengths.pow(power);
        }
        let sizes = batch.iter().chain(&strengths.shape()[1..]);
        let shape: Vec<i64> = sizes.map(|&size| size as i64).collect();
        Ok(strengths.contiguous().view(shape))
    }
}

/// What a spectrogram's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DbScale {
    /// Powers: 10 decibels are a factor of 10.
    Power,
    /// Magnitudes: 20 decibels are a factor of 10.
    Magnitude,
}

/// Strengths in decibels (`torchaudio.transforms.AmplitudeToDB`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AmplitudeToDB {
    scale: DbScale,
    top_db: Option<f64>,
}

impl AmplitudeToDB {
    /// Of powers or magnitudes; with `top_db` nothing is further below the largest value of a spectrogram
    /// (`[.., channels, frequencies, windows]`; channels of one are taken together).
    ///
    /// # Errors
    /// [`Error::Argument`] when `top_db` is negative.
    pub fn new(scale: DbScale, top_db: Option<f64>) -> Result<Self> {
        if let Some(top) = top_db.filter(|top| !(0.0..=f64::MAX).contains(top)) {
            let message = format!("is {top}, must be at least 0");
            return Err(Error::argument("AmplitudeToDB::new", "top_db", message));
        }
        Ok(AmplitudeToDB { scale, top_db })
    }

    /// The decibels of a spectrogram.
    ///
    /// # Errors
    /// [`Error::Shape`] when it has fewer than two dimensions.
    pub fn forward(&self, spectrogram: &Tensor) -> Result<Tensor> {
        let shape = spectrogram.shape();
        if shape.len() < 2 {
            let message =
                format!("a spectrogram has shape [.., frequencies, windows], this {shape:?}");
            return Err(Error::shape("AmplitudeToDB", message));
        }
        let factor = if self.scale == DbScale::Power { 10.0 } else { 20.0 };
        let decibels = spectrogram.clamp_min(1e-10).log10() * factor;
        let Some(top) = self.top_db else { return Ok(decibels) };
        // Channels of one sound keep their differences.
        let packed: usize = shape[..shape.len().saturating_sub(3)].iter().product();
        let each = decibels.numel() / packed.max(1);
        let rows = decibels.contiguous().view([packed as i64, each as i64]);
        let least = rows.amax(&[1], true) - top;
        let shape: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
        Ok(rows.maximum(&least).view(shape))
    }
}
