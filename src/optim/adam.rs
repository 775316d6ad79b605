//! Adam and AdamW (`torch.optim.Adam`, `torch.optim.AdamW`):
//!
//! ```text
//! g = grad + weight_decay p                       (Adam)
//! p = p (1 - lr weight_decay)                     (AdamW)
//! m = m + (1 - beta1) (g - m)
//! v = beta2 v + (1 - beta2) g^2;   h = max(h, v)  (amsgrad; else h = v)
//! p = p - lr / (1 - beta1^t) m / (sqrt(h) / sqrt(1 - beta2^t) + eps)
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::StateValue;
use super::engine::{
    GroupOptions, Item, ParamState, Rule, RuleOptimizer, StateReader, below_one, not_negative,
};
use crate::Tensor;
use crate::error::Result;
use crate::ops::multi_tensor::{Real, Task, Update, run};

/// Adam (Kingma and Ba, 2015), with the weight decay added to the gradient.
pub type Adam = RuleOptimizer<AdamRule>;

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
///
/// ```
/// use torchrs::{Tensor, optim::{AdamW, AdamWOptions, Optimizer}};
/// let w = Tensor::from([1f64]).requires_grad_(true);
/// let options = AdamWOptions { lr: 0.1, weight_decay: 0.0, ..Default::default() };
/// let mut optimizer = AdamW::new([w.clone()], options);
/// (&w * &w).sum().backward();
/// optimizer.step();
/// assert!((w.item() - 0.9).abs() < 1e-6);
/// ```
pub type AdamW = RuleOptimizer<AdamWRule>;

