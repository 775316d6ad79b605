//! Adam and AdamW (`torch.optim.Adam`, `torch.optim.AdamW`):
//!
//! ```text
//! g = grad + weight_decay p                       (Adam)
//! p = p (1 - lr weight_decay)                     (AdamW)
//! m = m + (1 - beta1) (g - m)
//! v = beta2 v + (1 - beta2) g^2;   h = max(h, v)  (amsgrad; else h = v)
//! p = p - lr / (1 - beta1^t) m / (sqrt(h) / sqrt(1 - beta2^t) + eps)
//! ```

use super::StateValue;
use super::declare::{Entry, options, state};
use super::engine::{Item, Rule, RuleOptimizer, StateReader, adam_ranges};
use crate::error::Result;
use crate::ops::pointwise::{adam_counted_step, adam_step, amsgrad_counted_step, amsgrad_step};
use crate::tensor::{Dtype, Tensor};

/// Adam (Kingma and Ba, 2015), with the weight decay added to the gradient.
///
/// ```
/// use torchrs::{Tensor, optim::{Adam, AdamOptions, Optimizer}};
/// let w = Tensor::from([1f64]).requires_grad_(true);
/// let mut optimizer = Adam::new([w.clone()], AdamOptions { lr: 0.1, ..Default::default() });
/// (&w * &w).sum().backward();
/// optimizer.step();
/// assert!((w.item() - 0.9).abs() < 1e-6);
/// ```
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

options! {
    /// Options of [`Adam`], with PyTorch's defaults.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{Adam, AdamOptions, Optimizer}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let options = AdamOptions { lr: 0.1, weight_decay: 0.5, ..Default::default() };
    /// let mut optimizer = Adam::new([w.clone()], options);
    /// w.set_grad(Some(Tensor::from([0f64])));
    /// optimizer.step(); // the decay goes through the gradient, so the step has its full length
    /// assert!((w.item() - 0.9).abs() < 1e-6);
    /// ```
    AdamOptions {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// How slowly the running averages of the gradient and of its square change.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the denominator.
        eps: f64 = 1e-8,
        /// Strength of the L2 penalty, which is added to the gradient.
        weight_decay: f64 = 0.0,
        /// Divide by the largest average so far (Reddi et al., 2018).
        amsgrad: bool = false,
        /// Ascend instead.
        maximize: bool = false,
        /// Count steps of parameters on a GPU there, so that a graph can record a step.
        capturable: bool = false,
        /// Take weight decay as [`AdamW`] does.
        decoupled_weight_decay: bool = false,
    }
    check(o) {
        adam_ranges(o.lr, o.betas, o.eps, o.weight_decay)?;
    }
    momentum(o) = o.betas.0;
}

options! {
    /// Options of [`AdamW`], with PyTorch's defaults.
    ///
    /// ```
    /// use torchrs::{Tensor, optim::{AdamW, AdamWOptions, Optimizer}};
    /// let w = Tensor::from([1f64]).requires_grad_(true);
    /// let options = AdamWOptions { lr: 0.1, weight_decay: 0.5, ..Default::default() };
    /// let mut optimizer = AdamW::new([w.clone()], options);
    /// w.set_grad(Some(Tensor::from([0f64])));
    /// optimizer.step(); // shrinks by 0.1 0.5
    /// assert!((w.item() - 0.95).abs() < 1e-12);
    /// ```
    AdamWOptions {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// How slowly the running averages of the gradient and of its square change.
        betas: (f64, f64) = (0.9, 0.999),
        /// Added to the denominator.
        eps: f64 = 1e-8,
        /// Share by which parameters shrink per step, times the learning rate.
        weight_decay: f64 = 1e-2,
        /// Divide by the largest average so far (Reddi et al., 2018).
        amsgrad: bool = false,
        /// Ascend instead.
        maximize: bool = false,
        /// Count steps of parameters on a GPU there, so that a graph can record a step.
        capturable: bool = false,
    }
    check(o) {
        adam_ranges(o.lr, o.betas, o.eps, o.weight_decay)?;
    }
    momentum(o) = o.betas.0;
}

/// How many steps a parameter has taken.
enum Steps {
    OnHost(f64),
    /// A number on the parameter's GPU.
    OnGpu(Tensor),
}

