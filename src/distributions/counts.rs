//! Distributions of counts: binomial, negative binomial, multinomial, Poisson.

use super::bernoulli::{Odds, counted};
use super::categorical::Categorical;
use super::constraints::{self, Constraint};
use super::distribution::{Distribution, Shape};
use super::gamma::Gamma;
use super::macros::{checked, common, refined, univariate};
use super::params::{Param, broadcast, fill, first, number, options, pair};
use super::with_validate_args;
use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Tensor};

/// A distribution of counts with a number of trials and a probability that is given as itself or as log-odds.
macro_rules! of_trials {
    ($(#[$doc:meta])* $name:ident, $rule:expr, $probs:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $name {
            total_count: Tensor,
            odds: Odds,
            shape: Shape,
        }

        impl $name {
            #[track_caller]
            fn of(total_count: Tensor, odds: Odds) -> Self {
                let total_count = total_count.to_dtype(odds.given().dtype());
                let shape = Shape::new(odds.given().shape(), &[]);
                shape.check(stringify!($name), "total_count", &total_count, &$rule);
                if let Odds::Probs(probs) = &odds {
                    shape.check(stringify!($name), "probs", probs, &$probs);
                } else {
                    odds.check(stringify!($name), &shape);
                }
                $name { total_count, odds, shape }
            }

            /// With probabilities.
            ///
            /// # Panics
            /// Throws when parameters are checked and one is not what it must be, or shapes do not fit.
            #[track_caller]
            pub fn from_probs(total_count: impl Into<Param>, probs: impl Into<Param>) -> Self {
                let names = ["total_count", "probs"];
                let [n, p] = broadcast(stringify!($name), names, [total_count.into(), probs.into()]);
                Self::of(n, Odds::Probs(p))
            }

            /// With log-odds.
            ///
            /// # Panics
            /// Throws when parameters are checked and one is not what it must be, or shapes do not fit.
            #[track_caller]
            pub fn from_logits(total_count: impl Into<Param>, logits: impl Into<Param>) -> Self {
                let names = ["total_count", "logits"];
                let [n, l] = broadcast(stringify!($name), names, [total_count.into(), logits.into()]);
                Self::of(n, Odds::Logits(l))
            }

            /// The numbers of trials.
            pub fn total_count(&self) -> &Tensor {
                &self.total_count
            }

            /// The parameters as probabilities.
            pub fn probs(&self) -> Tensor {
                self.odds.probs()
            }

            /// The parameters as log-odds.
            pub fn logits(&self) -> Tensor {
                self.odds.logits()
            }

            /// The same with its batch expanded to a shape.
            #[track_caller]
            pub fn expand(&self, batch_shape: &[usize]) -> Self {
                $name {
                    total_count: self.total_count.expand(batch_shape),
                    odds: self.odds.map(|t| t.expand(batch_shape)),
                    shape: self.shape.expanded(batch_shape),
                }
            }
        }

        refined!($name);
    };
}

of_trials! {
    /// How many of some trials succeed (`torch.distributions.Binomial`).
    ///
    /// ```
    /// use torchrs::distributions::{Binomial, Distribution};
    /// assert_eq!(Binomial::from_probs(4, 0.25).mean().item(), 1.0);
    /// ```
    Binomial, constraints::nonnegative_integer(), constraints::unit_interval()
}

impl Binomial {
    /// The number of trials, where all are the same.
    #[track_caller]
    fn trials(&self, method: &str) -> usize {
        let most = self.total_count.max().item();
        if self.total_count.min().item() != most {
            let message = format!("Binomial of unlike numbers of trials has no `{method}`");
            throw(Error::argument(method, "self", message));
        }
        most as usize
    }

    #[track_caller]
    fn density(&self, value: &Tensor) -> Tensor {
        let (n, logits) = (&self.total_count, self.logits());
        let factorials = (n + 1.0).lgamma() - (value + 1.0).lgamma() - (n - value + 1.0).lgamma();
        // The positive part of the log-odds, with half of the gradient at 0 as in PyTorch.
        let positive = (logits.clamp_min(0.0) + &logits - logits.clamp_max(0.0)) / 2.0;
        let norm = n * positive + n * (-logits.abs()).exp().log1p();
        value * logits + factorials - norm
    }
}

