//! Distributions of one of several classes: as its index, as a vector with a single one, and relaxed.

use super::bernoulli::counted;
use super::constraints::{self, Constraint};
use super::distribution::{Distribution, Shape};
use super::macros::{checked, common, refined, relaxed, transformed};
use super::params::{Param, concat, eps, joint, log_probs, lowest, options, pair, uniform};
use super::transformed::TransformedDistribution;
use super::transforms::ExpTransform;
use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Tensor};

/// One of several classes, as its index (`torch.distributions.Categorical`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::{Categorical, Distribution};
/// let d = Categorical::from_probs(&Tensor::from([1f64, 3.]));
/// assert_eq!(d.probs().to_vec::<f64>(), [0.25, 0.75]);
/// assert!((d.log_prob(&Tensor::from([1i64])).item() - 0.75f64.ln()).abs() < 1e-12);
/// ```
#[derive(Clone, Debug)]
pub struct Categorical {
    given: Given,
    shape: Shape,
}

#[derive(Clone, Debug)]
enum Given {
    Probs(Tensor),
    Logits(Tensor),
}

impl Categorical {
    #[track_caller]
    fn of(given: Given) -> Self {
        let (Given::Probs(t) | Given::Logits(t)) = &given;
        let shape = Shape::new(&t.shape()[..t.dim() - 1], &[]);
        match &given {
            Given::Probs(t) => shape.check("Categorical", "probs", t, &constraints::simplex()),
            Given::Logits(t) => {
                shape.check("Categorical", "logits", t, &constraints::real_vector())
            }
        }
        Categorical { given, shape }
    }

    /// With probabilities along the last dimension, which are divided by their sum.
    ///
    /// # Panics
    /// Throws for a tensor without dimensions, and when parameters are checked and one is negative or none positive.
    #[track_caller]
    pub fn from_probs(probs: &Tensor) -> Self {
        assert_vector("probs", probs);
        Self::of(Given::Probs(probs / probs.sum_dim(&[-1], true)))
    }

    /// With log-probabilities along the last dimension, up to a constant.
    ///
    /// # Panics
    /// Throws for a tensor without dimensions, and when parameters are checked and one is NaN.
    #[track_caller]
    pub fn from_logits(logits: &Tensor) -> Self {
        assert_vector("logits", logits);
        Self::of(Given::Logits(logits - logits.logsumexp(&[-1], true)))
    }

    /// The probabilities.
    pub fn probs(&self) -> Tensor {
        match &self.given {
            Given::Probs(t) => t.clone(),
            Given::Logits(t) => t.softmax(-1),
        }
    }

    /// Their logarithms.
    pub fn logits(&self) -> Tensor {
        match &self.given {
            Given::Probs(t) => log_probs(t),
            Given::Logits(t) => t.clone(),
        }
    }

    /// How many classes there are.
    pub fn num_events(&self) -> usize {
        self.param().size(-1)
    }

    fn param(&self) -> &Tensor {
        let (Given::Probs(t) | Given::Logits(t)) = &self.given;
        t
    }

    /// The same with its batch expanded to a shape.
    #[track_caller]
    pub fn expand(&self, batch_shape: &[usize]) -> Self {
        let shape = concat(&[batch_shape, &[self.num_events()]]);
        let given = match &self.given {
            Given::Probs(t) => Given::Probs(t.expand(&shape)),
            Given::Logits(t) => Given::Logits(t.expand(&shape)),
        };
        Categorical { given, shape: self.shape.expanded(batch_shape) }
    }
}

#[track_caller]
fn assert_vector(argument: &str, t: &Tensor) {
    if t.dim() == 0 {
        throw(Error::argument("Categorical", argument, "has no dimension; one is needed"));
    }
}

refined!(Categorical);

