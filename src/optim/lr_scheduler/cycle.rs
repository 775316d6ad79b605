//! Rates that rise and fall, and momentum that does the opposite (Smith, 2017; Smith and Topin, 2018).

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use super::{Moment, Schedule, Scheduler, plain_settings, refuse_mid_schedule};
use crate::error::{Error, throw};
use crate::optim::Optimizer;

/// How [`OneCycleLR`] goes from one rate to the next.
///
/// ```
/// use torchrs::optim::{Optimizer, SGD, SGDOptions, lr_scheduler::{Anneal, LRScheduler}, swa_utils::SWALR};
/// let first = |anneal| {
///     let w = torchrs::Tensor::from([1f32]);
///     let mut optimizer = SGD::new([w], SGDOptions { lr: 1.0, ..Default::default() });
///     SWALR::new(&mut optimizer, &[0.0], 4, anneal).step(&mut optimizer);
///     optimizer.lr(0)
/// };
/// assert_eq!(first(Anneal::Linear), 0.75);
/// assert!(first(Anneal::Cos) > 0.85); // slow at first
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Anneal {
    /// Along half a cosine.
    #[default]
    Cos,
    /// In a straight line.
    Linear,
}

impl Anneal {
    fn between(self, start: f64, end: f64, share: f64) -> f64 {
        match self {
            Anneal::Cos => end + (start - end) / 2.0 * (1.0 + (PI * share).cos()),
            Anneal::Linear => start + (end - start) * share,
        }
    }
}

/// One group's number, or the same for all: `list[group]`, or the last one.
fn of_group(list: &[f64], group: usize) -> f64 {
    list[group.min(list.len() - 1)]
}

/// As many numbers as groups, or one for all.
#[track_caller]
fn check_groups(op: &str, name: &str, list: &[f64], optimizer: &dyn Optimizer) {
    let groups = optimizer.num_groups();
    if list.len() != 1 && list.len() != groups {
        let message = format!("{} numbers for {groups} parameter groups", list.len());
        throw(Error::argument(op, name, message));
    }
}

/// The momentum can only be cycled if there is one.
#[track_caller]
fn check_momentum(op: &str, cycle: bool, optimizer: &dyn Optimizer) {
    if cycle && (0..optimizer.num_groups()).any(|group| optimizer.momentum(group).is_none()) {
        let message = "true; the optimizer has no momentum";
        throw(Error::argument(op, "cycle_momentum", message));
    }
}

/// Options of [`OneCycleLR`], with PyTorch's defaults.
///
/// ```
/// use torchrs::optim::lr_scheduler::{Anneal, LRScheduler, OneCycleLR, OneCycleOptions};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let options = OneCycleOptions {
///     pct_start: 0.6,
///     anneal_strategy: Anneal::Linear,
///     div_factor: 2.0,
///     final_div_factor: 1.0,
///     ..Default::default()
/// };
/// let mut schedule = OneCycleLR::new(&mut optimizer, &[1.0], 5, options);
/// let rates = [0; 4].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates, [0.75, 1.0, 0.75, 0.5]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OneCycleOptions {
    /// Share of the cycle in which the rates rise.
    pub pct_start: f64,
    /// How rates and momentum change.
    pub anneal_strategy: Anneal,
    /// Change the momentum as well.
    pub cycle_momentum: bool,
    /// The least momentum, at the highest rate.
    pub base_momentum: f64,
    /// The largest momentum.
    pub max_momentum: f64,
    /// The first rates are the highest ones divided by this.
    pub div_factor: f64,
    /// The last rates are the first ones divided by this.
    pub final_div_factor: f64,
    /// Fall to the first rates within the time of the rise, then to the last ones.
    pub three_phase: bool,
}

impl Default for OneCycleOptions {
    fn default() -> Self {
        OneCycleOptions {
            pct_start: 0.3,
            anneal_strategy: Anneal::Cos,
            cycle_momentum: true,
            base_momentum: 0.85,
            max_momentum: 0.95,
            div_factor: 25.0,
            final_div_factor: 1e4,
            three_phase: false,
        }
    }
}

