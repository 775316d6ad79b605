//! Adagrad (`torch.optim.Adagrad`):
//!
//! ```text
//! g = grad + weight_decay p
//! v = v + g^2
//! p = p - lr / (1 + (t - 1) lr_decay) g / (sqrt(v) + eps)
//! ```

use super::declare::{options, state};
use super::engine::{Item, Rule, RuleOptimizer, not_negative};
use crate::ops::pointwise::adagrad_step;
use crate::tensor::Tensor;

/// Adagrad (Duchi et al., 2011): steps fall with the sum of all squared gradients.
///
/// ```
/// use torchrs::{Tensor, optim::{Adagrad, AdagradOptions, Optimizer}};
/// let w = Tensor::from([1f64]).requires_grad_(true);
/// let mut optimizer = Adagrad::new([w.clone()], AdagradOptions { lr: 0.1, ..Default::default() });
/// (&w * &w).sum().backward();
/// optimizer.step();
/// assert!((w.item() - 0.9).abs() < 1e-6);
/// ```
pub type Adagrad = RuleOptimizer<AdagradRule>;

options! {
    /// Options of [`Adagrad`], with PyTorch's defaults.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Adagrad, AdagradOptions, Optimizer}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let options = AdagradOptions { lr: 0.5, initial_accumulator_value: 7.0, ..Default::default() };
    /// let mut optimizer = Adagrad::new([w.clone()], options);
    /// w.set_grad(Some(Tensor::from([3f64])));
    /// optimizer.step(); // by 0.5 3 / sqrt(7 + 9)
    /// assert!((w.item() - 0.625).abs() < 1e-9);
    /// ```
    AdagradOptions {
        /// Learning rate.
        lr: f64 = 1e-2,
        /// How fast the learning rate falls by the count of steps.
        lr_decay: f64 = 0.0,
        /// Strength of the L2 penalty, which is added to the gradient.
        weight_decay: f64 = 0.0,
        /// What the sum of squares starts from.
        initial_accumulator_value: f64 = 0.0,
        /// Added to the denominator.
        eps: f64 = 1e-10,
        /// Ascend instead.
        maximize: bool = false,
    }
    check(o) {
        not_negative("lr", o.lr)?;
        not_negative("lr_decay", o.lr_decay)?;
        not_negative("weight_decay", o.weight_decay)?;
        not_negative("initial_accumulator_value", o.initial_accumulator_value)?;
        not_negative("eps", o.eps)?;
    }
}

state! {
    /// Count of steps and sum of squared gradients.
    AdagradState {
        step: f64,
        sum: Tensor,
    }
}

/// The formula of [`Adagrad`].
pub enum AdagradRule {}

impl Rule for AdagradRule {
    type Options = AdagradOptions;
    type State = AdagradState;
    const NAME: &'static str = "Adagrad";
    const ONE_UPDATE_EACH: bool = true;

    fn init(options: &AdagradOptions, p: &Tensor) -> AdagradState {
        AdagradState { step: 0.0, sum: p.full_like(options.initial_accumulator_value) }
    }

    fn update(options: &AdagradOptions, items: &mut [Item<'_, AdagradState>]) {
        let &AdagradOptions { lr, lr_decay, weight_decay, eps, maximize, .. } = options;
        let sign = if maximize { -1.0 } else { 1.0 };
        for Item { parameter, grad, state } in items {
            let lr = lr / (1.0 + state.step * lr_decay);
            state.step += 1.0;
            adagrad_step(parameter, grad, &state.sum, lr, sign, weight_decay, eps);
        }
    }
}
