//! NAdam (`torch.optim.NAdam`):
//!
//! ```text
//! g = grad + weight_decay p           (or p = p (1 - lr weight_decay), decoupled)
//! mu_t = beta1 (1 - 0.96^(t momentum_decay) / 2)
//! m = m + (1 - beta1) (g - m)
//! v = beta2 v + (1 - beta2) g^2
//! p = p - lr ((1 - mu_t) / (1 - mu_1 .. mu_t) g + mu_(t+1) / (1 - mu_1 .. mu_(t+1)) m)
//!         / (sqrt(v / (1 - beta2^t)) + eps)
//! ```

use super::declare::{options, state};
use super::engine::{Item, Rule, RuleOptimizer, adam_ranges, not_negative};
use crate::ops::pointwise::nadam_step;
use crate::tensor::Tensor;

/// Adam with Nesterov's momentum (Dozat, 2016).
///
/// ```
/// use torchrs::{Tensor, optim::{NAdam, NAdamOptions, Optimizer}};
/// let w = Tensor::from([1f64]).requires_grad_(true);
/// let mut optimizer = NAdam::new([w.clone()], NAdamOptions { lr: 0.1, ..Default::default() });
/// (&w * &w).sum().backward();
/// optimizer.step();
/// assert!(w.item() < 0.95);
/// ```
pub type NAdam = RuleOptimizer<NAdamRule>;

options! {
    /// Options of [`NAdam`], with PyTorch's defaults.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{NAdam, NAdamOptions, Optimizer}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let decay = NAdamOptions { weight_decay: 0.2, decoupled_weight_decay: true, ..Default::default() };
    /// let options = NAdamOptions { lr: 0.5, ..decay };
    /// let mut optimizer = NAdam::new([w.clone()], options);
    /// w.set_grad(Some(Tensor::from([0f64])));
    /// optimizer.step(); // shrinks by 0.5 0.2, whatever the gradient
    /// assert!((w.item() - 0.9).abs() < 1e-12);
    /// ```
    NAdamOptions {
        /// Learning rate.
        lr: f64 = 2e-3,
        /// How slowly the running averages of the gradient and of its square change.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the denominator.
        eps: f64 = 1e-8,
        /// Strength of the L2 penalty, which is added to the gradient.
        weight_decay: f64 = 0.0,
        /// How fast the momentum approaches the first beta.
        momentum_decay: f64 = 4e-3,
        /// Take weight decay as [`AdamW`](super::AdamW) does.
        decoupled_weight_decay: bool = false,
        /// Ascend instead.
        maximize: bool = false,
    }
    check(o) {
        adam_ranges(o.lr, o.betas, o.eps, o.weight_decay)?;
        not_negative("momentum_decay", o.momentum_decay)?;
    }
    momentum(o) = o.betas.0;
}

state! {
    /// Count of steps, product of all momentums, and running averages.
    NAdamState {
        step: f64,
        mu_product: f64,
        exp_avg: Tensor,
        exp_avg_sq: Tensor,
    }
}

/// The formula of [`NAdam`].
pub enum NAdamRule {}

impl Rule for NAdamRule {
    type Options = NAdamOptions;
    type State = NAdamState;
    const NAME: &'static str = "NAdam";
    const ONE_UPDATE_EACH: bool = true;

    fn init(_: &NAdamOptions, p: &Tensor) -> NAdamState {
        let (exp_avg, exp_avg_sq) = (p.zeros_like(), p.zeros_like());
        NAdamState { step: 0.0, mu_product: 1.0, exp_avg, exp_avg_sq }
    }

    fn update(options: &NAdamOptions, items: &mut [Item<'_, NAdamState>]) {
        let &NAdamOptions { lr, betas: (beta1, beta2), eps, weight_decay, .. } = options;
        let sign = if options.maximize { -1.0 } else { 1.0 };
        let (l2, shrink) = match options.decoupled_weight_decay {
            true => (0.0, 1.0 - lr * weight_decay),
            false => (weight_decay, 1.0),
        };
        let momentum = |t: f64| beta1 * (1.0 - 0.5 * 0.96f64.powf(t * options.momentum_decay));
        for Item { parameter, grad, state } in items {
            state.step += 1.0;
            let t = state.step;
            let (mu, next) = (momentum(t), momentum(t + 1.0));
            // PyTorch keeps the product in f32.
            state.mu_product = (state.mu_product as f32 * mu as f32) as f64;
            let ahead = lr * (1.0 - mu) / (1.0 - state.mu_product);
            let behind = lr * next / (1.0 - state.mu_product * next);
            let correction = 1.0 - beta2.powf(t);
            nadam_step(
                parameter,
                grad,
                &state.exp_avg,
                &state.exp_avg_sq,
                sign,
                l2,
                1.0 - beta1,
                beta2,
                1.0 - beta2,
                shrink,
                ahead,
                behind,
                correction,
                eps,
            );
        }
    }
}
