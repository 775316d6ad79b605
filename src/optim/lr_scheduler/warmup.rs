//! Rates that rise at the start: a straight line between two factors, and the usual schedule of
//! language models, a straight rise and then half a cosine down.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use super::{Moment, Schedule, Scheduler, plain_settings};
use crate::error::{Error, throw};
use crate::optim::Optimizer;

/// Rates that go in a straight line from `start_factor` to `end_factor` times the initial ones,
/// within `total_iters` epochs.
///
/// ```
/// use torchrs::optim::lr_scheduler::{LinearLR, LRScheduler};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule = LinearLR::new(&mut optimizer, 0.5, 1.0, 2);
/// assert_eq!(optimizer.lr(0), 0.5);
/// let rates = [0; 3].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates, [0.75, 1.0, 1.0]);
/// ```
pub type LinearLR = Scheduler<Linear>;

/// The formula of [`LinearLR`].
///
/// ```
/// use torchrs::optim::lr_scheduler::{Moment, Schedule, Linear};
/// let settings = r#"{"start_factor": 0.5, "end_factor": 1.0, "total_iters": 2}"#;
/// let formula: Linear = serde_json::from_str(settings).unwrap();
/// let at = Moment { epoch: 1, is_initial: false, group: 0, lr: 4.0, base_lr: 8.0 };
/// assert_eq!((formula.next(&at), formula.closed_form(&at)), (6.0, Some(6.0)));
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Linear {
    start_factor: f64,
    end_factor: f64,
    total_iters: u64,
}

impl LinearLR {
    /// For `optimizer`; PyTorch's defaults are 1/3, 1 and 5.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{LinearLR};
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// LinearLR::new(&mut optimizer, 0.25, 1.0, 5);
    /// assert_eq!(optimizer.lr(0), 0.25);
    /// assert!(torchrs::catch(move || LinearLR::new(&mut optimizer, 0.0, 1.0, 5)).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] unless `start_factor` is in (0, 1] and `end_factor` in [0, 1].
    #[track_caller]
    pub fn new(
        optimizer: &mut dyn Optimizer,
        start_factor: f64,
        end_factor: f64,
        total_iters: u64,
    ) -> Self {
        if !(start_factor > 0.0 && start_factor <= 1.0) {
            let message = format!("{start_factor}; must be above 0 and at most 1");
            throw(Error::argument("LinearLR", "start_factor", message));
        }
        if !(0.0..=1.0).contains(&end_factor) {
            let message = format!("{end_factor}; must be from 0 to 1");
            throw(Error::argument("LinearLR", "end_factor", message));
        }
        Scheduler::with(optimizer, Linear { start_factor, end_factor, total_iters })
    }
}

impl Schedule for Linear {
    const NAME: &'static str = "LinearLR";
    fn next(&self, at: &Moment) -> f64 {
        if at.epoch == 0 {
            return at.lr * self.start_factor;
        }
        if at.is_initial || at.epoch > self.total_iters as i64 {
            return at.lr;
        }
        let rise = self.end_factor - self.start_factor;
        let before = self.total_iters as f64 * self.start_factor + (at.epoch - 1) as f64 * rise;
        at.lr * (1.0 + rise / before)
    }
    fn closed_form(&self, at: &Moment) -> Option<f64> {
        let total = self.total_iters as f64;
        let rise = (self.end_factor - self.start_factor) * total.min(at.epoch as f64);
        Some(at.base_lr * (self.start_factor + rise / total.max(1.0)))
    }
    plain_settings!();
}

/// Rates that rise in a straight line for `warmup` steps, fall along half a cosine to `final_factor`
/// times the initial ones at step `total`, and stay there. Not in PyTorch, where every language
/// model brings its own.
///
/// ```
/// use torchrs::optim::lr_scheduler::{LRScheduler, WarmupCosineLR};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule = WarmupCosineLR::new(&mut optimizer, 1, 3, 0.0);
/// assert_eq!(optimizer.lr(0), 0.5);
/// let rates = [0; 4].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!((rates[0], rates[2], rates[3]), (1.0, 0.0, 0.0));
/// assert!((rates[1] - 0.5).abs() < 1e-12);
/// ```
pub type WarmupCosineLR = Scheduler<WarmupCosine>;

/// The formula of [`WarmupCosineLR`].
///
/// ```
/// use torchrs::optim::lr_scheduler::{Moment, Schedule, WarmupCosine};
/// let settings = r#"{"warmup": 3, "total": 9, "final_factor": 0.1}"#;
/// let formula: WarmupCosine = serde_json::from_str(settings).unwrap();
/// let at = Moment { epoch: 1, is_initial: false, group: 0, lr: 2.0, base_lr: 8.0 };
/// assert_eq!(formula.next(&at), 4.0); // step 2 of 4
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WarmupCosine {
    warmup: u64,
    total: u64,
    final_factor: f64,
}

impl WarmupCosineLR {
    /// For `optimizer`.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{WarmupCosineLR};
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// WarmupCosineLR::new(&mut optimizer, 3, 10, 0.0);
    /// assert_eq!(optimizer.lr(0), 0.25); // the first of four steps up
    /// assert!(torchrs::catch(move || WarmupCosineLR::new(&mut optimizer, 3, 2, 0.0)).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when `total` is 0 or less than `warmup`.
    #[track_caller]
    pub fn new(optimizer: &mut dyn Optimizer, warmup: u64, total: u64, final_factor: f64) -> Self {
        if total == 0 || warmup > total {
            let message = format!("{total}; must be at least 1 and at least warmup, {warmup}");
            throw(Error::argument("WarmupCosineLR", "total", message));
        }
        Scheduler::with(optimizer, WarmupCosine { warmup, total, final_factor })
    }
}

impl WarmupCosine {
    /// The factor of a step.
    fn factor(&self, step: i64) -> f64 {
        let &WarmupCosine { warmup, total, final_factor } = self;
        if step < warmup as i64 {
            // The first step is not lost on a rate of 0.
            return (step + 1) as f64 / (warmup + 1) as f64;
        }
        if step >= total as i64 {
            return final_factor;
        }
        let progress = (step as f64 - warmup as f64) / (total - warmup) as f64;
        final_factor + (1.0 - final_factor) * 0.5 * (1.0 + (PI * progress).cos())
    }
}

impl Schedule for WarmupCosine {
    const NAME: &'static str = "WarmupCosineLR";
    fn next(&self, at: &Moment) -> f64 {
        at.base_lr * self.factor(at.epoch)
    }
    plain_settings!();
}