impl Distribution for Binomial {
    common!(Binomial);
    fn support(&self) -> Constraint {
        constraints::integer_interval(0, &self.total_count)
    }
    fn has_enumerate_support(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        &self.total_count * self.probs()
    }
    fn mode(&self) -> Tensor {
        let n = &self.total_count;
        ((n + 1.0) * self.probs()).floor().clamp_max(n)
    }
    fn variance(&self) -> Tensor {
        let probs = self.probs();
        &self.total_count * &probs * (1.0 - &probs)
    }
    #[track_caller]
    fn sample(&self, sample_shape: &[usize]) -> Tensor {
        no_grad(|| {
            let shape = self.shape.extended(sample_shape);
            Tensor::binomial(&self.total_count.expand(&shape), &self.probs().expand(&shape))
        })
    }
    checked! {
        fn log_prob(d, value) {
            d.density(value)
        }
    }
    #[track_caller]
    fn entropy(&self) -> Tensor {
        let n = self.trials("entropy");
        let log = self.density(&counted(n + 1, &self.shape, options(self.odds.given()), false));
        -(log.exp() * &log).sum_dim(&[0], false)
    }
    #[track_caller]
    fn enumerate_support(&self, expand: bool) -> Tensor {
        let n = self.trials("enumerate_support");
        counted(n + 1, &self.shape, options(self.odds.given()), expand)
    }
}

of_trials! {
    /// How many trials succeed before some have failed (`torch.distributions.NegativeBinomial`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, NegativeBinomial};
    /// assert_eq!(NegativeBinomial::from_logits(4, 0.0).mean().item(), 4.0);
    /// ```
    NegativeBinomial, constraints::greater_than_eq(0), constraints::half_open_interval(0, 1)
}

impl Distribution for NegativeBinomial {
    common!(NegativeBinomial);
    fn support(&self) -> Constraint {
        constraints::nonnegative_integer()
    }
    fn mean(&self) -> Tensor {
        &self.total_count * self.logits().exp()
    }
    fn mode(&self) -> Tensor {
        ((&self.total_count - 1.0) * self.logits().exp()).floor().clamp_min(0.0)
    }
    fn variance(&self) -> Tensor {
        self.mean() / (-self.logits()).sigmoid()
    }
    #[track_caller]
    fn sample(&self, sample_shape: &[usize]) -> Tensor {
        no_grad(|| {
            let rate = (-self.logits()).exp();
            let gamma = with_validate_args(false, || Gamma::new(&self.total_count, rate));
            // Of no failures none succeeds.
            let rate = gamma.sample(sample_shape);
            fill(&rate, &self.total_count.eq(0.0), 0.0).poisson()
        })
    }
    checked! {
        fn log_prob(d, value) {
            let (n, logits) = (&d.total_count, d.logits());
            let plain = n * (-&logits).logsigmoid() + value * logits.logsigmoid();
            let both = n + value;
            let norm = (value + 1.0).lgamma() + n.lgamma() - both.lgamma();
            plain - fill(&norm, &both.eq(0.0), 0.0)
        }
    }
}

/// How often each of several classes comes in some trials (`torch.distributions.Multinomial`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::{Distribution, Multinomial};
/// let d = Multinomial::from_probs(10, &Tensor::from([0.5f64, 0.25, 0.25]));
/// assert_eq!(d.mean().to_vec::<f64>(), [5.0, 2.5, 2.5]);
/// assert_eq!(d.sample(&[]).sum().item(), 10.0);
/// ```
#[derive(Clone, Debug)]
pub struct Multinomial {
    total_count: usize,
    categorical: Categorical,
    shape: Shape,
}

impl Multinomial {
    fn of(total_count: usize, categorical: Categorical) -> Self {
        let shape = Shape::new(categorical.batch_shape(), &[categorical.num_events()]);
        Multinomial { total_count, categorical, shape }
    }

    /// With probabilities along the last dimension, which are divided by their sum.
    ///
    /// # Panics
    /// Throws as [`Categorical::from_probs`].
    #[track_caller]
    pub fn from_probs(total_count: usize, probs: &Tensor) -> Self {
        Self::of(total_count, Categorical::from_probs(probs))
    }

