//! The command line of `train`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, ValueEnum};
use torchrs::amp::autocast;
use torchrs::{Device, Dtype};

/// Trains a model, data-parallel over the processes that `torchrs-launch` started.
#[derive(Parser, Debug, Clone)]
#[command(version, max_term_width = 100)]
pub struct Args {
    /// What to train on: digits | fashion-mnist:FOLDER | image-folder:FOLDER | text:FILE | synthetic
    #[arg(long, default_value = "digits", value_name = "DATA")]
    pub data: Source,

    /// The model [default: cnn for images, gpt for text]
    #[arg(long)]
    pub model: Option<ModelKind>,

    /// Passes over the training data [default: depends on the data]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub epochs: Option<u64>,

    /// Stop after this many optimizer steps, even in mid-epoch
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub max_steps: Option<u64>,

    /// Samples per optimizer step, over all workers together [default: depends on the data]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub batch_size: Option<u64>,

    /// Peak learning rate; it is warmed up and then falls by a cosine [default: by optimizer, model]
    #[arg(long, value_parser = positive)]
    pub lr: Option<f64>,

    #[arg(long, value_enum, default_value_t = OptimizerKind::Adamw)]
    pub optimizer: OptimizerKind,

    /// Weight decay, on parameters with two or more dimensions
    #[arg(long, default_value_t = 0.01)]
    pub weight_decay: f64,

    /// Clip the gradient's norm to this
    #[arg(long, default_value_t = 1.0, value_parser = positive)]
    pub clip_norm: f64,

    /// Loader processes per worker; 0 loads in the training process
    #[arg(long, default_value_t = 1)]
    pub loader_workers: usize,

    /// Where to compute: auto | cpu | cuda (each worker on the GPU of its local rank) | cuda:N
    #[arg(long, default_value = "auto")]
    pub device: DeviceChoice,

    /// Mixed precision: the half type of matrix products and convolutions
    #[arg(long, value_enum, default_value_t = Amp::Off)]
    pub amp: Amp,

    #[arg(long, default_value_t = 0)]
    pub seed: u64,

    /// Folder for metrics, checkpoints and the loss curve [default: a new one under runs/]
    #[arg(long)]
    pub run_dir: Option<PathBuf>,

    /// Go on from the latest checkpoint of --run-dir (or of the latest run under runs/)
    #[arg(long)]
    pub resume: bool,

    /// Also save a checkpoint every so many steps; one is saved after every epoch anyway
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub save_every: Option<u64>,

    /// Bytes of context of the gpt model
    #[arg(long, default_value_t = 128)]
    pub context_length: usize,

    /// Bytes of text to sample from the gpt model at the end
    #[arg(long, default_value_t = 400)]
    pub sample_bytes: usize,
}

/// `--data`.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    Digits,
    FashionMnist(PathBuf),
    ImageFolder(PathBuf),
    Text(PathBuf),
    Synthetic,
}

impl FromStr for Source {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, path) = text.split_once(':').map_or((text, None), |(k, p)| (k, Some(p)));
        match (kind, path) {
            ("digits", None) => Ok(Source::Digits),
            ("synthetic", None) => Ok(Source::Synthetic),
            ("fashion-mnist", Some(p)) if !p.is_empty() => Ok(Source::FashionMnist(p.into())),
            ("image-folder", Some(p)) if !p.is_empty() => Ok(Source::ImageFolder(p.into())),
            ("text", Some(p)) if !p.is_empty() => Ok(Source::Text(p.into())),
            ("fashion-mnist" | "image-folder" | "text", _) => Err(format!("{kind} needs a path: {kind}:PATH")),
            _ => Err("expected digits, fashion-mnist:FOLDER, image-folder:FOLDER, text:FILE or synthetic".into()),
        }
    }
}

impl Source {
    /// A short name for folders.
    pub fn name(&self) -> &'static str {
        match self {
            Source::Digits => "digits",
            Source::FashionMnist(_) => "fashion-mnist",
            Source::ImageFolder(_) => "image-folder",
            Source::Text(_) => "text",
            Source::Synthetic => "synthetic",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
pub enum ModelKind {
    Mlp,
    Cnn,
    Resnet18,
    #[value(name = "mobilenet_v2")]
    MobilenetV2,
    Gpt,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
pub enum OptimizerKind {
    Sgd,
    Adam,
    Adamw,
}

/// `--amp`.
#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
pub enum Amp {
    Off,
    Bf16,
    /// With loss scaling.
    F16,
}

impl Amp {
    /// Runs `f` in that precision.
    pub fn run<T>(self, device: Device, f: impl FnOnce() -> T) -> T {
        match self {
            Amp::Off => f(),
            Amp::Bf16 => autocast(device, Dtype::BF16, f),
            Amp::F16 => autocast(device, Dtype::F16, f),
        }
    }
}

/// `--device`.
#[derive(Debug, Clone, Copy)]
pub enum DeviceChoice {
    Auto,
    /// The GPU of the worker's local rank.
    Cuda,
    On(Device),
}

impl FromStr for DeviceChoice {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => return Ok(DeviceChoice::Auto),
            "cuda" => return Ok(DeviceChoice::Cuda),
            _ => {}
        }
        text.parse().map(DeviceChoice::On).map_err(|e: torchrs::Error| e.to_string())
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v > 0.0 && v.is_finite() => Ok(v),
        _ => Err("expected a number above 0".into()),
    }
}

/// What depends on data and model when it is not said.
pub struct Defaults {
    pub epochs: u64,
    pub batch_size: u64,
    pub lr: f64,
}

impl Args {
    pub fn model(&self) -> ModelKind {
        self.model.unwrap_or(match self.data {
            Source::Text(_) => ModelKind::Gpt,
            _ => ModelKind::Cnn,
        })
    }

    pub fn defaults(&self) -> Defaults {
        let (epochs, batch_size) = match self.data {
            Source::Digits => (15, 32),
            Source::FashionMnist(_) => (6, 128),
            Source::ImageFolder(_) => (10, 64),
            Source::Text(_) => (1, 32),
            Source::Synthetic => (3, 64),
        };
        let lr = match (self.optimizer, self.model()) {
            (OptimizerKind::Sgd, _) => 0.05,
            (_, ModelKind::Gpt) => 1e-3,
            _ => 2e-3,
        };
        Defaults { epochs, batch_size, lr }
    }
}
