//! Sound: files as waveforms, and spectrograms, with the names and results of `torchaudio`.
//!
//! A waveform is f32 `[.., frames]`, from -1 to 1. Reading of WAV and FLAC files is the feature `audio`.
//!
//! ```
//! use torchrs::data::audio::{MelSpectrogram, MelSpectrogramOptions};
//! use torchrs::{Dtype, Tensor};
//! let options = MelSpectrogramOptions { n_fft: 256, n_mels: 20, ..Default::default() };
//! let mels = MelSpectrogram::new(8000, options)?;
//! let waveform = Tensor::ones([2, 1600], Dtype::F32);
//! assert_eq!(mels.forward(&waveform)?.shape(), [2, 20, 13]);
//! # Ok::<(), torchrs::Error>(())
//! ```

#[cfg(feature = "audio")]
mod files;
mod mel;
mod spectrogram;

#[cfg(feature = "audio")]
pub use files::load;
pub use mel::{MelNorm, MelScale, MelSpectrogram, MelSpectrogramOptions, melscale_fbanks};
pub use spectrogram::{AmplitudeToDB, DbScale, Spectrogram, SpectrogramOptions};
