//! Rates by a function of the epoch.

use serde_json::{Map, Value};

use super::{Moment, Schedule, Scheduler};
use crate::error::{Error, throw};
use crate::optim::Optimizer;

/// A function of the epoch.
pub type Factor = Box<dyn Fn(i64) -> f64 + Send>;

/// Sets the rates to the initial ones times a function of the epoch.
pub type LambdaLR = Scheduler<Lambda>;

/// Multiplies the rates at each epoch by a function of the epoch.
pub type MultiplicativeLR = Scheduler<Multiplicative>;

/// The formula of [`LambdaLR`].
pub type Lambda = ByFunction<false>;

/// The formula of [`MultiplicativeLR`].
pub type Multiplicative = ByFunction<true>;

/// The initial rates, or (`CURRENT`) the ones before, times a function.
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
