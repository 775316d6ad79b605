//! Rates that fall for some epochs only: by a constant factor, or along a power of what is left.

use serde::{Deserialize, Serialize};

use super::{Moment, Schedule, Scheduler, plain_settings};
use crate::error::{Error, throw};
use crate::optim::Optimizer;

/// Multiplies the rates by `factor` until epoch `total_iters`.
///
/// ```
/// use torchrs::optim::lr_scheduler::{ConstantLR, LRScheduler};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule = ConstantLR::new(&mut optimizer, 0.5, 2);
/// assert_eq!(optimizer.lr(0), 0.5);
/// let rates = [0; 3].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates, [0.5, 1.0, 1.0]);
/// ```
pub type ConstantLR = Scheduler<Constant>;

/// The formula of [`ConstantLR`].
///
/// ```
/// use torchrs::optim::lr_scheduler::{Moment, Schedule, Constant};
/// let formula: Constant = serde_json::from_str(r#"{"factor": 0.5, "total_iters": 2}"#).unwrap();
/// let at = Moment { epoch: 2, is_initial: false, group: 0, lr: 0.5, base_lr: 1.0 };
/// assert_eq!(formula.next(&at), 1.0); // the way back
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Constant {
    factor: f64,
    total_iters: u64,
}

impl ConstantLR {
    /// For `optimizer`; PyTorch's defaults are 1/3 and 5.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{ConstantLR};
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// ConstantLR::new(&mut optimizer, 0.25, 5);
    /// assert_eq!(optimizer.lr(0), 0.25);
    /// assert!(torchrs::catch(move || ConstantLR::new(&mut optimizer, 1.5, 5)).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] unless `factor` is from 0 to 1.
    #[track_caller]
    pub fn new(optimizer: &mut dyn Optimizer, factor: f64, total_iters: u64) -> Self {
        if !(0.0..=1.0).contains(&factor) {
            let message = format!("{factor}; must be from 0 to 1");
            throw(Error::argument("ConstantLR", "factor", message));
        }
        Scheduler::with(optimizer, Constant { factor, total_iters })
    }
}

impl Schedule for Constant {
    const NAME: &'static str = "ConstantLR";
    fn next(&self, at: &Moment) -> f64 {
        match at.epoch {
            0 => at.lr * self.factor,
            epoch if epoch == self.total_iters as i64 && !at.is_initial => match self.factor {
                // There is no way back from 0 but to the start (PyTorch divides by zero).
                0.0 => at.base_lr,
                factor => at.lr / factor,
            },
            _ => at.lr,
        }
    }
    fn closed_form(&self, at: &Moment) -> Option<f64> {
        let over = at.epoch >= self.total_iters as i64;
        Some(if over { at.base_lr } else { at.base_lr * self.factor })
    }
    plain_settings!();
}

/// Lowers the rates to 0 at epoch `total_iters`, along `(1 - epoch / total_iters)^power`.
///
/// ```
/// use torchrs::optim::lr_scheduler::{LRScheduler, PolynomialLR};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule = PolynomialLR::new(&mut optimizer, 2, 1.0);
/// let rates = [0; 3].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates, [0.5, 0.0, 0.0]);
/// ```
pub type PolynomialLR = Scheduler<Polynomial>;

/// The formula of [`PolynomialLR`].
///
/// ```
/// use torchrs::optim::lr_scheduler::{Moment, Schedule, Polynomial};
/// let formula: Polynomial = serde_json::from_str(r#"{"total_iters": 4, "power": 1.0}"#).unwrap();
/// let at = Moment { epoch: 3, is_initial: false, group: 0, lr: 0.5, base_lr: 1.0 };
/// assert_eq!(formula.closed_form(&at), Some(0.25));
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Polynomial {
    total_iters: u64,
    power: f64,
}

impl PolynomialLR {
    /// For `optimizer`; PyTorch's defaults are 5 and 1.
    pub fn new(optimizer: &mut dyn Optimizer, total_iters: u64, power: f64) -> Self {
        Scheduler::with(optimizer, Polynomial { total_iters, power })
    }
}

impl Schedule for Polynomial {
    const NAME: &'static str = "PolynomialLR";
    fn next(&self, at: &Moment) -> f64 {
        let (epoch, total) = (at.epoch as f64, self.total_iters as f64);
        if at.is_initial || at.epoch == 0 || epoch > total {
            return at.lr;
        }
        at.lr * ((1.0 - epoch / total) / (1.0 - (epoch - 1.0) / total)).powf(self.power)
    }
    fn closed_form(&self, at: &Moment) -> Option<f64> {
        let total = self.total_iters.max(1) as f64;
        Some(
            at.base_lr
                * (1.0 - (self.total_iters as f64).min(at.epoch as f64) / total).powf(self.power),
        )
    }
    plain_settings!();
}