    /// With log-probabilities along the last dimension, up to a constant.
    ///
    /// # Panics
    /// Throws as [`Categorical::from_logits`].
    #[track_caller]
    pub fn from_logits(total_count: usize, logits: &Tensor) -> Self {
        Self::of(total_count, Categorical::from_logits(logits))
    }

    /// The number of trials.
    pub fn total_count(&self) -> usize {
        self.total_count
    }

    /// The probabilities.
    pub fn probs(&self) -> Tensor {
        self.categorical.probs()
    }

    /// Their logarithms.
    pub fn logits(&self) -> Tensor {
        self.categorical.logits()
    }

    /// The same with its batch expanded to a shape.
    #[track_caller]
    pub fn expand(&self, batch_shape: &[usize]) -> Self {
        Multinomial {
            total_count: self.total_count,
            categorical: self.categorical.expand(batch_shape),
            shape: self.shape.expanded(batch_shape),
        }
    }
}

refined!(Multinomial);

impl Distribution for Multinomial {
    common!(Multinomial);
    fn support(&self) -> Constraint {
        constraints::multinomial(self.total_count)
    }
    fn mean(&self) -> Tensor {
        self.probs() * self.total_count as f64
    }
    fn variance(&self) -> Tensor {
        let probs = self.probs();
        &probs * self.total_count as f64 * (1.0 - &probs)
    }
    #[track_caller]
    fn sample(&self, sample_shape: &[usize]) -> Tensor {
        no_grad(|| {
            let trials = [&[self.total_count], sample_shape].concat();
            let drawn = self.categorical.sample(&trials).movedim(0, -1);
            let counts =
                Tensor::zeros(self.shape.extended(sample_shape), (Dtype::I64, drawn.device()));
            let counts = counts.scatter_add(-1, &drawn, &drawn.ones_like());
            counts.to_dtype(self.probs().dtype())
        })
    }
    checked! {
        fn log_prob(d, value) {
            let (logits, value) = pair("Multinomial", &d.logits(), value);
            // 0 times an infinite logarithm counts as 0.
            let none = value.eq(0.0).logical_and(&logits.eq(f64::NEG_INFINITY));
            let powers = (fill(&logits, &none, 0.0) * &value).sum_dim(&[-1], false);
            (value.sum_dim(&[-1], false) + 1.0).lgamma()
                - (&value + 1.0).lgamma().sum_dim(&[-1], false)
                + powers
        }
    }
    #[track_caller]
    fn entropy(&self) -> Tensor {
        let (n, probs) = (self.total_count, self.probs());
        let count = number(n as f64, Some(&probs.detach()));
        let first = self.categorical.entropy() * n as f64 - (count + 1.0).lgamma();
        let each = with_validate_args(false, || Binomial::from_probs(n, &probs));
        let values = counted(n + 1, &each.shape, options(&probs), false).narrow(0, 1, n);
        let weights = (&values + 1.0).lgamma();
        first + (each.density(&values).exp() * weights).sum_dim(&[0, -1], false)
    }
}

univariate! {
    /// The Poisson distribution (`torch.distributions.Poisson`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, Poisson};
    /// assert_eq!(Poisson::new(4.5).mode().item(), 4.0);
    /// ```
    Poisson {
        /// The mean.
        rate: constraints::nonnegative(),
    }
}

impl Distribution for Poisson {
    common!(Poisson);
    fn support(&self) -> Constraint {
        constraints::nonnegative_integer()
    }
    fn mean(&self) -> Tensor {
        self.rate.clone()
    }
    fn mode(&self) -> Tensor {
        self.rate.floor()
    }
    fn variance(&self) -> Tensor {
        self.rate.clone()
    }
    #[track_caller]
    fn sample(&self, sample_shape: &[usize]) -> Tensor {
        no_grad(|| self.rate.expand(&self.shape.extended(sample_shape)).poisson())
    }
    checked! {
        fn log_prob(d, value) {
            let (rate, value) = pair("Poisson", &d.rate, value);
            value.xlogy(&rate) - rate - (&value + 1.0).lgamma()
        }
    }
}
