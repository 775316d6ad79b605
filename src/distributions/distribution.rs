//! What every distribution is: shapes, samples, densities, moments. A distribution has those methods for which there
//! is a formula; the others throw an error that names the distribution and the method.

use std::any::Any;
use std::cell::Cell;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::constraints::Constraint;
use super::params::concat;
use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// A distribution, or a batch of independent ones of one kind (`torch.distributions.Distribution`).
///
/// A sample has the shape `sample_shape + batch_shape + event_shape`; [`log_prob`](Self::log_prob) gives one number
/// for each event. Methods throw (see [`catch`](crate::catch)) where the distribution has no formula for them.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::{Distribution, MultivariateNormal, Normal};
/// let one = Normal::new(Tensor::from([0f64, 10.]), 1.0);
/// assert_eq!((one.batch_shape(), one.event_shape()), (&[2][..], &[][..]));
/// assert_eq!(one.sample(&[3]).shape(), &[3, 2]);
/// let both = MultivariateNormal::from_scale_tril(Tensor::from([0f64, 10.]), Tensor::eye(2, torchrs::Dtype::F64));
/// assert_eq!(both.log_prob(&Tensor::from([0f64, 10.])).shape(), &[] as &[usize]);
/// let error = torchrs::catch(|| both.icdf(&Tensor::from([0.5f64, 0.5]))).unwrap_err();
/// assert!(error.to_string().contains("MultivariateNormal"));
/// ```
pub trait Distribution: Debug + Send + Sync + Any {
    /// The name of its type, as PyTorch has it.
    fn name(&self) -> &'static str;

    /// The shape of the batch of independent distributions.
    fn batch_shape(&self) -> &[usize];

    /// The shape of one event.
    fn event_shape(&self) -> &[usize];

    /// Whether values are checked against the support.
    fn validates(&self) -> bool;

    /// Where samples can be.
    #[track_caller]
    fn support(&self) -> Constraint {
        missing(self.name(), "support")
    }

    /// Whether [`rsample`](Self::rsample) gives samples through which gradients reach the parameters.
    fn has_rsample(&self) -> bool {
        false
    }

    /// Whether [`enumerate_support`](Self::enumerate_support) lists all values.
    fn has_enumerate_support(&self) -> bool {
        false
    }

    /// The mean, of shape `batch_shape + event_shape`.
    #[track_caller]
    fn mean(&self) -> Tensor {
        missing(self.name(), "mean")
    }

    /// The likeliest value, of shape `batch_shape + event_shape`.
    #[track_caller]
    fn mode(&self) -> Tensor {
        missing(self.name(), "mode")
    }

    /// The variance, of shape `batch_shape + event_shape`.
    #[track_caller]
    fn variance(&self) -> Tensor {
        missing(self.name(), "variance")
    }

    /// The standard deviation, of shape `batch_shape + event_shape`.
    #[track_caller]
    fn stddev(&self) -> Tensor {
        self.variance().sqrt()
    }

    /// Samples without a gradient, of shape `sample_shape + batch_shape + event_shape`.
    #[track_caller]
    fn sample(&self, sample_shape: &[usize]) -> Tensor {
        no_grad(|| self.rsample(sample_shape))
    }

    /// Samples that are differentiable functions of the parameters.
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        let _ = sample_shape;
        missing(self.name(), "rsample")
    }

    /// The logarithm of the density, or of the probability, at `value`.
    ///
    /// # Panics
    /// Throws when values are checked and one is not in the support, or shapes do not fit.
    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Tensor {
        let _ = value;
        missing(self.name(), "log_prob")
    }

    /// The probability of a sample up to `value`.
    #[track_caller]
    fn cdf(&self, value: &Tensor) -> Tensor {
        let _ = value;
        missing(self.name(), "cdf")
    }

    /// The inverse of [`cdf`](Self::cdf).
    #[track_caller]
    fn icdf(&self, value: &Tensor) -> Tensor {
        let _ = value;
        missing(self.name(), "icdf")
    }

    /// All values of a discrete distribution, along a new first dimension. With `expand` they have the batch's
    /// shape, else its dimensions have size 1.
    #[track_caller]
    fn enumerate_support(&self, expand: bool) -> Tensor {
        let _ = expand;
        missing(self.name(), "enumerate_support")
    }

    /// The entropy, of shape `batch_shape`.
    #[track_caller]
    fn entropy(&self) -> Tensor {
        missing(self.name(), "entropy")
    }

    /// e to the [`entropy`](Self::entropy).
    #[track_caller]
    fn perplexity(&self) -> Tensor {
        self.entropy().exp()
    }

    /// The same distribution with its batch expanded to a shape. No parameter is copied.
    ///
    /// # Panics
    /// Throws when the batch cannot be broadcast to `batch_shape`.
    #[track_caller]
    fn expand(&self, batch_shape: &[usize]) -> Arc<dyn Distribution>;

    /// The more general distribution of which this one is a case: for [`kl_divergence`](super::kl_divergence),
    /// which takes its formula where this one has none.
    fn parent(&self) -> Option<&dyn Distribution> {
        None
    }

    /// For a look at the concrete type.
    fn as_any(&self) -> &dyn Any;
}