impl Distribution for Categorical {
    common!(Categorical);
    fn support(&self) -> Constraint {
        constraints::integer_interval(0, self.num_events() as i64 - 1)
    }
    fn has_enumerate_support(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        self.param().new_full(&self.shape.batch, f64::NAN)
    }
    fn mode(&self) -> Tensor {
        self.probs().argmax_dim(-1, false)
    }
    fn variance(&self) -> Tensor {
        self.mean()
    }
    #[track_caller]
    fn sample(&self, sample_shape: &[usize]) -> Tensor {
        no_grad(|| {
            let n = self.num_events() as i64;
            let rows = self.probs().reshape([-1, n]);
            let samples: usize = sample_shape.iter().product();
            let drawn = rows.multinomial(samples, true).t();
            drawn.reshape_to(&self.shape.extended(sample_shape))
        })
    }
    checked! {
        fn log_prob(d, value) {
            let index = value.to_dtype(Dtype::I64);
            let logits = d.logits();
            let batch = joint("Categorical", "value", &d.shape.batch, index.shape());
            let index = index.expand(&batch).unsqueeze(-1);
            let logits = logits.expand(&concat(&[&batch, &[d.num_events()]]));
            logits.gather(-1, &index).squeeze_dim(-1)
        }
    }
    fn entropy(&self) -> Tensor {
        let logits = self.logits();
        // Infinite logarithms of probabilities that are 0.
        let logits = logits.clamp_min(lowest(logits.dtype()));
        -(logits * self.probs()).sum_dim(&[-1], false)
    }
    #[track_caller]
    fn enumerate_support(&self, expand: bool) -> Tensor {
        let options = (Dtype::I64, self.param().device());
        counted(self.num_events(), &self.shape, options, expand)
    }
}

/// One of several classes, as a vector with a single one (`torch.distributions.OneHotCategorical`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::{Distribution, OneHotCategorical};
/// let d = OneHotCategorical::from_probs(&Tensor::from([0f64, 1., 0.]));
/// assert_eq!(d.sample(&[]).to_vec::<f64>(), [0.0, 1.0, 0.0]);
/// ```
#[derive(Clone, Debug)]
pub struct OneHotCategorical {
    categorical: Categorical,
    shape: Shape,
}

impl OneHotCategorical {
    fn of(categorical: Categorical) -> Self {
        let shape = Shape::new(&categorical.shape.batch, &[categorical.num_events()]);
        OneHotCategorical { categorical, shape }
    }

    /// With probabilities along the last dimension, which are divided by their sum.
    ///
    /// # Panics
    /// Throws as [`Categorical::from_probs`].
    #[track_caller]
    pub fn from_probs(probs: &Tensor) -> Self {
        Self::of(Categorical::from_probs(probs))
    }

    /// With log-probabilities along the last dimension, up to a constant.
    ///
    /// # Panics
    /// Throws as [`Categorical::from_logits`].
    #[track_caller]
    pub fn from_logits(logits: &Tensor) -> Self {
        Self::of(Categorical::from_logits(logits))
    }

    /// The probabilities.
    pub fn probs(&self) -> Tensor {
        self.categorical.probs()
    }

    /// Their logarithms.
    pub fn logits(&self) -> Tensor {
        self.categorical.logits()
    }

    /// The distribution of the index.
    pub fn categorical(&self) -> &Categorical {
        &self.categorical
    }

    /// The same with its batch expanded to a shape.
    #[track_caller]
    pub fn expand(&self, batch_shape: &[usize]) -> Self {
        OneHotCategorical {
            categorical: self.categorical.expand(batch_shape),
            shape: self.shape.expanded(batch_shape),
        }
    }
}

refined!(OneHotCategorical);

impl Distribution for OneHotCategorical {
    common!(OneHotCategorical);
    fn support(&self) -> Constraint {
        constraints::one_hot()
    }
    fn has_enumerate_support(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        self.probs()
    }
    fn mode(&self) -> Tensor {
        let probs = self.probs();
        probs.argmax_dim(-1, false).one_hot(probs.size(-1)).to_dtype(probs.dtype())
    }
    fn variance(&self) -> Tensor {
        let probs = self.probs();
        &probs * (1.0 - &probs)
    }
    #[track_caller]
    fn sample(&self, sample_shape: &[usize]) -> Tensor {
        let drawn = self.categorical.sample(sample_shape);
        drawn.one_hot(self.categorical.num_events()).to_dtype(self.categorical.param().dtype())
    }
    checked! {
        fn log_prob(d, value) {
            d.categorical.log_prob(&value.argmax_dim(-1, false))
        }
    }
    fn entropy(&self) -> Tensor {
        self.categorical.entropy()
    }
    #[track_caller]
    fn enumerate_support(&self, expand: bool) -> Tensor {
        let n = self.categorical.num_events();
        let mut sizes = vec![1; 2 + self.shape.batch.len()];
        (sizes[0], sizes[1 + self.shape.batch.len()]) = (n as i64, n as i64);
        let values = Tensor::eye(n, options(self.categorical.param())).view(sizes);
        if expand { values.expand(&concat(&[&[n], &self.shape.batch, &[n]])) } else { values }
    }
}