impl Steps {
    fn get(&self) -> f64 {
        match self {
            Steps::OnHost(steps) => *steps,
            Steps::OnGpu(steps) => steps.item(),
        }
    }

    /// One more, on the host.
    fn count(&mut self) -> f64 {
        let steps = self.get() + 1.0;
        *self = Steps::OnHost(steps);
        steps
    }

    /// One more, on the parameter's GPU; as large as the parameter, by a view.
    #[track_caller]
    fn count_beside(&mut self, parameter: &Tensor) -> Tensor {
        let steps = match self {
            Steps::OnGpu(steps) if steps.device() == parameter.device() => steps,
            _ => {
                let wide = if parameter.dtype() == Dtype::F64 { Dtype::F64 } else { Dtype::F32 };
                let steps = Tensor::from([self.get()]).to_dtype(wide).select(0, 0);
                *self = Steps::OnGpu(steps.to_device(parameter.device()));
                return self.count_beside(parameter);
            }
        };
        steps.add_(1.0);
        steps.expand(parameter.shape())
    }
}

impl Entry for Steps {
    fn save(&self) -> Option<StateValue> {
        self.get().save()
    }
    fn load(entries: &StateReader<'_>, name: &str) -> Result<Self> {
        f64::load(entries, name).map(Steps::OnHost)
    }
}

state! {
    /// Count of steps and running averages.
    AdamState {
        step: Steps,
        exp_avg: Tensor,
        exp_avg_sq: Tensor,
        max_exp_avg_sq: Option<Tensor>,
    }
}

/// The formula of [`Adam`].
pub enum AdamRule {}
/// The formula of [`AdamW`].
pub enum AdamWRule {}

impl AdamState {
    fn new(parameter: &Tensor, amsgrad: bool) -> Self {
        AdamState {
            step: Steps::OnHost(0.0),
            exp_avg: parameter.zeros_like(),
            exp_avg_sq: parameter.zeros_like(),
            max_exp_avg_sq: amsgrad.then(|| parameter.zeros_like()),
        }
    }
}

macro_rules! rule {
    ($Rule:ident, $Options:ident, $name:literal, decoupled: |$o:ident| $decoupled:expr) => {
        impl Rule for $Rule {
            type Options = $Options;
            type State = AdamState;
            const NAME: &'static str = $name;
            const ONE_UPDATE_EACH: bool = true;

            fn is_capturable(options: &$Options) -> bool {
                options.capturable
            }

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
                            capturable: $o.capturable,
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
    capturable: bool,
}

#[track_caller]
fn step(item: &mut Item<'_, AdamState>, numbers: &Numbers) {
    let &Numbers { lr, betas: (beta1, beta2), eps, sign, l2, shrink, amsgrad, capturable } =
        numbers;
    let Item { parameter: p, grad: g, state } = item;
    let (share1, share2) = (1.0 - beta1, 1.0 - beta2);
    if amsgrad && state.max_exp_avg_sq.is_none() {
        state.max_exp_avg_sq = Some(p.zeros_like());
    }
    let AdamState { step, exp_avg: m, exp_avg_sq: v, max_exp_avg_sq } = &mut **state;
    let h = max_exp_avg_sq.as_ref().filter(|_| amsgrad);
    if capturable && p.device().is_cuda() {
        let (t, log1, log2) = (step.count_beside(p), beta1.ln(), beta2.ln());
        return match h {
            Some(h) => amsgrad_counted_step(
                p, g, m, v, h, &t, sign, l2, share1, beta2, share2, shrink, lr, log1, log2, eps,
            ),
            None => adam_counted_step(
                p, g, m, v, &t, sign, l2, share1, beta2, share2, shrink, lr, log1, log2, eps,
            ),
        };
    }
    let t = step.count();
    let step_size = lr / (1.0 - beta1.powf(t));
    let scale = 1.0 / (1.0 - beta2.powf(t)).sqrt();
    match h {
        Some(h) => amsgrad_step(
            p, g, m, v, h, sign, l2, share1, beta2, share2, shrink, step_size, scale, eps,
        ),
        None => {
            adam_step(p, g, m, v, sign, l2, share1, beta2, share2, shrink, step_size, scale, eps);
        }
    }
}
