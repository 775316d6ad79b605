//! Distributions of transformed samples, and of batch dimensions that are taken as part of an event.

use std::sync::Arc;

use super::constraints::{self, Constraint};
use super::distribution::{
    Distribution, IntoDistribution, Shape, check_sample, check_value, missing,
};
use super::macros::{common, refined};
use super::params::{Param, concat, last, sum_last, without_last};
use super::transforms::{ComposeTransform, IntoTransforms, Transform, product};
use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// Samples of a distribution through transforms, one after the other (`torch.distributions.TransformedDistribution`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::transforms::ExpTransform;
/// use torchrs::distributions::{Distribution, LogNormal, Normal, TransformedDistribution};
/// let made = TransformedDistribution::new(Normal::new(0.0, 1.0), ExpTransform);
/// let x = Tensor::from([0.5f32, 2.]);
/// assert!(made.log_prob(&x).allclose(&LogNormal::new(0.0, 1.0).log_prob(&x), Default::default()));
/// ```
#[derive(Clone, Debug)]
pub struct TransformedDistribution {
    base: Arc<dyn Distribution>,
    transforms: Vec<Arc<dyn Transform>>,
    shape: Shape,
}

impl TransformedDistribution {
    /// Samples of `base` through `transforms`, a lone one or a list.
    ///
    /// # Panics
    /// Throws when the base's shape does not fit the transforms.
    #[track_caller]
    pub fn new(base: impl IntoDistribution, transforms: impl IntoTransforms) -> Self {
        let (mut base, transforms) = (base.into_distribution(), transforms.into_transforms());
        let chain = ComposeTransform::new(transforms.clone());
        let base_shape = concat(&[base.batch_shape(), base.event_shape()]);
        let base_event = base.event_shape().len();
        let (domain, codomain) = (chain.domain().event_dim(), chain.codomain().event_dim());
        if base_shape.len() < domain {
            throw(Error::argument(
                "TransformedDistribution",
                "base",
                format!(
                    "of shape {base_shape:?}; the transforms take events of {domain} dimensions"
                ),
            ));
        }
        let forward_shape = chain.forward_shape(&base_shape);
        let expanded = chain.inverse_shape(&forward_shape);
        if expanded != base_shape {
            base = base.expand(without_last(&expanded, base_event));
        }
        if domain > base_event {
            base = Arc::new(Independent::new(base, domain - base_event));
        }
        let event_dim = codomain.max((base_event + codomain).saturating_sub(domain));
        let shape =
            Shape::new(without_last(&forward_shape, event_dim), last(&forward_shape, event_dim));
        TransformedDistribution { base, transforms, shape }
    }

    /// Whose samples are transformed.
    pub fn base_dist(&self) -> &Arc<dyn Distribution> {
        &self.base
    }

    /// The transforms, in the order in which they are applied.
    pub fn transforms(&self) -> &[Arc<dyn Transform>] {
        &self.transforms
    }

    /// The same with its batch expanded to a shape.
    #[track_caller]
    pub fn expand(&self, batch_shape: &[usize]) -> Self {
        let mut shape = concat(&[batch_shape, &self.shape.event]);
        for transform in self.transforms.iter().rev() {
            shape = transform.inverse_shape(&shape);
        }
        let base = self.base.expand(without_last(&shape, self.base.event_shape().len()));
        let transforms = self.transforms.clone();
        TransformedDistribution { base, transforms, shape: self.shape.expanded(batch_shape) }
    }

    fn forward(&self, x: Tensor) -> Tensor {
        self.transforms.iter().fold(x, |x, transform| transform.forward(&x))
    }

    /// The density without a look at the value.
    #[track_caller]
    pub(super) fn density(&self, value: &Tensor) -> Tensor {
        let mut event_dim = self.shape.event.len();
        let mut sum: Option<Tensor> = None;
        let mut y = value.clone();
        for transform in self.transforms.iter().rev() {
            let (from, to) = (transform.domain().event_dim(), transform.codomain().event_dim());
            let x = transform.inverse(&y);
            event_dim = event_dim + from - to;
            let term = sum_last(&transform.log_abs_det_jacobian(&x, &y), event_dim - from);
            sum = Some(match sum {
                None => -term,
                Some(sum) => sum - term,
            });
            y = x;
        }
        let own = self.base.log_prob(&y);
        let own = sum_last(&own, event_dim - self.base.event_shape().len());
        match sum {
            None => own,
            Some(sum) => sum + own,
        }
    }

    /// Of a falling function the probability of the other side.
    #[track_caller]
    fn monotone(&self, value: Tensor) -> Tensor {
        let sign = self.transforms.iter().fold(1.into(), |sign, t| product(&sign, &t.sign()));
        match sign {
            Param::Number(1.0) => value,
            sign => (value - 0.5).mul(sign.operand()) + 0.5,
        }
    }

