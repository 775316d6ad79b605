//! Rates that fall when a metric stops improving.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::from_settings;
use crate::error::{Error, Result, throw};
use crate::optim::Optimizer;

/// What is better: a lower metric or a higher one.
///
/// ```
/// use torchrs::optim::lr_scheduler::{PlateauMode, PlateauOptions, ReduceLROnPlateau};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mode = PlateauMode::Max;
/// let options = PlateauOptions { mode, factor: 0.5, patience: 0, ..Default::default() };
/// let mut schedule = ReduceLROnPlateau::new(&mut optimizer, options);
/// for accuracy in [0.7, 0.8, 0.9, 0.8] {
///     schedule.step(&mut optimizer, accuracy);
/// }
/// assert_eq!(optimizer.lr(0), 0.5);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum PlateauMode {
    /// Lower, such as a loss.
    #[default]
    Min,
    /// Higher, such as an accuracy.
    Max,
}

/// How the least improvement is measured.
///
/// ```
/// use torchrs::optim::lr_scheduler::{PlateauOptions, ReduceLROnPlateau, ThresholdMode};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let threshold_mode = ThresholdMode::Abs;
/// let options = PlateauOptions { threshold: 0.1, threshold_mode, patience: 0, ..Default::default() };
/// let mut schedule = ReduceLROnPlateau::new(&mut optimizer, options);
/// for loss in [8.0, 7.5] { // better by more than 0.1, though not by a tenth
///     schedule.step(&mut optimizer, loss);
/// }
/// assert_eq!(optimizer.lr(0), 1.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ThresholdMode {
    /// Relative to the best metric.
    #[default]
    Rel,
    /// As a difference.
    Abs,
}

/// Options of [`ReduceLROnPlateau`], with PyTorch's defaults.
///
/// ```
/// use torchrs::optim::lr_scheduler::{PlateauOptions, ReduceLROnPlateau};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let least = PlateauOptions { min_lr: vec![0.4], ..Default::default() };
/// let options = PlateauOptions { factor: 0.5, patience: 0, ..least };
/// let mut schedule = ReduceLROnPlateau::new(&mut optimizer, options);
/// let rates = [0; 3].map(|_| { schedule.step(&mut optimizer, 1.0); optimizer.lr(0) });
/// assert_eq!(rates, [1.0, 0.5, 0.4]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlateauOptions {
    /// What is better.
    pub mode: PlateauMode,
    /// What the rates are multiplied by; below 1.
    pub factor: f64,
    /// Epochs without improvement that are tolerated.
    pub patience: u64,
    /// The least improvement.
    pub threshold: f64,
    /// How that is measured.
    pub threshold_mode: ThresholdMode,
    /// Epochs after a fall in which nothing is counted.
    pub cooldown: u64,
    /// Least rates: one for all groups or one for each.
    #[serde(rename = "min_lrs")]
    pub min_lr: Vec<f64>,
    /// A smaller change of a rate is not made.
    pub eps: f64,
}

impl Default for PlateauOptions {
    fn default() -> Self {
        PlateauOptions {
            mode: PlateauMode::Min,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            threshold_mode: ThresholdMode::Rel,
            cooldown: 0,
            min_lr: vec![0.0],
            eps: 1e-8,
        }
    }
}

/// Multiplies the rates by a factor when a metric has not improved for some epochs
/// (`torch.optim.lr_scheduler.ReduceLROnPlateau`). Its step takes the metric, so it is no
/// [`LRScheduler`](super::LRScheduler).
///
/// ```
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// use torchrs::optim::lr_scheduler::{PlateauOptions, ReduceLROnPlateau};
/// let w = Tensor::from([1f32]).requires_grad_(true);
/// let mut optimizer = SGD::new([w], SGDOptions { lr: 1.0, ..Default::default() });
/// let options = PlateauOptions { patience: 1, factor: 0.5, ..Default::default() };
/// let mut schedule = ReduceLROnPlateau::new(&mut optimizer, options);
/// for loss in [1.0, 1.0, 1.0] {
///     schedule.step(&mut optimizer, loss);
/// }
/// assert_eq!(optimizer.lr(0), 0.5);
/// ```
#[derive(Serialize, Deserialize)]
pub struct ReduceLROnPlateau {
    #[serde(flatten)]
    options: PlateauOptions,
    best: Option<f64>,
    num_bad_epochs: u64,
    cooldown_counter: u64,
    last_epoch: i64,
    #[serde(rename = "_last_lr")]
    last_lr: Vec<f64>,
}

