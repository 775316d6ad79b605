//! Rates by a function of the epoch.

use serde_json::{Map, Value};

use super::{Moment, Schedule, Scheduler};
use crate::error::{Error, throw};
use crate::optim::Optimizer;

/// Sets the rates to the initial ones times a function of the epoch.
pub type LambdaLR = Scheduler<Lambda>;

type Factor = Box<dyn Fn(i64) -> f64 + Send>;

/// The formula of [`LambdaLR`].
pub struct Lambda {
    /// One for all groups, or one for each.
    factors: Vec<Factor>,
}

impl LambdaLR {
    /// For all groups of `optimizer` the same function.
    pub fn new(
        optimizer: &mut dyn Optimizer,
        factor: impl Fn(i64) -> f64 + Send + 'static,
    ) -> Self {
        Scheduler::with(optimizer, Lambda { factors: vec![Box::new(factor)] })
    }

    /// For each group of `optimizer` a function of its own.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when there are not as many functions as groups.
    #[track_caller]
    pub fn per_group(optimizer: &mut dyn Optimizer, factors: Vec<Factor>) -> Self {
        check_groups("LambdaLR", &factors, optimizer);
        Scheduler::with(optimizer, Lambda { factors })
    }
}

/// As many functions as groups.
#[track_caller]
fn check_groups(op: &str, factors: &[Factor], optimizer: &dyn Optimizer) {
    let groups = optimizer.num_groups();
    if factors.len() != groups {
        let message = format!("{} functions for {groups} parameter groups", factors.len());
        throw(Error::argument(op, "factors", message));
    }
}

impl Schedule for Lambda {
    const NAME: &'static str = "LambdaLR";
    fn next(&self, at: &Moment) -> f64 {
        let factor = if self.factors.len() == 1 { 0 } else { at.group };
        at.base_lr * self.factors[factor](at.epoch)
    }
    /// Functions are not saved: the program that loads brings them.
    fn settings(&self) -> Map<String, Value> {
        Map::new()
    }
    fn set_settings(&mut self, _settings: &Value) -> Result<(), String> {
        Ok(())
    }
}

/// Multiplies the rates at each epoch by a function of the epoch.
pub type MultiplicativeLR = Scheduler<Multiplicative>;

/// The formula of [`MultiplicativeLR`].
pub struct Multiplicative {
    /// One for all groups, or one for each.
    factors: Vec<Factor>,
}

impl MultiplicativeLR {
    /// For all groups of `optimizer` the same function.
    pub fn new(
        optimizer: &mut dyn Optimizer,
        factor: impl Fn(i64) -> f64 + Send + 'static,
    ) -> Self {
        Scheduler::with(optimizer, Multiplicative { factors: vec![Box::new(factor)] })
    }

    /// For each group of `optimizer` a function of its own.
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when there are not as many functions as groups.
    #[track_caller]
    pub fn per_group(optimizer: &mut dyn Optimizer, factors: Vec<Factor>) -> Self {
        check_groups("MultiplicativeLR", &factors, optimizer);
        Scheduler::with(optimizer, Multiplicative { factors })
    }
}

impl Schedule for Multiplicative {
    const NAME: &'static str = "MultiplicativeLR";
    fn next(&self, at: &Moment) -> f64 {
        let factor = if self.factors.len() == 1 { 0 } else { at.group };
        if at.is_initial { at.lr } else { at.lr * self.factors[factor](at.epoch) }
    }
    /// Functions are not saved: the program that loads brings them.
    fn settings(&self) -> Map<String, Value> {
        Map::new()
    }
    fn set_settings(&mut self, _settings: &Value) -> Result<(), String> {
        Ok(())
    }
}
