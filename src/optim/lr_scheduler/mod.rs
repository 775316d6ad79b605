//! Learning-rate schedules (`torch.optim.lr_scheduler`).
//!
//! A schedule is a formula, one small type, that says the next learning rate of a group; the rest
//! (epochs, initial rates, saving) is [`Scheduler`]. Formulas are PyTorch's chainable ones: they
//! start from the group's current rate, so several schedulers can act on one optimizer. Where
//! PyTorch has a closed form as well, it is used when a [`SequentialLR`] starts a schedule anew.
//!
//! ```
//! use torchrs::optim::lr_scheduler::{LRScheduler, StepLR};
//! use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
//! let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
//! let mut schedule = StepLR::new(&mut optimizer, 2, 0.5);
//! let rates = [0; 4].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
//! assert_eq!(rates, [1.0, 0.5, 0.5, 0.25]);
//! ```

mod chained;
mod cosine;
mod cycle;
mod decay;
mod factor;
mod lambda;
mod plateau;
mod restarts;
mod sequential;
mod warmup;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Optimizer;
use crate::error::{Error, Result, throw};
use crate::tensor::Tensor;

pub use chained::ChainedScheduler;
pub use cosine::{CosineAnnealing, CosineAnnealingLR};
pub use cycle::{
    Anneal, Cyclic, CyclicLR, CyclicMode, CyclicOptions, OneCycle, OneCycleLR, OneCycleOptions,
};
pub use decay::{Exponential, ExponentialLR, MultiStep, MultiStepLR, Step, StepLR};
pub use factor::{Constant, ConstantLR, Polynomial, PolynomialLR};
pub use lambda::{ByFunction, Factor, Lambda, LambdaLR, Multiplicative, MultiplicativeLR};
pub use plateau::{PlateauMode, PlateauOptions, ReduceLROnPlateau, ThresholdMode};
pub use restarts::{CosineAnnealingWarmRestarts, WarmRestarts};
pub use sequential::SequentialLR;
pub use warmup::{Linear, LinearLR, WarmupCosine, WarmupCosineLR};

/// Changes the learning rates of an optimizer's groups as training goes on. Call
/// [`step`](Self::step) after the optimizer's own step (or after each epoch).
///
/// ```
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// use torchrs::optim::lr_scheduler::{LRScheduler, StepLR};
/// let w = Tensor::from([1f32]).requires_grad_(true);
/// let mut optimizer = SGD::new([w], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule = StepLR::new(&mut optimizer, 2, 0.5);
/// let mut rates = vec![];
/// for _ in 0..5 {
///     rates.push(optimizer.lr(0));
///     optimizer.step();
///     schedule.step(&mut optimizer);
/// }
/// assert_eq!(rates, [1.0, 1.0, 0.5, 0.5, 0.25]);
/// ```
pub trait LRScheduler: Send {
    /// Sets the rates of the next epoch. `optimizer` is the one that the scheduler was made for.
    fn step(&mut self, optimizer: &mut dyn Optimizer);

    /// The rates that were set last, by group.
    fn last_lr(&self) -> Vec<f64>;

    /// Settings and position, to be saved.
    fn state_dict(&self) -> Value;

    /// Continues from a saved position. The rates themselves are part of the optimizer's state. When
    /// there is an error nothing has changed.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{LRScheduler, StepLR};
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// let mut old = StepLR::new(&mut optimizer, 2, 0.5);
    /// old.step(&mut optimizer);
    /// let mut schedule = StepLR::new(&mut optimizer, 100, 0.1);
    /// schedule.load_state_dict(&old.state_dict())?;
    /// schedule.step(&mut optimizer); // the second step, at which rates fall
    /// assert_eq!(optimizer.lr(0), 0.5);
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when `state` is not that of such a scheduler.
    fn load_state_dict(&mut self, state: &Value) -> Result<()>;

    /// Begins (again) at epoch 0 from the initial rates: what [`SequentialLR`] does when it is this
    /// schedule's turn.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{ExponentialLR, LRScheduler};
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// let mut schedule = ExponentialLR::new(&mut optimizer, 0.5);
    /// schedule.step(&mut optimizer);
    /// schedule.restart(&mut optimizer);
    /// assert_eq!((optimizer.lr(0), schedule.last_epoch()), (1.0, 0));
    /// ```
    fn restart(&mut self, optimizer: &mut dyn Optimizer);

