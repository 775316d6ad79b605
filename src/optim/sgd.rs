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
use crate::ops::multi_tensor::{Real, Task, Update, run};

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
pub type SGD = RuleOptimizer<SgdRule>;

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
pub enum SgdRule {}

/// The running sum of steps, from the first step with momentum on.
#[derive(Default)]
pub struct SgdState {
    momentum_buffer: Option<Tensor>,
}

impl ParamState for SgdState {
    fn save(&self) -> BTreeMap<String, StateValue> {
        let buffer = self.momentum_buffer.iter();
        buffer.map(|t| ("momentum_buffer".to_owned(), StateValue::Tensor(t.clone()))).collect()
    }
    fn load(entries: &StateReader<'_>) -> Result<Self> {
        Ok(SgdState { momentum_buffer: entries.tensor_if_any("momentum_buffer")? })
    }
}

impl Rule for SgdRule {
    type Options = SGDOptions;
    type State = SgdState;
    const NAME: &'static str = "SGD";

    fn init(_: &SGDOptions, _: &Tensor) -> SgdState {
        SgdState::default()
    }

    fn update(options: &SGDOptions, items: &mut [Item<'_, SgdState>]) {
        let sign = if options.maximize { -1.0 } else { 1.0 };
        let SGDOptions { lr, momentum, dampening, weight_decay, nesterov, .. } = *options;
        if momentum == 0.0 {
            let update = Plain { lr, sign, weight_decay };
            let task = |item: &Item<'_, SgdState>| Task {
                update,
                written: [item.parameter.clone()],
                read: [item.grad.clone()],
            };
            return run(&items.iter().map(task).collect::<Vec<_>>());
        }
        let mut tasks = Vec::with_capacity(items.len());
        for item in items {
            let first = item.state.momentum_buffer.is_none();
            let buffer = item.state.momentum_buffer.get_or_insert_with(|| item.grad.zeros_like());
            // The first buffer is the gradient itself: 0 * momentum + 1 * g.
            let share = if first { 1.0 } else { 1.0 - dampening };
            tasks.push(Task {
                update: Momentum { lr, sign, weight_decay, momentum, share, nesterov },
                written: [item.parameter.clone(), buffer.clone()],
                read: [item.grad.clone()],
            });
        }
        run(&tasks);
    }
}

#[derive(Clone, Copy)]
struct Plain {
    lr: f64,
    sign: f64,
    weight_decay: f64,
}

impl Update<1, 1> for Plain {
    #[inline(always)]
    fn apply<T: Real>(self, [p]: [&mut [T]; 1], [g]: [&[T]; 1]) {
        let (lr, sign, decay) =
            (T::from_f64(self.lr), T::from_f64(self.sign), T::from_f64(self.weight_decay));
        if self.weight_decay == 0.0 {
            for (p, &g) in p.iter_mut().zip(g) {
                *p = *p - lr * (sign * g);
            }
        } else {
            for (p, &g) in p.iter_mut().zip(g) {
                *p = *p - lr * (sign * g + decay * *p);
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Momentum {
    lr: f64,
    sign: f64,
    weight_decay: f64,
    momentum: f64,
    /// Share of the gradient that goes into the buffer.
    share: f64,
    nesterov: bool,
}

impl Update<2, 1> for Momentum {
    #[inline(always)]
    fn apply<T: Real>(self, [p, b]: [&mut [T]; 2], [g]: [&[T]; 1]) {
        let (lr, sign, decay) =
            (T::from_f64(self.lr), T::from_f64(self.sign), T::from_f64(self.weight_decay));
        let (momentum, share) = (T::from_f64(self.momentum), T::from_f64(self.share));
        // p - lr * (direct * g + through * b): one loop for both kinds of momentum.
        let one = T::from_f64(1.0);
        let (direct, through) =
            if self.nesterov { (one, momentum) } else { (T::from_f64(0.0), one) };
        for ((p, b), &g) in p.iter_mut().zip(b).zip(g) {
            let g = sign * g + decay * *p;
            let sum = momentum * *b + share * g;
            *b = sum;
            *p = *p - lr * (direct * g + through * sum);
        }
    }
}
