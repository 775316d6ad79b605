//! How a run goes on from a checkpoint, also with other options.

use serde::{Deserialize, Serialize};
use serde_json::json;
use torchrs::Result;
use torchrs::checkpoint::distributed::AsyncCheckpointer;
use torchrs::distributed::ProcessGroup;
use torchrs::optim::Optimizer;
use torchrs::train::{RunDir, TrainState};

use crate::settings::Settings;

/// Where a run is beside its learner. Places in the data are counted in samples, over all ranks, so that they mean the same
/// for other batch sizes and numbers of workers.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Position {
    /// Samples of this epoch that steps were made of.
    pub samples: usize,
    /// After the last validation.
    pub outcome: Option<Outcome>,
}

/// What a run has reached.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Outcome {
    pub train_loss: f64,
    pub val_accuracy: f64,
}

/// Saves the checkpoint of a step: now, or in the background.
pub fn save(
    state: TrainState,
    background: &mut Option<AsyncCheckpointer>,
    (run, step, group): (&RunDir, u64, &ProcessGroup),
) -> Result<()> {
    match background {
        Some(background) => state.async_save(background, run.checkpoints(), step, group),
        None => state.save(run.checkpoints(), step, group),
    }
    .map(drop)
}

/// Whether the schedule of a run means the same with other settings.
pub fn same_schedule(now: &Settings, before: &Settings) -> bool {
    let of = |s: &Settings| (s.epochs, s.batch_size, s.lr, s.world_size);
    of(now) == of(before)
}

/// Gives the parameters that decay, those of the first group, the decay of now.
pub fn set_weight_decay(optimizer: &mut dyn Optimizer, weight_decay: f64) -> Result<()> {
    let mut state = optimizer.local_state_dict();
    state.param_groups[0]["weight_decay"] = json!(weight_decay);
    optimizer.load_state_dict(&state)
}
