//! Rates that fall by a factor: every so many epochs, at certain ones, or at each.

use serde::{Deserialize, Serialize};

use super::{Moment, Schedule, Scheduler, plain_settings};
use crate::error::{Error, throw};
use crate::optim::Optimizer;

/// Multiplies the rates by `gamma` every `step_size` epochs.
///
/// ```
/// use torchrs::optim::lr_scheduler::{LRScheduler, StepLR};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule = StepLR::new(&mut optimizer, 2, 0.5);
/// let rates = [0; 4].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates, [1.0, 0.5, 0.5, 0.25]);
/// ```
pub type StepLR = Scheduler<Step>;

/// The formula of [`StepLR`].
///
/// ```
/// use torchrs::optim::lr_scheduler::{Moment, Schedule, Step};
/// let formula: Step = serde_json::from_str(r#"{"step_size": 2, "gamma": 0.5}"#).unwrap();
/// let at = Moment { epoch: 2, is_initial: false, group: 0, lr: 1.0, base_lr: 1.0 };
/// assert_eq!(formula.next(&at), 0.5);
/// ```
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
///
/// ```
/// use torchrs::optim::lr_scheduler::{LRScheduler, MultiStepLR};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule = MultiStepLR::new(&mut optimizer, [1, 3], 0.5);
/// let rates = [0; 4].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates, [0.5, 0.5, 0.25, 0.25]);
/// ```
pub type MultiStepLR = Scheduler<MultiStep>;

/// The formula of [`MultiStepLR`].
///
/// ```
/// use torchrs::optim::lr_scheduler::{Moment, Schedule, MultiStep};
/// let formula: MultiStep = serde_json::from_str(r#"{"milestones": [1, 3], "gamma": 0.5}"#).unwrap();
/// let at = Moment { epoch: 3, is_initial: false, group: 0, lr: 0.5, base_lr: 1.0 };
/// assert_eq!(formula.next(&at), 0.25);
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MultiStep {
    milestones: Vec<i64>,
    gamma: f64,
}

impl MultiStepLR {
    /// For `optimizer`. An epoch that is twice among the milestones counts twice; PyTorch's default
    /// for `gamma` is 0.1.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{LRScheduler, MultiStepLR};
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// let mut schedule = MultiStepLR::new(&mut optimizer, [2, 2], 0.5);
    /// let rates = [0; 3].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
    /// assert_eq!(rates, [1.0, 0.25, 0.25]); // a milestone that counts twice
    /// ```
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
///
/// ```
/// use torchrs::optim::lr_scheduler::{ExponentialLR, LRScheduler};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule = ExponentialLR::new(&mut optimizer, 0.5);
/// let rates = [0; 3].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates, [0.5, 0.25, 0.125]);
/// ```
pub type ExponentialLR = Scheduler<Exponential>;

/// The formula of [`ExponentialLR`].
///
/// ```
/// use torchrs::optim::lr_scheduler::{Moment, Schedule, Exponential};
/// let formula: Exponential = serde_json::from_str(r#"{"gamma": 0.5}"#).unwrap();
/// let at = Moment { epoch: 3, is_initial: false, group: 0, lr: 0.25, base_lr: 1.0 };
/// assert_eq!(formula.next(&at), 0.125);
/// ```
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
