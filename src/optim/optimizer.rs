//! What all optimizers have in common for those who use them: training loops, schedulers,
//! checkpoints. How they are made is in `engine.rs`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::Tensor;
use crate::error::{Error, Result};

/// Updates parameters from their gradients (`torch.optim.Optimizer`).
pub trait Optimizer: Send {
    /// Updates every parameter that has a gradient.
    fn step(&mut self);

    /// Clears the gradients: drops them (`set_to_none`, PyTorch's default, and what DDP prefers as
    /// well), or writes zeros.
    fn zero_grad(&mut self, set_to_none: bool) {
        for parameter in self.parameters() {
            match parameter.grad() {
                Some(grad) if !set_to_none => crate::no_grad(|| _ = grad.fill_(0.0)),
                _ => parameter.set_grad(None),
            }
        }
    }

    /// Calls `closure`, which computes the loss and its gradients, then steps; gives back the loss.
    /// Optimizers that look at the loss more than once per step call it more than once.
    fn step_with(&mut self, closure: &mut dyn FnMut() -> Tensor) -> Tensor {
        let loss = crate::enable_grad(closure);
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
    fn initial_lr(&self, group: usize) -> Option<f64>;

    /// Sets [`initial_lr`](Self::initial_lr).
    fn set_initial_lr(&mut self, group: usize, lr: f64);

    /// The momentum of a group, or its first beta; `None` for an optimizer that has neither.
    fn momentum(&self, group: usize) -> Option<f64>;

    /// Sets [`momentum`](Self::momentum).
    fn set_momentum(&mut self, group: usize, momentum: f64);

    /// States and options, to be saved. The tensors are the optimizer's own: the next step changes
    /// them.
    fn state_dict(&self) -> OptimizerState;

    /// Continues from a saved state, on copies of its tensors. When there is an error nothing has
    /// changed.
    ///
    /// # Errors
    /// [`Error::Argument`] when groups, parameters or state entries do not fit this optimizer; names
    /// the first that does not.
    fn load_state_dict(&mut self, state: &OptimizerState) -> Result<()>;
}

/// An entry of a parameter's state.
#[derive(Clone, Debug)]
pub enum StateValue {
    /// A tensor, such as a running average.
    Tensor(Tensor),
    /// A number, such as the count of steps.
    Number(f64),
}

/// An optimizer's state in PyTorch's structure: for each parameter, by its place among all
/// parameters, entries such as `step` and `exp_avg` (none before its first step); and the groups'
/// options with the places of their parameters.
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
