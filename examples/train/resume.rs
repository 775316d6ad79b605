//! How a run goes on from a checkpoint, also with other options.

use serde::{Deserialize, Serialize};
use serde_json::json;
use torchrs::Result;
use torchrs::optim::Optimizer;
use torchrs::optim::lr_scheduler::{LRScheduler, WarmupCosineLR};
use torchrs::train::metrics::Mean;

use crate::settings::Settings;

/// Where a run is. Places in the data are counted in samples, over all ranks, so that they mean the same for
/// other batch sizes and numbers of workers.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Position {
    pub epoch: u64,
    /// Samples of this epoch that steps were made of.
    pub samples: usize,
    /// Optimizer steps since the beginning.
    pub step: u64,
    /// The loss of this epoch's samples so far, but for those of steps that were left out.
    pub loss: Mean,
    /// After the last validation.
    pub outcome: Option<Outcome>,
}

/// What a run has reached.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Outcome {
    pub train_loss: f64,
    pub val_accuracy: f64,
}

impl Position {
    pub fn next_epoch(self) -> Position {
        let Position { epoch, step, outcome, .. } = self;
        Position { epoch: epoch + 1, step, outcome, ..Position::default() }
    }
}

/// Whether the schedule of a run means the same with other settings.
pub fn same_schedule(now: &Settings, before: &Settings) -> bool {
    let of = |s: &Settings| (s.epochs, s.batch_size, s.lr, s.world_size);
    of(now) == of(before)
}

/// Brings a schedule, of which nothing was loaded, to the same place in steps of the new size as the data is at.
pub fn move_schedule(
    schedule: &mut WarmupCosineLR,
    optimizer: &mut dyn Optimizer,
    now: &Settings,
    at: &Position,
    usable: usize,
) -> Result<()> {
    let batch = now.batch_size;
    let done = at.epoch * (usable as u64 / batch) + at.samples as u64 / batch;
    for group in 0..optimizer.num_groups() {
        optimizer.set_initial_lr(group, now.lr);
    }
    let mut state = schedule.state_dict();
    state["last_epoch"] = json!(done as i64 - 1);
    schedule.load_state_dict(&state)?;
    schedule.step(optimizer);
    Ok(())
}

/// Gives the parameters that decay, those of the first group, the decay of now.
pub fn set_weight_decay(optimizer: &mut dyn Optimizer, weight_decay: f64) -> Result<()> {
    let mut state = optimizer.state_dict();
    state.param_groups[0]["weight_decay"] = json!(weight_decay);
    optimizer.load_state_dict(&state)
}