/// One rise to the highest rates and a long fall, within `total_steps` steps of the optimizer.
///
/// ```
/// use torchrs::optim::lr_scheduler::{LRScheduler, OneCycleLR};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mut schedule = OneCycleLR::new(&mut optimizer, &[1.0], 10, Default::default());
/// let rates = [0; 9].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates[1], 1.0); // the peak, after 3 of 10 steps
/// assert!(rates[8] < 1e-5 && optimizer.momentum(0) == Some(0.95));
/// ```
pub type OneCycleLR = Scheduler<OneCycle>;

/// The formula of [`OneCycleLR`].
///
/// ```
/// use torchrs::optim::lr_scheduler::{Moment, Schedule, OneCycle};
/// let formula: OneCycle = serde_json::from_str(r#"{"max_lr": [1.0], "total_steps": 10}"#).unwrap();
/// let at = Moment { epoch: 2, is_initial: false, group: 0, lr: 0.5, base_lr: 0.04 };
/// assert_eq!(formula.next(&at), 1.0);
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OneCycle {
    max_lr: Vec<f64>,
    total_steps: u64,
    #[serde(flatten)]
    options: OneCycleOptions,
}

impl OneCycleLR {
    /// For `optimizer`, with a highest rate for all groups or one for each. The optimizer's own
    /// rates are not used.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{OneCycleLR};
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// OneCycleLR::new(&mut optimizer, &[1.0], 100, Default::default());
    /// assert!((optimizer.lr(0) - 1.0 / 25.0).abs() < 1e-12);
    /// assert_eq!(optimizer.momentum(0), Some(0.95));
    /// let none = || OneCycleLR::new(&mut optimizer, &[1.0], 0, Default::default());
    /// assert!(torchrs::catch(none).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when `total_steps` is 0, `pct_start` is not in `[0, 1]`, there are
    /// not as many rates as groups, a divisor is not above 0, or the optimizer lacks the momentum that
    /// is to be cycled.
    #[track_caller]
    pub fn new(
        optimizer: &mut dyn Optimizer,
        max_lr: &[f64],
        total_steps: u64,
        options: OneCycleOptions,
    ) -> Self {
        if total_steps == 0 {
            throw(Error::argument("OneCycleLR", "total_steps", "0; must be at least 1"));
        }
        if !(0.0..=1.0).contains(&options.pct_start) {
            let message = format!("{}; must be from 0 to 1", options.pct_start);
            throw(Error::argument("OneCycleLR", "pct_start", message));
        }
        for (name, value) in
            [("div_factor", options.div_factor), ("final_div_factor", options.final_div_factor)]
        {
            if value.is_nan() || value <= 0.0 {
                throw(Error::argument("OneCycleLR", name, format!("{value}; must be above 0")));
            }
        }
        refuse_mid_schedule("OneCycleLR", optimizer);
        check_groups("OneCycleLR", "max_lr", max_lr, optimizer);
        check_momentum("OneCycleLR", options.cycle_momentum, optimizer);
        for group in 0..optimizer.num_groups() {
            optimizer.set_initial_lr(group, of_group(max_lr, group) / options.div_factor);
        }
        Scheduler::with(optimizer, OneCycle { max_lr: max_lr.to_vec(), total_steps, options })
    }
}

impl OneCycle {
    /// Rate (of `[first, highest, last]`) and momentum (of `[largest, least]`) of a step.
    fn at(&self, step: i64, rates: [f64; 3], momenta: [f64; 2]) -> (f64, f64) {
        let ([first, highest, last], [most, least]) = (rates, momenta);
        let options = &self.options;
        let (total, rise) = (self.total_steps as f64, options.pct_start * self.total_steps as f64);
        let two =
            [(rise - 1.0, first, highest, most, least), (total - 1.0, highest, last, least, most)];
        let three = [
            (rise - 1.0, first, highest, most, least),
            (2.0 * rise - 2.0, highest, first, least, most),
            (total - 1.0, first, last, most, most),
        ];
        let phases = if options.three_phase { &three[..] } else { &two[..] };
        let (step, mut start) = (step as f64, 0.0);
        let mut result = (first, most);
        for &(end, lr, next_lr, momentum, next_momentum) in phases {
            // A phase without length is over at once.
            let share = if end > start { (step - start) / (end - start) } else { 1.0 };
            let between = |a, b| options.anneal_strategy.between(a, b, share);
            result = (between(lr, next_lr), between(momentum, next_momentum));
            if step <= end {
                break;
            }
            start = end;
        }
        result
    }
}

