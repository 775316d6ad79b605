//! The Dirichlet distribution, and those of one probability: beta and Kumaraswamy's.

use std::sync::Arc;

use super::constraints::{self, Constraint};
use super::distribution::{Distribution, Shape};
use super::families::{EULER, Uniform};
use super::macros::{by_transform, checked, common, refined, transformed};
use super::params::{Param, broadcast, concat, fill, of_batch};
use super::transformed::TransformedDistribution;
use super::transforms::{AffineTransform, PowerTransform, Transform};
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// The Dirichlet distribution of vectors of probabilities (`torch.distributions.Dirichlet`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::{Dirichlet, Distribution};
/// let d = Dirichlet::new(Tensor::from([1f64, 2., 1.]));
/// assert_eq!(d.mean().to_vec::<f64>(), [0.25, 0.5, 0.25]);
/// assert!((d.sample(&[]).sum().item() - 1.0).abs() < 1e-12);
/// ```
#[derive(Clone, Debug)]
pub struct Dirichlet {
    concentration: Tensor,
    shape: Shape,
}

impl Dirichlet {
    /// With these shapes along the last dimension.
    ///
    /// # Panics
    /// Throws for a tensor without dimensions, and when parameters are checked and one is not positive.
    #[track_caller]
    pub fn new(concentration: impl Into<Param>) -> Self {
        let [concentration] = broadcast("Dirichlet", ["concentration"], [concentration.into()]);
        let Some((&n, batch)) = concentration.shape().split_last() else {
            throw(Error::argument("Dirichlet", "concentration", "has no dimension; one is needed"));
        };
        let shape = Shape::new(batch, &[n]);
        let rule = constraints::independent(constraints::positive(), 1);
        shape.check("Dirichlet", "concentration", &concentration, &rule);
        Dirichlet { concentration, shape }
    }

    /// The shapes.
    pub fn concentration(&self) -> &Tensor {
        &self.concentration
    }

    /// The same with its batch expanded to a shape.
    #[track_caller]
    pub fn expand(&self, batch_shape: &[usize]) -> Self {
        Dirichlet {
            concentration: self.concentration.expand(&concat(&[batch_shape, &self.shape.event])),
            shape: self.shape.expanded(batch_shape),
        }
    }
}

refined!(Dirichlet);

impl Distribution for Dirichlet {
    common!(Dirichlet);
    fn support(&self) -> Constraint {
        constraints::simplex()
    }
    fn has_rsample(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        &self.concentration / self.concentration.sum_dim(&[-1], true)
    }
    fn mode(&self) -> Tensor {
        let above = (&self.concentration - 1.0).clamp_min(0.0);
        let mode = &above / above.sum_dim(&[-1], true);
        // Where all are below 1 the corners are the likeliest; PyTorch takes the first one.
        let corners = self.concentration.lt(1.0).all_dim(&[-1], true);
        let n = self.concentration.size(-1);
        let corner = mode.detach().argmax_dim(-1, false).one_hot(n).to_dtype(mode.dtype());
        corners.where_(&corner, &mode)
    }
    fn variance(&self) -> Tensor {
        let total = self.concentration.sum_dim(&[-1], true);
        &self.concentration * (&total - &self.concentration) / (total.square() * (&total + 1.0))
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        self.concentration
            .expand(&self.shape.extended(sample_shape))
            .log_standard_gamma()
            .softmax(-1)
    }
    checked! {
        fn log_prob(d, value) {
            let a = &d.concentration;
            (a - 1.0).xlogy(value).sum_dim(&[-1], false) + a.sum_dim(&[-1], false).lgamma()
                - a.lgamma().sum_dim(&[-1], false)
        }
    }
    fn entropy(&self) -> Tensor {
        let a = &self.concentration;
        let (n, total) = (a.size(-1) as f64, a.sum_dim(&[-1], false));
        a.lgamma().sum_dim(&[-1], false)
            - total.lgamma()
            - (n - &total) * total.digamma()
            - ((a - 1.0) * a.digamma()).sum_dim(&[-1], false)
    }
}

/// The beta distribution of a probability (`torch.distributions.Beta`).
///
/// ```
/// use torchrs::distributions::{Beta, Distribution};
/// assert_eq!(Beta::new(1.0, 3.0).mean().item(), 0.25);
/// ```
#[derive(Clone, Debug)]
pub struct Beta {
    dirichlet: Dirichlet,
    shape: Shape,
}

