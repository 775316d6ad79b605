//! Spectrograms against torchaudio's (`tests/fixtures/audio`), and sound files against libsndfile's values.

use std::path::{Path, PathBuf};

use torchrs::checkpoint::load_file;
use torchrs::data::audio::{
    AmplitudeToDB, DbScale, MelNorm, MelScale, MelSpectrogram, MelSpectrogramOptions, Spectrogram,
    SpectrogramOptions, melscale_fbanks,
};
use torchrs::{Dtype, Tensor};

fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/audio")).join(name)
}

/// The largest difference, as a share of the largest value.
#[track_caller]
fn close(found: &Tensor, expected: &Tensor, most: f64) {
    assert_eq!((found.shape(), found.dtype()), (expected.shape(), expected.dtype()));
    let [a, b] = [found, expected].map(|t| t.to_dtype(Dtype::F64).to_vec::<f64>());
    let largest = b.iter().fold(0f64, |most, x| most.max(x.abs()));
    let worst = a.iter().zip(&b).fold(0f64, |worst, (a, b)| worst.max((a - b).abs())) / largest;
    assert!(worst <= most, "{worst:e} of the largest value off");
}

#[test]
fn spectrograms_are_those_of_torchaudio() {
    let golden = load_file(fixture("mel.safetensors")).unwrap();
    let tone = &golden["waveform"];
    let plain = SpectrogramOptions { n_fft: 128, ..Default::default() };
    let plain = Spectrogram::new(plain).unwrap();
    close(&plain.forward(tone).unwrap(), &golden["spectrogram"], 1e-6);
    let magnitude = SpectrogramOptions {
        n_fft: 100,
        win_length: Some(80),
        hop_length: Some(30),
        power: 1.0,
        normalized: true,
        center: false,
    };
    let magnitude = Spectrogram::new(magnitude).unwrap().forward(tone).unwrap();
    close(&magnitude, &golden["magnitude"], 1e-6);
    let mel = MelSpectrogramOptions { n_fft: 256, n_mels: 20, ..Default::default() };
    let mel = MelSpectrogram::new(8000, mel).unwrap().forward(tone).unwrap();
    close(&mel, &golden["mel"], 2e-5);
    let slaney = MelSpectrogramOptions {
        n_fft: 256,
        hop_length: Some(64),
        n_mels: 24,
        f_min: 50.0,
        f_max: Some(3500.0),
        norm: MelNorm::Slaney,
        mel_scale: MelScale::Slaney,
        ..Default::default()
    };
    let slaney = MelSpectrogram::new(8000, slaney).unwrap().forward(tone).unwrap();
    close(&slaney, &golden["mel_slaney"], 2e-5);
    let decibels = AmplitudeToDB::new(DbScale::Power, Some(80.0)).unwrap();
    close(&decibels.forward(&golden["mel"]).unwrap(), &golden["db"], 1e-6);
    let decibels = AmplitudeToDB::new(DbScale::Magnitude, None).unwrap();
    close(&decibels.forward(&golden["magnitude"]).unwrap(), &golden["db_magnitude"], 1e-6);
    // Any number of dimensions before the frames.
    let four = Tensor::stack(&[tone, tone], 0);
    assert!(plain.forward(&four).unwrap().select(0, 1).equal(&plain.forward(tone).unwrap()));
    let one = plain.forward(&tone.select(0, 1)).unwrap();
    assert!(one.equal(&plain.forward(tone).unwrap().select(0, 1)));
}

#[test]
fn wrong_options_and_waveforms_are_named() {
    let spectrogram = |options| Spectrogram::new(options).unwrap_err().to_string();
    let base = SpectrogramOptions::default();
    assert!(spectrogram(SpectrogramOptions { n_fft: 0, ..base }).contains("win_length"));
    assert!(spectrogram(SpectrogramOptions { hop_length: Some(0), ..base }).contains("hop_length"));
    assert!(spectrogram(SpectrogramOptions { power: 0.0, ..base }).contains("power"));
    let plain = Spectrogram::new(base).unwrap();
    let short = plain.forward(&Tensor::zeros([2, 200], Dtype::F32)).unwrap_err().to_string();
    assert!(short.contains("has 200 frames, n_fft 400 needs at least 201"), "{short}");
    let whole = plain.forward(&Tensor::zeros([2, 800], Dtype::I16)).unwrap_err().to_string();
    assert!(whole.contains("is f32 or f64, this one i16"), "{whole}");
    let beyond = melscale_fbanks(100, 0.0, 5000.0, 10, 8000, MelNorm::None, MelScale::Htk);
    assert!(beyond.unwrap_err().to_string().contains("in 0 to 4000"));
    assert!(AmplitudeToDB::new(DbScale::Power, Some(-1.0)).is_err());
}

#[cfg(feature = "audio")]
mod files {
    use std::fs;

    use super::{close, fixture};
    use torchrs::checkpoint::load_file;
    use torchrs::data::audio::load;

    #[test]
    fn sound_files_have_the_values_of_libsndfile() {
        let golden = load_file(fixture("mel.safetensors")).unwrap();
        for name in ["s16.wav", "s24.wav", "f32.wav", "u8.wav", "s16.flac", "s24.flac"] {
            let (waveform, rate) = load(fixture(name)).unwrap();
            assert_eq!(rate, 8000, "{name}");
            close(&waveform, &golden[name], 0.0);
        }
    }

    #[test]
    fn damaged_and_other_files_are_errors() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for name in ["s16.wav", "s16.flac"] {
            let bytes = fs::read(fixture(name)).unwrap();
            for length in [3, 20, 60, bytes.len() / 2, bytes.len() - 3] {
                fs::write(file.path(), &bytes[..length]).unwrap();
                assert!(load(file.path()).is_err(), "{length} bytes of {name}");
            }
        }
        fs::write(file.path(), "ID3 and so on").unwrap();
        let error = load(file.path()).unwrap_err().to_string();
        assert!(error.contains("neither a WAV nor a FLAC"), "{error}");
    }
}
