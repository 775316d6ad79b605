//! A run ends when what it is measured by has not improved for some time.

use serde::{Deserialize, Serialize};

use crate::checkpoint::Best;
use crate::distributed::ProcessGroup;
use crate::error::{Error, Result};

/// Says when a number, such as the validation loss, has not improved for `patience` updates.
///
/// It can be a [value](super::TrainState::value) of the run's state.
///
/// ```
/// use torchrs::checkpoint::Best;
/// use torchrs::train::EarlyStopping;
/// let group = torchrs::distributed::init_process_group(Default::default())?;
/// let mut early = EarlyStopping::new(2, Best::Lowest);
/// let losses = [0.9, 0.5, 0.6, 0.7, 0.4];
/// let epochs = losses.iter().take_while(|loss| !early.update(**loss, &group).unwrap()).count();
/// assert_eq!((epochs, early.best()), (3, Some(0.5)));
/// # Ok::<(), torchrs::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EarlyStopping {
    patience: u64,
    is_lower_better: bool,
    min_delta: f64,
    best: Option<f64>,
    /// Updates since the best one.
    waited: u64,
}

impl EarlyStopping {
    /// Stops after `patience` updates without a better value.
    pub fn new(patience: u64, best: Best) -> Self {
        let is_lower_better = best == Best::Lowest;
        EarlyStopping { patience, is_lower_better, min_delta: 0.0, best: None, waited: 0 }
    }

    /// Counts only what is better by more than that.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for one that is negative or not finite.
    #[track_caller]
    pub fn min_delta(mut self, min_delta: f64) -> Self {
        if !(min_delta >= 0.0 && min_delta.is_finite()) {
            let what = format!("{min_delta}; must be 0 or more, and finite");
            crate::error::throw(Error::argument("EarlyStopping::min_delta", "min_delta", what));
        }
        self.min_delta = min_delta;
        self
    }

    /// Takes the value of this epoch, which is the same on all ranks, and says whether to stop. Collective.
    ///
    /// # Errors
    /// On all ranks: [`Error::Argument`] for a value that is NaN, which is never better; [`Error::Mismatch`] where ranks
    /// have different values, and would stop in different epochs.
    #[track_caller]
    pub fn update(&mut self, value: f64, group: &ProcessGroup) -> Result<bool> {
        let values: Vec<f64> = group.all_gather_object(&value)?;
        if let Some(rank) = values.iter().position(|value| value.is_nan()) {
            let what =
                format!("NaN on rank {rank}; must be a number, which can be better than others");
            return Err(Error::argument("EarlyStopping::update", "value", what));
        }
        if let Some(rank) = values.iter().position(|value| *value != values[0]) {
            return Err(Error::Mismatch(format!(
                "EarlyStopping::update: rank 0 has {}, rank {rank} {}; give a value of all ranks, such as \
                 `Metric::compute` does",
                values[0], values[rank]
            )));
        }
        let sign = if self.is_lower_better { 1.0 } else { -1.0 };
        let is_better = self.best.is_none_or(|best| sign * (best - value) > self.min_delta);
        if is_better {
            (self.best, self.waited) = (Some(value), 0);
        } else {
            self.waited += 1;
        }
        Ok(self.waited >= self.patience.max(1))
    }

    /// The best value so far.
    pub fn best(&self) -> Option<f64> {
        self.best
    }

    /// Whether the last update was the best one: the time to keep its checkpoint.
    pub fn is_best(&self) -> bool {
        self.best.is_some() && self.waited == 0
    }
}
