//! The normal distribution, and those that are made of it.

use std::f64::consts::{PI, SQRT_2};

use super::constraints::{self, Constraint};
use super::distribution::{Distribution, Shape};
use super::macros::{by_transform, checked, common, halved, refined, transformed, univariate};
use super::params::{Param, broadcast, first, of_batch, standard_normal};
use super::transformed::TransformedDistribution;
use super::transforms::{AbsTransform, ExpTransform, StickBreakingTransform};
use crate::tensor::Tensor;

univariate! {
    /// The normal distribution (`torch.distributions.Normal`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::distributions::{Distribution, Normal};
    /// let d = Normal::new(1.0, Tensor::from([2f64]));
    /// assert_eq!(d.cdf(&Tensor::from([1f64])).item(), 0.5);
    /// assert!((d.log_prob(&Tensor::from([1f64])).item() + 1.612085713764618).abs() < 1e-12);
    /// ```
    Normal {
        /// The mean.
        loc: constraints::real(),
        /// The standard deviation.
        scale: constraints::positive(),
    }
}

impl Distribution for Normal {
    common!(Normal);
    fn support(&self) -> Constraint {
        constraints::real()
    }
    fn has_rsample(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        self.loc.clone()
    }
    fn mode(&self) -> Tensor {
        self.loc.clone()
    }
    fn stddev(&self) -> Tensor {
        self.scale.clone()
    }
    fn variance(&self) -> Tensor {
        self.scale.square()
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        &self.loc + standard_normal(&self.shape.extended(sample_shape), &self.loc) * &self.scale
    }
    checked! {
        fn log_prob(d, value) {
            let z = value - &d.loc;
            -(z.square() / (d.scale.square() * 2.0)) - d.scale.log() - 0.5 * (2.0 * PI).ln()
        }
        fn cdf(d, value) {
            (((value - &d.loc) * d.scale.reciprocal() / SQRT_2).erf() + 1.0) * 0.5
        }
    }
    #[track_caller]
    fn icdf(&self, value: &Tensor) -> Tensor {
        &self.loc + &self.scale * (value * 2.0 - 1.0).erfinv() * SQRT_2
    }
    fn entropy(&self) -> Tensor {
        self.scale.log() + (0.5 + 0.5 * (2.0 * PI).ln())
    }
}

by_transform! {
    /// The absolute value of a normal number of mean 0 (`torch.distributions.HalfNormal`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, HalfNormal};
    /// assert!(HalfNormal::new(2.0).sample(&[100]).min().item() >= 0.0);
    /// ```
    HalfNormal {
        /// The standard deviation of the normal number.
        scale: constraints::positive(),
    } = TransformedDistribution::new(
        super::with_validate_args(false, || Normal::new(0.0, &scale)),
        AbsTransform,
    )
}

impl HalfNormal {
    /// The distribution of the number whose absolute value it is.
    pub(super) fn whole(&self) -> Normal {
        let loc = self.scale.zeros_like();
        super::with_validate_args(false, || Normal::new(loc, &self.scale))
    }
}

impl Distribution for HalfNormal {
    common!(HalfNormal);
    halved!();
    fn mean(&self) -> Tensor {
        &self.scale * (2.0 / PI).sqrt()
    }
    fn variance(&self) -> Tensor {
        self.scale.square() * (1.0 - 2.0 / PI)
    }
}

by_transform! {
    /// The exponential of a normal number (`torch.distributions.LogNormal`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, LogNormal};
    /// assert!((LogNormal::new(0.0, 1.0).mean().item() - 0.5f64.exp()).abs() < 1e-6);
    /// ```
    LogNormal {
        /// The mean of the logarithm.
        loc: constraints::real(),
        /// The standard deviation of the logarithm.
        scale: constraints::positive(),
    } = TransformedDistribution::new(Normal::new(&loc, &scale), ExpTransform)
}

impl Distribution for LogNormal {
    common!(LogNormal);
    transformed!(fn log_prob cdf icdf);
    fn support(&self) -> Constraint {
        constraints::positive()
    }
    fn mean(&self) -> Tensor {
        (&self.loc + self.scale.square() / 2.0).exp()
    }
    fn mode(&self) -> Tensor {
        (&self.loc - self.scale.square()).exp()
    }
    fn variance(&self) -> Tensor {
        let variance = self.scale.square();
        variance.expm1() * (&self.loc * 2.0 + &variance).exp()
    }
    fn entropy(&self) -> Tensor {
        self.inner.base_dist().entropy() + &self.loc
    }
}

by_transform! {
    /// A normal vector as probabilities, one more than it has numbers, by a
    /// [`StickBreakingTransform`](super::transforms::StickBreakingTransform) (`torch.distributions.LogisticNormal`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::distributions::{Distribution, LogisticNormal};
    /// let x = LogisticNormal::new(Tensor::from([0f64, 0.]), 1.0).sample(&[5]);
    /// assert_eq!(x.shape(), &[5, 3]);
    /// ```
    LogisticNormal {
        /// The means of the vector.
        loc: constraints::real(),
        /// The standard deviations of the vector.
        scale: constraints::positive(),
    } = {
        let base = Normal::new(&loc, &scale);
        // A lone number is a vector of one.
        let base = if base.batch_shape().is_empty() { base.expand(&[1]) } else { base };
        TransformedDistribution::new(base, StickBreakingTransform)
    }
}

impl Distribution for LogisticNormal {
    common!(LogisticNormal);
    transformed!(fn log_prob cdf icdf);
    fn support(&self) -> Constraint {
        constraints::simplex()
    }
}
