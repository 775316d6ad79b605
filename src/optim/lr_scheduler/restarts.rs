//! Half a cosine down, again and again (Loshchilov and Hutter, 2017).

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use super::{Moment, Schedule, Scheduler, plain_settings};
use crate::error::{Error, throw};
use crate::optim::Optimizer;

/// Lowers the rates along half a cosine to `eta_min` within `t_0` epochs, then starts again, each
/// time with `t_mult` times as many epochs.
///
/// ```
/// use torchrs::optim::lr_scheduler::{CosineAnnealingWarmRestarts, LRScheduler};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule = CosineAnnealingWarmRestarts::new(&mut optimizer, 2, 1, 0.0);
/// let rates = [0; 2].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert!((rates[0] - 0.5).abs() < 1e-12);
/// assert_eq!(rates[1], 1.0);
/// ```
pub type CosineAnnealingWarmRestarts = Scheduler<WarmRestarts>;

/// The formula of [`CosineAnnealingWarmRestarts`].
///
/// ```
/// use torchrs::optim::lr_scheduler::{Moment, Schedule, WarmRestarts};
/// let formula: WarmRestarts = serde_json::from_str(r#"{"T_0": 2, "T_mult": 2, "eta_min": 0.0}"#).unwrap();
/// let at = Moment { epoch: 4, is_initial: false, group: 0, lr: 0.1, base_lr: 1.0 };
/// assert!((formula.next(&at) - 0.5).abs() < 1e-12); // half of the second cycle
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WarmRestarts {
    #[serde(rename = "T_0")]
    t_0: u64,
    #[serde(rename = "T_mult")]
    t_mult: u64,
    eta_min: f64,
    /// How far the current epoch has gone.
    #[serde(default)]
    fraction: f64,
}

impl CosineAnnealingWarmRestarts {
    /// For `optimizer`; PyTorch's defaults are 1 for `t_mult` and 0 for `eta_min`.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when `t_0` or `t_mult` is 0.
    #[track_caller]
    pub fn new(optimizer: &mut dyn Optimizer, t_0: u64, t_mult: u64, eta_min: f64) -> Self {
        for (name, value) in [("t_0", t_0), ("t_mult", t_mult)] {
            if value == 0 {
                let message = "0; must be at least 1";
                throw(Error::argument("CosineAnnealingWarmRestarts", name, message));
            }
        }
        Scheduler::with(optimizer, WarmRestarts { t_0, t_mult, eta_min, fraction: 0.0 })
    }

    /// Sets the rates of an epoch that may have a fraction: `epoch + batch / batches`.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{CosineAnnealingWarmRestarts};
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// let mut schedule = CosineAnnealingWarmRestarts::new(&mut optimizer, 10, 1, 0.0);
    /// schedule.step_to(&mut optimizer, 4.0 + 30.0 / 30.0); // after the last batch of epoch 4
    /// assert!((optimizer.lr(0) - 0.5).abs() < 1e-12);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when `epoch` is negative or not finite.
    #[track_caller]
    pub fn step_to(&mut self, optimizer: &mut dyn Optimizer, epoch: f64) {
        if !(epoch.is_finite() && epoch >= 0.0) {
            let message = format!("{epoch}; must be finite and at least 0");
            throw(Error::argument("CosineAnnealingWarmRestarts::step_to", "epoch", message));
        }
        self.step_count += 1;
        self.last_epoch = epoch.floor() as i64;
        self.schedule.fraction = epoch.fract();
        self.set_rates(optimizer, false, WarmRestarts::next);
    }
}

impl Schedule for WarmRestarts {
    const NAME: &'static str = "CosineAnnealingWarmRestarts";
    fn next(&self, at: &Moment) -> f64 {
        let (mut position, mut length) = (at.epoch as f64 + self.fraction, self.t_0 as f64);
        if self.t_mult == 1 {
            position %= length;
        }
        while position >= length {
            position -= length;
            length *= self.t_mult as f64;
        }
        let cosine = (PI * position / length).cos();
        self.eta_min + (at.base_lr - self.eta_min) * (1.0 + cosine) / 2.0
    }
    plain_settings!();
}