    /// Takes back the step that was made at construction, without changing rates.
    fn undo_initial_step(&mut self);

    /// Makes that step again.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{ConstantLR, LRScheduler};
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// let mut schedule = ConstantLR::new(&mut optimizer, 0.5, 2);
    /// schedule.undo_initial_step();
    /// optimizer.set_lr(0, 4.0);
    /// schedule.initial_step(&mut optimizer);
    /// assert_eq!((optimizer.lr(0), schedule.last_epoch()), (2.0, 0));
    /// ```
    fn initial_step(&mut self, optimizer: &mut dyn Optimizer);
}

/// A group at the moment when its rate is computed.
///
/// ```
/// use torchrs::optim::lr_scheduler::{Exponential, Moment, Schedule};
/// let formula: Exponential = serde_json::from_str(r#"{"gamma": 0.5}"#).unwrap();
/// let at = Moment { epoch: 3, is_initial: false, group: 0, lr: 2.0, base_lr: 8.0 };
/// assert_eq!(formula.next(&at), 1.0); // from the current rate
/// assert_eq!(formula.closed_form(&at), Some(1.0)); // from the first one
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The epoch that the rate is for.
    pub epoch: i64,
    /// True for the step that a scheduler makes at its construction.
    pub is_initial: bool,
    /// Which group.
    pub group: usize,
    /// Its current rate.
    pub lr: f64,
    /// Its rate before any schedule.
    pub base_lr: f64,
}

/// The formula of a schedule.
///
/// ```
/// use serde_json::{Map, Value};
/// use torchrs::optim::lr_scheduler::{LRScheduler, Moment, Schedule, Scheduler};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// struct InverseRoot;
/// impl Schedule for InverseRoot {
///     const NAME: &'static str = "InverseRootLR";
///     fn next(&self, at: &Moment) -> f64 {
///         at.base_lr / (at.epoch as f64 + 1.0).sqrt()
///     }
///     fn settings(&self) -> Map<String, Value> {
///         Map::new()
///     }
///     fn set_settings(&mut self, _: &Value) -> Result<(), String> {
///         Ok(())
///     }
/// }
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule = Scheduler::with(&mut optimizer, InverseRoot);
/// let rates = [0; 3].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates[2], 0.5);
/// ```
pub trait Schedule: Send {
    /// PyTorch's name, for messages.
    const NAME: &'static str;
    /// The next rate of a group, from its current one.
    fn next(&self, at: &Moment) -> f64;
    /// The rate as a function of the epoch alone, if there is such a form.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{Moment, Schedule, Step};
    /// let formula: Step = serde_json::from_str(r#"{"step_size": 2, "gamma": 0.5}"#).unwrap();
    /// let at = Moment { epoch: 5, is_initial: false, group: 0, lr: 3.0, base_lr: 8.0 };
    /// assert_eq!(formula.closed_form(&at), Some(2.0)); // two falls
    /// ```
    fn closed_form(&self, _at: &Moment) -> Option<f64> {
        None
    }
    /// The momentum of a group, where the schedule sets that too.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{Moment, Schedule, OneCycle};
    /// let formula: OneCycle = serde_json::from_str(r#"{"max_lr": [1.0], "total_steps": 10}"#).unwrap();
    /// let at = Moment { epoch: 2, is_initial: false, group: 0, lr: 0.1, base_lr: 0.1 };
    /// assert_eq!(formula.momentum(&at), Some(0.85)); // the least one, at the highest rate
    /// ```
    fn momentum(&self, _at: &Moment) -> Option<f64> {
        None
    }
    /// The settings under PyTorch's names.
    fn settings(&self) -> Map<String, Value>;
    /// The inverse of [`settings`](Self::settings).
    ///
    /// ```
    /// use serde_json::json;
    /// use torchrs::optim::lr_scheduler::{Schedule, Step};
    /// let mut formula: Step = serde_json::from_str(r#"{"step_size": 2, "gamma": 0.5}"#).unwrap();
    /// assert!(formula.set_settings(&json!({ "step_size": 3, "gamma": 0.25 })).is_ok());
    /// assert_eq!(formula.settings()["gamma"], 0.25);
    /// assert!(formula.set_settings(&json!({ "step_size": 3 })).is_err());
    /// ```
    ///
    /// # Errors
    /// What is wrong with them.
    fn set_settings(&mut self, settings: &Value) -> std::result::Result<(), String>;
}

