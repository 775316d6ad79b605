//! Rates that fall by a factor: every so many epochs, at certain ones, or at each.

use serde::{Deserialize, Serialize};

use super::{Moment, Schedule, Scheduler, plain_settings};
use crate::error::{Error, throw};
use crate::optim::Optimizer;

/// Multiplies the rates by `gamma` every `step_size` epochs.
pub type StepLR = Scheduler<Step>;

/// The formula of [`StepLR`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    step_size: u64,
    gamma: f64,
}

impl StepLR {
    /// For `optimizer`; PyTorch's default for `gamma` is 0.1.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when `step_size` is 0.
    #[track_caller]
    pub fn new(optimizer: &mut dyn Optimizer, step_size: u64, gamma: f64) -> Self {
        if step_size == 0 {
            throw(Error::argument("StepLR", "step_size", "0; must be at least 1"));
        }
        Scheduler::with(optimizer, Step { step_size, gamma })
    }
}

impl Schedule for Step {
    const NAME: &'static str = "StepLR";
    fn next(&self, at: &Moment) -> f64 {
        let falls = at.epoch != 0 && at.epoch % self.step_size as i64 == 0;
        if falls { at.lr * self.gamma } else { at.lr }
    }
    fn closed_form(&self, at: &Moment) -> Option<f64> {
        Some(at.base_lr * self.gamma.powi((at.epoch / self.step_size as i64) as i32))
    }
    plain_settings!();
}

/// Multiplies the rates by `gamma` at certain epochs.
pub type MultiStepLR = Scheduler<MultiStep>;

/// The formula of [`MultiStepLR`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MultiStep {
    milestones: Vec<i64>,
    gamma: f64,
}

impl MultiStepLR {
    /// For `optimizer`. An epoch that is twice among the milestones counts twice; PyTorch's default
    /// for `gamma` is 0.1.
    pub fn new(
        optimizer: &mut dyn Optimizer,
        milestones: impl IntoIterator<Item = u64>,
        gamma: f64,
    ) -> Self {
        let milestones = milestones.into_iter().map(|m| m as i64).collect();
        Scheduler::with(optimizer, MultiStep { milestones, gamma })
    }
}

impl Schedule for MultiStep {
    const NAME: &'static str = "MultiStepLR";
    fn next(&self, at: &Moment) -> f64 {
        match self.milestones.iter().filter(|&&m| m == at.epoch).count() {
            0 => at.lr,
            times => at.lr * self.gamma.powi(times as i32),
        }
    }
    fn closed_form(&self, at: &Moment) -> Option<f64> {
        let times = self.milestones.iter().filter(|&&m| m <= at.epoch).count();
        Some(at.base_lr * self.gamma.powi(times as i32))
    }
    plain_settings!();
}

/// Multiplies the rates by `gamma` at each epoch.
pub type ExponentialLR = Scheduler<Exponential>;

/// The formula of [`ExponentialLR`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Exponential {
    gamma: f64,
}

impl ExponentialLR {
    /// For `optimizer`.
    pub fn new(optimizer: &mut dyn Optimizer, gamma: f64) -> Self {
        Scheduler::with(optimizer, Exponential { gamma })
    }
}

impl Schedule for Exponential {
    const NAME: &'static str = "ExponentialLR";
    fn next(&self, at: &Moment) -> f64 {
        if at.is_initial { at.lr } else { at.lr * self.gamma }
    }
    fn closed_form(&self, at: &Moment) -> Option<f64> {
        Some(at.base_lr * self.gamma.powi(at.epoch as i32))
    }
    plain_settings!();
}