impl dyn Distribution {
    /// This distribution as one of type `T`, if it is that.
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, Normal};
    /// let any: &dyn Distribution = &Normal::new(1.0, 2.0);
    /// assert_eq!(any.downcast_ref::<Normal>().unwrap().scale().item(), 2.0);
    /// ```
    pub fn downcast_ref<T: Distribution>(&self) -> Option<&T> {
        self.as_any().downcast_ref()
    }
}

/// What can be given as a distribution: one by value, or one that is shared.
pub trait IntoDistribution {
    /// The distribution, shared.
    fn into_distribution(self) -> Arc<dyn Distribution>;
}

impl<D: Distribution> IntoDistribution for D {
    fn into_distribution(self) -> Arc<dyn Distribution> {
        Arc::new(self)
    }
}

impl IntoDistribution for Arc<dyn Distribution> {
    fn into_distribution(self) -> Arc<dyn Distribution> {
        self
    }
}

impl IntoDistribution for &Arc<dyn Distribution> {
    fn into_distribution(self) -> Arc<dyn Distribution> {
        self.clone()
    }
}

/// There is no formula for a method of a distribution.
#[track_caller]
pub(super) fn missing(name: &str, method: &str) -> ! {
    throw(Error::argument(method, "self", format!("{name} has no formula for `{method}`")))
}

static VALIDATE: AtomicBool = AtomicBool::new(true);

thread_local! {
    static HERE: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Whether distributions made from now on check parameters and values; they do from the start
/// (`Distribution.set_default_validate_args`). Checks wait for a GPU.
pub fn set_default_validate_args(validate: bool) {
    VALIDATE.store(validate, Ordering::Relaxed);
}

/// Runs `make`; distributions that it makes on this thread check parameters and values, or do not (the argument
/// `validate_args` in PyTorch).
///
/// ```
/// use torchrs::distributions::{Distribution, Normal, with_validate_args};
/// assert!(torchrs::catch(|| Normal::new(0.0, -1.0)).is_err());
/// let odd = with_validate_args(false, || Normal::new(0.0, -1.0));
/// assert!(!odd.validates());
/// ```
pub fn with_validate_args<T>(validate: bool, make: impl FnOnce() -> T) -> T {
    struct Back(Option<bool>);
    impl Drop for Back {
        fn drop(&mut self) {
            HERE.set(self.0);
        }
    }
    let _back = Back(HERE.replace(Some(validate)));
    make()
}

/// Whether a distribution made now checks.
pub(super) fn validate_now() -> bool {
    HERE.get().unwrap_or_else(|| VALIDATE.load(Ordering::Relaxed))
}

/// The shapes of a distribution, and whether it checks.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub batch: Vec<usize>,
    pub event: Vec<usize>,
    pub validate: bool,
}

impl Shape {
    pub fn new(batch: &[usize], event: &[usize]) -> Self {
        Shape { batch: batch.to_vec(), event: event.to_vec(), validate: validate_now() }
    }

    /// The same for another batch.
    pub fn expanded(&self, batch: &[usize]) -> Self {
        Shape { batch: batch.to_vec(), ..self.clone() }
    }

    /// The shape of samples.
    pub fn extended(&self, sample_shape: &[usize]) -> Vec<usize> {
        concat(&[sample_shape, &self.batch, &self.event])
    }

    /// Throws unless a parameter is what it must be.
    #[track_caller]
    pub fn check(&self, name: &str, argument: &str, value: &Tensor, rule: &Constraint) {
        if !self.validate || is_fine(&no_grad(|| rule.check(value))) {
            return;
        }
        throw(Error::argument(
            name,
            argument,
            format!("of shape {:?} must satisfy {rule}, found {}", value.shape(), shown(value)),
        ));
    }
}

/// Whether all are true. Values of tensors without any count as fine.
fn is_fine(valid: &Tensor) -> bool {
    valid.device().is_meta() || no_grad(|| valid.all().item()) != 0.0
}

/// The first of its numbers.
fn shown(value: &Tensor) -> String {
    let all = value.detach().ravel();
    let some = all.narrow(0, 0, all.numel().min(6)).to_vec::<f64>();
    format!("{some:?}{}", if all.numel() > 6 { " and more" } else { "" })
}

/// Throws unless `value` fits the shapes and is in the support, if the distribution checks.
#[track_caller]
pub(super) fn check_value(d: &dyn Distribution, value: &Tensor) {
    if d.validates() {
        check_sample(d, value);
    }
}

/// Throws unless `value` fits the shapes and is in the support.
#[track_caller]
pub(super) fn check_sample(d: &dyn Distribution, value: &Tensor) {
    let (name, event) = (d.name(), d.event_shape());
    let shape = value.shape();
    if !shape.ends_with(event) {
        throw(Error::shape(
            name,
            format!("`value` of shape {shape:?} must end with the event's shape {event:?}"),
        ));
    }
    let expected = concat(&[d.batch_shape(), event]);
    let fits = |(a, b): (&usize, &usize)| *a == 1 || *b == 1 || a == b;
    if !shape.iter().rev().zip(expected.iter().rev()).all(fits) {
        throw(Error::shape(
            name,
            format!(
                "`value` of shape {shape:?} cannot be broadcast with batch and event, {expected:?}"
            ),
        ));
    }
    let support = d.support();
    if !is_fine(&no_grad(|| support.check(value))) {
        throw(Error::argument(
            name,
            "value",
            format!(
                "of shape {shape:?} must be within the support, {support}, found {}",
                shown(value)
            ),
        ));
    }
}
