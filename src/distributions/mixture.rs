//! Mixtures of distributions of one family.

use std::sync::Arc;

use super::categorical::Categorical;
use super::constraints::{self, Constraint};
use super::distribution::{Distribution, IntoDistribution, Shape, check_value};
use super::macros::{common, refined};
use super::params::{concat, joint, last, without_last};
use crate::autograd::no_grad;
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// A mixture whose components are the last batch dimension of one distribution
/// (`torch.distributions.MixtureSameFamily`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::{Categorical, Distribution, MixtureSameFamily, Normal};
/// let weights = Categorical::from_probs(&Tensor::from([0.25f64, 0.75]));
/// let d = MixtureSameFamily::new(weights, Normal::new(Tensor::from([0f64, 4.]), 1.0));
/// assert_eq!((d.mean().item(), d.variance().item()), (3.0, 4.0));
/// ```
#[derive(Clone, Debug)]
pub struct MixtureSameFamily {
    mixture: Categorical,
    component: Arc<dyn Distribution>,
    shape: Shape,
}

impl MixtureSameFamily {
    /// With these weights of these components.
    ///
    /// # Panics
    /// Throws when the component's batch does not end with as many as there are weights, or batches do not fit.
    #[track_caller]
    pub fn new(mixture: Categorical, component: impl IntoDistribution) -> Self {
        let component = component.into_distribution();
        let name = "MixtureSameFamily";
        let (weights, batch) = (mixture.num_events(), component.batch_shape());
        let Some((&n, batch)) = batch.split_last() else {
            throw(Error::argument(
                name,
                "component",
                "has no batch, whose last dimension is taken",
            ));
        };
        if n != weights {
            let message = format!("{n} components of {weights} weights");
            throw(Error::argument(name, "component", message));
        }
        joint(name, "mixture", batch, mixture.batch_shape());
        let shape = Shape::new(batch, component.event_shape());
        MixtureSameFamily { mixture, component, shape }
    }

    /// The weights.
    pub fn mixture_distribution(&self) -> &Categorical {
        &self.mixture
    }

    /// The components.
    pub fn component_distribution(&self) -> &Arc<dyn Distribution> {
        &self.component
    }

    /// The same with its batch expanded to a shape.
    #[track_caller]
    pub fn expand(&self, batch_shape: &[usize]) -> Self {
        MixtureSameFamily {
            mixture: self.mixture.expand(batch_shape),
            component: self.component.expand(&concat(&[batch_shape, &[self.mixture.num_events()]])),
            shape: self.shape.expanded(batch_shape),
        }
    }

    /// How many dimensions an event has, and where that of the components stands.
    fn place(&self) -> (usize, i64) {
        let n = self.shape.event.len();
        (n, -1 - n as i64)
    }

    /// The weights, with dimensions of size 1 for the event.
    fn weights(&self) -> Tensor {
        let mut probs = self.mixture.probs();
        for _ in 0..self.place().0 {
            probs = probs.unsqueeze(-1);
        }
        probs
    }

    fn padded(&self, x: &Tensor) -> Tensor {
        x.unsqueeze(self.place().1)
    }
}

refined!(MixtureSameFamily);

impl Distribution for MixtureSameFamily {
    common!(MixtureSameFamily);
    fn support(&self) -> Constraint {
        constraints::mixture_same_family(self.component.support())
    }
    #[track_caller]
    fn mean(&self) -> Tensor {
        (self.weights() * self.component.mean()).sum_dim(&[self.place().1], false)
    }
    #[track_caller]
    fn variance(&self) -> Tensor {
        let (weights, dim) = (self.weights(), self.place().1);
        let within = (&weights * self.component.variance()).sum_dim(&[dim], false);
        let distance = self.component.mean() - self.padded(&self.mean());
        within + (weights * distance.square()).sum_dim(&[dim], false)
    }
    #[track_caller]
    fn cdf(&self, value: &Tensor) -> Tensor {
        (self.component.cdf(&self.padded(value)) * self.mixture.probs()).sum_dim(&[-1], false)
    }
    #[track_caller]
    fn log_prob(&self, value: &Tensor) -> Tensor {
        check_value(self, value);
        let each = self.component.log_prob(&self.padded(value));
        (each + self.mixture.logits().log_softmax(-1)).logsumexp(&[-1], false)
    }
    #[track_caller]
    fn sample(&self, sample_shape: &[usize]) -> Tensor {
        no_grad(|| {
            // Weights of fewer batch dimensions are drawn for each of the batch.
            let chosen = self.mixture.expand(&self.shape.batch).sample(sample_shape);
            let all = self.component.sample(sample_shape);
            let (n, dim) = self.place();
            let mut index = chosen.unsqueeze(-1);
            for _ in 0..n {
                index = index.unsqueeze(-1);
            }
            let shape = all.shape();
            let one = concat(&[without_last(shape, n + 1), &[1], last(shape, n)]);
            all.gather(dim, &index.expand(&one)).squeeze_dim(dim)
        })
    }
}
