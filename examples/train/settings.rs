//! What a run is made with, kept in its checkpoints: what may change when it goes on, and what may not.

use serde::{Deserialize, Serialize};
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
    pub world_size: usize,
}

/// Options that a run keeps, and why. Positions are kept in samples, so that batch sizes, workers and epochs may change;
/// what a position or the saved tensors mean may not.
const FIXED: [(&str, &str); 5] = [
    ("data", "another data set has other samples at the saved position"),
    ("model", "its weights are of another shape"),
    ("optimizer", "the state of one optimizer means nothing to the other"),
    ("seed", "the order of the samples would be another one in mid-epoch"),
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
            Source::Text(_) => (1, 32),
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

fn default_lr(optimizer: OptimizerKind, model: ModelKind) -> f64 {
    match (optimizer, model) {
        (OptimizerKind::Sgd, _) => 0.05,
        (_, ModelKind::Gpt) => 1e-3,
        _ => 2e-3,
    }
}
