//! Adafactor (`torch.optim.Adafactor`):
//!
//! ```text
//! w = t^beta2_decay                             weight of the new squares
//! r = r + w (mean of g^2 along rows - r)        c likewise along columns
//! v = r c / mean of r                           (below two dimensions: v = v + w (g^2 - v))
//! u = g / max(sqrt(v), eps1)
//! a = max(eps2, rms of p) min(lr, 1 / sqrt(t))
//! p = p (1 - lr weight_decay) - a / max(1, rms of u / d) u
//! ```
//!
//! Matrices take a row and a column of state in place of two matrices, so nothing here is fused:
//! the products and means are whole operations.

use std::collections::BTreeMap;

use super::StateValue;
use super::declare::{Entry, options};
use super::engine::{Item, ParamState, Rule, RuleOptimizer, StateReader, not_negative};
use crate::error::Result;
use crate::tensor::{Dtype, Tensor};

/// Adafactor (Shazeer and Stern, 2018): Adam with little memory, without momentum.
///
/// ```
/// use torchrs::{Tensor, optim::{Adafactor, AdafactorOptions, Optimizer}};
/// let w = Tensor::from([1f64]).requires_grad_(true);
/// let options = AdafactorOptions { lr: 0.1, ..Default::default() };
/// let mut optimizer = Adafactor::new([w.clone()], options);
/// (&w * &w).sum().backward();
/// optimizer.step();
/// assert!((w.item() - 0.9).abs() < 1e-6);
/// ```
pub type Adafactor = RuleOptimizer<AdafactorRule>;

options! {
    /// Options of [`Adafactor`], with PyTorch's defaults.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Adafactor, AdafactorOptions, Optimizer}};
    /// let w = Tensor::from([2f64]).requires_grad_(true);
    /// let options = AdafactorOptions { lr: 0.1, ..Default::default() };
    /// let mut optimizer = Adafactor::new([w.clone()], options);
    /// w.set_grad(Some(Tensor::from([5f64])));
    /// optimizer.step(); // by a tenth of the weight
    /// assert!((w.item() - 1.8).abs() < 1e-9);
    /// ```
    AdafactorOptions {
        /// Learning rate, relative to the size of the parameters.
        lr: f64 = 1e-2,
        /// Power of the step's number that weighs the new squares.
        beta2_decay: f64 = -0.8,
        /// Least root mean square of gradients (by default the dtype's epsilon), and least size of
        /// parameters that the learning rate is taken of.
        eps: (Option<f64>, f64) = (None, 1e-3),
        /// Largest root mean square of an update.
        d: f64 = 1.0,
        /// Share by which parameters shrink per step, times the learning rate.
        weight_decay: f64 = 0.0,
        /// Ascend instead.
        maximize: bool = false,
    }
    check(o) {
        not_negative("lr", o.lr)?;
        if o.beta2_decay > 0.0 {
            return Err(("beta2_decay", format!("{}; must be at most 0", o.beta2_decay)));
        }
        not_negative("eps", o.eps.0.unwrap_or(0.0))?;
        not_negative("eps", o.eps.1)?;
        if o.d < 1.0 {
            return Err(("d", format!("{}; must be at least 1", o.d)));
        }
        not_negative("weight_decay", o.weight_decay)?;
    }
}

/// Count of steps and averages of squared gradients.
pub struct AdafactorState {
    step: f64,
    squares: Squares,
}

enum Squares {
    /// Below two dimensions: of each element.
    All(Tensor),
    /// Of each row and of each column.
    Factors(Tensor, Tensor),
}

impl Squares {
    fn new(p: &Tensor) -> Self {
        let Some((rows, columns)) = factor_shapes(p) else { return Squares::All(p.zeros_like()) };
        let zeros = |shape| Tensor::zeros(shape, (p.dtype(), p.device()));
        Squares::Factors(zeros(rows), zeros(columns))
    }
}

