//! What all optimizers have in common for those who use them: training loops, schedulers,
//! checkpoints. How they are made is in `engine.rs`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::ops::pointwise::zero_all;
use crate::tensor::Tensor;

/// Updates parameters from their gradients (`torch.optim.Optimizer`).
///
/// ```
/// use torchrs::{Tensor, optim::{AdamW, Optimizer, SGD}};
/// let parameters = || [Tensor::from([1f32]).requires_grad_(true)];
/// let all: [Box<dyn Optimizer>; 2] = [
///     Box::new(SGD::new(parameters(), Default::default())),
///     Box::new(AdamW::new(parameters(), Default::default())),
/// ];
/// for mut optimizer in all {
///     let w = optimizer.parameters()[0].clone();
///     (&w * &w).backward();
///     optimizer.step();
///     assert!(w.item() < 1.0);
/// }
/// ```
pub trait Optimizer: Send {
    /// Updates every parameter that has a gradient.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let [a, b] = [1f64, 2.].map(|x| Tensor::from([x]).requires_grad_(true));
    /// let options = SGDOptions { lr: 0.5, ..Default::default() };
    /// let mut optimizer = SGD::new([a.clone(), b.clone()], options);
    /// (&a * 1.0).backward(); // nothing for b
    /// optimizer.step();
    /// assert_eq!((a.item(), b.item()), (0.5, 2.0));
    /// ```
    fn step(&mut self);

    /// Drops the gradients (PyTorch's `zero_grad()`). Until the next backward pass they are `None`,
    /// and [`step`](Self::step) leaves parameters without a gradient alone.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Optimizer, SGD}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let mut optimizer = SGD::new([w.clone()], Default::default());
    /// (&w * 3.0).backward();
    /// optimizer.zero_grad();
    /// assert!(w.grad().is_none());
    /// ```
    fn zero_grad(&mut self) {
        self.parameters().iter().for_each(|parameter| parameter.set_grad(None));
    }

    /// Writes zeros into the gradients and keeps their memory (`zero_grad(set_to_none=False)`). A
    /// captured CUDA graph needs this form, because its gradients must not move.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Optimizer, SGD}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let mut optimizer = SGD::new([w.clone()], Default::default());
    /// (&w * 3.0).backward();
    /// optimizer.zero_grad_to_zeros();
    /// assert_eq!(w.grad().unwrap().item(), 0.0);
    /// ```
    fn zero_grad_to_zeros(&mut self) {
        let parameters = self.parameters();
        let grads: Vec<Tensor> = parameters.iter().filter_map(Tensor::grad).collect();
        crate::autograd::no_grad(|| zero_all(&grads));
        // What a shard does not have yet goes too, as in `zero_grad`.
        parameters.iter().for_each(Tensor::forget_unreduced);
    }

    /// Calls `closure`, which computes the loss and its gradients, then steps; gives back the loss.
    /// Optimizers that look at the loss more than once per step call it more than once.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let mut optimizer = SGD::new([w.clone()], SGDOptions { lr: 0.25, ..Default::default() });
    /// let loss = optimizer.step_with(&mut || {
    ///     let loss = &w * &w;
    ///     loss.backward();
    ///     loss
    /// });
    /// assert_eq!((loss.item(), w.item()), (1.0, 0.5));
    /// ```
    fn step_with(&mut self, closure: &mut dyn FnMut() -> Tensor) -> Tensor {
        let loss = crate::autograd::enable_grad(closure);
        self.step();
        loss
    }

    /// All parameters, group after group.
    fn parameters(&self) -> Vec<Tensor>;

    /// Number of parameter groups.
    fn num_groups(&self) -> usize;

    /// The learning rate of a group.
    fn lr(&self, group: usize) -> f64;

    /// Sets the learning rate of a group.
    fn set_lr(&mut self, group: usize, lr: f64);

    /// The learning rate of a group when the first scheduler was made for this optimizer; it is what
    /// schedules are relative to.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::ConstantLR;
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let options = SGDOptions { lr: 0.5, ..Default::default() };
    /// let mut optimizer = SGD::new([Tensor::from([1f64])], options);
    /// assert_eq!(optimizer.initial_lr(0), None);
    /// ConstantLR::new(&mut optimizer, 0.1, 5);
    /// assert_eq!((optimizer.initial_lr(0), optimizer.lr(0)), (Some(0.5), 0.05));
    /// ```
    fn initial_lr(&self, group: usize) -> Option<f64>;

    /// Sets [`initial_lr`](Self::initial_lr).
    fn set_initial_lr(&mut self, group: usize, lr: f64);

