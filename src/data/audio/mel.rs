//! Spectrograms in bands as wide as hearing distinguishes.

use serde::{Deserialize, Serialize};

use super::spectrogram::{Spectrogram, SpectrogramOptions};
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// Which scale of pitch the bands are equally wide on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum MelScale {
    /// `2595 log10(1 + f / 700)`.
    #[default]
    Htk,
    /// Linear below 1,000 Hz, logarithmic above (librosa's).
    Slaney,
}

impl MelScale {
    fn of_hz(self, hz: f64) -> f64 {
        match self {
            MelScale::Htk => 2595.0 * (1.0 + hz / 700.0).log10(),
            MelScale::Slaney if hz < 1000.0 => hz / (200.0 / 3.0),
            MelScale::Slaney => 15.0 + (hz / 1000.0).ln() / (6.4f64.ln() / 27.0),
        }
    }

    fn to_hz(self, mel: f64) -> f64 {
        match self {
            MelScale::Htk => 700.0 * (10f64.powf(mel / 2595.0) - 1.0),
            MelScale::Slaney if mel < 15.0 => mel * (200.0 / 3.0),
            MelScale::Slaney => 1000.0 * ((mel - 15.0) * (6.4f64.ln() / 27.0)).exp(),
        }
    }
}

/// How bands are weighted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum MelNorm {
    /// All are 1 high.
    #[default]
    None,
    /// All have the same area.
    Slaney,
}

/// Options of [`MelSpectrogram`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MelSpectrogramOptions {
    /// Values of a Fourier transform (default: 400).
    pub n_fft: usize,
    /// Values of the window; by default `n_fft`.
    pub win_length: Option<usize>,
    /// Distance of neighbouring windows; by default half of the window.
    pub hop_length: Option<usize>,
    /// Lowest frequency in Hz (default: 0).
    pub f_min: f64,
    /// Highest frequency in Hz; by default half of the sample rate.
    pub f_max: Option<f64>,
    /// How many bands (default: 128).
    pub n_mels: usize,
    /// 1 for magnitudes, 2 for powers (the default).
    pub power: f64,
    /// Whether results are divided by the window's length (default: false).
    pub normalized: bool,
    /// Whether the waveform is mirrored at its ends (default: true).
    pub center: bool,
    /// How bands are weighted.
    pub norm: MelNorm,
    /// On which scale they are equally wide.
    pub mel_scale: MelScale,
}

impl Default for MelSpectrogramOptions {
    fn default() -> Self {
        let SpectrogramOptions { n_fft, win_length, hop_length, power, normalized, center } =
            SpectrogramOptions::default();
        MelSpectrogramOptions {
            n_fft,
            win_length,
            hop_length,
            f_min: 0.0,
            f_max: None,
            n_mels: 128,
            power,
            normalized,
            center,
            norm: MelNorm::None,
            mel_scale: MelScale::Htk,
        }
    }
}

/// Triangular bands of frequencies (`torchaudio.functional.melscale_fbanks`): f32 `[n_freqs, n_mels]`, with
/// frequencies from 0 to half of the sample rate.
///
/// # Errors
/// [`Error::Argument`] when there are no bands or frequencies, or the range falls or leaves what the rate allows.
pub fn melscale_fbanks(
    n_freqs: usize,
    f_min: f64,
    f_max: f64,
    n_mels: usize,
    sample_rate: u32,
    norm: MelNorm,
    mel_scale: MelScale,
) -> Result<Tensor> {
    let wrong =
        |argument, message: String| Err(Error::argument("melscale_fbanks", argument, message));
    if n_freqs < 2 || n_mels == 0 {
        return wrong("n_mels", format!("{n_mels} bands of {n_freqs} frequencies are none"));
    }
    let nyquist = f64::from(sample_rate) / 2.0;
    if !(0.0 <= f_min && f_min < f_max && f_max <= nyquist) {
        let message = format!("{f_min} to {f_max} Hz must rise and lie in 0 to {nyquist}");
        return wrong("f_max", message);
    }
    let (low, high) = (mel_scale.of_hz(f_min), mel_scale.of_hz(f_max));
    let edge = |i| mel_scale.to_hz(low + (high - low) * i as f64 / (n_mels + 1) as f64);
    let edges: Vec<f64> = (0..n_mels + 2).map(edge).collect();
    let mut bands = vec![0f32; n_freqs * n_mels];
    for f in 0..n_freqs {
        // torchaudio's whole number of Hz.
        let hz = f64::from(sample_rate / 2) * f as f64 / (n_freqs - 1) as f64;
        for m in 0..n_mels {
            let (left, middle, right) = (edges[m], edges[m + 1], edges[m + 2]);
            let up = (hz - left) / (middle - left);
            let down = (right - hz) / (right - middle);
            let height = match norm {
                MelNorm::None => 1.0,
                MelNorm::Slaney => 2.0 / (right - left),
            };
            bands[f * n_mels + m] = (up.min(down).max(0.0) * height) as f32;
        }
    }
    Ok(Tensor::from_slice(&bands, [n_freqs, n_mels]))
}

/// Strength of bands of frequencies over time (`torchaudio.transforms.MelSpectrogram`): of `[.., frames]` it makes
/// `[.., n_mels, windows]`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MelSpectrogram {
    spectrogram: Spectrogram,
    sample_rate: u32,
    options: MelSpectrogramOptions,
}

impl MelSpectrogram {
    /// Of sound with this sample rate in Hz.
    ///
    /// # Errors
    /// [`Error::Argument`] when an option has a value that cannot be.
    pub fn new(sample_rate: u32, options: MelSpectrogramOptions) -> Result<Self> {
        let MelSpectrogramOptions {
            n_fft, win_length, hop_length, power, normalized, center, ..
        } = options;
        let spectrogram =
            SpectrogramOptions { n_fft, win_length, hop_length, power, normalized, center };
        spectrogram.check("MelSpectrogram::new")?;
        let made =
            MelSpectrogram { spectrogram: Spectrogram::new(spectrogram)?, sample_rate, options };
        made.bands()?;
        Ok(made)
    }

    fn bands(&self) -> Result<Tensor> {
        let MelSpectrogramOptions { n_fft, f_min, f_max, n_mels, norm, mel_scale, .. } =
            self.options;
        let f_max = f_max.unwrap_or(f64::from(self.sample_rate) / 2.0);
        melscale_fbanks(n_fft / 2 + 1, f_min, f_max, n_mels, self.sample_rate, norm, mel_scale)
    }

    /// The bands of a waveform.
    ///
    /// # Errors
    /// As [`Spectrogram::forward`].
    pub fn forward(&self, waveform: &Tensor) -> Result<Tensor> {
        let strengths = self.spectrogram.forward(waveform)?;
        let bands = self.bands()?.to_dtype(strengths.dtype()).to(strengths.device());
        Ok(bands.t().contiguous().matmul(&strengths))
    }
}