/// The settings of a [`Schedule`] that is plain data: two of its methods.
macro_rules! plain_settings {
    () => {
        fn settings(&self) -> serde_json::Map<String, serde_json::Value> {
            match serde_json::to_value(self) {
                Ok(serde_json::Value::Object(map)) => map,
                other => unreachable!("a schedule is a struct of numbers, got {other:?}"),
            }
        }
        fn set_settings(
            &mut self,
            settings: &serde_json::Value,
        ) -> std::result::Result<(), String> {
            *self = $crate::optim::lr_scheduler::from_settings(settings)?;
            Ok(())
        }
    };
}
pub(in crate::optim) use plain_settings;

/// A schedule that is plain data, from its settings.
pub(super) fn from_settings<T: DeserializeOwned>(
    settings: &Value,
) -> std::result::Result<T, String> {
    T::deserialize(settings).map_err(|e| e.to_string())
}

/// Refuses an optimizer whose rates are those of the middle of a schedule that was saved.
#[track_caller]
fn refuse_mid_schedule(op: &str, optimizer: &dyn Optimizer) {
    if !optimizer.is_mid_schedule() {
        return;
    }
    let rates: Vec<(f64, Option<f64>)> = (0..optimizer.num_groups())
        .map(|group| (optimizer.lr(group), optimizer.initial_lr(group)))
        .collect();
    let message = format!(
        "was loaded in the middle of a schedule (rates and initial rates {rates:?}), on which a new one would \
         start; make the scheduler before `load_state_dict` of the optimizer, then load the scheduler's state \
         too; for a new schedule, set the rates first with `set_initial_lr` and `set_lr`"
    );
    throw(Error::argument(op, "optimizer", message));
}

/// Refuses an optimizer that a scheduler of so many groups was not made for, or that has got another group since: the
/// rates would go to other groups, or not to all.
#[track_caller]
fn refuse_another(name: &str, groups: usize, first: Option<&Tensor>, optimizer: &dyn Optimizer) {
    let op = format!("{name}::step");
    let now = optimizer.num_groups();
    if now != groups {
        let message = format!(
            "has {now} parameter groups, and had {groups} when the scheduler was made; make a new one after \
             `add_param_group`"
        );
        throw(Error::argument(&op, "optimizer", message));
    }
    let parameters = optimizer.parameters();
    let same = match (first, parameters.first()) {
        (Some(first), Some(now)) => first.ptr_eq(now),
        (first, now) => first.is_none() == now.is_none(),
    };
    if !same {
        throw(Error::argument(&op, "optimizer", "is not the one that the scheduler was made for"));
    }
}

/// A scheduler with the formula `S`; its name is an alias such as [`StepLR`].
///
/// ```
/// use torchrs::optim::lr_scheduler::{LRScheduler, Scheduler, Step, StepLR};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule: Scheduler<Step> = StepLR::new(&mut optimizer, 1, 0.5);
/// let rates = [0; 2].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!((rates, schedule.last_epoch()), ([0.5, 0.25], 2));
/// ```
pub struct Scheduler<S> {
    schedule: S,
    base_lrs: Vec<f64>,
    last_epoch: i64,
    step_count: u64,
    last_lr: Vec<f64>,
    /// The first parameter of the optimizer that it was made for.
    first: Option<Tensor>,
}

