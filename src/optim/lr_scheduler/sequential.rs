//! One schedule after another.

use serde_json::{Value, json};

use super::LRScheduler;
use crate::error::{Error, Result, throw};
use crate::optim::Optimizer;

/// Runs several schedulers one after the other, changing over at the milestones: warm-up, then decay.
///
/// ```
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// use torchrs::optim::lr_scheduler::{CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR};
/// let w = Tensor::from([1f32]).requires_grad_(true);
/// let mut optimizer = SGD::new([w], SGDOptions { lr: 1.0, ..Default::default() });
/// let warmup = LinearLR::new(&mut optimizer, 0.5, 1.0, 2);
/// let decay = CosineAnnealingLR::new(&mut optimizer, 4, 0.0);
/// let mut schedule =
///     SequentialLR::new(&mut optimizer, vec![Box::new(warmup), Box::new(decay)], vec![2]);
/// let mut rates = vec![optimizer.lr(0)];
/// for _ in 0..4 {
///     schedule.step(&mut optimizer);
///     rates.push(optimizer.lr(0));
/// }
/// assert_eq!(rates[..3], [0.5, 0.75, 1.0]);
/// assert!((rates[4] - 0.5).abs() < 1e-12);
/// ```
pub struct SequentialLR {
    schedulers: Vec<Box<dyn LRScheduler>>,
    milestones: Vec<u64>,
    last_epoch: u64,
    last_lr: Vec<f64>,
}

impl SequentialLR {
    /// For `optimizer`, for which the schedulers were made. The scheduler with index `i + 1` takes
    /// over at epoch `milestones[i]`, starting at its epoch 0.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{ConstantLR, ExponentialLR, LRScheduler, SequentialLR};
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let mut optimizer = SGD::new([Tensor::from([1f32])], SGDOptions { lr: 1.0, ..Default::default() });
    /// let parts: Vec<Box<dyn LRScheduler>> = vec![
    ///     Box::new(ConstantLR::new(&mut optimizer, 0.25, 9)),
    ///     Box::new(ExponentialLR::new(&mut optimizer, 0.5)),
    /// ];
    /// let mut schedule = SequentialLR::new(&mut optimizer, parts, vec![2]);
    /// let rates = [0; 3].map(|_| { schedule.step(&mut optimizer); optimizer.lr(0) });
    /// assert_eq!(rates, [0.25, 1.0, 0.5]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] unless there is one scheduler more than milestones, which rise.
    #[track_caller]
    pub fn new(
        optimizer: &mut dyn Optimizer,
        schedulers: Vec<Box<dyn LRScheduler>>,
        milestones: Vec<u64>,
    ) -> Self {
        if schedulers.len() != milestones.len() + 1 || !milestones.is_sorted() {
            let message = format!(
                "{milestones:?} with {} schedulers; must be one less than schedulers, and rising",
                schedulers.len()
            );
            throw(Error::argument("SequentialLR", "milestones", message));
        }
        super::refuse_mid_schedule("SequentialLR", optimizer);
        for group in 0..optimizer.num_groups() {
            let lr = optimizer.initial_lr(group).unwrap_or_else(|| optimizer.lr(group));
            optimizer.set_lr(group, lr);
        }
        let mut this = SequentialLR { schedulers, milestones, last_epoch: 0, last_lr: Vec::new() };
        this.undo_initial_step();
        this.initial_step(optimizer);
        this
    }

    /// Index of the scheduler whose turn an epoch is.
    fn turn(&self, epoch: u64) -> usize {
        self.milestones.partition_point(|&milestone| milestone <= epoch)
    }
}

impl LRScheduler for SequentialLR {
    fn step(&mut self, optimizer: &mut dyn Optimizer) {
        self.last_epoch += 1;
        let turn = self.turn(self.last_epoch);
        let scheduler = &mut self.schedulers[turn];
        if turn > 0 && self.milestones[turn - 1] == self.last_epoch {
            scheduler.restart(optimizer);
        } else {
            scheduler.step(optimizer);
        }
        self.last_lr = scheduler.last_lr();
    }

    fn last_lr(&self) -> Vec<f64> {
        self.last_lr.clone()
    }

    fn state_dict(&self) -> Value {
        let schedulers: Vec<Value> = self.schedulers.iter().map(|s| s.state_dict()).collect();
        json!({
            "_milestones": self.milestones,
            "last_epoch": self.last_epoch,
            "_last_lr": self.last_lr,
            "_schedulers": schedulers,
        })
    }

    fn load_state_dict(&mut self, state: &Value) -> Result<()> {
        #[derive(serde::Deserialize)]
        struct Saved {
            #[serde(rename = "_milestones")]
            milestones: Vec<u64>,
            last_epoch: u64,
            #[serde(rename = "_last_lr")]
            last_lr: Vec<f64>,
            #[serde(rename = "_schedulers")]
            schedulers: Vec<Value>,
        }
        let wrong = |message| Error::argument("SequentialLR::load_state_dict", "state", message);
        let saved: Saved = super::from_settings(state).map_err(wrong)?;
        let (theirs, ours) = (saved.schedulers.len(), self.schedulers.len());
        if theirs != ours || saved.milestones.len() + 1 != ours {
            return Err(wrong(format!("is of {theirs} schedulers, this one has {ours}")));
        }
        let before: Vec<Value> = self.schedulers.iter().map(|s| s.state_dict()).collect();
        for (i, state) in saved.schedulers.iter().enumerate() {
            if let Err(error) = self.schedulers[i].load_state_dict(state) {
                for (scheduler, old) in self.schedulers.iter_mut().zip(&before).take(i) {
                    scheduler.load_state_dict(old)?;
                }
                return Err(error);
            }
        }
        self.milestones = saved.milestones;
        self.last_epoch = saved.last_epoch;
        self.last_lr = saved.last_lr;
        Ok(())
    }

    fn restart(&mut self, optimizer: &mut dyn Optimizer) {
        self.last_epoch = 0;
        let first = self.turn(0);
        self.schedulers[first].restart(optimizer);
        self.last_lr = self.schedulers[first].last_lr();
    }

    fn undo_initial_step(&mut self) {
        self.schedulers.iter_mut().for_each(|scheduler| scheduler.undo_initial_step());
    }

    fn initial_step(&mut self, optimizer: &mut dyn Optimizer) {
        let first = self.turn(0);
        self.schedulers[first].initial_step(optimizer);
        self.last_lr = self.schedulers[first].last_lr();
    }
}