impl Beta {
    /// With the shape of the probability and that of its rest.
    ///
    /// # Panics
    /// Throws when parameters are checked and one is not positive, or shapes do not fit.
    #[track_caller]
    pub fn new(concentration1: impl Into<Param>, concentration0: impl Into<Param>) -> Self {
        let names = ["concentration1", "concentration0"];
        let [a, b] = broadcast("Beta", names, [concentration1.into(), concentration0.into()]);
        let shape = Shape::new(a.shape(), &[]);
        shape.check("Beta", names[0], &a, &constraints::positive());
        shape.check("Beta", names[1], &b, &constraints::positive());
        Beta { dirichlet: Dirichlet::new(Tensor::stack(&[a, b], -1)), shape }
    }

    /// The shape of the probability.
    pub fn concentration1(&self) -> Tensor {
        self.dirichlet.concentration.select(-1, 0)
    }

    /// The shape of its rest.
    pub fn concentration0(&self) -> Tensor {
        self.dirichlet.concentration.select(-1, 1)
    }

    /// The same with its batch expanded to a shape.
    #[track_caller]
    pub fn expand(&self, batch_shape: &[usize]) -> Self {
        Beta {
            dirichlet: self.dirichlet.expand(batch_shape),
            shape: self.shape.expanded(batch_shape),
        }
    }
}

refined!(Beta);

impl Distribution for Beta {
    common!(Beta);
    fn support(&self) -> Constraint {
        constraints::unit_interval()
    }
    fn has_rsample(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        let (a, b) = (self.concentration1(), self.concentration0());
        &a / (&a + b)
    }
    fn mode(&self) -> Tensor {
        self.dirichlet.mode().select(-1, 0)
    }
    fn variance(&self) -> Tensor {
        let (a, b) = (self.concentration1(), self.concentration0());
        let total = &a + &b;
        a * b / (total.square() * (&total + 1.0))
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        self.dirichlet.rsample(sample_shape).select(-1, 0)
    }
    checked! {
        fn log_prob(d, value) {
            d.dirichlet.log_prob(&Tensor::stack(&[value.clone(), 1.0 - value], -1))
        }
    }
    fn entropy(&self) -> Tensor {
        self.dirichlet.entropy()
    }
}

by_transform! {
    /// Kumaraswamy's distribution of a probability (`torch.distributions.Kumaraswamy`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, Kumaraswamy};
    /// assert!((Kumaraswamy::new(1.0, 1.0).mean().item() - 0.5).abs() < 1e-6);
    /// ```
    Kumaraswamy {
        /// The shape of the probability.
        concentration1: constraints::positive(),
        /// The shape of its rest.
        concentration0: constraints::positive(),
    } = {
        let zero = concentration0.detach().zeros_like();
        let first: Arc<dyn Transform> = Arc::new(PowerTransform::new(concentration0.reciprocal()));
        let rest = Arc::new(AffineTransform::new(1, -1));
        let last = Arc::new(PowerTransform::new(concentration1.reciprocal()));
        TransformedDistribution::new(Uniform::new(&zero, zero.ones_like()), vec![first, rest, last])
    }
}

impl Kumaraswamy {
    /// The mean of the `n`th power.
    fn moment(&self, n: f64) -> Tensor {
        let (a, b) = (&self.concentration1, &self.concentration0);
        let first = 1.0 + n / a;
        b * (first.lgamma() + b.lgamma() - (&first + b).lgamma()).exp()
    }
}

impl Distribution for Kumaraswamy {
    common!(Kumaraswamy);
    transformed!(fn log_prob cdf icdf);
    fn support(&self) -> Constraint {
        constraints::unit_interval()
    }
    fn mean(&self) -> Tensor {
        self.moment(1.0)
    }
    fn mode(&self) -> Tensor {
        let (a, b) = (&self.concentration1, &self.concentration0);
        // The logarithms are NaN for shapes above 1, as PyTorch's are.
        let log = b.reciprocal() * (-b).log1p() - (-(b * a)).log1p();
        fill(&log, &b.lt(1.0).logical_or(&a.lt(1.0)), f64::NAN).exp()
    }
    fn variance(&self) -> Tensor {
        self.moment(2.0) - self.mean().square()
    }
    fn entropy(&self) -> Tensor {
        let (a, b) = (&self.concentration1, &self.concentration0);
        let harmonic = (b + 1.0).digamma() + EULER;
        (1.0 - b.reciprocal()) + (1.0 - a.reciprocal()) * harmonic - a.log() - b.log()
    }
}