macro_rules! options {
    (
        $(#[$doc:meta])* $name:ident,
        weight_decay $weight_decay:literal $(#[$decay_doc:meta])*
        $(, flag $flag:ident $(#[$flag_doc:meta])*)?
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $name {
            /// Learning rate.
            pub lr: f64,
            /// How slowly the running averages of the gradient and of its square change.
            pub betas: (f64, f64),
            /// Added to the denominator.
            pub eps: f64,
            $(#[$decay_doc])*
            pub weight_decay: f64,
            /// Divide by the largest average so far (Reddi et al., 2018).
            pub amsgrad: bool,
            /// Ascend instead.
            pub maximize: bool,
            $($(#[$flag_doc])* pub $flag: bool,)?
        }

        impl Default for $name {
            fn default() -> Self {
                $name {
                    lr: 1e-3,
                    betas: (0.9, 0.999),
                    eps: 1e-8,
                    weight_decay: $weight_decay,
                    amsgrad: false,
                    maximize: false,
                    $($flag: false,)?
                }
            }
        }

        impl GroupOptions for $name {
            fn lr(&self) -> f64 {
                self.lr
            }
            fn set_lr(&mut self, lr: f64) {
                self.lr = lr;
            }
            fn momentum(&self) -> Option<f64> {
                Some(self.betas.0)
            }
            fn set_momentum(&mut self, momentum: f64) {
                self.betas.0 = momentum;
            }
            fn check(&self) -> std::result::Result<(), (&'static str, String)> {
                not_negative("lr", self.lr)?;
                not_negative("eps", self.eps)?;
                not_negative("weight_decay", self.weight_decay)?;
                below_one("betas", self.betas.0)?;
                below_one("betas", self.betas.1)
            }
        }
    };
}
options!(
    /// Options of [`Adam`], with PyTorch's defaults.
    AdamOptions, weight_decay 0.0
    /// Strength of the L2 penalty, which is added to the gradient.
    , flag decoupled_weight_decay
    /// Take weight decay as [`AdamW`] does.
);
options!(
    /// Options of [`AdamW`], with PyTorch's defaults.
    AdamWOptions, weight_decay 1e-2
    /// Share by which parameters shrink per step, times the learning rate.
);

/// The formula of [`Adam`].
pub enum AdamRule {}
/// The formula of [`AdamW`].
pub enum AdamWRule {}

/// Count of steps and running averages.
pub struct AdamState {
    step: u64,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    max_exp_avg_sq: Option<Tensor>,
}

impl AdamState {
    fn new(parameter: &Tensor, amsgrad: bool) -> Self {
        AdamState {
            step: 0,
            exp_avg: parameter.zeros_like(),
            exp_avg_sq: parameter.zeros_like(),
            max_exp_avg_sq: amsgrad.then(|| parameter.zeros_like()),
        }
    }
}

impl ParamState for AdamState {
    fn save(&self) -> BTreeMap<String, StateValue> {
        let tensor = |name: &str, t: &Tensor| (name.to_owned(), StateValue::Tensor(t.clone()));
        let mut entries = BTreeMap::from([
            ("step".to_owned(), StateValue::Number(self.step as f64)),
            tensor("exp_avg", &self.exp_avg),
            tensor("exp_avg_sq", &self.exp_avg_sq),
        ]);
        entries.extend(self.max_exp_avg_sq.iter().map(|t| tensor("max_exp_avg_sq", t)));
        entries
    }
    fn load(entries: &StateReader<'_>) -> Result<Self> {
        Ok(AdamState {
            step: entries.number("step")? as u64,
            exp_avg: entries.tensor("exp_avg")?,
            exp_avg_sq: entries.tensor("exp_avg_sq")?,
            max_exp_avg_sq: entries.tensor_if_any("max_exp_avg_sq")?,
        })
    }
}

macro_rules! rule {
    ($Rule:ident, $Options:ident, $name:literal, decoupled: |$o:ident| $decoupled:expr) => {
        impl Rule for $Rule {
            type Options = $Options;
            type State = AdamState;
            const NAME: &'static str = $name;

            fn init(options: &$Options, parameter: &Tensor) -> AdamState {
                AdamState::new(parameter, options.amsgrad)
            }

            fn update(options: &$Options, items: &mut [Item<'_, AdamState>]) {
                let &$Options { lr, betas, eps, weight_decay, amsgrad, maximize, .. } = options;
                let $o = options;
                let decoupled: bool = $decoupled;
                let formula = |step: u64| Formula {
                    sign: if maximize { -1.0 } else { 1.0 },
                    l2: if decoupled { 0.0 } else { weight_decay },
                    shrink: if decoupled { 1.0 - lr * weight_decay } else { 1.0 },
                    betas,
                    eps,
                    step_size: lr / (1.0 - betas.0.powf(step as f64)),
                    root_correction: (1.0 - betas.1.powf(step as f64)).sqrt(),
                };
                update(items, amsgrad, formula);
            }
        }
    };
}
rule!(AdamRule, AdamOptions, "Adam", decoupled: |o| o.decoupled_weight_decay);
rule!(AdamWRule, AdamWOptions, "AdamW", decoupled: |_o| true);

fn update(items: &mut [Item<'_, AdamState>], amsgrad: bool, formula: impl Fn(u64) -> Formula) {
    let (mut plain, mut bounded) = (Vec::new(), Vec::new());
    for Item { parameter, grad, state } in items {
        state.step += 1;
        let formula = formula(state.step);
        let (p, g) = (parameter.clone(), grad.clone());
        let (m, v) = (state.exp_avg.clone(), state.exp_avg_sq.clone());
        if amsgrad {
            let h = state.max_exp_avg_sq.get_or_insert_with(|| parameter.zeros_like()).clone();
            bounded.push(Task { update: formula, written: [p, m, v, h], read: [g] });
        } else {
            plain.push(Task { update: formula, written: [p, m, v], read: [g] });
        }
    }
    run(&plain);
    run(&bounded);
}

#[derive(Clone, Copy)]
struct Formula {
    sign: f64,
    /// Weight decay that goes through the gradient.
    l2: f64,
    /// Factor of decoupled weight decay.
    shrink: f64,
    betas: (f64, f64),
    eps: f64,
    /// Learning rate with the correction of the first average's start at 0.
    step_size: f64,
    /// Root of the second average's correction.
    root_correction: f64,
}

/// [`Formula`] in a compute type.
struct Numbers<T> {
    sign: T,
    l2: T,
    shrink: T,
    beta2: T,
    share1: T,
    share2: T,
    eps: T,
    step_size: T,
    root_correction: T,
}

impl Formula {
    #[inline(always)]
    fn numbers<T: Real>(&self) -> Numbers<T> {
        Numbers {
            sign: T::from_f64(self.sign),
            l2: T::from_f64(self.l2),
            shrink: T::from_f64(self.shrink),
            beta2: T::from_f64(self.betas.1),
            share1: T::from_f64(1.0 - self.betas.0),
            share2: T::from_f64(1.0 - self.betas.1),
            eps: T::from_f64(self.eps),
            step_size: T::from_f64(self.step_size),
            root_correction: T::from_f64(self.root_correction),
        }
    }
}

impl<T: Real> Numbers<T> {
    /// Moves both averages towards the gradient.
    #[inline(always)]
    fn average(&self, p: T, m: &mut T, v: &mut T, g: T) {
        let g = self.sign * g + self.l2 * p;
        *m = *m + self.share1 * (g - *m);
        *v = self.beta2 * *v + self.share2 * g * g;
    }

    /// The parameter after a step along `m`, scaled by the root of `h`.
    #[inline(always)]
    fn moved(&self, p: T, m: T, h: T) -> T {
        self.shrink * p - self.step_size * m / (h.sqrt() / self.root_correction + self.eps)
    }
}

impl Update<3, 1> for Formula {
    #[inline(always)]
    fn apply<T: Real>(self, [p, m, v]: [&mut [T]; 3], [g]: [&[T]; 1]) {
        let numbers = self.numbers::<T>();
        for (((p, m), v), &g) in p.iter_mut().zip(m).zip(v).zip(g) {
            numbers.average(*p, m, v, g);
            *p = numbers.moved(*p, *m, *v);
        }
    }
}

impl Update<4, 1> for Formula {
    #[inline(always)]
    fn apply<T: Real>(self, [p, m, v, h]: [&mut [T]; 4], [g]: [&[T]; 1]) {
        let numbers = self.numbers::<T>();
        for ((((p, m), v), h), &g) in p.iter_mut().zip(m).zip(v).zip(h).zip(g) {
            numbers.average(*p, m, v, g);
            *h = h.maximum(*v);
            *p = numbers.moved(*p, *m, *h);
        }
    }
}
