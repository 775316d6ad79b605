//! Muon (`torch.optim.Muon`):
//!
//! ```text
//! b = b + (1 - momentum) (g - b)
//! u = g + momentum (b - g)   (nesterov)      or      u = b
//! p = p (1 - lr weight_decay) - lr ratio orthogonal(u)
//! ```
//!
//! `orthogonal` brings all singular values near 1, by steps of Newton and Schulz in bf16:
//! `x = a x + (b x x^T + c (x x^T)^2) x`, from `x = u / |u|`.

use serde::{Deserialize, Serialize};

use super::declare::{options, state};
use super::engine::{Item, Rule, RuleOptimizer, not_negative};
use crate::tensor::{Dtype, Tensor};

/// Muon (Jordan et al., 2024), for the matrices of hidden layers. Give biases, embeddings and
/// the like to [`AdamW`](super::AdamW).
///
/// ```
/// use torchrs::{Tensor, optim::{Muon, MuonOptions, Optimizer}};
/// let w = Tensor::from([[1f64, 0.], [0., 1.]]).requires_grad_(true);
/// let mut optimizer = Muon::new([w.clone()], MuonOptions { lr: 0.1, ..Default::default() });
/// (&w * &w).sum().backward();
/// optimizer.step();
/// assert!(w.select(0, 0).select(0, 0).item() < 0.95);
/// ```
pub type Muon = RuleOptimizer<MuonRule>;

/// What the learning rate is multiplied by, for a matrix of `a` rows and `b` columns.
///
/// ```
/// use torchrs::{Dtype, Tensor, optim::{AdjustLR, Muon, MuonOptions, Optimizer}};
/// let moved = |adjust| {
///     let w = Tensor::zeros([1, 4], Dtype::F64).requires_grad_(true);
///     let options = MuonOptions { lr: 1.0, adjust_lr_fn: Some(adjust), ..Default::default() };
///     w.set_grad(Some(w.ones_like()));
///     Muon::new([w.clone()], options).step();
///     w.norm().item()
/// };
/// let ratio = moved(AdjustLR::MatchRmsAdamw) / moved(AdjustLR::Original);
/// assert!((ratio - 0.4).abs() < 1e-9); // 0.2 sqrt(4) to 1
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AdjustLR {
    /// sqrt(max(1, a / b)).
    #[default]
    Original,
    /// 0.2 sqrt(max(a, b)): steps as large as those of AdamW, whose options then fit.
    MatchRmsAdamw,
    /// sqrt(a / b).
    SpectralUnclamped,
}

options! {
    /// Options of [`Muon`], with PyTorch's defaults.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Muon, MuonOptions, Optimizer}};
    /// let w = Tensor::from([[1f64]]).requires_grad_(true);
    /// let options = MuonOptions { lr: 0.5, weight_decay: 0.2, ..Default::default() };
    /// let mut optimizer = Muon::new([w.clone()], options);
    /// w.set_grad(Some(Tensor::from([[0f64]])));
    /// optimizer.step(); // shrinks by 0.5 0.2
    /// assert!((w.item() - 0.9).abs() < 1e-12);
    /// ```
    MuonOptions {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// Share by which parameters shrink per step, times the learning rate.
        weight_decay: f64 = 0.1,
        /// How slowly the average of gradients changes.
        momentum: f64 = 0.95,
        /// Nesterov's momentum.
        nesterov: bool = true,
        /// Coefficients of the iteration.
        ns_coefficients: (f64, f64, f64) = (3.4445, -4.775, 2.0315),
        /// Least norm that the iteration divides by.
        eps: f64 = 1e-7,
        /// Steps of the iteration.
        ns_steps: usize = 5,
        /// How the learning rate follows from the matrix's shape; `None` is `Original`.
        adjust_lr_fn: Option<AdjustLR> = None,
    }
    check(o) {
        not_negative("lr", o.lr)?;
        not_negative("momentum", o.momentum)?;
        not_negative("weight_decay", o.weight_decay)?;
        if o.ns_steps >= 100 {
            return Err(("ns_steps", format!("{}; must be below 100", o.ns_steps)));
        }
    }
    momentum(o) = o.momentum;
}

state! {
    /// Average of gradients.
    MuonState {
        momentum_buffer: Tensor,
    }
}

/// The formula of [`Muon`].
pub enum MuonRule {}

impl Rule for MuonRule {
    type Options = MuonOptions;
    type State = MuonState;
    const NAME: &'static str = "Muon";
    const IS_ELEMENTWISE: bool = false;

    fn takes(parameter: &Tensor) -> Result<(), String> {
        match parameter.dim() {
            2 => Ok(()),
            _ => Err(format!("has shape {:?}; must be a matrix", parameter.shape())),
        }
    }

    fn init(_: &MuonOptions, p: &Tensor) -> MuonState {
        MuonState { momentum_buffer: p.zeros_like() }
    }

    fn update(options: &MuonOptions, items: &mut [Item<'_, MuonState>]) {
        let &MuonOptions { lr, weight_decay, momentum, nesterov, .. } = options;
        for Item { parameter: p, grad: g, state } in items {
            let b = &state.momentum_buffer;
            b.add_scaled_(&(&*g - b), 1.0 - momentum);
            let update = if nesterov { g.add_scaled(&(b - &*g), momentum) } else { b.clone() };
            let update = orthogonal(&update, options).to_dtype(p.dtype());
            let (rows, columns) = (p.shape()[0] as f64, p.shape()[1] as f64);
            let ratio = match options.adjust_lr_fn.unwrap_or_default() {
                AdjustLR::Original => (rows / columns).max(1.0).sqrt(),
                AdjustLR::MatchRmsAdamw => 0.2 * rows.max(columns).sqrt(),
                AdjustLR::SpectralUnclamped => (rows / columns).sqrt(),
            };
            p.mul_(1.0 - lr * weight_decay);
            p.add_scaled_(&update, -lr * ratio);
        }
    }
}

/// The nearest matrix whose singular values are all (about) 1.
fn orthogonal(update: &Tensor, options: &MuonOptions) -> Tensor {
    let (a, b, c) = options.ns_coefficients;
    let tall = update.shape()[0] > update.shape()[1];
    let flip = |t: Tensor| if tall { t.t() } else { t };
    let x = flip(update.to_dtype(Dtype::BF16));
    let mut x = &x / x.norm().clamp_min(options.eps);
    for _ in 0..options.ns_steps {
        let gram = x.mm(&x.t());
        let polynomial = gram.addmm(&gram, &gram, b, c);
        x = x.addmm(&polynomial, &x, a, 1.0);
    }
    flip(x)
}
