//! The command line of `train`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};
use torchrs::amp::autocast;
use torchrs::distributed::WorkerEnv;
use torchrs::models::LlamaConfig;
use torchrs::{Device, Dtype, Error, Result};

use crate::settings::{Checkpointing, Shard};

/// Trains a model, data-parallel over the processes that `torchrs-launch` started.
///
/// With --resume an option that is not given is as the run had it.
#[derive(Parser, Debug, Clone, Serialize)]
#[command(version, max_term_width = 100)]
pub struct Args {
    /// What to train on: digits | fashion-mnist:FOLDER | image-folder:FOLDER | text:FILE (its bytes) |
    /// tokens-u16:FILE | tokens-u32:FILE (of a tokenizer, little-endian) | synthetic [default: digits]
    #[arg(long, value_name = "DATA")]
    pub data: Option<Source>,

    /// The model [default: cnn for images, gpt for text, llama for tokens]
    #[arg(long)]
    pub model: Option<ModelKind>,

    /// Hugging Face's config.json of the llama model [default: a small one]
    #[arg(long, value_name = "FILE", value_parser = llama_config)]
    pub config: Option<LlamaConfig>,

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

    /// Batches that a step's samples are computed in, one after the other, to save memory [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub accumulate: Option<u64>,

    /// [default: adamw]
    #[arg(long, value_enum)]
    pub optimizer: Option<OptimizerKind>,

    /// Weight decay, on parameters with two or more dimensions [default: 0.01]
    #[arg(long, value_parser = not_negative)]
    pub weight_decay: Option<f64>,

    /// Clip the gradient's norm to this [default: 1]
    #[arg(long, value_parser = positive)]
    pub clip_norm: Option<f64>,

    /// Also keep an exponential moving average of the weights with this decay, and validate that
    #[arg(long, value_name = "DECAY", value_parser = fraction)]
    pub ema: Option<f64>,

    /// Loader processes per worker; 0 loads in the training process
    #[arg(long, default_value_t = 1)]
    pub loader_workers: usize,

    /// Where to compute: auto (cuda where the host has a GPU, else cpu) | cpu | cuda (each worker on the
    /// GPU of its local rank) | cuda:N
    #[arg(long, default_value = "auto")]
    #[serde(skip)]
    pub device: DeviceChoice,

    /// Mixed precision: the half type of matrix products and convolutions [default: off]
    #[arg(long, value_enum)]
    pub amp: Option<Amp>,

    /// What blocks of the llama model keep for backward [default: none]
    #[arg(long, value_enum)]
    pub activation_checkpointing: Option<Checkpointing>,

    /// What of the model, its gradients and its optimizer's state each worker has [default: none]
    #[arg(long, value_enum)]
    pub shard: Option<Shard>,

    /// Workers that share a replica's parameters, with --shard hybrid [default: those of a host]
    #[arg(long, value_name = "WORKERS")]
    pub shard_size: Option<usize>,

    /// [default: 0]
    #[arg(long)]
    pub seed: Option<u64>,

    /// Folder for metrics, checkpoints and the loss curve [default: a new one under runs/]
    #[arg(long)]
    pub run_dir: Option<PathBuf>,

    /// Go on from the latest checkpoint of --run-dir (or of the latest run under runs/)
    #[arg(long)]
    pub resume: bool,

    /// Also save a checkpoint every so many steps; one is saved after every epoch anyway
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub save_every: Option<u64>,

    /// Write checkpoints in the background while training goes on
    #[arg(long)]
    pub async_checkpoints: bool,

    /// Saves no checkpoints: the run cannot go on when it has stopped
    #[arg(long)]
    pub no_checkpoints: bool,

    /// Writes the llama model at the end as Hugging Face has it: config.json, model.safetensors
    #[arg(long, value_name = "FOLDER")]
    pub export: Option<PathBuf>,

    /// Print a line every so many steps [default: 100 of language models, else none]
    #[arg(long, value_name = "STEPS", value_parser = clap::value_parser!(u64).range(1..))]
    pub log_every: Option<u64>,

    /// 10^12 operations a second that a device can do at most, for the share of it that is used (mfu) [default: of known
    /// GPUs with --amp]
    #[arg(long, value_name = "NUMBER", value_parser = positive)]
    pub peak_tflops: Option<f64>,

    /// Bytes, or tokens, of context of the gpt and llama models [default: 128]
    #[arg(long)]
    pub context_length: Option<usize>,

    /// Bytes of text to sample from the gpt or llama model at the end
    #[arg(long, default_value_t = 400)]
    pub sample_bytes: usize,

    /// Make the images of these steps NaN, on all ranks or on one, to see what the run does about it
    #[arg(long, hide = true, value_name = "FIRST[-LAST][:RANK]")]
    #[serde(skip)]
    pub poison: Option<Poison>,
}

/// `--poison`.
#[derive(Debug, Clone, Copy)]
pub struct Poison {
    first: u64,
    last: u64,
    rank: Option<usize>,
}