/// Shapes of the averages of rows and of columns, from two dimensions on.
fn factor_shapes(p: &Tensor) -> Option<(Vec<usize>, Vec<usize>)> {
    let (mut rows, mut columns) = (p.shape().to_vec(), p.shape().to_vec());
    let n = p.dim().checked_sub(2)?;
    (rows[n + 1], columns[n]) = (1, 1);
    Some((rows, columns))
}

impl ParamState for AdafactorState {
    fn save(&self) -> BTreeMap<String, StateValue> {
        let mut entries = BTreeMap::from([("step".into(), StateValue::Number(self.step))]);
        let mut put = |name: &str, t: &Tensor| {
            entries.insert(name.to_owned(), StateValue::Tensor(t.clone()));
        };
        match &self.squares {
            Squares::All(variance) => put("variance", variance),
            Squares::Factors(rows, columns) => {
                put("row_var", rows);
                put("col_var", columns);
            }
        }
        entries
    }
    fn load(entries: &StateReader<'_>) -> Result<Self> {
        let squares = match factor_shapes(entries.parameter()) {
            None => Squares::All(entries.tensor("variance")?),
            Some((rows, columns)) => Squares::Factors(
                entries.tensor_of("row_var", &rows)?,
                entries.tensor_of("col_var", &columns)?,
            ),
        };
        Ok(AdafactorState { step: f64::load(entries, "step")?, squares })
    }
}

/// The formula of [`Adafactor`].
pub enum AdafactorRule {}

impl Rule for AdafactorRule {
    type Options = AdafactorOptions;
    type State = AdafactorState;
    const NAME: &'static str = "Adafactor";
    const IS_ELEMENTWISE: bool = false;

    fn init(_: &AdafactorOptions, p: &Tensor) -> AdafactorState {
        AdafactorState { step: 0.0, squares: Squares::new(p) }
    }

    fn update(options: &AdafactorOptions, items: &mut [Item<'_, AdafactorState>]) {
        items.iter_mut().for_each(|item| step(options, item));
    }
}

/// The distance from 1 to the next number of a floating-point type.
fn epsilon(dtype: Dtype) -> f64 {
    match dtype {
        Dtype::F64 => f64::EPSILON,
        Dtype::F16 => half::f16::EPSILON.to_f64(),
        Dtype::BF16 => half::bf16::EPSILON.to_f64(),
        _ => f64::from(f32::EPSILON),
    }
}

fn step(options: &AdafactorOptions, item: &mut Item<'_, AdafactorState>) {
    let &AdafactorOptions { lr, beta2_decay, eps: (eps1, eps2), d, weight_decay, .. } = options;
    let (p, state) = (item.parameter, &mut *item.state);
    let g = if options.maximize { -&item.grad } else { item.grad.clone() };
    state.step += 1.0;
    let eps1 = eps1.unwrap_or_else(|| epsilon(p.dtype()));
    let weight = state.step.powf(beta2_decay);
    let rms = |t: &Tensor| t.norm().item() / (t.numel() as f64).sqrt();
    let rate = rms(p).max(eps2) * lr.min(1.0 / state.step.sqrt());
    if weight_decay != 0.0 {
        p.mul_(1.0 - lr * weight_decay);
    }
    let approach = |average: &Tensor, new: Tensor| {
        average.add_scaled_(&(new - average), weight);
    };
    let squares = match &state.squares {
        Squares::All(variance) => {
            approach(variance, g.square());
            variance.clone()
        }
        Squares::Factors(rows, columns) => {
            approach(rows, g.square().mean_dim(&[-1], true));
            approach(columns, g.square().mean_dim(&[-2], true));
            rows.matmul(columns) / rows.mean_dim(&[-2], true).clamp_min(eps1)
        }
    };
    let update = squares.clamp_min(eps1 * eps1).rsqrt() * &g;
    let excess = (rms(&update) / d).max(1.0);
    p.add_scaled_(&update, -rate / excess);
}