    /// True after [`load_state_dict`](Self::load_state_dict) of a state that a scheduler had set rates in, until
    /// a rate is set. A scheduler made then would start its schedule on the rates of the middle of another, so
    /// that is an error.
    ///
    /// ```
    /// use torchrs::optim::lr_scheduler::{LRScheduler, StepLR};
    /// use torchrs::{Tensor, catch, optim::{Optimizer, SGD}};
    /// let make = || SGD::new([Tensor::from([1f64])], Default::default());
    /// let mut old = make();
    /// let mut schedule = StepLR::new(&mut old, 1, 0.5);
    /// schedule.step(&mut old);
    /// // First the scheduler, then both states:
    /// let mut new = make();
    /// let mut resumed = StepLR::new(&mut new, 1, 0.5);
    /// new.load_state_dict(&old.state_dict())?;
    /// resumed.load_state_dict(&schedule.state_dict())?;
    /// assert!(new.is_mid_schedule() && new.lr(0) == 0.5e-3);
    /// assert!(catch(|| StepLR::new(&mut new, 1, 0.5)).is_err());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    fn is_mid_schedule(&self) -> bool {
        false
    }

    /// The momentum of a group, or its first beta; `None` for an optimizer that has neither.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Adagrad, Adam, Optimizer}};
    /// let w = || [Tensor::from([1f64])];
    /// assert_eq!(Adam::new(w(), Default::default()).momentum(0), Some(0.9));
    /// assert_eq!(Adagrad::new(w(), Default::default()).momentum(0), None);
    /// ```
    fn momentum(&self, group: usize) -> Option<f64>;

    /// Sets [`momentum`](Self::momentum).
    fn set_momentum(&mut self, group: usize, momentum: f64);

    /// Whether this rank has the state of the parameter at `place`: all but a [`ZeroRedundancyOptimizer`]'s have that of
    /// all.
    ///
    /// [`ZeroRedundancyOptimizer`]: super::ZeroRedundancyOptimizer
    fn has_state_of(&self, place: usize) -> bool {
        let _ = place;
        true
    }

    /// What [`state_dict`](Self::state_dict) gives of the state that this rank has; of other parameters there is none.
    fn local_state_dict(&self) -> OptimizerState {
        self.state_dict()
    }

    /// Brings the state of all ranks to rank `to` before that saves, where each has a part of it. All ranks call it.
    /// Most optimizers have all of their state, and do nothing.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Optimizer, SGD}};
    /// let mut optimizer = SGD::new([Tensor::from([1f64])], Default::default());
    /// optimizer.consolidate_state_dict(0)?;
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] for a rank that does not exist; otherwise as a collective.
    fn consolidate_state_dict(&mut self, to: usize) -> Result<()> {
        let _ = to;
        Ok(())
    }

    /// States and options, to be saved. The tensors are the optimizer's own: the next step changes
    /// them.
    fn state_dict(&self) -> OptimizerState;

    /// Continues from a saved state, on copies of its tensors. When there is an error nothing has
    /// changed.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Adam, AdamOptions, Optimizer}};
    /// let w = || [Tensor::from([1f64]).requires_grad_(true)];
    /// let old = Adam::new(w(), AdamOptions { lr: 0.5, ..Default::default() });
    /// let mut optimizer = Adam::new(w(), AdamOptions::default());
    /// optimizer.load_state_dict(&old.state_dict())?;
    /// assert_eq!(optimizer.lr(0), 0.5);
    /// let mut larger = Adam::new([w(), w()].concat(), AdamOptions::default());
    /// assert!(larger.load_state_dict(&old.state_dict()).is_err());
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when groups, parameters or state entries do not fit this optimizer; names
    /// the first that does not.
    fn load_state_dict(&mut self, state: &OptimizerState) -> Result<()>;
}

/// An optimizer that is chosen at run time.
impl<O: Optimizer + ?Sized> Optimizer for Box<O> {
    fn consolidate_state_dict(&mut self, to: usize) -> Result<()> {
        (**self).consolidate_state_dict(to)
    }
    fn has_state_of(&self, place: usize) -> bool {
        (**self).has_state_of(place)
    }
    fn local_state_dict(&self) -> OptimizerState {
        (**self).local_state_dict()
    }
    fn step(&mut self) {
        (**self).step();
    }
    fn zero_grad(&mut self) {
        (**self).zero_grad();
    }
    fn zero_grad_to_zeros(&mut self) {
        (**self).zero_grad_to_zeros();
    }
    fn step_with(&mut self, closure: &mut dyn FnMut() -> Tensor) -> Tensor {
        (**self).step_with(closure)
    }
    fn parameters(&self) -> Vec<Tensor> {
        (**self).parameters()
    }
    fn num_groups(&self) -> usize {
        (**self).num_groups()
    }
    fn lr(&self, group: usize) -> f64 {
        (**self).lr(group)
    }
    fn set_lr(&mut self, group: usize, lr: f64) {
        (**self).set_lr(group, lr);
    }
    fn initial_lr(&self, group: usize) -> Option<f64> {
        (**self).initial_lr(group)
    }
    fn set_initial_lr(&mut self, group: usize, lr: f64) {
        (**self).set_initial_lr(group, lr);
    }
    fn is_mid_schedule(&self) -> bool {
        (**self).is_mid_schedule()
    }
    fn momentum(&self, group: usize) -> Option<f64> {
        (**self).momentum(group)
    }
    fn set_momentum(&mut self, group: usize, momentum: f64) {
        (**self).set_momentum(group, momentum);
    }
    fn state_dict(&self) -> OptimizerState {
        (**self).state_dict()
    }
    fn load_state_dict(&mut self, state: &OptimizerState) -> Result<()> {
        (**self).load_state_dict(state)
    }
}

