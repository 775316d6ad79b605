//! Distributions of one probability or its log-odds: Bernoulli, geometric, continuous Bernoulli, relaxed Bernoulli.

use std::f64::consts::LN_2;

use super::constraints::{self, Constraint};
use super::distribution::{Distribution, Shape};
use super::macros::{by_odds, checked, common, refined, relaxed, transformed};
use super::params::{
    Param, binary_logits, broadcast, clamp_probs, concat, cross_entropy, eps, fill, options, pair,
    tiny, uniform,
};
use super::transformed::TransformedDistribution;
use super::transforms::SigmoidTransform;
use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::tensor::{Tensor, TensorOptions};

/// A probability, given as itself or as log-odds.
#[derive(Clone, Debug)]
pub(super) enum Odds {
    Probs(Tensor),
    Logits(Tensor),
}

impl Odds {
    pub fn given(&self) -> &Tensor {
        match self {
            Odds::Probs(t) | Odds::Logits(t) => t,
        }
    }

    pub fn probs(&self) -> Tensor {
        match self {
            Odds::Probs(t) => t.clone(),
            Odds::Logits(t) => t.sigmoid(),
        }
    }

    pub fn logits(&self) -> Tensor {
        match self {
            Odds::Probs(t) => binary_logits(t),
            Odds::Logits(t) => t.clone(),
        }
    }

    pub fn map(&self, f: impl FnOnce(&Tensor) -> Tensor) -> Self {
        match self {
            Odds::Probs(t) => Odds::Probs(f(t)),
            Odds::Logits(t) => Odds::Logits(f(t)),
        }
    }

    /// Throws unless it is a probability, or log-odds.
    #[track_caller]
    pub fn check(&self, name: &str, shape: &Shape) {
        match self {
            Odds::Probs(t) => shape.check(name, "probs", t, &constraints::unit_interval()),
            Odds::Logits(t) => shape.check(name, "logits", t, &constraints::real()),
        }
    }
}

/// The values 0, 1, ... `n - 1` along a new first dimension.
pub(super) fn counted(
    n: usize,
    shape: &Shape,
    options: impl Into<TensorOptions>,
    expand: bool,
) -> Tensor {
    let values = Tensor::arange(0i64, n as i64, 1i64, options);
    let mut sizes = vec![1; 1 + shape.batch.len()];
    sizes[0] = n as i64;
    let values = values.view(sizes);
    if expand { values.expand(&concat(&[&[n], &shape.batch])) } else { values }
}

by_odds! {
    /// 1 with a probability, else 0 (`torch.distributions.Bernoulli`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::distributions::{Bernoulli, Distribution};
    /// let d = Bernoulli::from_probs(Tensor::from([0.25f64]));
    /// assert!((d.log_prob(&Tensor::from([1f64])).item() - 0.25f64.ln()).abs() < 1e-12);
    /// ```
    Bernoulli
}

impl Bernoulli {
    fn checked(self) -> Self {
        self
    }
}

impl Distribution for Bernoulli {
    common!(Bernoulli);
    fn support(&self) -> Constraint {
        constraints::boolean()
    }
    fn has_enumerate_support(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        self.probs()
    }
    fn mode(&self) -> Tensor {
        let probs = self.probs().detach();
        fill(&probs.ge(0.5).to_dtype(probs.dtype()), &probs.eq(0.5), f64::NAN)
    }
    fn variance(&self) -> Tensor {
        let probs = self.probs();
        &probs * (1.0 - &probs)
    }
    #[track_caller]
    fn sample(&self, sample_shape: &[usize]) -> Tensor {
        no_grad(|| self.probs().expand(&self.shape.extended(sample_shape)).bernoulli())
    }
    checked! {
        fn log_prob(d, value) {
            let (logits, value) = pair("Bernoulli", &d.logits(), value);
            -cross_entropy(&logits, &value)
        }
    }
    fn entropy(&self) -> Tensor {
        cross_entropy(&self.logits(), &self.probs())
    }
    #[track_caller]
    fn enumerate_support(&self, expand: bool) -> Tensor {
        counted(2, &self.shape, options(self.odds.given()), expand)
    }
}

by_odds! {
    /// How many failures come before the first success (`torch.distributions.Geometric`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, Geometric};
    /// assert_eq!(Geometric::from_probs(0.25).mean().item(), 3.0);
    /// ```
    Geometric
}