impl<S: Schedule> Scheduler<S> {
    /// A scheduler for `optimizer`, whose rates it sets to those of epoch 0.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{Constant, Scheduler};
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// let half: Constant = serde_json::from_str(r#"{"factor": 0.5, "total_iters": 3}"#).unwrap();
    /// Scheduler::with(&mut optimizer, half);
    /// assert_eq!((optimizer.lr(0), optimizer.initial_lr(0)), (0.5, Some(1.0)));
    /// ```
    #[track_caller]
    pub fn with(optimizer: &mut dyn Optimizer, schedule: S) -> Self {
        refuse_mid_schedule(S::NAME, optimizer);
        let first = optimizer.parameters().into_iter().next();
        let mut base_lrs = Vec::with_capacity(optimizer.num_groups());
        for group in 0..optimizer.num_groups() {
            let lr = optimizer.initial_lr(group).unwrap_or_else(|| optimizer.lr(group));
            optimizer.set_initial_lr(group, lr);
            base_lrs.push(lr);
        }
        let mut scheduler = Scheduler {
            schedule,
            base_lrs,
            last_epoch: -1,
            step_count: 0,
            last_lr: Vec::new(),
            first,
        };
        scheduler.initial_step(optimizer);
        scheduler
    }

    /// The epoch of the current rates: the number of calls of [`step`](LRScheduler::step).
    pub fn last_epoch(&self) -> i64 {
        self.last_epoch
    }

    fn set_rates(
        &mut self,
        optimizer: &mut dyn Optimizer,
        is_initial: bool,
        rate: impl Fn(&S, &Moment) -> f64,
    ) {
        self.last_lr.clear();
        for (group, &base_lr) in self.base_lrs.iter().enumerate() {
            let (epoch, lr) = (self.last_epoch, optimizer.lr(group));
            let moment = Moment { epoch, is_initial, group, lr, base_lr };
            let lr = rate(&self.schedule, &moment);
            optimizer.set_lr(group, lr);
            self.last_lr.push(lr);
            if let Some(momentum) = self.schedule.momentum(&moment) {
                optimizer.set_momentum(group, momentum);
            }
        }
    }
}

impl<S: Schedule> LRScheduler for Scheduler<S> {
    #[track_caller]
    fn step(&mut self, optimizer: &mut dyn Optimizer) {
        refuse_another(S::NAME, self.base_lrs.len(), self.first.as_ref(), optimizer);
        self.step_count += 1;
        self.last_epoch += 1;
        self.set_rates(optimizer, false, S::next);
    }

    fn last_lr(&self) -> Vec<f64> {
        self.last_lr.clone()
    }

    fn state_dict(&self) -> Value {
        let mut state = self.schedule.settings();
        state.insert("base_lrs".into(), json!(self.base_lrs));
        state.insert("last_epoch".into(), json!(self.last_epoch));
        state.insert("_step_count".into(), json!(self.step_count));
        state.insert("_last_lr".into(), json!(self.last_lr));
        state.into()
    }

    fn load_state_dict(&mut self, state: &Value) -> Result<()> {
        let op = format!("{}::load_state_dict", S::NAME);
        let wrong = |message: String| Error::argument(&op, "state", message);
        let position: Position = from_settings(state).map_err(wrong)?;
        if position.base_lrs.len() != self.base_lrs.len() {
            let (theirs, ours) = (position.base_lrs.len(), self.base_lrs.len());
            return Err(wrong(format!(
                "is of {theirs} parameter groups, the optimizer has {ours}"
            )));
        }
        self.schedule.set_settings(state).map_err(wrong)?;
        self.base_lrs = position.base_lrs;
        self.last_epoch = position.last_epoch;
        self.step_count = position.step_count;
        self.last_lr = position.last_lr;
        Ok(())
    }

    fn restart(&mut self, optimizer: &mut dyn Optimizer) {
        self.last_epoch = 0;
        self.set_rates(optimizer, false, |schedule, at| {
            schedule.closed_form(at).unwrap_or_else(|| schedule.next(at))
        });
    }

    fn undo_initial_step(&mut self) {
        self.last_epoch -= 1;
    }

    fn initial_step(&mut self, optimizer: &mut dyn Optimizer) {
        self.step_count = 1;
        self.last_epoch += 1;
        self.set_rates(optimizer, true, S::next);
    }
}

/// The part of a scheduler's state that all have.
#[derive(serde::Deserialize)]
struct Position {
    base_lrs: Vec<f64>,
    last_epoch: i64,
    #[serde(rename = "_step_count")]
    step_count: u64,
    #[serde(rename = "_last_lr")]
    last_lr: Vec<f64>,
}