/// An entry of a parameter's state.
///
/// ```
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions, StateValue}};
/// let w = Tensor::from([1f64]).requires_grad_(true);
/// let options = SGDOptions { momentum: 0.9, ..Default::default() };
/// let mut optimizer = SGD::new([w.clone()], options);
/// (&w * 2.0).backward();
/// optimizer.step();
/// let saved = &optimizer.state_dict().state[0]["momentum_buffer"];
/// assert!(matches!(saved, StateValue::Tensor(buffer) if buffer.item() == 2.0));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StateValue {
    /// A tensor, such as a running average.
    Tensor(Tensor),
    /// A number, such as the count of steps.
    Number(f64),
}

/// An optimizer's state in PyTorch's structure: for each parameter, by its place among all
/// parameters, entries such as `step` and `exp_avg` (none before its first step); and the groups'
/// options with the places of their parameters.
///
/// ```
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let options = SGDOptions { lr: 0.5, ..Default::default() };
/// let saved = SGD::new([Tensor::from([1f64])], options).state_dict();
/// assert!(saved.state[0].is_empty()); // nothing before the first step
/// assert_eq!(saved.param_groups[0]["lr"], 0.5);
/// assert_eq!(saved.param_groups[0]["params"][0], 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct OptimizerState {
    /// State of each parameter.
    pub state: Vec<BTreeMap<String, StateValue>>,
    /// A JSON array with an object per group: its options and `params`, a list of places.
    pub param_groups: Value,
}

impl OptimizerState {
    /// The state as tensors, named `<place>.<entry>`, and everything else as JSON: what a checkpoint
    /// stores.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Adam, Optimizer}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let mut optimizer = Adam::new([w.clone()], Default::default());
    /// (&w * 2.0).backward();
    /// optimizer.step();
    /// let (tensors, rest) = optimizer.state_dict().split();
    /// assert_eq!(tensors.keys().collect::<Vec<_>>(), ["0.exp_avg", "0.exp_avg_sq"]);
    /// assert_eq!(rest["state"][0]["step"], 1.0);
    /// ```
    pub fn split(self) -> (BTreeMap<String, Tensor>, Value) {
        let mut tensors = BTreeMap::new();
        let mut numbers = Vec::with_capacity(self.state.len());
        for (place, entries) in self.state.into_iter().enumerate() {
            let mut rest = BTreeMap::new();
            for (name, value) in entries {
                match value {
                    StateValue::Tensor(tensor) => {
                        tensors.insert(format!("{place}.{name}"), tensor);
                    }
                    StateValue::Number(number) => {
                        rest.insert(name, number);
                    }
                }
            }
            numbers.push(rest);
        }
        (tensors, json!({ "state": numbers, "param_groups": self.param_groups }))
    }

    /// The inverse of [`split`](Self::split).
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Adam, Optimizer, OptimizerState}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let mut optimizer = Adam::new([w.clone()], Default::default());
    /// (&w * 2.0).backward();
    /// optimizer.step();
    /// let (tensors, rest) = optimizer.state_dict().split();
    /// let joined = OptimizerState::join(&tensors, &rest)?;
    /// assert_eq!(joined.state[0].len(), 3);
    /// optimizer.load_state_dict(&joined)?;
    /// # Ok::<(), torchrs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] when a name or the JSON does not have that form.
    pub fn join(tensors: &BTreeMap<String, Tensor>, rest: &Value) -> Result<Self> {
        let wrong = |what: String| Error::argument("OptimizerState::join", "state", what);
        let numbers: Vec<BTreeMap<String, f64>> = serde_json::from_value(rest["state"].clone())
            .map_err(|e| wrong(format!("`state` is not a list of maps to numbers: {e}")))?;
        let to_values = |entries: BTreeMap<String, f64>| {
            entries.into_iter().map(|(name, n)| (name, StateValue::Number(n))).collect()
        };
        let mut state: Vec<BTreeMap<_, _>> = numbers.into_iter().map(to_values).collect();
        for (key, tensor) in tensors {
            let place = key.split_once('.').and_then(|(p, name)| Some((p.parse().ok()?, name)));
            let entry = place.and_then(|(p, name): (usize, _)| Some((state.get_mut(p)?, name)));
            let Some((entries, name)) = entry else {
                return Err(wrong(format!(
                    "tensor `{key}` is not named `<place>.<entry>` with a place below {}",
                    state.len()
                )));
            };
            entries.insert(name.to_owned(), StateValue::Tensor(tensor.clone()));
        }
        Ok(OptimizerState { state, param_groups: rest["param_groups"].clone() })
    }
}