impl Schedule for OneCycle {
    const NAME: &'static str = "OneCycleLR";
    /// # Panics
    /// Throws [`Error::Argument`] after `total_steps` steps.
    #[track_caller]
    fn next(&self, at: &Moment) -> f64 {
        if at.epoch > self.total_steps as i64 {
            let message = format!("{}; this is step {}", self.total_steps, at.epoch);
            throw(Error::argument("OneCycleLR::step", "total_steps", message));
        }
        let rates = [
            at.base_lr,
            of_group(&self.max_lr, at.group),
            at.base_lr / self.options.final_div_factor,
        ];
        self.at(at.epoch, rates, [0.0; 2]).0
    }
    fn momentum(&self, at: &Moment) -> Option<f64> {
        let momenta = [self.options.max_momentum, self.options.base_momentum];
        self.options.cycle_momentum.then(|| self.at(at.epoch, [0.0; 3], momenta).1)
    }
    plain_settings!();
}

/// How the cycles of [`CyclicLR`] become lower.
///
/// ```
/// use torchrs::optim::lr_scheduler::{CyclicLR, CyclicMode, CyclicOptions, LRScheduler};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let mode = CyclicMode::Triangular2;
/// let options = CyclicOptions { step_size_up: 1.0, mode, ..Default::default() };
/// let mut schedule = CyclicLR::new(&mut optimizer, &[0.0], &[1.0], options);
/// let rates = [0; 5].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates, [1.0, 0.0, 0.5, 0.0, 0.25]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CyclicMode {
    /// Not at all.
    #[default]
    Triangular,
    /// Each is half as high as the one before.
    Triangular2,
    /// By `gamma` at each step.
    ExpRange,
}

/// Options of [`CyclicLR`], with PyTorch's defaults.
///
/// ```
/// use torchrs::optim::lr_scheduler::{CyclicLR, CyclicOptions, LRScheduler};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let momenta = CyclicOptions { base_momentum: 0.5, max_momentum: 0.75, ..Default::default() };
/// let options = CyclicOptions { step_size_up: 2.0, ..momenta };
/// let mut schedule = CyclicLR::new(&mut optimizer, &[0.0], &[1.0], options);
/// assert_eq!(optimizer.momentum(0), Some(0.75));
/// let rates = [0; 2].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!((rates, optimizer.momentum(0)), ([0.5, 1.0], Some(0.5)));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CyclicOptions {
    /// Steps of a rise.
    pub step_size_up: f64,
    /// Steps of a fall; by default as many as of a rise.
    pub step_size_down: Option<f64>,
    /// How cycles become lower.
    pub mode: CyclicMode,
    /// The factor of [`CyclicMode::ExpRange`].
    pub gamma: f64,
    /// Change the momentum as well.
    pub cycle_momentum: bool,
    /// The least momentum, at the highest rate.
    pub base_momentum: f64,
    /// The largest momentum.
    pub max_momentum: f64,
}

impl Default for CyclicOptions {
    fn default() -> Self {
        CyclicOptions {
            step_size_up: 2000.0,
            step_size_down: None,
            mode: CyclicMode::Triangular,
            gamma: 1.0,
            cycle_momentum: true,
            base_momentum: 0.8,
            max_momentum: 0.9,
        }
    }
}

/// Straight rises from `base_lr` to `max_lr` and falls, again and again.
///
/// ```
/// use torchrs::optim::lr_scheduler::{CyclicLR, CyclicOptions, LRScheduler};
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
/// let options = CyclicOptions { step_size_up: 2.0, ..Default::default() };
/// let mut schedule = CyclicLR::new(&mut optimizer, &[0.0], &[1.0], options);
/// let rates = [0; 5].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
/// assert_eq!(rates, [0.5, 1.0, 0.5, 0.0, 0.5]);
/// ```
pub type CyclicLR = Scheduler<Cyclic>;