impl Geometric {
    /// Throws when a probability is 0.
    #[track_caller]
    fn checked(self) -> Self {
        if let Odds::Probs(probs) = &self.odds {
            self.shape.check("Geometric", "probs", probs, &constraints::positive());
        }
        self
    }
}

impl Distribution for Geometric {
    common!(Geometric);
    fn support(&self) -> Constraint {
        constraints::nonnegative_integer()
    }
    fn mean(&self) -> Tensor {
        1.0 / self.probs() - 1.0
    }
    fn mode(&self) -> Tensor {
        self.probs().zeros_like()
    }
    fn variance(&self) -> Tensor {
        let probs = self.probs();
        (1.0 / &probs - 1.0) / &probs
    }
    #[track_caller]
    fn sample(&self, sample_shape: &[usize]) -> Tensor {
        no_grad(|| {
            let probs = self.probs();
            let u = uniform(&self.shape.extended(sample_shape), &probs);
            (u.clamp_min(tiny(u.dtype())).log() / (-probs).log1p()).floor()
        })
    }
    checked! {
        fn log_prob(d, value) {
            let (probs, value) = pair("Geometric", &d.probs(), value);
            // 0 times the logarithm of 0 counts as 0.
            let sure = probs.eq(1.0).logical_and(&value.eq(0.0));
            value * (-fill(&probs, &sure, 0.0)).log1p() + d.probs().log()
        }
    }
    fn entropy(&self) -> Tensor {
        let probs = self.probs();
        cross_entropy(&self.logits(), &probs) / probs
    }
}

/// The continuous Bernoulli distribution of a number between 0 and 1 (`torch.distributions.ContinuousBernoulli`).
///
/// ```
/// use torchrs::distributions::{ContinuousBernoulli, Distribution};
/// assert_eq!(ContinuousBernoulli::from_probs(0.5).mean().item(), 0.5);
/// ```
#[derive(Clone, Debug)]
pub struct ContinuousBernoulli {
    odds: Odds,
    lims: (f64, f64),
    shape: Shape,
}

impl ContinuousBernoulli {
    #[track_caller]
    fn of(odds: Odds) -> Self {
        let shape = Shape::new(odds.given().shape(), &[]);
        odds.check("ContinuousBernoulli", &shape);
        let odds = match odds {
            Odds::Probs(probs) => Odds::Probs(clamp_probs(&probs)),
            logits => logits,
        };
        ContinuousBernoulli { odds, lims: (0.499, 0.501), shape }
    }

    /// With a parameter between 0 and 1, which is kept from its ends by the type's precision.
    ///
    /// # Panics
    /// Throws when parameters are checked and one is no probability.
    #[track_caller]
    pub fn from_probs(probs: impl Into<Param>) -> Self {
        let [probs] = broadcast("ContinuousBernoulli", ["probs"], [probs.into()]);
        Self::of(Odds::Probs(probs))
    }

    /// With log-odds.
    ///
    /// # Panics
    /// Throws when parameters are checked and one is NaN.
    #[track_caller]
    pub fn from_logits(logits: impl Into<Param>) -> Self {
        let [logits] = broadcast("ContinuousBernoulli", ["logits"], [logits.into()]);
        Self::of(Odds::Logits(logits))
    }

    /// Between these two numbers a series is taken in place of the formula, which divides 0 by 0 at 1/2.
    ///
    /// # Panics
    /// Throws unless 1/2 is between them.
    #[track_caller]
    pub fn lims(mut self, low: f64, high: f64) -> Self {
        if !(low <= 0.5 && high >= 0.5) {
            let message = format!("{low} and {high}; 1/2 must be between them");
            throw(Error::argument("ContinuousBernoulli", "lims", message));
        }
        self.lims = (low, high);
        self
    }

    /// The parameters as numbers between 0 and 1.
    pub fn probs(&self) -> Tensor {
        match &self.odds {
            Odds::Probs(probs) => probs.clone(),
            Odds::Logits(logits) => clamp_probs(&logits.sigmoid()),
        }
    }

    /// The parameters as log-odds.
    pub fn logits(&self) -> Tensor {
        self.odds.logits()
    }