impl Poison {
    /// Whether it is this rank's and this step's batch.
    pub fn hits(&self, step: u64, rank: usize) -> bool {
        (self.first..=self.last).contains(&step) && self.rank.is_none_or(|r| r == rank)
    }
}

impl FromStr for Poison {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let number = |part: &str| part.parse().map_err(|_| format!("`{part}` is no number"));
        let (steps, rank) = text.split_once(':').map_or((text, None), |(s, r)| (s, Some(r)));
        let (first, last) = steps.split_once('-').unwrap_or((steps, steps));
        let rank = rank.map(|r| number(r).map(|r| r as usize)).transpose()?;
        Ok(Poison { first: number(first)?, last: number(last)?, rank })
    }
}

/// `--data`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    Digits,
    FashionMnist(PathBuf),
    ImageFolder(PathBuf),
    Text(PathBuf),
    TokensU16(PathBuf),
    TokensU32(PathBuf),
    Synthetic,
}

impl FromStr for Source {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (kind, path) = text.split_once(':').map_or((text, None), |(k, p)| (k, Some(p)));
        match (kind, path) {
            ("digits", None) => Ok(Source::Digits),
            ("synthetic", None) => Ok(Source::Synthetic),
            ("fashion-mnist", Some(p)) if !p.is_empty() => Ok(Source::FashionMnist(p.into())),
            ("image-folder", Some(p)) if !p.is_empty() => Ok(Source::ImageFolder(p.into())),
            ("text", Some(p)) if !p.is_empty() => Ok(Source::Text(p.into())),
            ("tokens-u16", Some(p)) if !p.is_empty() => Ok(Source::TokensU16(p.into())),
            ("tokens-u32", Some(p)) if !p.is_empty() => Ok(Source::TokensU32(p.into())),
            ("fashion-mnist" | "image-folder" | "text" | "tokens-u16" | "tokens-u32", _) => {
                Err(format!("{kind} needs a path: {kind}:PATH"))
            }
            _ => Err("expected digits, fashion-mnist:FOLDER, image-folder:FOLDER, text:FILE, tokens-u16:FILE, \
                      tokens-u32:FILE or synthetic"
                .into()),
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
            Source::TokensU16(_) => "tokens-u16",
            Source::TokensU32(_) => "tokens-u32",
            Source::Synthetic => "synthetic",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    Mlp,
    Cnn,
    Resnet18,
    #[value(name = "mobilenet_v2")]
    MobilenetV2,
    Gpt,
    Llama,
}

impl ModelKind {
    /// A short name for folders.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerKind {
    Sgd,
    Adam,
    Adamw,
}

/// `--amp`.
#[derive(Debug, Clone, Copy, PartialEq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => return Ok(DeviceChoice::Auto),
            "cuda" => return Ok(DeviceChoice::Cuda),
            _ => {}
        }
        text.parse().map(DeviceChoice::On).map_err(|e: torchrs::Error| e.to_string())
    }
}

impl DeviceChoice {
    /// This worker's device, which is there.
    pub fn of(self, env: &WorkerEnv) -> Result<Device> {
        let (device, chosen) = match self {
            DeviceChoice::Auto => (env.device(), "auto"),
            DeviceChoice::Cuda => (Device::Cuda(env.local_rank), "cuda"),
            DeviceChoice::On(device) => {
                device.check()?;
                return Ok(device);
            }
        };
        device.check().map_err(|error| {
            let local = env.local_rank;
            let message = format!(
                "{chosen} is {device} for the worker of local rank {local}, but: {error}; start as many workers as \
                 there are GPUs (--nproc gpu), or pass --device cpu"
            );
            Error::config("--device", message)
        })?;
        Ok(device)
    }

    /// The devices of all workers, in words.
    pub fn describe(self, mine: Device, world: usize) -> String {
        match (self, mine) {
            (DeviceChoice::Auto | DeviceChoice::Cuda, Device::Cuda(_)) if world > 1 => {
                format!("{} to {}", Device::Cuda(0), Device::Cuda(world - 1))
            }
            _ => mine.to_string(),
        }
    }
}

fn llama_config(path: &str) -> std::result::Result<LlamaConfig, String> {
    LlamaConfig::from_file(path).map_err(|error| error.to_string())
}

fn positive(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v > 0.0 && v.is_finite() => Ok(v),
        _ => Err("expected a number above 0".into()),
    }
}

fn not_negative(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if v >= 0.0 && v.is_finite() => Ok(v),
        _ => Err("expected a number of at least 0".into()),
    }
}

fn fraction(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(v) if (0.0..1.0).contains(&v) => Ok(v),
        _ => Err("expected a number from 0 to below 1".into()),
    }
}

impl Args {
    pub fn data(&self) -> Source {
        self.data.clone().unwrap_or(Source::Digits)
    }

    pub fn model(&self) -> ModelKind {
        self.model.unwrap_or(match self.data {
            Some(Source::Text(_)) => ModelKind::Gpt,
            Some(Source::TokensU16(_) | Source::TokensU32(_)) => ModelKind::Llama,
            _ => ModelKind::Cnn,
        })
    }
}
