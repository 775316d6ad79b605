//! Adadelta (`torch.optim.Adadelta`):
//!
//! ```text
//! g = grad + weight_decay p
//! v = rho v + (1 - rho) g^2
//! d = sqrt(u + eps) / sqrt(v + eps) g
//! u = rho u + (1 - rho) d^2
//! p = p - lr d
//! ```

use super::declare::{options, state};
use super::engine::{Item, Rule, RuleOptimizer, not_negative, within};
use crate::ops::pointwise::adadelta_step;
use crate::tensor::Tensor;

/// Adadelta (Zeiler, 2012): the size of a step follows those before it.
///
/// ```
/// use torchrs::{Tensor, optim::{Adadelta, AdadeltaOptions, Optimizer}};
/// let w = Tensor::from([1f64]).requires_grad_(true);
/// let mut optimizer = Adadelta::new([w.clone()], AdadeltaOptions::default());
/// (&w * &w).sum().backward();
/// optimizer.step();
/// assert!(w.item() < 1.0);
/// ```
pub type Adadelta = RuleOptimizer<AdadeltaRule>;

options! {
    /// Options of [`Adadelta`], with PyTorch's defaults.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Adadelta, AdadeltaOptions, Optimizer}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let options = AdadeltaOptions { rho: 0.0, eps: 1.0, ..Default::default() };
    /// let mut optimizer = Adadelta::new([w.clone()], options);
    /// w.set_grad(Some(Tensor::from([3f64])));
    /// optimizer.step(); // by sqrt(0 + 1) / sqrt(9 + 1) 3
    /// assert!((w.item() - (1.0 - 3.0 / 10f64.sqrt())).abs() < 1e-12);
    /// ```
    AdadeltaOptions {
        /// Factor of each step.
        lr: f64 = 1.0,
        /// How slowly the averages of squares change.
        rho: f64 = 0.9,
        /// Added under both roots.
        eps: f64 = 1e-6,
        /// Strength of the L2 penalty, which is added to the gradient.
        weight_decay: f64 = 0.0,
        /// Ascend instead.
        maximize: bool = false,
    }
    check(o) {
        not_negative("lr", o.lr)?;
        within("rho", o.rho, 0.0, 1.0)?;
        not_negative("eps", o.eps)?;
        not_negative("weight_decay", o.weight_decay)?;
    }
}

state! {
    /// Count of steps; averages of the squares of gradients and of steps.
    AdadeltaState {
        step: f64,
        square_avg: Tensor,
        acc_delta: Tensor,
    }
}

/// The formula of [`Adadelta`].
pub enum AdadeltaRule {}

impl Rule for AdadeltaRule {
    type Options = AdadeltaOptions;
    type State = AdadeltaState;
    const NAME: &'static str = "Adadelta";
    const ONE_UPDATE_EACH: bool = true;

    fn init(_: &AdadeltaOptions, p: &Tensor) -> AdadeltaState {
        AdadeltaState { step: 0.0, square_avg: p.zeros_like(), acc_delta: p.zeros_like() }
    }

    fn is_capturable(_: &AdadeltaOptions) -> bool {
        true
    }

    fn update(options: &AdadeltaOptions, items: &mut [Item<'_, AdadeltaState>]) {
        let &AdadeltaOptions { lr, rho, eps, weight_decay, maximize } = options;
        let sign = if maximize { -1.0 } else { 1.0 };
        for Item { parameter, grad, state } in items {
            state.step += 1.0;
            let (v, u) = (&state.square_avg, &state.acc_delta);
            adadelta_step(parameter, grad, v, u, lr, sign, weight_decay, rho, 1.0 - rho, eps);
        }
    }
}
