//! Adamax (`torch.optim.Adamax`):
//!
//! ```text
//! g = grad + weight_decay p
//! m = m + (1 - beta1) (g - m)
//! u = max(beta2 u, |g| + eps)
//! p = p - lr / (1 - beta1^t) m / u
//! ```

use super::declare::{options, state};
use super::engine::{Item, Rule, RuleOptimizer, adam_ranges};
use crate::ops::pointwise::adamax_step;
use crate::tensor::Tensor;

/// Adamax (Kingma and Ba, 2015): Adam by the largest gradient in place of the mean square.
///
/// ```
/// use torchrs::{Tensor, optim::{Adamax, AdamaxOptions, Optimizer}};
/// let w = Tensor::from([1f64]).requires_grad_(true);
/// let mut optimizer = Adamax::new([w.clone()], AdamaxOptions { lr: 0.1, ..Default::default() });
/// (&w * &w).sum().backward();
/// optimizer.step();
/// assert!((w.item() - 0.9).abs() < 1e-6);
/// ```
pub type Adamax = RuleOptimizer<AdamaxRule>;

options! {
    /// Options of [`Adamax`], with PyTorch's defaults.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Adamax, AdamaxOptions, Optimizer}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let options = AdamaxOptions { lr: 0.5, maximize: true, ..Default::default() };
    /// let mut optimizer = Adamax::new([w.clone()], options);
    /// w.set_grad(Some(Tensor::from([3f64])));
    /// optimizer.step();
    /// assert!((w.item() - 1.5).abs() < 1e-6);
    /// ```
    AdamaxOptions {
        /// Learning rate.
        lr: f64 = 2e-3,
        /// How slowly the average of gradients and the largest one change.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the gradients' absolute values.
        eps: f64 = 1e-8,
        /// Strength of the L2 penalty, which is added to the gradient.
        weight_decay: f64 = 0.0,
        /// Ascend instead.
        maximize: bool = false,
    }
    check(o) {
        adam_ranges(o.lr, o.betas, o.eps, o.weight_decay)?;
    }
    momentum(o) = o.betas.0;
}

state! {
    /// Count of steps, average of gradients, and the largest of them.
    AdamaxState {
        step: f64,
        exp_avg: Tensor,
        exp_inf: Tensor,
    }
}

/// The formula of [`Adamax`].
pub enum AdamaxRule {}

impl Rule for AdamaxRule {
    type Options = AdamaxOptions;
    type State = AdamaxState;
    const NAME: &'static str = "Adamax";
    const ONE_UPDATE_EACH: bool = true;

    fn init(_: &AdamaxOptions, p: &Tensor) -> AdamaxState {
        AdamaxState { step: 0.0, exp_avg: p.zeros_like(), exp_inf: p.zeros_like() }
    }

    fn update(options: &AdamaxOptions, items: &mut [Item<'_, AdamaxState>]) {
        let &AdamaxOptions { lr, betas: (beta1, beta2), eps, weight_decay, maximize } = options;
        let sign = if maximize { -1.0 } else { 1.0 };
        for Item { parameter, grad, state } in items {
            state.step += 1.0;
            let step_size = lr / (1.0 - beta1.powf(state.step));
            let (m, u) = (&state.exp_avg, &state.exp_inf);
            adamax_step(
                parameter,
                grad,
                m,
                u,
                step_size,
                sign,
                weight_decay,
                1.0 - beta1,
                beta2,
                eps,
            );
        }
    }
}
