//! Rates by a function of the epoch.

use serde_json::{Map, Value};

use super::{Moment, Schedule, Scheduler};
use crate::error::{Error, throw};
use crate::optim::Optimizer;

/// A function of the epoch.
///
/// ```
/// use torchrs::optim::lr_scheduler::Factor;
/// let warmup: Factor = Box::new(|epoch| (epoch as f64 / 4.0).min(1.0));
/// assert_eq!((warmup(1), warmup(9)), (0.25, 1.0));
/// ```
pub type Factor = Box<dyn Fn(i64) -> f64 + Send>;

/// Sets the rates to the initial ones times a function of the epoch.
///
/// ```
/// use torchrs::optim::lr_scheduler::{LambdaLR, LRScheduler};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule = LambdaLR::new(&mut optimizer, |epoch| 1.0 / (1 + epoch) as f64);
/// let rates = [0; 3].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates, [0.5, 1.0 / 3.0, 0.25]);
/// ```
pub type LambdaLR = Scheduler<Lambda>;

/// Multiplies the rates at each epoch by a function of the epoch.
///
/// ```
/// use torchrs::optim::lr_scheduler::{LRScheduler, MultiplicativeLR};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule = MultiplicativeLR::new(&mut optimizer, |epoch| if epoch < 3 { 0.5 } else { 1.0 });
/// let rates = [0; 3].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates, [0.5, 0.25, 0.25]);
/// ```
pub type MultiplicativeLR = Scheduler<Multiplicative>;

/// The formula of [`LambdaLR`].
///
/// ```
/// use torchrs::optim::lr_scheduler::{Lambda, LambdaLR, LRScheduler, Scheduler};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule: Scheduler<Lambda> = LambdaLR::new(&mut optimizer, |epoch| epoch as f64);
/// let rates = [0; 2].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates, [1.0, 2.0]);
/// ```
pub type Lambda = ByFunction<false>;

/// The formula of [`MultiplicativeLR`].
///
/// ```
/// use torchrs::optim::lr_scheduler::{LRScheduler, Multiplicative, MultiplicativeLR, Scheduler};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule: Scheduler<Multiplicative> = MultiplicativeLR::new(&mut optimizer, |_| 2.0);
/// let rates = [0; 2].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates, [2.0, 4.0]);
/// ```
pub type Multiplicative = ByFunction<true>;

/// The initial rates, or (`CURRENT`) the ones before, times a function.
///
/// ```
/// use torchrs::optim::lr_scheduler::{ByFunction, LambdaLR, LRScheduler, Scheduler};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule: Scheduler<ByFunction<false>> = LambdaLR::new(&mut optimizer, |_| 0.5);
/// let rates = [0; 2].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates, [0.5, 0.5]); // of the initial rate each time
/// ```
pub struct ByFunction<const CURRENT: bool> {
    /// One for all groups, or one for each.
    factors: Vec<Factor>,
}

impl<const CURRENT: bool> Scheduler<ByFunction<CURRENT>> {
    /// For all groups of `optimizer` the same function.
    pub fn new(
        optimizer: &mut dyn Optimizer,
        factor: impl Fn(i64) -> f64 + Send + 'static,
    ) -> Self {
        Scheduler::with(optimizer, ByFunction { factors: vec![Box::new(factor)] })
    }

    /// For each group of `optimizer` a function of its own.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{Factor, LambdaLR, LRScheduler};
    /// use torchrs::{Tensor, optim::{ParamGroup, SGD, SGDOptions}};
    /// let group = || ParamGroup::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// let mut optimizer = SGD::with_groups([group(), group()]);
    /// let factors: Vec<Factor> = vec![Box::new(|_| 0.5), Box::new(|epoch| 1.0 + epoch as f64)];
    /// let mut schedule = LambdaLR::per_group(&mut optimizer, factors);
    /// schedule.step(&mut optimizer);
    /// assert_eq!(schedule.last_lr(), [0.5, 2.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when there are not as many functions as groups.
    #[track_caller]
    pub fn per_group(optimizer: &mut dyn Optimizer, factors: Vec<Factor>) -> Self {
        let groups = optimizer.num_groups();
        if factors.len() != groups {
            let message = format!("{} functions for {groups} parameter groups", factors.len());
            throw(Error::argument(ByFunction::<CURRENT>::NAME, "factors", message));
        }
        Scheduler::with(optimizer, ByFunction { factors })
    }
}

impl<const CURRENT: bool> Schedule for ByFunction<CURRENT> {
    const NAME: &'static str = if CURRENT { "MultiplicativeLR" } else { "LambdaLR" };
    fn next(&self, at: &Moment) -> f64 {
        let factor = if self.factors.len() == 1 { 0 } else { at.group };
        match CURRENT {
            false => at.base_lr * self.factors[factor](at.epoch),
            true if at.is_initial => at.lr,
            true => at.lr * self.factors[factor](at.epoch),
        }
    }
    /// Functions are not saved: the program that loads brings them.
    fn settings(&self) -> Map<String, Value> {
        Map::new()
    }
    fn set_settings(&mut self, _settings: &Value) -> Result<(), String> {
        Ok(())
    }
}
