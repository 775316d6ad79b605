//! Rprop (`torch.optim.Rprop`): only the signs of gradients count.
//!
//! ```text
//! s = s eta_plus, where the gradient has the sign of the one before
//!   = s eta_minus, and g = 0, where it has the other
//! p = p - sign(g) s
//! ```

use super::declare::{options, state};
use super::engine::{Item, Rule, RuleOptimizer, not_negative};
use crate::ops::pointwise::rprop_step;
use crate::tensor::Tensor;

/// Resilient backpropagation (Riedmiller and Braun, 1993), for gradients of the whole data set.
///
/// ```
/// use torchrs::{Tensor, optim::{Rprop, RpropOptions, Optimizer}};
/// let w = Tensor::from([1f64]).requires_grad_(true);
/// let mut optimizer = Rprop::new([w.clone()], RpropOptions { lr: 0.1, ..Default::default() });
/// (&w * &w).sum().backward();
/// optimizer.step();
/// assert!((w.item() - 0.9).abs() < 1e-12);
/// ```
pub type Rprop = RuleOptimizer<RpropRule>;

options! {
    /// Options of [`Rprop`], with PyTorch's defaults.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Optimizer, Rprop, RpropOptions}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let options = RpropOptions { lr: 0.25, etas: (0.5, 2.0), ..Default::default() };
    /// let mut optimizer = Rprop::new([w.clone()], options);
    /// w.set_grad(Some(Tensor::from([100f64])));
    /// let places = [0; 2].map(|_| { optimizer.step(); w.item() });
    /// assert_eq!(places, [0.75, 0.25]); // the second step is twice as long
    /// ```
    RpropOptions {
        /// Size of the first step.
        lr: f64 = 1e-2,
        /// Factors of the step's size where the sign changed, and where it did not.
        etas: (f64, f64) = (0.5, 1.2),
        /// Least and largest step.
        step_sizes: (f64, f64) = (1e-6, 50.0),
        /// Ascend instead.
        maximize: bool = false,
    }
    check(o) {
        not_negative("lr", o.lr)?;
        if !(0.0 < o.etas.0 && o.etas.0 < 1.0 && 1.0 < o.etas.1) {
            return Err(("etas", format!("{:?}; must be in (0, 1), and above 1", o.etas)));
        }
    }
}

state! {
    /// Count of steps, the gradient before, and the size of the last step.
    RpropState {
        step: f64,
        prev: Tensor,
        step_size: Tensor,
    }
}

/// The formula of [`Rprop`].
pub enum RpropRule {}

impl Rule for RpropRule {
    type Options = RpropOptions;
    type State = RpropState;
    const NAME: &'static str = "Rprop";
    const ONE_UPDATE_EACH: bool = true;

    fn init(options: &RpropOptions, p: &Tensor) -> RpropState {
        RpropState { step: 0.0, prev: p.zeros_like(), step_size: p.full_like(options.lr) }
    }

    fn is_capturable(_: &RpropOptions) -> bool {
        true
    }

    fn update(options: &RpropOptions, items: &mut [Item<'_, RpropState>]) {
        let &RpropOptions { etas: (shrink, grow), step_sizes: (least, largest), .. } = options;
        let sign = if options.maximize { -1.0 } else { 1.0 };
        for Item { parameter, grad, state } in items {
            state.step += 1.0;
            let (prev, size) = (&state.prev, &state.step_size);
            rprop_step(parameter, grad, prev, size, sign, shrink, grow, least, largest);
        }
    }
}
