//! What a run is made with, kept in its checkpoints: what may change when it goes on, and what may not.

use std::fmt::Debug;

use serde::{Deserialize, Serialize};
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

/// An option's value in messages.
fn text(value: &impl Debug) -> String {
    format!("{value:?}").to_lowercase()
}

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

    /// Of a run that was made with `saved` and goes on: options that are given instead, others as they were.
    /// Also a line for each change.
    ///
    /// Positions are kept in samples, so that batch sizes, workers and epochs may change. What a position
    /// or the saved tensors mean may not.
    pub fn resumed(
        args: &Args,
        saved: &Settings,
        world_size: usize,
    ) -> Result<(Self, Vec<String>)> {
        let mut changes = Vec::new();
        let data = args.data.clone().unwrap_or_else(|| saved.data.clone());
        let why = "another data set has other samples at the saved position";
        same("--data", Some(data.name()), saved.data.name(), why)?;
        if data != saved.data {
            changes.push(format!("--data: {} before, {} now", text(&saved.data), text(&data)));
        }
        let why = "its weights are of another shape";
        let model = same("--model", args.model, saved.model, why)?;
        let why = "the state of one optimizer means nothing to the other";
        let optimizer = same("--optimizer", args.optimizer, saved.optimizer, why)?;
        let why = "the order of the samples would be another one in mid-epoch";
        let seed = same("--seed", args.seed, saved.seed, why)?;
        let context_length = match model {
            ModelKind::Gpt => {
                let why = "the model's weights and the windows of the text depend on it";
                same("--context-length", args.context_length, saved.context_length, why)?
            }
            _ => saved.context_length,
        };
        let ema = match (args.ema, saved.ema) {
            (Some(_), None) => {
                let message = "is given, but the run keeps no moving average (--ema was not given at its start)";
                return Err(Error::config("--ema", message));
            }
            (given, saved) => given.or(saved),
        };
        let settings = Settings {
            epochs: changed("--epochs", args.epochs, saved.epochs, &mut changes),
            batch_size: changed("--batch-size", args.batch_size, saved.batch_size, &mut changes),
            accumulate: changed("--accumulate", args.accumulate, saved.accumulate, &mut changes),
            lr: changed("--lr", args.lr, saved.lr, &mut changes),
            weight_decay: changed(
                "--weight-decay",
                args.weight_decay,
                saved.weight_decay,
                &mut changes,
            ),
            clip_norm: changed("--clip-norm", args.clip_norm, saved.clip_norm, &mut changes),
            amp: changed("--amp", args.amp, saved.amp, &mut changes),
            ema: ema.map(|ema| changed("--ema", Some(ema), saved.ema.unwrap_or(ema), &mut changes)),
            world_size: changed("workers", Some(world_size), saved.world_size, &mut changes),
            data,
            model,
            optimizer,
            seed,
            context_length,
        };
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

/// The saved value; an error when another one is given.
fn same<T: PartialEq + Debug>(option: &str, given: Option<T>, saved: T, why: &str) -> Result<T> {
    match given {
        Some(given) if given != saved => {
            let (given, saved) = (text(&given), text(&saved));
            let message = format!(
                "is {given}, but the run was made with {saved}: {why}; leave the option out to go on, or \
                 start another run in a folder of its own"
            );
            Err(Error::config(option, message))
        }
        _ => Ok(saved),
    }
}

/// The value that is given, if any, else the saved one; a line for a change.
fn changed<T: PartialEq + Debug>(
    option: &str,
    given: Option<T>,
    saved: T,
    changes: &mut Vec<String>,
) -> T {
    match given {
        Some(given) if given != saved => {
            changes.push(format!("{option}: {} before, {} now", text(&saved), text(&given)));
            given
        }
        _ => saved,
    }
}
