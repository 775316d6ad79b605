//! Stochastic gradient descent with momentum (`torch.optim.SGD`):
//!
//! ```text
//! g = grad + weight_decay p
//! b = momentum b + (1 - dampening) g        (b = g at the first step)
//! p = p - lr (g + momentum b)   (nesterov)      or      p = p - lr b
//! ```

use super::declare::{options, state};
use super::engine::{Item, Rule, RuleOptimizer, not_negative};
use crate::ops::pointwise::{sgd_momentum_step, sgd_nesterov_step, sgd_step};
use crate::tensor::Tensor;

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

options! {
    /// Options of [`SGD`], with PyTorch's defaults.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Optimizer, SGD, SGDOptions}};
    /// let w = Tensor::from([0f64]).requires_grad_(true);
    /// let options = SGDOptions { lr: 1.0, momentum: 0.5, ..Default::default() };
    /// let mut optimizer = SGD::new([w.clone()], options);
    /// w.set_grad(Some(Tensor::from([1f64])));
    /// let places = [0; 3].map(|_| { optimizer.step(); w.item() });
    /// assert_eq!(places, [-1.0, -2.5, -4.25]); // steps of 1, 1.5, 1.75
    /// ```
    SGDOptions {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// Share of the last step that is added to this one.
        momentum: f64 = 0.0,
        /// Share of the gradient that momentum leaves out.
        dampening: f64 = 0.0,
        /// Strength of the L2 penalty, which is added to the gradient.
        weight_decay: f64 = 0.0,
        /// Nesterov's momentum; needs a momentum above 0 and no dampening.
        nesterov: bool = false,
        /// Ascend instead.
        maximize: bool = false,
    }
    check(o) {
        not_negative("lr", o.lr)?;
        not_negative("momentum", o.momentum)?;
        not_negative("weight_decay", o.weight_decay)?;
        if o.nesterov && (o.momentum == 0.0 || o.dampening != 0.0) {
            let message = format!(
                "needs momentum above 0 and dampening 0, got {} and {}",
                o.momentum, o.dampening
            );
            return Err(("nesterov", message));
        }
    }
    momentum(o) = o.momentum;
}

state! {
    /// The running sum of steps, from the first step with momentum on.
    SGDState {
        momentum_buffer: Option<Tensor>,
    }
}

/// The formula of [`SGD`].
pub enum SGDRule {}

impl Rule for SGDRule {
    type Options = SGDOptions;
    type State = SGDState;
    const NAME: &'static str = "SGD";
    const ONE_UPDATE_EACH: bool = true;

    fn init(_: &SGDOptions, _: &Tensor) -> SGDState {
        SGDState { momentum_buffer: None }
    }

    fn is_capturable(_: &SGDOptions) -> bool {
        true
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