    /// The same with its batch expanded to a shape.
    #[track_caller]
    pub fn expand(&self, batch_shape: &[usize]) -> Self {
        ContinuousBernoulli {
            odds: self.odds.map(|t| t.expand(batch_shape)),
            lims: self.lims,
            shape: self.shape.expanded(batch_shape),
        }
    }

    /// Where the formulas hold, and the parameters with others where they do not.
    fn cut(&self) -> (Tensor, Tensor) {
        let probs = self.probs();
        let stable = probs.le(self.lims.0).logical_or(&probs.gt(self.lims.1));
        let cut = stable.where_(&probs, self.lims.0);
        (stable, cut)
    }

    /// The logarithm of the density's factor.
    pub(super) fn log_norm(&self) -> Tensor {
        let (stable, cut) = self.cut();
        let below = cut.le(0.5).where_(&cut, 0.0);
        let above = cut.ge(0.5).where_(&cut, 1.0);
        let sides = cut.le(0.5).where_(&(below * -2.0).log1p(), &(above * 2.0 - 1.0).log());
        let norm = ((-&cut).log1p() - cut.log()).abs().log() - sides;
        let x = (self.probs() - 0.5).square();
        let series = (&x * (104.0 / 45.0) + 4.0 / 3.0) * &x + LN_2;
        stable.where_(&norm, &series)
    }
}

refined!(ContinuousBernoulli);

impl Distribution for ContinuousBernoulli {
    common!(ContinuousBernoulli);
    fn support(&self) -> Constraint {
        constraints::unit_interval()
    }
    fn has_rsample(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        let (stable, cut) = self.cut();
        let mean = &cut / (&cut * 2.0 - 1.0) + ((-&cut).log1p() - cut.log()).reciprocal();
        let x = self.probs() - 0.5;
        let series = (x.square() * (16.0 / 45.0) + 1.0 / 3.0) * &x + 0.5;
        stable.where_(&mean, &series)
    }
    fn variance(&self) -> Tensor {
        let (stable, cut) = self.cut();
        let variance = &cut * (&cut - 1.0) / (1.0 - &cut * 2.0).square()
            + ((-&cut).log1p() - cut.log()).square().reciprocal();
        let x = (self.probs() - 0.5).square();
        let series = 1.0 / 12.0 - (1.0 / 15.0 - &x * (128.0 / 945.0)) * &x;
        stable.where_(&variance, &series)
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        self.icdf(&uniform(&self.shape.extended(sample_shape), self.odds.given()))
    }
    checked! {
        fn log_prob(d, value) {
            let (logits, value) = pair("ContinuousBernoulli", &d.logits(), value);
            d.log_norm() - cross_entropy(&logits, &value)
        }
        fn cdf(d, value) {
            let (stable, cut) = d.cut();
            let power = cut.pow(value) * (1.0 - &cut).pow(&(1.0 - value));
            let cdf = (power + &cut - 1.0) / (&cut * 2.0 - 1.0);
            let cdf = stable.where_(&cdf, value);
            let cdf = value.ge(1.0).where_(1.0, &cdf);
            value.le(0.0).where_(0.0, &cdf)
        }
    }
    #[track_caller]
    fn icdf(&self, value: &Tensor) -> Tensor {
        let (stable, cut) = self.cut();
        let rest = (-&cut).log1p();
        let inner = value * (&cut * 2.0 - 1.0) - &cut;
        stable.where_(&((inner.log1p() - &rest) / (cut.log() - &rest)), value)
    }
    fn entropy(&self) -> Tensor {
        let probs = self.probs();
        let (rest, log) = ((-&probs).log1p(), probs.log());
        self.mean() * (&rest - log) - self.log_norm() - &rest
    }
}

/// Log-odds of a relaxed Bernoulli number: a logistic number over a temperature
/// (`torch.distributions.relaxed_bernoulli.LogitRelaxedBernoulli`).
#[derive(Clone, Debug)]
pub struct LogitRelaxedBernoulli {
    temperature: Tensor,
    odds: Odds,
    shape: Shape,
}

impl LogitRelaxedBernoulli {
    #[track_caller]
    fn of(temperature: Param, odds: Odds) -> Self {
        let shape = Shape::new(odds.given().shape(), &[]);
        odds.check("LogitRelaxedBernoulli", &shape);
        let temperature = temperature.into_tensor(odds.given());
        let rule = constraints::positive();
        shape.check("LogitRelaxedBernoulli", "temperature", &temperature, &rule);
        LogitRelaxedBernoulli { temperature, odds, shape }
    }

