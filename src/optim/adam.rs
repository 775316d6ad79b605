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
use crate::ops::pointwise::{adam_step, amsgrad_step};

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

            fn update($o: &$Options, items: &mut [Item<'_, AdamState>]) {
                let decoupled: bool = $decoupled;
                for item in items {
                    step(
                        item,
                        &Numbers {
                            lr: $o.lr,
                            betas: $o.betas,
                            eps: $o.eps,
                            sign: if $o.maximize { -1.0 } else { 1.0 },
                            l2: if decoupled { 0.0 } else { $o.weight_decay },
                            shrink: if decoupled { 1.0 - $o.lr * $o.weight_decay } else { 1.0 },
                            amsgrad: $o.amsgrad,
                        },
                    );
                }
            }
        }
    };
}
rule!(AdamRule, AdamOptions, "Adam", decoupled: |o| o.decoupled_weight_decay);
rule!(AdamWRule, AdamWOptions, "AdamW", decoupled: |o| true);

/// What the formula needs of the options.
struct Numbers {
    lr: f64,
    betas: (f64, f64),
    eps: f64,
    sign: f64,
    /// Weight decay that goes through the gradient.
    l2: f64,
    /// Factor of decoupled weight decay.
    shrink: f64,
    amsgrad: bool,
}

fn step(item: &mut Item<'_, AdamState>, numbers: &Numbers) {
    let &Numbers { lr, betas: (beta1, beta2), eps, sign, l2, shrink, amsgrad } = numbers;
    let Item { parameter: p, grad: g, state } = item;
    state.step += 1;
    let t = state.step as f64;
    let step_size = lr / (1.0 - beta1.powf(t));
    let root = (1.0 - beta2.powf(t)).sqrt();
    let (share1, share2) = (1.0 - beta1, 1.0 - beta2);
    let (m, v) = (&state.exp_avg, &state.exp_avg_sq);
    if amsgrad {
        let h = state.max_exp_avg_sq.get_or_insert_with(|| p.zeros_like());
        amsgrad_step(p, g, m, v, h, sign, l2, share1, beta2, share2, shrink, step_size, root, eps);
    } else {
        adam_step(p, g, m, v, sign, l2, share1, beta2, share2, shrink, step_size, root, eps);
    }
}
