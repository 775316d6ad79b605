//! What a run is made with, kept in its checkpoints: what may change when it goes on, and what may not.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use torchrs::models::LlamaConfig;
use torchrs::train::resumed_options;
use torchrs::{Error, Result};

use crate::args::{Amp, Args, ModelKind, OptimizerKind, Source};

/// The options of a run, each with a value.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Settings {
    pub data: Source,
    pub model: ModelKind,
    pub epochs: u64,
    /// Samples per optimizer step, over all workers together.
    pub batch_size: u64,
    pub accumulate: u64,
    pub lr: f64,
    pub optimizer: OptimizerKind,
    pub weight_decay: f64,
    pub clip_norm: f64,
    pub ema: Option<f64>,
    pub amp: Amp,
    pub seed: u64,
    pub context_length: usize,
    /// Of the llama model.
    #[serde(default)]
    pub config: Option<LlamaConfig>,
    #[serde(default)]
    pub activation_checkpointing: Checkpointing,
    #[serde(default)]
    pub shard: Shard,
    pub world_size: usize,
}

/// `--activation-checkpointing`.
#[derive(Debug, Clone, Copy, Default, PartialEq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checkpointing {
    /// Blocks keep all that backward needs
    #[default]
    None,
    /// Blocks keep their input, and are computed twice
    Full,
    /// Blocks keep the results of matrix products and attention, and compute the cheap rest twice
    Selective,
}

/// `--shard`.
#[derive(Debug, Clone, Copy, Default, PartialEq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shard {
    /// Each worker has all: data parallel
    #[default]
    None,
    /// Parameters, gradients and optimizer state are in parts (ZeRO-3)
    Full,
    /// The same over the workers of a host, with a replica on each host
    Hybrid,
    /// Optimizer state is in parts
    Zero1,
    /// Gradients and optimizer state are in parts; parameters are whole from forward to backward
    Zero2,
}

impl Shard {
    /// Whether a worker's parameters are parts.
    pub fn cuts_parameters(self) -> bool {
        matches!(self, Shard::Full | Shard::Hybrid | Shard::Zero2)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// Options that a run keeps, and why. Positions are kept in samples, so that batch sizes, workers and epochs may change;
/// what a position or the saved tensors mean may not.
const FIXED: [(&str, &str); 6] = [
    ("data", "another data set has other samples at the saved position"),
    ("model", "its weights are of another shape"),
    ("optimizer", "the state of one optimizer means nothing to the other"),
    ("seed", "the order of the samples would be another one in mid-epoch"),
    ("config", "its weights are of another shape"),
    ("context_length", "the model's weights and the windows of the text depend on it"),
];

impl Settings {
    /// Of a new run.
    pub fn new(args: &Args, world_size: usize) -> Self {
        let (data, model) = (args.data(), args.model());
        let optimizer = args.optimizer.unwrap_or(OptimizerKind::Adamw);
        let (epochs, batch_size) = match data {
            Source::Digits => (15, 32),
            Source::FashionMnist(_) => (6, 128),
            Source::ImageFolder(_) => (10, 64),
            Source::Text(_) | Source::TokensU16(_) | Source::TokensU32(_) => (1, 32),
            Source::Synthetic => (3, 64),
        };
        Settings {
            epochs: args.epochs.unwrap_or(epochs),
            batch_size: args.batch_size.unwrap_or(batch_size),
            accumulate: args.accumulate.unwrap_or(1),
            lr: args.lr.unwrap_or_else(|| default_lr(optimizer, model)),
            optimizer,
            weight_decay: args.weight_decay.unwrap_or(0.01),
            clip_norm: args.clip_norm.unwrap_or(1.0),
            ema: args.ema,
            amp: args.amp.unwrap_or(Amp::Off),
            seed: args.seed.unwrap_or(0),
            context_length: args.context_length.unwrap_or(128),
            config: args.config.clone(),
            activation_checkpointing: args.activation_checkpointing.unwrap_or_default(),
            shard: args.shard.unwrap_or_default(),
            world_size,
            data,
            model,
        }
    }

    /// Of a run that was made with `saved` and goes on, and a line for each change.
    pub fn resumed(args: &Args, saved: Self, world_size: usize) -> Result<(Self, Vec<String>)> {
        if let (Some(_), None) = (args.ema, saved.ema) {
            let message =
                "is given, but the run keeps no moving average (--ema was not given at its start)";
            return Err(Error::config("--ema", message));
        }
        // The same data may be at another place now.
        let moved = args.data.as_ref().filter(|data| data.name() == saved.data.name());
        let before = Settings { data: moved.unwrap_or(&saved.data).clone(), ..saved.clone() };
        let (mut settings, mut changes) = resumed_options(&before, args, &FIXED)?;
        if before.data != saved.data {
            changes.push(format!("--data: {:?} before, {:?} now", saved.data, before.data));
        }
        if world_size != saved.world_size {
            changes.push(format!("workers: {} before, {world_size} now", saved.world_size));
            settings.world_size = world_size;
        }
        Ok((settings, changes))
    }
}

impl Settings {
    /// Options of the llama model beside another one, and others that do not go together.
    pub fn check(&self, args: &Args) -> Result<()> {
        let name = self.model.name();
        if self.model != ModelKind::Llama {
            let given = [
                ("--config", self.config.is_some()),
                (
                    "--activation-checkpointing",
                    self.activation_checkpointing != Checkpointing::None,
                ),
                ("--export", args.export.is_some()),
            ];
            if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
                return Err(Error::config(option, format!("is for --model llama, not {name}")));
            }
        }
        if args.no_checkpoints {
            let given = [
                ("--resume", args.resume),
                ("--save-every", args.save_every.is_some()),
                ("--async-checkpoints", args.async_checkpoints),
            ];
            if let Some((option, _)) = given.iter().find(|(_, given)| *given) {
                return Err(Error::config(option, "needs checkpoints; leave out --no-checkpoints"));
            }
        }
        Ok(())
    }
}

fn default_lr(optimizer: OptimizerKind, model: ModelKind) -> f64 {
    match (optimizer, model) {
        (OptimizerKind::Sgd, _) => 0.05,
        (_, ModelKind::Gpt | ModelKind::Llama) => 1e-3,
        _ => 2e-3,
    }
}