    /// With this temperature, and probabilities.
    ///
    /// # Panics
    /// Throws when parameters are checked and one is no probability, or the temperature not positive.
    #[track_caller]
    pub fn from_probs(temperature: impl Into<Param>, probs: impl Into<Param>) -> Self {
        let [probs] = broadcast("LogitRelaxedBernoulli", ["probs"], [probs.into()]);
        Self::of(temperature.into(), Odds::Probs(probs))
    }

    /// With this temperature, and log-odds.
    ///
    /// # Panics
    /// Throws when parameters are checked and one is NaN, or the temperature not positive.
    #[track_caller]
    pub fn from_logits(temperature: impl Into<Param>, logits: impl Into<Param>) -> Self {
        let [logits] = broadcast("LogitRelaxedBernoulli", ["logits"], [logits.into()]);
        Self::of(temperature.into(), Odds::Logits(logits))
    }

    /// The temperature.
    pub fn temperature(&self) -> &Tensor {
        &self.temperature
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
        LogitRelaxedBernoulli {
            temperature: self.temperature.clone(),
            odds: self.odds.map(|t| t.expand(batch_shape)),
            shape: self.shape.expanded(batch_shape),
        }
    }
}

refined!(LogitRelaxedBernoulli);

impl Distribution for LogitRelaxedBernoulli {
    common!(LogitRelaxedBernoulli);
    fn support(&self) -> Constraint {
        constraints::real()
    }
    fn has_rsample(&self) -> bool {
        true
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        let shape = self.shape.extended(sample_shape);
        let probs = clamp_probs(&self.probs().expand(&shape));
        let u = uniform(&shape, &probs);
        let u = u.clamp(eps(u.dtype()), 1.0 - eps(u.dtype()));
        (u.log() - (-&u).log1p() + probs.log() - (-&probs).log1p()) / &self.temperature
    }
    checked! {
        fn log_prob(d, value) {
            let (logits, value) = pair("LogitRelaxedBernoulli", &d.logits(), value);
            let diff = logits - value * &d.temperature;
            d.temperature.log() + &diff - diff.exp().log1p() * 2.0
        }
    }
}

/// A number between 0 and 1 near one of them: a Bernoulli number through which gradients pass
/// (`torch.distributions.RelaxedBernoulli`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::{Distribution, RelaxedBernoulli};
/// let logits = Tensor::from([0.5f64]).requires_grad_(true);
/// RelaxedBernoulli::from_logits(0.5, &logits).rsample(&[]).sum().backward();
/// assert!(logits.grad().unwrap().item() > 0.0);
/// ```
#[derive(Clone, Debug)]
pub struct RelaxedBernoulli {
    base: LogitRelaxedBernoulli,
    inner: TransformedDistribution,
    shape: Shape,
}

impl RelaxedBernoulli {
    fn of(base: LogitRelaxedBernoulli) -> Self {
        let inner = TransformedDistribution::new(base.clone(), SigmoidTransform);
        let shape = Shape::new(inner.batch_shape(), &[]);
        RelaxedBernoulli { base, inner, shape }
    }

    /// With this temperature, and probabilities.
    ///
    /// # Panics
    /// Throws when parameters are checked and one is no probability, or the temperature not positive.
    #[track_caller]
    pub fn from_probs(temperature: impl Into<Param>, probs: impl Into<Param>) -> Self {
        Self::of(LogitRelaxedBernoulli::from_probs(temperature, probs))
    }

    /// With this temperature, and log-odds.
    ///
    /// # Panics
    /// Throws when parameters are checked and one is NaN, or the temperature not positive.
    #[track_caller]
    pub fn from_logits(temperature: impl Into<Param>, logits: impl Into<Param>) -> Self {
        Self::of(LogitRelaxedBernoulli::from_logits(temperature, logits))
    }
}

relaxed! {
    RelaxedBernoulli;
    /// The parameters as probabilities.
    probs,
    /// The parameters as log-odds.
    logits
}

impl Distribution for RelaxedBernoulli {
    common!(RelaxedBernoulli);
    transformed!(fn log_prob cdf icdf);
    fn support(&self) -> Constraint {
        constraints::unit_interval()
    }
}
