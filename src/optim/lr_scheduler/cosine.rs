//! Half a cosine from the initial rate down to a least one (Loshchilov and Hutter, 2017).

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use super::{Moment, Schedule, Scheduler, plain_settings};
use crate::error::{Error, throw};
use crate::optim::Optimizer;

/// Lowers the rates along half a cosine, from the initial ones to `eta_min` at epoch `t_max`; after
/// that they rise again.
///
/// ```
/// use torchrs::optim::lr_scheduler::{CosineAnnealingLR, LRScheduler};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule = CosineAnnealingLR::new(&mut optimizer, 4, 0.0);
/// let rates = [0; 4].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert!((rates[1] - 0.5).abs() < 1e-12 && rates[3].abs() < 1e-12);
/// ```
pub type CosineAnnealingLR = Scheduler<CosineAnnealing>;

/// The formula of [`CosineAnnealingLR`].
///
/// ```
/// use torchrs::optim::lr_scheduler::{Moment, Schedule, CosineAnnealing};
/// let formula: CosineAnnealing = serde_json::from_str(r#"{"T_max": 4, "eta_min": 0.0}"#).unwrap();
/// let at = Moment { epoch: 2, is_initial: false, group: 0, lr: 0.9, base_lr: 1.0 };
/// assert!((formula.closed_form(&at).unwrap() - 0.5).abs() < 1e-12);
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CosineAnnealing {
    #[serde(rename = "T_max")]
    t_max: u64,
    eta_min: f64,
}

impl CosineAnnealingLR {
    /// For `optimizer`; PyTorch's default for `eta_min` is 0.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when `t_max` is 0.
    #[track_caller]
    pub fn new(optimizer: &mut dyn Optimizer, t_max: u64, eta_min: f64) -> Self {
        if t_max == 0 {
            throw(Error::argument("CosineAnnealingLR", "t_max", "0; must be at least 1"));
        }
        Scheduler::with(optimizer, CosineAnnealing { t_max, eta_min })
    }
}

impl Schedule for CosineAnnealing {
    const NAME: &'static str = "CosineAnnealingLR";
    fn next(&self, at: &Moment) -> f64 {
        let (epoch, t_max) = (at.epoch as f64, self.t_max as f64);
        if at.is_initial {
            at.lr
        } else if (at.epoch - 1 - self.t_max as i64) % (2 * self.t_max as i64) == 0 {
            // The first epoch upwards: the rate is at its least, where the ratio below is 0 / 0.
            at.lr + (at.base_lr - self.eta_min) * (1.0 - (PI / t_max).cos()) / 2.0
        } else {
            (1.0 + (PI * epoch / t_max).cos()) / (1.0 + (PI * (epoch - 1.0) / t_max).cos())
                * (at.lr - self.eta_min)
                + self.eta_min
        }
    }
    fn closed_form(&self, at: &Moment) -> Option<f64> {
        let cosine = (PI * at.epoch as f64 / self.t_max as f64).cos();
        Some(self.eta_min + (at.base_lr - self.eta_min) * (1.0 + cosine) / 2.0)
    }
    plain_settings!();
}
