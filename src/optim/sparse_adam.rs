//! SparseAdam (`torch.optim.SparseAdam`), for each row whose gradient is not 0:
//!
//! ```text
//! m = m + (1 - beta1) (g - m)
//! v = v + (1 - beta2) (g^2 - v)
//! p = p - lr sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + eps)
//! ```

use super::declare::{options, state};
use super::engine::{Item, Rule, RuleOptimizer, adam_ranges};
use crate::tensor::Tensor;

/// Adam that leaves rows alone, with their averages, in which a gradient has nothing: as of an embedding's table, of which
/// a batch reads a few rows (`torch.optim.SparseAdam`).
///
/// PyTorch takes sparse gradients of it. Here they are dense, and a row that holds nothing but zeros is one that no sparse
/// gradient would have. Rows are parts along the first dimension.
///
/// ```
/// use torchrs::{Tensor, optim::{Optimizer, SparseAdam, SparseAdamOptions}};
/// let table = Tensor::from([[1f64], [1.], [1.]]).requires_grad_(true);
/// let options = SparseAdamOptions { lr: 0.1, ..Default::default() };
/// let mut optimizer = SparseAdam::new([table.clone()], options);
/// table.index_select(0, &Tensor::from([1i64])).sum().backward();
/// optimizer.step();
/// let moved: Vec<bool> = table.to_vec::<f64>().iter().map(|x| *x != 1.0).collect();
/// assert_eq!(moved, [false, true, false]);
/// ```
pub type SparseAdam = RuleOptimizer<SparseAdamRule>;

options! {
    /// Options of [`SparseAdam`], with PyTorch's defaults.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Optimizer, SparseAdam, SparseAdamOptions}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let options = SparseAdamOptions { lr: 0.5, maximize: true, ..Default::default() };
    /// let mut optimizer = SparseAdam::new([w.clone()], options);
    /// w.set_grad(Some(Tensor::from([3f64])));
    /// optimizer.step();
    /// assert!((w.item() - 1.5).abs() < 1e-6);
    /// ```
    SparseAdamOptions {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// How slowly the averages of gradients and of their squares change.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the denominator, which is not corrected for the first steps.
        eps: f64 = 1e-8,
        /// Ascend instead.
        maximize: bool = false,
    }
    check(o) {
        above_zero("lr", o.lr)?;
        above_zero("eps", o.eps)?;
        adam_ranges(o.lr, o.betas, o.eps, 0.0)?;
    }
    momentum(o) = o.betas.0;
}

fn above_zero(name: &'static str, value: f64) -> Result<(), (&'static str, String)> {
    if value > 0.0 { Ok(()) } else { Err((name, format!("{value}; must be above 0"))) }
}

state! {
    /// Count of steps, averages of gradients and of their squares.
    SparseAdamState {
        step: f64,
        exp_avg: Tensor,
        exp_avg_sq: Tensor,
    }
}

/// The formula of [`SparseAdam`].
pub enum SparseAdamRule {}

impl Rule for SparseAdamRule {
    type Options = SparseAdamOptions;
    type State = SparseAdamState;
    const NAME: &'static str = "SparseAdam";
    // A part of a row does not know whether the row is there.
    const IS_ELEMENTWISE: bool = false;

    fn init(_: &SparseAdamOptions, p: &Tensor) -> SparseAdamState {
        SparseAdamState { step: 0.0, exp_avg: p.zeros_like(), exp_avg_sq: p.zeros_like() }
    }

    fn update(options: &SparseAdamOptions, items: &mut [Item<'_, SparseAdamState>]) {
        let &SparseAdamOptions { lr, betas: (beta1, beta2), eps, maximize } = options;
        for Item { parameter, grad, state } in items {
            state.step += 1.0;
            let corrected = (1.0 - beta2.powf(state.step)).sqrt() / (1.0 - beta1.powf(state.step));
            let grad = if maximize { -&*grad } else { grad.clone() };
            let there = has_row(&grad);
            let (m, v) = (&state.exp_avg, &state.exp_avg_sq);
            let first = m + (&grad - m) * (1.0 - beta1);
            let second = v + (grad.square() - v) * (1.0 - beta2);
            let step = &first / (second.sqrt() + eps) * (lr * corrected);
            m.copy_(&there.where_(&first, m));
            v.copy_(&there.where_(&second, v));
            parameter.sub_(&step.masked_fill(&there.logical_not(), 0.0));
        }
    }
}

/// Whether each row holds something, of as many dimensions.
fn has_row(grad: &Tensor) -> Tensor {
    let inner: Vec<i64> = (1..grad.dim() as i64).collect();
    let there = grad.ne(0.0);
    if inner.is_empty() { there } else { there.any_dim(&inner, true) }
}
