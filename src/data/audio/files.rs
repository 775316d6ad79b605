//! WAV and FLAC files.

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use crate::error::{Context, Error, Result};
use crate::tensor::Tensor;

/// The waveform of a WAV or FLAC file, f32 `[channels, frames]` from -1 to 1, and its sample rate in Hz
/// (`torchaudio.load`). The first bytes tell the format.
///
/// # Errors
/// [`Error::Os`] when the file cannot be opened, [`Error::File`] when it is neither, damaged or cut short.
pub fn load(path: impl AsRef<Path>) -> Result<(Tensor, u32)> {
    let path = path.as_ref();
    let what = || format!("open {}", path.display());
    let mut file = BufReader::new(File::open(path).context(what)?);
    let mut magic = [0; 4];
    let read = file.read(&mut magic).context(what)?;
    file.rewind().context(what)?;
    let fault = |message: String| Error::file(path, message);
    let (samples, channels, rate) = match &magic[..read] {
        b"RIFF" => wav(file).map_err(|why| fault(format!("cannot be read as WAV: {why}")))?,
        b"fLaC" => flac(file).map_err(|why| fault(format!("cannot be read as FLAC: {why}")))?,
        _ => return Err(fault("is neither a WAV nor a FLAC file".to_owned())),
    };
    if channels == 0 || samples.len() % channels != 0 {
        return Err(fault(format!(
            "{} values do not divide among {channels} channels",
            samples.len()
        )));
    }
    let frames = samples.len() / channels;
    let mut planes: Vec<f32> = Vec::with_capacity(samples.len());
    (0..channels).for_each(|c| planes.extend(samples.iter().skip(c).step_by(channels)));
    Ok((Tensor::from_slice(&planes, [channels, frames]), rate))
}

/// Values of all channels in turn, how many these are, and the sample rate.
type Interleaved = (Vec<f32>, usize, u32);

fn wav(file: BufReader<File>) -> Result<Interleaved, hound::Error> {
    let reader = hound::WavReader::new(file)?;
    let spec = reader.spec();
    let samples: Result<Vec<f32>, _> = match spec.sample_format {
        hound::SampleFormat::Float => reader.into_samples::<f32>().collect(),
        hound::SampleFormat::Int => {
            let scale = scale(u32::from(spec.bits_per_sample));
            reader.into_samples::<i32>().map(|s| s.map(|s| s as f32 * scale)).collect()
        }
    };
    Ok((samples?, usize::from(spec.channels), spec.sample_rate))
}

fn flac(file: BufReader<File>) -> Result<Interleaved, String> {
    let mut reader = claxon::FlacReader::new(file).map_err(|e| e.to_string())?;
    let info = reader.streaminfo();
    let scale = scale(info.bits_per_sample);
    let samples: Result<Vec<f32>, _> =
        reader.samples().map(|sample| sample.map(|s| s as f32 * scale)).collect();
    let samples = samples.map_err(|e| e.to_string())?;
    let frames = samples.len() as u64 / u64::from(info.channels.max(1));
    if info.samples.is_some_and(|expected| expected != frames) {
        return Err(format!("it ends after {frames} of {} frames", info.samples.unwrap_or(0)));
    }
    Ok((samples, info.channels as usize, info.sample_rate))
}

/// What makes integers of so many bits numbers from -1 to 1.
fn scale(bits: u32) -> f32 {
    1.0 / (1u64 << (bits.clamp(1, 32) - 1)) as f32
}
