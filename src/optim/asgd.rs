//! Averaged stochastic gradient descent (`torch.optim.ASGD`):
//!
//! ```text
//! g = grad + weight_decay p
//! p = (1 - lambd eta) p - eta g
//! a = a + mu (p - a)
//! eta = lr / (1 + lambd lr t)^alpha;   mu = 1 / max(1, t - t0)
//! ```

use super::declare::{options, state};
use super::engine::{Item, Rule, RuleOptimizer, not_negative};
use crate::ops::pointwise::asgd_step;
use crate::tensor::Tensor;

/// Averaged stochastic gradient descent (Polyak and Juditsky, 1992). The average of the parameters
/// is the state entry `ax`.
///
/// ```
/// use torchrs::{Tensor, optim::{ASGD, ASGDOptions, Optimizer}};
/// let w = Tensor::from([1f64]).requires_grad_(true);
/// let mut optimizer = ASGD::new([w.clone()], ASGDOptions { lr: 0.1, ..Default::default() });
/// (&w * &w).sum().backward();
/// optimizer.step();
/// assert!((w.item() - 0.8).abs() < 1e-4);
/// ```
pub type ASGD = RuleOptimizer<ASGDRule>;

options! {
    /// Options of [`ASGD`], with PyTorch's defaults.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{ASGD, ASGDOptions, Optimizer}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let mut optimizer = ASGD::new([w.clone()], ASGDOptions { lr: 0.5, lambd: 0.0, ..Default::default() });
    /// w.set_grad(Some(Tensor::from([1f64])));
    /// optimizer.step();
    /// assert_eq!(w.item(), 0.5);
    /// ```
    ASGDOptions {
        /// Learning rate.
        lr: f64 = 1e-2,
        /// Share by which parameters shrink per step, times the current rate; also how fast that
        /// rate falls.
        lambd: f64 = 1e-4,
        /// Power by which the rate falls.
        alpha: f64 = 0.75,
        /// The step at which averaging begins.
        t0: f64 = 1e6,
        /// Strength of the L2 penalty, which is added to the gradient.
        weight_decay: f64 = 0.0,
        /// Ascend instead.
        maximize: bool = false,
    }
    check(o) {
        not_negative("lr", o.lr)?;
        not_negative("weight_decay", o.weight_decay)?;
    }
}

state! {
    /// Count of steps, current rate, the next parameters' share of the average, and the average.
    ASGDState {
        step: f64,
        eta: f64,
        mu: f64,
        ax: Tensor,
    }
}

/// The formula of [`ASGD`].
pub enum ASGDRule {}

/// PyTorch keeps these numbers in f32.
fn rounded(x: f64) -> f64 {
    x as f32 as f64
}

impl Rule for ASGDRule {
    type Options = ASGDOptions;
    type State = ASGDState;
    const NAME: &'static str = "ASGD";
    const ONE_UPDATE_EACH: bool = true;

    fn init(options: &ASGDOptions, p: &Tensor) -> ASGDState {
        ASGDState { step: 0.0, eta: rounded(options.lr), mu: 1.0, ax: p.zeros_like() }
    }

    fn update(options: &ASGDOptions, items: &mut [Item<'_, ASGDState>]) {
        let &ASGDOptions { lr, lambd, alpha, t0, weight_decay, maximize } = options;
        let sign = if maximize { -1.0 } else { 1.0 };
        for Item { parameter, grad, state } in items {
            let ASGDState { step, eta, mu, ax } = &mut **state;
            *step += 1.0;
            let shrink = 1.0 - lambd * *eta;
            asgd_step(parameter, grad, ax, sign, weight_decay, *eta, shrink, *mu, 1.0 - *mu);
            *eta = rounded(lr / (1.0 + lambd * lr * *step).powf(alpha));
            *mu = rounded(1.0 / (*step - t0).max(1.0));
        }
    }
}
