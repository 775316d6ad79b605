//! Several schedules at once.

use serde_json::{Value, json};

use super::LRScheduler;
use crate::error::{Error, Result, throw};
use crate::optim::Optimizer;

/// Steps several schedulers, each of which changes the rates that the one before has set
/// (`torch.optim.lr_scheduler.ChainedScheduler`).
///
/// ```
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// use torchrs::optim::lr_scheduler::{ChainedScheduler, ConstantLR, ExponentialLR, LRScheduler};
/// let w = Tensor::from([1f32]).requires_grad_(true);
/// let mut optimizer = SGD::new([w], SGDOptions { lr: 1.0, ..Default::default() });
/// let warmup = ConstantLR::new(&mut optimizer, 0.5, 1);
/// let decay = ExponentialLR::new(&mut optimizer, 0.5);
/// let mut schedule = ChainedScheduler::new(vec![Box::new(warmup), Box::new(decay)]);
/// assert_eq!(optimizer.lr(0), 0.5);
/// schedule.step(&mut optimizer);
/// assert_eq!(optimizer.lr(0), 0.5);
/// schedule.step(&mut optimizer);
/// assert_eq!(optimizer.lr(0), 0.25);
/// ```
pub struct ChainedScheduler {
    schedulers: Vec<Box<dyn LRScheduler>>,
}

impl ChainedScheduler {
    /// Of schedulers that were made for the same optimizer.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{ChainedScheduler, ConstantLR, ExponentialLR, LRScheduler};
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// let parts: Vec<Box<dyn LRScheduler>> = vec![
    ///     Box::new(ConstantLR::new(&mut optimizer, 0.5, 9)),
    ///     Box::new(ExponentialLR::new(&mut optimizer, 0.5)),
    /// ];
    /// let mut schedule = ChainedScheduler::new(parts);
    /// schedule.step(&mut optimizer);
    /// assert_eq!(optimizer.lr(0), 0.25);
    /// assert!(torchrs::catch(|| ChainedScheduler::new(vec![])).is_err());
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] when there are none.
    #[track_caller]
    pub fn new(schedulers: Vec<Box<dyn LRScheduler>>) -> Self {
        if schedulers.is_empty() {
            throw(Error::argument("ChainedScheduler", "schedulers", "are none"));
        }
        ChainedScheduler { schedulers }
    }
}

impl LRScheduler for ChainedScheduler {
    fn step(&mut self, optimizer: &mut dyn Optimizer) {
        self.schedulers.iter_mut().for_each(|scheduler| scheduler.step(optimizer));
    }

    fn last_lr(&self) -> Vec<f64> {
        self.schedulers.last().map_or_else(Vec::new, |scheduler| scheduler.last_lr())
    }

    fn state_dict(&self) -> Value {
        let schedulers: Vec<Value> = self.schedulers.iter().map(|s| s.state_dict()).collect();
        json!({ "_schedulers": schedulers, "_last_lr": self.last_lr() })
    }

    fn load_state_dict(&mut self, state: &Value) -> Result<()> {
        let saved = state["_schedulers"].as_array().map_or(&[][..], Vec::as_slice);
        if saved.len() != self.schedulers.len() {
            let (theirs, ours) = (saved.len(), self.schedulers.len());
            let message = format!("is of {theirs} schedulers, this one has {ours}");
            return Err(Error::argument("ChainedScheduler::load_state_dict", "state", message));
        }
        let before: Vec<Value> = self.schedulers.iter().map(|s| s.state_dict()).collect();
        for (i, state) in saved.iter().enumerate() {
            if let Err(error) = self.schedulers[i].load_state_dict(state) {
                for (scheduler, old) in self.schedulers.iter_mut().zip(&before).take(i) {
                    scheduler.load_state_dict(old)?;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn restart(&mut self, optimizer: &mut dyn Optimizer) {
        self.schedulers.iter_mut().for_each(|scheduler| scheduler.restart(optimizer));
    }

    fn undo_initial_step(&mut self) {
        self.schedulers.iter_mut().for_each(|scheduler| scheduler.undo_initial_step());
    }

    fn initial_step(&mut self, optimizer: &mut dyn Optimizer) {
        self.schedulers.iter_mut().for_each(|scheduler| scheduler.initial_step(optimizer));
    }
}
