//! What a checkpoint of a run holds, and how a run goes on from it, also with other options.

use serde::{Deserialize, Serialize};
use serde_json::json;
use torchrs::amp::GradScaler;
use torchrs::checkpoint::{Checkpoint, TensorMap};
use torchrs::data::{DataLoader, LoaderState};
use torchrs::nn::Module;
use torchrs::optim::lr_scheduler::{LRScheduler, WarmupCosineLR};
use torchrs::optim::swa_utils::AveragedModel;
use torchrs::optim::{Optimizer, OptimizerState};
use torchrs::{Result, default_generator};

use crate::data::Data;
use crate::guard::check_before_save;
use crate::models::Network;
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
    /// Sum of this epoch's losses so far, over its samples.
    pub loss_sum: f64,
    /// The samples in that sum: those of steps with a finite loss.
    pub loss_samples: usize,
    /// Steps that the loss scaler left out, one after the other.
    pub skipped: u64,
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
        let Position { epoch, step, skipped, outcome, .. } = self;
        Position { epoch: epoch + 1, step, skipped, outcome, ..Position::default() }
    }
}

/// A run's parts that go into a checkpoint, beside those that steps change.
pub struct Resumable<'a> {
    pub settings: &'a Settings,
    pub model: &'a dyn Network,
    pub average: Option<&'a AveragedModel<Box<dyn Network>>>,
    pub loader: &'a DataLoader<Data>,
    /// Samples of an epoch.
    pub usable: usize,
}

impl Resumable<'_> {
    /// A checkpoint of rank 0's state. An error when weights are not finite.
    pub fn save(
        &self,
        at: &Position,
        optimizer: &dyn Optimizer,
        schedule: &dyn LRScheduler,
        scaler: &GradScaler,
    ) -> Result<Checkpoint> {
        let (tensors, options) = optimizer.state_dict().split();
        let model: TensorMap = self.model.state_dict().into_iter().collect();
        check_before_save("model", &model)?;
        let mut checkpoint = Checkpoint::new().with_tensors("model", model);
        if let Some(average) = self.average {
            let average: TensorMap = average.state_dict().into_iter().collect();
            check_before_save("moving average", &average)?;
            checkpoint = checkpoint.with_tensors("ema", average);
        }
        checkpoint
            .with_tensors("optimizer", tensors)
            .with_value("optimizer", &options)?
            .with_value("schedule", &schedule.state_dict())?
            .with_value("scaler", &scaler.state_dict())?
            .with_value("loader", &self.loader.state_dict())?
            .with_value("rng", &default_generator().get_state())?
            .with_value("settings", self.settings)?
            .with_value("position", at)
    }

    /// Brings all parts where `saved` was; gives the position.
    pub fn load(
        &self,
        saved: &Checkpoint,
        optimizer: &mut dyn Optimizer,
        schedule: &mut WarmupCosineLR,
        scaler: &mut GradScaler,
    ) -> Result<Position> {
        let before: Settings = saved.value("settings")?;
        let mut at: Position = saved.value("position")?;
        self.model.load_state_dict(saved.tensors("model")?, true)?;
        if let Some(average) = self.average {
            average.load_state_dict(saved.tensors("ema")?, true)?;
        }
        let mut options: serde_json::Value = saved.value("optimizer")?;
        // The first group's parameters decay.
        options["param_groups"][0]["weight_decay"] = json!(self.settings.weight_decay);
        let state = OptimizerState::join(saved.tensors("optimizer")?, &options)?;
        optimizer.load_state_dict(&state)?;
        let state: serde_json::Value = saved.value("scaler")?;
        // A run that had no scaler before begins with a new one.
        if scaler.is_enabled() && state.get("scale").is_some() {
            scaler.load_state_dict(&state)?;
        }
        default_generator().set_state(saved.value("rng")?);

        // Another number of workers shares out the samples from the last place that all have reached: fewer
        // than one for each worker are read again.
        let world = self.settings.world_size;
        at.samples = at.samples.min(self.usable) / world * world;
        let state: LoaderState = saved.value("loader")?;
        let place = LoaderState { epoch: at.epoch, position: at.samples, finished: false, ..state };
        self.loader.load_state_dict(&place)?;

        let (now, batch) = (self.settings, self.settings.batch_size);
        let same = (now.epochs, batch, now.lr, world)
            == (before.epochs, before.batch_size, before.lr, before.world_size);
        if same {
            schedule.load_state_dict(&saved.value("schedule")?)?;
            return Ok(at);
        }
        // The same place in the schedule as in the data, in steps of the new size.
        let done = at.epoch * (self.usable as u64 / batch) + at.samples as u64 / batch;
        for group in 0..optimizer.num_groups() {
            optimizer.set_initial_lr(group, now.lr);
        }
        let mut state = schedule.state_dict();
        state["last_epoch"] = json!(done as i64 - 1);
        schedule.load_state_dict(&state)?;
        schedule.step(optimizer);
        Ok(at)
    }
}