/// An [`OneHotCategorical`] whose samples have the gradient of the probabilities
/// (`torch.distributions.OneHotCategoricalStraightThrough`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::{Distribution, OneHotCategoricalStraightThrough};
/// let probs = Tensor::from([0.5f64, 0.5]).requires_grad_(true);
/// let x = OneHotCategoricalStraightThrough::from_probs(&probs).rsample(&[]);
/// (x * Tensor::from([1f64, 3.])).sum().backward();
/// assert_eq!(probs.grad().unwrap().to_vec::<f64>(), [-1.0, 1.0]);
/// ```
#[derive(Clone, Debug)]
pub struct OneHotCategoricalStraightThrough {
    inner: OneHotCategorical,
    shape: Shape,
}

impl OneHotCategoricalStraightThrough {
    fn of(inner: OneHotCategorical) -> Self {
        let shape = inner.shape.clone();
        OneHotCategoricalStraightThrough { inner, shape }
    }

    /// With probabilities along the last dimension, which are divided by their sum.
    ///
    /// # Panics
    /// Throws as [`Categorical::from_probs`].
    #[track_caller]
    pub fn from_probs(probs: &Tensor) -> Self {
        Self::of(OneHotCategorical::from_probs(probs))
    }

    /// With log-probabilities along the last dimension, up to a constant.
    ///
    /// # Panics
    /// Throws as [`Categorical::from_logits`].
    #[track_caller]
    pub fn from_logits(logits: &Tensor) -> Self {
        Self::of(OneHotCategorical::from_logits(logits))
    }

    /// The probabilities.
    pub fn probs(&self) -> Tensor {
        self.inner.probs()
    }

    /// Their logarithms.
    pub fn logits(&self) -> Tensor {
        self.inner.logits()
    }

    /// The same with its batch expanded to a shape.
    #[track_caller]
    pub fn expand(&self, batch_shape: &[usize]) -> Self {
        OneHotCategoricalStraightThrough {
            inner: self.inner.expand(batch_shape),
            shape: self.shape.expanded(batch_shape),
        }
    }
}

refined!(OneHotCategoricalStraightThrough);

impl Distribution for OneHotCategoricalStraightThrough {
    common!(OneHotCategoricalStraightThrough);
    fn parent(&self) -> Option<&dyn Distribution> {
        Some(&self.inner)
    }
    fn support(&self) -> Constraint {
        constraints::one_hot()
    }
    fn has_rsample(&self) -> bool {
        true
    }
    fn has_enumerate_support(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        self.inner.mean()
    }
    fn mode(&self) -> Tensor {
        self.inner.mode()
    }
    fn variance(&self) -> Tensor {
        self.inner.variance()
    }
    #[track_caller]
    fn sample(&self, sample_shape: &[usize]) -> Tensor {
        self.inner.sample(sample_shape)
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        let probs = self.probs();
        self.sample(sample_shape) + (&probs - probs.detach())
    }
    checked! {
        fn log_prob(d, value) {
            d.inner.categorical.log_prob(&value.argmax_dim(-1, false))
        }
    }
    fn entropy(&self) -> Tensor {
        self.inner.entropy()
    }
    #[track_caller]
    fn enumerate_support(&self, expand: bool) -> Tensor {
        self.inner.enumerate_support(expand)
    }
}

/// Logarithms of a relaxed vector with a single one
/// (`torch.distributions.relaxed_categorical.ExpRelaxedCategorical`).
#[derive(Clone, Debug)]
pub struct ExpRelaxedCategorical {
    temperature: Tensor,
    categorical: Categorical,
    shape: Shape,
}

impl ExpRelaxedCategorical {
    #[track_caller]
    fn of(temperature: Param, categorical: Categorical) -> Self {
        let temperature = temperature.into_tensor(categorical.param());
        let shape = Shape::new(&categorical.shape.batch, &[categorical.num_events()]);
        let rule = constraints::positive();
        shape.check("ExpRelaxedCategorical", "temperature", &temperature, &rule);
        ExpRelaxedCategorical { temperature, categorical, shape }
    }