/// The formula of [`CyclicLR`].
///
/// ```
/// use torchrs::optim::lr_scheduler::{Moment, Schedule, Cyclic};
/// let formula: Cyclic = serde_json::from_str(r#"{"max_lrs": [1.0], "step_size_up": 2.0}"#).unwrap();
/// let at = Moment { epoch: 3, is_initial: false, group: 0, lr: 1.0, base_lr: 0.0 };
/// assert_eq!(formula.next(&at), 0.5);
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cyclic {
    max_lrs: Vec<f64>,
    #[serde(flatten)]
    options: CyclicOptions,
}

impl CyclicLR {
    /// For `optimizer`, with least and highest rates for all groups or one for each.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{CyclicLR, CyclicOptions};
    /// use torchrs::{Tensor, catch, optim::{Adagrad, Optimizer}};
    /// let mut optimizer = Adagrad::new([Tensor::from([1f32])], Default::default());
    /// let cycled = catch(|| CyclicLR::new(&mut optimizer, &[0.1], &[1.0], Default::default()));
    /// assert!(cycled.err().unwrap().to_string().contains("has no momentum"));
    /// let options = CyclicOptions { cycle_momentum: false, ..Default::default() };
    /// CyclicLR::new(&mut optimizer, &[0.1], &[1.0], options);
    /// assert_eq!(optimizer.lr(0), 0.1);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when there are not as many rates as groups, a rise has no steps, or
    /// the optimizer lacks the momentum that is to be cycled.
    #[track_caller]
    pub fn new(
        optimizer: &mut dyn Optimizer,
        base_lr: &[f64],
        max_lr: &[f64],
        options: CyclicOptions,
    ) -> Self {
        let (up, down) = (options.step_size_up, options.step_size_down);
        if !(up > 0.0 && up.is_finite() && down.is_none_or(|d| d >= 0.0 && d.is_finite())) {
            let message = format!("{up} and {down:?}; must be above 0, and at least 0");
            throw(Error::argument("CyclicLR", "step_size_up and step_size_down", message));
        }
        refuse_mid_schedule("CyclicLR", optimizer);
        check_groups("CyclicLR", "base_lr", base_lr, optimizer);
        check_groups("CyclicLR", "max_lr", max_lr, optimizer);
        check_momentum("CyclicLR", options.cycle_momentum, optimizer);
        for group in 0..optimizer.num_groups() {
            optimizer.set_initial_lr(group, of_group(base_lr, group));
        }
        Scheduler::with(optimizer, Cyclic { max_lrs: max_lr.to_vec(), options })
    }
}

impl Cyclic {
    /// Where the step is between least (0) and highest (1).
    fn height(&self, step: i64) -> f64 {
        let options = &self.options;
        let up = options.step_size_up;
        let length = up + options.step_size_down.unwrap_or(up);
        let (step, peak) = (step as f64, up / length);
        let cycle = (1.0 + step / length).floor();
        let share = 1.0 + step / length - cycle;
        let height = if share <= peak { share / peak } else { (share - 1.0) / (peak - 1.0) };
        height
            * match options.mode {
                CyclicMode::Triangular => 1.0,
                CyclicMode::Triangular2 => 0.5f64.powf(cycle - 1.0),
                CyclicMode::ExpRange => options.gamma.powf(step),
            }
    }
}

impl Schedule for Cyclic {
    const NAME: &'static str = "CyclicLR";
    fn next(&self, at: &Moment) -> f64 {
        at.base_lr + (of_group(&self.max_lrs, at.group) - at.base_lr) * self.height(at.epoch)
    }
    fn momentum(&self, at: &Moment) -> Option<f64> {
        let (most, least) = (self.options.max_momentum, self.options.base_momentum);
        self.options.cycle_momentum.then(|| most - (most - least) * self.height(at.epoch))
    }
    plain_settings!();
}
