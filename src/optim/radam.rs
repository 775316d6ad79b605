//! RAdam (`torch.optim.RAdam`): Adam, whose step
//!
//! ```text
//! p = p - lr r m / (1 - beta1^t) / ((sqrt(v) + eps) / sqrt(1 - beta2^t))
//! r^2 = (k - 4) (k - 2) n / ((n - 4) (n - 2) k),  n = 2 / (1 - beta2) - 1,
//! k = n - 2 t beta2^t / (1 - beta2^t)
//! ```
//!
//! is `p - lr m / (1 - beta1^t)` as long as `k`, the number of squares in the average, is at most 5.

use super::declare::{options, state};
use super::engine::{Item, Rule, RuleOptimizer, adam_ranges};
use crate::ops::pointwise::{adam_step, radam_start};
use crate::tensor::Tensor;

/// Rectified Adam (Liu et al., 2020), which needs no warm-up.
///
/// ```
/// use torchrs::{Tensor, optim::{RAdam, RAdamOptions, Optimizer}};
/// let w = Tensor::from([1f64]).requires_grad_(true);
/// let mut optimizer = RAdam::new([w.clone()], RAdamOptions { lr: 0.1, ..Default::default() });
/// (&w * &w).sum().backward();
/// optimizer.step();
/// assert!((w.item() - 0.8).abs() < 1e-12);
/// ```
pub type RAdam = RuleOptimizer<RAdamRule>;

options! {
    /// Options of [`RAdam`], with PyTorch's defaults.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Optimizer, RAdam, RAdamOptions}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let mut optimizer = RAdam::new([w.clone()], RAdamOptions { lr: 0.25, ..Default::default() });
    /// w.set_grad(Some(Tensor::from([2f64])));
    /// optimizer.step(); // the first steps do not divide by the root mean square
    /// assert!((w.item() - 0.5).abs() < 1e-12);
    /// ```
    RAdamOptions {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// How slowly the running averages of the gradient and of its square change.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the denominator.
        eps: f64 = 1e-8,
        /// Strength of the L2 penalty, which is added to the gradient.
        weight_decay: f64 = 0.0,
        /// Take weight decay as [`AdamW`](super::AdamW) does.
        decoupled_weight_decay: bool = false,
        /// Ascend instead.
        maximize: bool = false,
    }
    check(o) {
        adam_ranges(o.lr, o.betas, o.eps, o.weight_decay)?;
    }
    momentum(o) = o.betas.0;
}

state! {
    /// Count of steps and running averages.
    RAdamState {
        step: f64,
        exp_avg: Tensor,
        exp_avg_sq: Tensor,
    }
}

/// The formula of [`RAdam`].
pub enum RAdamRule {}

impl Rule for RAdamRule {
    type Options = RAdamOptions;
    type State = RAdamState;
    const NAME: &'static str = "RAdam";
    const ONE_UPDATE_EACH: bool = true;

    fn init(_: &RAdamOptions, p: &Tensor) -> RAdamState {
        RAdamState { step: 0.0, exp_avg: p.zeros_like(), exp_avg_sq: p.zeros_like() }
    }

    fn update(options: &RAdamOptions, items: &mut [Item<'_, RAdamState>]) {
        let &RAdamOptions { lr, betas: (beta1, beta2), eps, weight_decay, .. } = options;
        let sign = if options.maximize { -1.0 } else { 1.0 };
        let (l2, shrink) = match options.decoupled_weight_decay {
            true => (0.0, 1.0 - lr * weight_decay),
            false => (weight_decay, 1.0),
        };
        let (share1, share2) = (1.0 - beta1, 1.0 - beta2);
        let most = 2.0 / share2 - 1.0;
        for Item { parameter: p, grad: g, state } in items {
            state.step += 1.0;
            let t = state.step;
            let (m, v) = (&state.exp_avg, &state.exp_avg_sq);
            let step_size = lr / (1.0 - beta1.powf(t));
            let correction = 1.0 - beta2.powf(t);
            let terms = most - 2.0 * t * beta2.powf(t) / correction;
            if terms > 5.0 {
                let rectified =
                    (terms - 4.0) * (terms - 2.0) * most / ((most - 4.0) * (most - 2.0) * terms);
                let step_size = step_size * (rectified * correction).sqrt();
                adam_step(p, g, m, v, sign, l2, share1, beta2, share2, shrink, step_size, 1.0, eps);
            } else {
                radam_start(p, g, m, v, sign, l2, share1, beta2, share2, shrink, step_size);
            }
        }
    }
}
