//! Stochastic gradient descent with momentum (`torch.optim.SGD`):
//!
//! ```text
//! g = grad + weight_decay p
//! b = momentum b + (1 - dampening) g        (b = g at the first step)
//! p = p - lr (g + momentum b)   (nesterov)      or      p = p - lr b
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::StateValue;
use super::engine::{
    GroupOptions, Item, ParamState, Rule, RuleOptimizer, StateReader, not_negative,
};
use crate::Tensor;
use crate::error::Result;
use crate::ops::pointwise::{sgd_momentum_step, sgd_nesterov_step, sgd_step};

/// Stochastic gradient descent, with momentum if wanted.
///
/// ```
/// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
/// let w = Tensor::from([1f32]).requires_grad_(true);
/// let mut optimizer = SGD::new([w.clone()], SGDOptions { lr: 0.1, ..Default::default() });
/// (&w * &w).sum().backward();
/// optimizer.step();
/// assert_eq!(w.item() as f32, 0.8);
/// ```
pub type SGD = RuleOptimizer<SGDRule>;

/// Options of [`SGD`], with PyTorch's defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SGDOptions {
    /// Learning rate.
    pub lr: f64,
    /// Share of the last step that is added to this one.
    pub momentum: f64,
    /// Share of the gradient that momentum leaves out.
    pub dampening: f64,
    /// Strength of the L2 penalty, which is added to the gradient.
    pub weight_decay: f64,
    /// Nesterov's momentum; needs a momentum above 0 and no dampening.
    pub nesterov: bool,
    /// Ascend instead.
    pub maximize: bool,
}

impl Default for SGDOptions {
    fn default() -> Self {
        SGDOptions {
            lr: 1e-3,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
        }
    }
}

impl GroupOptions for SGDOptions {
    fn lr(&self) -> f64 {
        self.lr
    }
    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }
    fn momentum(&self) -> Option<f64> {
        Some(self.momentum)
    }
    fn set_momentum(&mut self, momentum: f64) {
        self.momentum = momentum;
    }
    fn check(&self) -> std::result::Result<(), (&'static str, String)> {
        not_negative("lr", self.lr)?;
        not_negative("momentum", self.momentum)?;
        not_negative("weight_decay", self.weight_decay)?;
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            let message = format!(
                "needs momentum above 0 and dampening 0, got {} and {}",
                self.momentum, self.dampening
            );
            return Err(("nesterov", message));
        }
        Ok(())
    }
}

/// The formula of [`SGD`].
pub enum SGDRule {}

/// The running sum of steps, from the first step with momentum on.
#[derive(Default)]
pub struct SGDState {
    momentum_buffer: Option<Tensor>,
}

impl ParamState for SGDState {
    fn save(&self) -> BTreeMap<String, StateValue> {
        let buffer = self.momentum_buffer.iter();
        buffer.map(|t| ("momentum_buffer".to_owned(), StateValue::Tensor(t.clone()))).collect()
    }
    fn load(entries: &StateReader<'_>) -> Result<Self> {
        Ok(SGDState { momentum_buffer: entries.tensor_if_any("momentum_buffer")? })
    }
}

impl Rule for SGDRule {
    type Options = SGDOptions;
    type State = SGDState;
    const NAME: &'static str = "SGD";

    fn init(_: &SGDOptions, _: &Tensor) -> SGDState {
        SGDState::default()
    }

    fn update(options: &SGDOptions, items: &mut [Item<'_, SGDState>]) {
        let &SGDOptions { lr, momentum, dampening, weight_decay, nesterov, maximize } = options;
        let sign = if maximize { -1.0 } else { 1.0 };
        for Item { parameter, grad, state } in items {
            if momentum == 0.0 {
                sgd_step(parameter, grad, lr, sign, weight_decay);
                continue;
            }
            // The first buffer is the gradient itself: momentum * 0 + 1 * g.
            let share = if state.momentum_buffer.is_none() { 1.0 } else { 1.0 - dampening };
            let buffer = state.momentum_buffer.get_or_insert_with(|| parameter.zeros_like());
            let step = if nesterov { sgd_nesterov_step } else { sgd_momentum_step };
            step(parameter, grad, buffer, lr, sign, weight_decay, momentum, share);
        }
    }
}