impl ReduceLROnPlateau {
    /// For `optimizer`.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{PlateauOptions, ReduceLROnPlateau};
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// assert_eq!(ReduceLROnPlateau::new(&mut optimizer, Default::default()).last_lr(), [1.0]);
    /// let wrong = PlateauOptions { factor: 2.0, ..Default::default() };
    /// assert!(torchrs::catch(move || ReduceLROnPlateau::new(&mut optimizer, wrong)).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when `factor` is not below 1 or there are not as many least rates
    /// as groups.
    #[track_caller]
    pub fn new(optimizer: &mut dyn Optimizer, options: PlateauOptions) -> Self {
        let wrong = |name: &str, message: String| -> ! {
            throw(Error::argument("ReduceLROnPlateau", name, message))
        };
        if options.factor >= 1.0 {
            wrong("factor", format!("{}; must be below 1", options.factor));
        }
        let (numbers, groups) = (options.min_lr.len(), optimizer.num_groups());
        if numbers != 1 && numbers != groups {
            wrong("min_lr", format!("{numbers} numbers for {groups} parameter groups"));
        }
        ReduceLROnPlateau {
            options,
            best: None,
            num_bad_epochs: 0,
            cooldown_counter: 0,
            last_epoch: 0,
            last_lr: (0..groups).map(|group| optimizer.lr(group)).collect(),
        }
    }

    /// Takes the metric of an epoch into account, and lowers the rates if it is time.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{PlateauOptions, ReduceLROnPlateau};
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// let options = PlateauOptions { factor: 0.5, patience: 1, ..Default::default() };
    /// let mut schedule = ReduceLROnPlateau::new(&mut optimizer, options);
    /// let rates = [3.0, 2.0, 2.0, 2.0].map(|loss| { schedule.step(&mut optimizer, loss); optimizer.lr(0) });
    /// assert_eq!(rates, [1.0, 1.0, 1.0, 0.5]);
    /// ```
    pub fn step(&mut self, optimizer: &mut dyn Optimizer, metric: f64) {
        self.last_epoch += 1;
        if self.improves(metric) {
            self.best = Some(metric);
            self.num_bad_epochs = 0;
        } else {
            self.num_bad_epochs += 1;
        }
        if self.cooldown_counter > 0 {
            self.cooldown_counter -= 1;
            self.num_bad_epochs = 0;
        }
        if self.num_bad_epochs > self.options.patience {
            self.reduce(optimizer);
            self.cooldown_counter = self.options.cooldown;
            self.num_bad_epochs = 0;
        }
        self.last_lr = (0..optimizer.num_groups()).map(|group| optimizer.lr(group)).collect();
    }

    /// Whether a metric is better than the best one by more than the threshold.
    fn improves(&self, metric: f64) -> bool {
        let PlateauOptions { mode, threshold, threshold_mode, .. } = self.options;
        let Some(best) = self.best else { return !metric.is_nan() };
        match (mode, threshold_mode) {
            (PlateauMode::Min, ThresholdMode::Rel) => metric < best * (1.0 - threshold),
            (PlateauMode::Min, ThresholdMode::Abs) => metric < best - threshold,
            (PlateauMode::Max, ThresholdMode::Rel) => metric > best * (1.0 + threshold),
            (PlateauMode::Max, ThresholdMode::Abs) => metric > best + threshold,
        }
    }

    fn reduce(&self, optimizer: &mut dyn Optimizer) {
        let PlateauOptions { factor, min_lr, eps, .. } = &self.options;
        for group in 0..optimizer.num_groups() {
            let old = optimizer.lr(group);
            let new = (old * factor).max(min_lr[group.min(min_lr.len() - 1)]);
            if old - new > *eps {
                optimizer.set_lr(group, new);
            }
        }
    }

    /// The rates after the last step, by group.
    pub fn last_lr(&self) -> Vec<f64> {
        self.last_lr.clone()
    }

    /// Settings and position, to be saved.
    pub fn state_dict(&self) -> Value {
        serde_json::to_value(self).expect("plain numbers")
    }

    /// Continues from a saved position. When there is an error nothing has changed.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{PlateauOptions, ReduceLROnPlateau};
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// let options = PlateauOptions { factor: 0.5, patience: 0, ..Default::default() };
    /// let mut old = ReduceLROnPlateau::new(&mut optimizer, options);
    /// old.step(&mut optimizer, 3.0);
    /// let mut schedule = ReduceLROnPlateau::new(&mut optimizer, Default::default());
    /// schedule.load_state_dict(&old.state_dict())?;
    /// schedule.step(&mut optimizer, 4.0); // worse than the best one of before
    /// assert_eq!(optimizer.lr(0), 0.5);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when `state` is not that of such a scheduler.
    pub fn load_state_dict(&mut self, state: &Value) -> Result<()> {
        let wrong =
            |message| Error::argument("ReduceLROnPlateau::load_state_dict", "state", message);
        let loaded: Self = from_settings(state).map_err(wrong)?;
        let (theirs, ours) = (loaded.last_lr.len(), self.last_lr.len());
        let rates = loaded.options.min_lr.len();
        if rates != 1 && rates != ours {
            let message =
                format!("has {rates} `min_lrs`, the optimizer has {ours} parameter groups");
            return Err(wrong(message));
        }
        if theirs != ours {
            let message = format!("is of {theirs} parameter groups, the optimizer has {ours}");
            return Err(wrong(message));
        }
        *self = loaded;
        Ok(())
    }
}