    /// With this temperature, and probabilities along the last dimension.
    ///
    /// # Panics
    /// Throws as [`Categorical::from_probs`], and when the temperature is checked and not positive.
    #[track_caller]
    pub fn from_probs(temperature: impl Into<Param>, probs: &Tensor) -> Self {
        Self::of(temperature.into(), Categorical::from_probs(probs))
    }

    /// With this temperature, and log-probabilities along the last dimension.
    ///
    /// # Panics
    /// Throws as [`Categorical::from_logits`], and when the temperature is checked and not positive.
    #[track_caller]
    pub fn from_logits(temperature: impl Into<Param>, logits: &Tensor) -> Self {
        Self::of(temperature.into(), Categorical::from_logits(logits))
    }

    /// The temperature.
    pub fn temperature(&self) -> &Tensor {
        &self.temperature
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
        ExpRelaxedCategorical {
            temperature: self.temperature.clone(),
            categorical: self.categorical.expand(batch_shape),
            shape: self.shape.expanded(batch_shape),
        }
    }
}

refined!(ExpRelaxedCategorical);

impl Distribution for ExpRelaxedCategorical {
    common!(ExpRelaxedCategorical);
    fn support(&self) -> Constraint {
        constraints::real_vector()
    }
    fn has_rsample(&self) -> bool {
        true
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        let logits = self.logits();
        let u = uniform(&self.shape.extended(sample_shape), &logits);
        let u = u.clamp(eps(u.dtype()), 1.0 - eps(u.dtype()));
        let gumbels = -(-u.log()).log();
        let scores = (logits + gumbels) / &self.temperature;
        &scores - scores.logsumexp(&[-1], true)
    }
    checked! {
        fn log_prob(d, value) {
            let n = d.categorical.num_events() as f64;
            let (logits, value) = pair("ExpRelaxedCategorical", &d.logits(), value);
            let scale = d.temperature.full_like(n).lgamma() + d.temperature.log() * (n - 1.0);
            let score = logits - value * &d.temperature;
            (&score - score.logsumexp(&[-1], true)).sum_dim(&[-1], false) + scale
        }
    }
}

/// Probabilities near a vector with a single one, through which gradients pass
/// (`torch.distributions.RelaxedOneHotCategorical`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::{Distribution, RelaxedOneHotCategorical};
/// let x = RelaxedOneHotCategorical::from_logits(0.5, &Tensor::from([0f64, 1., 2.])).rsample(&[]);
/// assert!((x.sum().item() - 1.0).abs() < 1e-12);
/// ```
#[derive(Clone, Debug)]
pub struct RelaxedOneHotCategorical {
    base: ExpRelaxedCategorical,
    inner: TransformedDistribution,
    shape: Shape,
}

impl RelaxedOneHotCategorical {
    fn of(base: ExpRelaxedCategorical) -> Self {
        let inner = TransformedDistribution::new(base.clone(), ExpTransform);
        let shape = Shape::new(inner.batch_shape(), inner.event_shape());
        RelaxedOneHotCategorical { base, inner, shape }
    }

    /// With this temperature, and probabilities along the last dimension.
    ///
    /// # Panics
    /// Throws as [`Categorical::from_probs`], and when the temperature is checked and not positive.
    #[track_caller]
    pub fn from_probs(temperature: impl Into<Param>, probs: &Tensor) -> Self {
        Self::of(ExpRelaxedCategorical::from_probs(temperature, probs))
    }

    /// With this temperature, and log-probabilities along the last dimension.
    ///
    /// # Panics
    /// Throws as [`Categorical::from_logits`], and when the temperature is checked and not positive.
    #[track_caller]
    pub fn from_logits(temperature: impl Into<Param>, logits: &Tensor) -> Self {
        Self::of(ExpRelaxedCategorical::from_logits(temperature, logits))
    }
}

relaxed! {
    RelaxedOneHotCategorical;
    /// The probabilities.
    probs,
    /// Their logarithms.
    logits
}

impl Distribution for RelaxedOneHotCategorical {
    common!(RelaxedOneHotCategorical);
    transformed!(fn log_prob cdf icdf);
    fn support(&self) -> Constraint {
        constraints::simplex()
    }
}
