//! The schedule that leads to SWA's constant rate.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::error::{Error, throw};
use crate::optim::Optimizer;
use crate::optim::lr_scheduler::{Anneal, Moment, Schedule, Scheduler, plain_settings};

/// Leads the rates within some epochs to `swa_lr`, where they stay (`torch.optim.swa_utils.SWALR`).
///
/// ```
/// use torchrs::optim::lr_scheduler::{Anneal, LRScheduler};
/// use torchrs::optim::swa_utils::SWALR;
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let w = Tensor::from([1f32]).requires_grad_(true);
/// let mut optimizer = SGD::new([w], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule = SWALR::new(&mut optimizer, &[0.5], 2, Anneal::Linear);
/// let rates = [0; 3].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates, [0.75, 0.5, 0.5]);
/// ```
pub type SWALR = Scheduler<SwaAnneal>;

/// The formula of [`SWALR`].
///
/// ```
/// use torchrs::optim::lr_scheduler::{Moment, Schedule};
/// use torchrs::optim::swa_utils::SwaAnneal;
/// let settings = r#"{"swa_lr": [0.5], "anneal_epochs": 2, "_anneal_strategy": "linear"}"#;
/// let formula: SwaAnneal = serde_json::from_str(settings).unwrap();
/// let at = Moment { epoch: 1, is_initial: false, group: 0, lr: 1.0, base_lr: 1.0 };
/// assert_eq!(formula.next(&at), 0.75);
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SwaAnneal {
    swa_lr: Vec<f64>,
    anneal_epochs: u64,
    #[serde(rename = "_anneal_strategy")]
    anneal_strategy: Anneal,
}

impl SWALR {
    /// For `optimizer`, with a last rate for all groups or one for each; PyTorch's defaults are 10
    /// epochs and a cosine.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{Anneal, LRScheduler};
    /// use torchrs::{Tensor, catch, optim::{Optimizer, SGD, SGDOptions, swa_utils::SWALR}};
    /// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// SWALR::new(&mut optimizer, &[0.25], 1, Anneal::Cos).step(&mut optimizer);
    /// assert!((optimizer.lr(0) - 0.25).abs() < 1e-12);
    /// assert!(catch(|| SWALR::new(&mut optimizer, &[0.1, 0.2], 1, Anneal::Cos)).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when there are not as many rates as groups.
    #[track_caller]
    pub fn new(
        optimizer: &mut dyn Optimizer,
        swa_lr: &[f64],
        anneal_epochs: u64,
        anneal_strategy: Anneal,
    ) -> Self {
        let groups = optimizer.num_groups();
        if swa_lr.len() != 1 && swa_lr.len() != groups {
            let message = format!("{} numbers for {groups} parameter groups", swa_lr.len());
            throw(Error::argument("SWALR", "swa_lr", message));
        }
        let swa_lr = swa_lr.to_vec();
        Scheduler::with(optimizer, SwaAnneal { swa_lr, anneal_epochs, anneal_strategy })
    }
}

impl SwaAnneal {
    /// How much of the way is done after `step` steps.
    fn done(&self, step: i64) -> f64 {
        let share = (step as f64 / self.anneal_epochs.max(1) as f64).clamp(0.0, 1.0);
        match self.anneal_strategy {
            Anneal::Cos => (1.0 - (PI * share).cos()) / 2.0,
            Anneal::Linear => share,
        }
    }
}

impl Schedule for SwaAnneal {
    const NAME: &'static str = "SWALR";
    fn next(&self, at: &Moment) -> f64 {
        let step = if self.anneal_epochs == 0 { at.epoch.max(1) } else { at.epoch };
        let target = self.swa_lr[at.group.min(self.swa_lr.len() - 1)];
        // The rate at the start follows from the current one, which others may have changed.
        let before = self.done(step - 1);
        let start = if before == 1.0 { target } else { (at.lr - before * target) / (1.0 - before) };
        let now = self.done(step);
        target * now + start * (1.0 - now)
    }
    plain_settings!();
}