    /// [`Distribution::cdf`], which looks at the base's value if `checks`.
    #[track_caller]
    pub(super) fn cdf_checked(&self, value: &Tensor, checks: bool) -> Tensor {
        let x = self.transforms.iter().rev().fold(value.clone(), |y, t| t.inverse(&y));
        if checks {
            check_sample(&*self.base, &x);
        }
        self.monotone(self.base.cdf(&x))
    }
}

refined!(TransformedDistribution);

impl Distribution for TransformedDistribution {
    common!(TransformedDistribution);
    fn support(&self) -> Constraint {
        let Some(transform) = self.transforms.last() else { return self.base.support() };
        constraints::of_dims(transform.codomain(), self.shape.event.len())
    }
    fn has_rsample(&self) -> bool {
        self.base.has_rsample()
    }
    #[track_caller]
    fn sample(&self, sample_shape: &[usize]) -> Tensor {
        no_grad(|| self.forward(self.base.sample(sample_shape)))
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        self.forward(self.base.rsample(sample_shape))
    }
    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Tensor {
        check_value(self, value);
        self.density(value)
    }
    #[track_caller]
    fn cdf(&self, value: &Tensor) -> Tensor {
        self.cdf_checked(value, self.shape.validate)
    }
    #[track_caller]
    fn icdf(&self, value: &Tensor) -> Tensor {
        self.forward(self.base.icdf(&self.monotone(value.clone())))
    }
}

/// A distribution whose last batch dimensions are taken as part of an event (`torch.distributions.Independent`): the
/// density is one of all their numbers.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::{Distribution, Independent, Normal};
/// let d = Independent::new(Normal::new(Tensor::from([0f64, 0.]), 1.0), 1);
/// assert_eq!((d.batch_shape(), d.event_shape()), (&[][..], &[2][..]));
/// ```
#[derive(Clone, Debug)]
pub struct Independent {
    base: Arc<dyn Distribution>,
    reinterpreted_batch_ndims: usize,
    shape: Shape,
}

impl Independent {
    /// `base` with that many batch dimensions as part of an event.
    ///
    /// # Panics
    /// Throws when the batch has fewer dimensions.
    #[track_caller]
    pub fn new(base: impl IntoDistribution, reinterpreted_batch_ndims: usize) -> Self {
        let base = base.into_distribution();
        let batch = base.batch_shape();
        if reinterpreted_batch_ndims > batch.len() {
            throw(Error::argument(
                "Independent",
                "reinterpreted_batch_ndims",
                format!("{reinterpreted_batch_ndims}; the batch's shape is {batch:?}"),
            ));
        }
        let (batch, event) = batch.split_at(batch.len() - reinterpreted_batch_ndims);
        let shape = Shape::new(batch, &concat(&[event, base.event_shape()]));
        Independent { base, reinterpreted_batch_ndims, shape }
    }

    /// The distribution of single events.
    pub fn base_dist(&self) -> &Arc<dyn Distribution> {
        &self.base
    }

    /// How many batch dimensions are part of an event.
    pub fn reinterpreted_batch_ndims(&self) -> usize {
        self.reinterpreted_batch_ndims
    }

    /// The same with its batch expanded to a shape.
    #[track_caller]
    pub fn expand(&self, batch_shape: &[usize]) -> Self {
        let taken = &self.shape.event[..self.reinterpreted_batch_ndims];
        Independent {
            base: self.base.expand(&concat(&[batch_shape, taken])),
            reinterpreted_batch_ndims: self.reinterpreted_batch_ndims,
            shape: self.shape.expanded(batch_shape),
        }
    }
}

refined!(Independent);

impl Distribution for Independent {
    common!(Independent);
    fn support(&self) -> Constraint {
        match self.reinterpreted_batch_ndims {
            0 => self.base.support(),
            n => constraints::independent(self.base.support(), n),
        }
    }
    fn has_rsample(&self) -> bool {
        self.base.has_rsample()
    }
    fn has_enumerate_support(&self) -> bool {
        self.reinterpreted_batch_ndims == 0 && self.base.has_enumerate_support()
    }
    #[track_caller]
    fn mean(&self) -> Tensor {
        self.base.mean()
    }
    #[track_caller]
    fn mode(&self) -> Tensor {
        self.base.mode()
    }
    #[track_caller]
    fn variance(&self) -> Tensor {
        self.base.variance()
    }
    #[track_caller]
    fn sample(&self, sample_shape: &[usize]) -> Tensor {
        self.base.sample(sample_shape)
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        self.base.rsample(sample_shape)
    }
    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Tensor {
        sum_last(&self.base.log_prob(value), self.reinterpreted_batch_ndims)
    }
    #[track_caller]
    fn entropy(&self) -> Tensor {
        sum_last(&self.base.entropy(), self.reinterpreted_batch_ndims)
    }
    #[track_caller]
    fn enumerate_support(&self, expand: bool) -> Tensor {
        if self.reinterpreted_batch_ndims > 0 {
            missing(self.name(), "enumerate_support");
        }
        self.base.enumerate_support(expand)
    }
}
