//! RMSprop (`torch.optim.RMSprop`):
//!
//! ```text
//! g = grad + weight_decay p
//! v = alpha v + (1 - alpha) g^2
//! m = m + (1 - alpha) (g - m)                         (centered; else m = 0)
//! b = momentum b + g / (sqrt(v - m^2) + eps)
//! p = p - lr b
//! ```

use super::declare::{options, state};
use super::engine::{Item, Rule, RuleOptimizer, not_negative};
use crate::ops::pointwise::{rmsprop_centered_step, rmsprop_momentum_step, rmsprop_step};
use crate::tensor::Tensor;

/// RMSprop (Hinton, 2012), with momentum if wanted.
///
/// ```
/// use torchrs::{Tensor, optim::{RMSprop, RMSpropOptions, Optimizer}};
/// let w = Tensor::from([1f64]).requires_grad_(true);
/// let mut optimizer = RMSprop::new([w.clone()], RMSpropOptions { lr: 0.01, ..Default::default() });
/// (&w * &w).sum().backward();
/// optimizer.step();
/// assert!((w.item() - 0.9).abs() < 1e-6);
/// ```
pub type RMSprop = RuleOptimizer<RMSpropRule>;

options! {
    /// Options of [`RMSprop`], with PyTorch's defaults.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Optimizer, RMSprop, RMSpropOptions}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let options = RMSpropOptions { lr: 0.5, alpha: 0.75, ..Default::default() };
    /// let mut optimizer = RMSprop::new([w.clone()], options);
    /// w.set_grad(Some(Tensor::from([3f64])));
    /// optimizer.step(); // by 0.5 3 / sqrt(0.25 9)
    /// assert!(w.item().abs() < 1e-6);
    /// ```
    RMSpropOptions {
        /// Learning rate.
        lr: f64 = 1e-2,
        /// How slowly the running averages change.
        alpha: f64 = 0.99,
        /// Added to the denominator.
        eps: f64 = 1e-8,
        /// Strength of the L2 penalty, which is added to the gradient.
        weight_decay: f64 = 0.0,
        /// Share of the last step that is added to this one.
        momentum: f64 = 0.0,
        /// Divide by the standard deviation in place of the root mean square.
        centered: bool = false,
        /// Ascend instead.
        maximize: bool = false,
    }
    check(o) {
        not_negative("lr", o.lr)?;
        not_negative("eps", o.eps)?;
        not_negative("momentum", o.momentum)?;
        not_negative("weight_decay", o.weight_decay)?;
        not_negative("alpha", o.alpha)?;
    }
    momentum(o) = o.momentum;
}

state! {
    /// Count of steps and running averages; the last ones where options ask for them.
    RMSpropState {
        step: f64,
        square_avg: Tensor,
        momentum_buffer: Option<Tensor>,
        grad_avg: Option<Tensor>,
    }
}

/// The formula of [`RMSprop`].
pub enum RMSpropRule {}

impl Rule for RMSpropRule {
    type Options = RMSpropOptions;
    type State = RMSpropState;
    const NAME: &'static str = "RMSprop";
    const ONE_UPDATE_EACH: bool = true;

    fn init(options: &RMSpropOptions, p: &Tensor) -> RMSpropState {
        RMSpropState {
            step: 0.0,
            square_avg: p.zeros_like(),
            momentum_buffer: (options.momentum > 0.0).then(|| p.zeros_like()),
            grad_avg: options.centered.then(|| p.zeros_like()),
        }
    }

    fn is_capturable(_: &RMSpropOptions) -> bool {
        true
    }

    fn update(options: &RMSpropOptions, items: &mut [Item<'_, RMSpropState>]) {
        let &RMSpropOptions { lr, alpha, eps, weight_decay: decay, momentum, centered, .. } =
            options;
        let (sign, share) = (if options.maximize { -1.0 } else { 1.0 }, 1.0 - alpha);
        for Item { parameter: p, grad: g, state } in items {
            let RMSpropState { step, square_avg: v, momentum_buffer, grad_avg } = &mut **state;
            *step += 1.0;
            if momentum > 0.0 {
                momentum_buffer.get_or_insert_with(|| p.zeros_like());
            }
            if centered {
                let m = grad_avg.get_or_insert_with(|| p.zeros_like());
                let b = momentum_buffer.clone().unwrap_or_else(|| p.zeros_like());
                rmsprop_centered_step(p, g, v, m, &b, lr, sign, decay, alpha, share, eps, momentum);
            } else if let Some(b) = momentum_buffer {
                rmsprop_momentum_step(p, g, v, b, lr, sign, decay, alpha, share, eps, momentum);
            } else {
                rmsprop_step(p, g, v, lr, sign, decay, alpha, share, eps);
            }
        }
    }
}
