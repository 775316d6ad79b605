//! Distributions of one number with a location or a scale: Cauchy, Laplace, uniform, Gumbel, Pareto and others.

use std::f64::consts::PI;

use super::constraints::{self, Constraint};
use super::distribution::{Distribution, Shape};
use super::macros::{by_transform, checked, common, halved, refined, transformed, univariate};
use super::params::{Param, broadcast, eps, fill, first, of_batch, tiny, uniform};
use super::transformed::TransformedDistribution;
use super::transforms::{
    AbsTransform, AffineTransform, ExpTransform, PowerTransform, Transform, inv,
};
use crate::tensor::Tensor;

/// Euler's constant.
pub(super) const EULER: f64 = 0.577_215_664_901_532_9;

univariate! {
    /// The Cauchy distribution, which has no mean (`torch.distributions.Cauchy`).
    ///
    /// ```
    /// use torchrs::distributions::{Cauchy, Distribution};
    /// assert_eq!(Cauchy::new(1.0, 2.0).sample(&[3]).shape(), &[3]);
    /// ```
    Cauchy {
        /// The median.
        loc: constraints::real(),
        /// Half the width at half the height.
        scale: constraints::positive(),
    }
}

impl Distribution for Cauchy {
    common!(Cauchy);
    fn support(&self) -> Constraint {
        constraints::real()
    }
    fn has_rsample(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        self.loc.new_full(&self.shape.batch, f64::NAN)
    }
    fn mode(&self) -> Tensor {
        self.loc.clone()
    }
    fn variance(&self) -> Tensor {
        self.loc.new_full(&self.shape.batch, f64::INFINITY)
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        let u = uniform(&self.shape.extended(sample_shape), &self.loc);
        &self.loc + ((u - 0.5) * PI).tan() * &self.scale
    }
    checked! {
        fn log_prob(d, value) {
            -PI.ln() - d.scale.log() - ((value - &d.loc) / &d.scale).square().log1p()
        }
        fn cdf(d, value) {
            ((value - &d.loc) / &d.scale).atan() / PI + 0.5
        }
    }
    #[track_caller]
    fn icdf(&self, value: &Tensor) -> Tensor {
        ((value - 0.5) * PI).tan() * &self.scale + &self.loc
    }
    fn entropy(&self) -> Tensor {
        self.scale.log() + (4.0 * PI).ln()
    }
}

by_transform! {
    /// The absolute value of a Cauchy number of median 0 (`torch.distributions.HalfCauchy`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, HalfCauchy};
    /// assert!(HalfCauchy::new(2.0).sample(&[100]).min().item() >= 0.0);
    /// ```
    HalfCauchy {
        /// The scale of the Cauchy number.
        scale: constraints::positive(),
    } = TransformedDistribution::new(
        super::with_validate_args(false, || Cauchy::new(0.0, &scale)),
        AbsTransform,
    )
}

impl HalfCauchy {
    /// The distribution of the number whose absolute value it is.
    fn whole(&self) -> Cauchy {
        let loc = self.scale.zeros_like();
        super::with_validate_args(false, || Cauchy::new(loc, &self.scale))
    }
}

impl Distribution for HalfCauchy {
    common!(HalfCauchy);
    halved!();
    fn mean(&self) -> Tensor {
        self.scale.new_full(&self.shape.batch, f64::INFINITY)
    }
    fn variance(&self) -> Tensor {
        self.whole().variance()
    }
}

univariate! {
    /// The Laplace distribution (`torch.distributions.Laplace`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, Laplace};
    /// assert_eq!(Laplace::new(0.0, 3.0).variance().item(), 18.0);
    /// ```
    Laplace {
        /// The mean.
        loc: constraints::real(),
        /// The mean distance from it.
        scale: constraints::positive(),
    }
}

impl Distribution for Laplace {
    common!(Laplace);
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
    fn variance(&self) -> Tensor {
        self.scale.square() * 2.0
    }
    fn stddev(&self) -> Tensor {
        &self.scale * 2f64.sqrt()
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        let u = uniform(&self.shape.extended(sample_shape), &self.loc);
        // Never -1, of which the logarithm is infinite.
        let u = (u * 2.0 - 1.0).clamp_min(eps(self.loc.dtype()) - 1.0);
        &self.loc - &self.scale * u.sign() * (-u.abs()).log1p()
    }
    checked! {
        fn log_prob(d, value) {
            -(&d.scale * 2.0).log() - (value - &d.loc).abs() / &d.scale
        }
        fn cdf(d, value) {
            let z = value - &d.loc;
            0.5 - z.sign() * (-z.abs() / &d.scale).expm1() * 0.5
        }
    }
    #[track_caller]
    fn icdf(&self, value: &Tensor) -> Tensor {
        let side = value - 0.5;
        &self.loc - &self.scale * side.sign() * (side.abs() * -2.0).log1p()
    }
    fn entropy(&self) -> Tensor {
        (&self.scale * 2.0).log() + 1.0
    }
}

univariate! {
    /// The uniform distribution in [low, high) (`torch.distributions.Uniform`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::distributions::{Distribution, Uniform};
    /// let d = Uniform::new(0.0, Tensor::from([4f64]));
    /// assert_eq!(d.mean().item(), 2.0);
    /// assert!((d.entropy().item() - 4f64.ln()).abs() < 1e-12);
    /// ```
    Uniform {
        /// The least.
        low: constraints::less_than(&high),
        /// What samples are below.
        high: constraints::greater_than(&low),
    }
}

impl Distribution for Uniform {
    common!(Uniform);
    fn support(&self) -> Constraint {
        constraints::interval(&self.low, &self.high)
    }
    fn has_rsample(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        (&self.high + &self.low) / 2.0
    }
    fn mode(&self) -> Tensor {
        &self.high * f64::NAN
    }
    fn stddev(&self) -> Tensor {
        (&self.high - &self.low) / 12f64.sqrt()
    }
    fn variance(&self) -> Tensor {
        (&self.high - &self.low).square() / 12.0
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        let u = uniform(&self.shape.extended(sample_shape), &self.low);
        &self.low + u * (&self.high - &self.low)
    }
    checked! {
        fn log_prob(d, value) {
            let inside = d.low.le(value).logical_and(&d.high.gt(value));
            inside.to_dtype(d.low.dtype()).log() - (&d.high - &d.low).log()
        }
        fn cdf(d, value) {
            ((value - &d.low) / (&d.high - &d.low)).clamp(0.0, 1.0)
        }
    }
    #[track_caller]
    fn icdf(&self, value: &Tensor) -> Tensor {
        value * (&self.high - &self.low) + &self.low
    }
    fn entropy(&self) -> Tensor {
        (&self.high - &self.low).log()
    }
}

univariate! {
    /// The exponential distribution (`torch.distributions.Exponential`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, Exponential};
    /// assert_eq!(Exponential::new(4.0).mean().item(), 0.25);
    /// ```
    Exponential {
        /// 1 / the mean.
        rate: constraints::positive(),
    }
}

impl Distribution for Exponential {
    common!(Exponential);
    fn support(&self) -> Constraint {
        constraints::nonnegative()
    }
    fn has_rsample(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        self.rate.reciprocal()
    }
    fn mode(&self) -> Tensor {
        self.rate.zeros_like()
    }
    fn stddev(&self) -> Tensor {
        self.rate.reciprocal()
    }
    fn variance(&self) -> Tensor {
        self.rate.pow(-2.0)
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        let u = uniform(&self.shape.extended(sample_shape), &self.rate);
        -(-u).log1p() / &self.rate
    }
    checked! {
        fn log_prob(d, value) {
            d.rate.log() - &d.rate * value
        }
        fn cdf(d, value) {
            1.0 - (-(&d.rate * value)).exp()
        }
    }
    #[track_caller]
    fn icdf(&self, value: &Tensor) -> Tensor {
        -(-value).log1p() / &self.rate
    }
    fn entropy(&self) -> Tensor {
        1.0 - self.rate.log()
    }
}

by_transform! {
    /// The Gumbel distribution (`torch.distributions.Gumbel`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, Gumbel};
    /// assert!((Gumbel::new(0.0, 1.0).mean().item() - 0.5772157).abs() < 1e-6);
    /// ```
    Gumbel {
        /// The mode.
        loc: constraints::real(),
        /// The scale.
        scale: constraints::positive(),
    } = {
        let (low, high) = (tiny(loc.dtype()), 1.0 - eps(loc.dtype()));
        let base = Uniform::new(loc.detach().full_like(low), loc.detach().full_like(high));
        let log = inv(ExpTransform);
        let minus = AffineTransform::new(0, -scale.ones_like());
        let own = AffineTransform::new(&loc, -&scale);
        let (minus, own): (std::sync::Arc<dyn Transform>, _) =
            (std::sync::Arc::new(minus), std::sync::Arc::new(own));
        TransformedDistribution::new(base, vec![log.clone(), minus, log, own])
    }
}

impl Distribution for Gumbel {
    common!(Gumbel);
    transformed!(fn cdf icdf);
    fn support(&self) -> Constraint {
        constraints::real()
    }
    checked! {
        fn log_prob(d, value) {
            let y = (&d.loc - value) / &d.scale;
            &y - y.exp() - d.scale.log()
        }
    }
    fn mean(&self) -> Tensor {
        &self.loc + &self.scale * EULER
    }
    fn mode(&self) -> Tensor {
        self.loc.clone()
    }
    fn stddev(&self) -> Tensor {
        &self.scale * (PI / 6f64.sqrt())
    }
    fn variance(&self) -> Tensor {
        self.stddev().square()
    }
    fn entropy(&self) -> Tensor {
        self.scale.log() + (1.0 + EULER)
    }
}

by_transform! {
    /// The Pareto distribution (`torch.distributions.Pareto`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, Pareto};
    /// assert_eq!(Pareto::new(1.0, 3.0).mean().item(), 1.5);
    /// ```
    Pareto {
        /// The least.
        scale: constraints::positive(),
        /// How fast it falls.
        alpha: constraints::positive(),
    } = {
        let own: std::sync::Arc<dyn Transform> = std::sync::Arc::new(AffineTransform::new(0, &scale));
        TransformedDistribution::new(
            Exponential::new(&alpha),
            vec![std::sync::Arc::new(ExpTransform), own],
        )
    }
}

impl Distribution for Pareto {
    common!(Pareto);
    transformed!(fn log_prob cdf icdf);
    fn support(&self) -> Constraint {
        constraints::greater_than_eq(&self.scale)
    }
    fn mean(&self) -> Tensor {
        let a = self.alpha.clamp_min(1.0);
        &a * &self.scale / (&a - 1.0)
    }
    fn mode(&self) -> Tensor {
        self.scale.clone()
    }
    fn variance(&self) -> Tensor {
        let a = self.alpha.clamp_min(2.0);
        self.scale.square() * &a / ((&a - 1.0).square() * (&a - 2.0))
    }
    fn entropy(&self) -> Tensor {
        (&self.scale / &self.alpha).log() + (self.alpha.reciprocal() + 1.0)
    }
}

by_transform! {
    /// The Weibull distribution (`torch.distributions.Weibull`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, Weibull};
    /// assert!((Weibull::new(2.0, 1.0).mean().item() - 2.0).abs() < 1e-6);
    /// ```
    Weibull {
        /// The scale.
        scale: constraints::positive(),
        /// The shape: 1 of an exponential distribution.
        concentration: constraints::positive(),
    } = {
        let power: std::sync::Arc<dyn Transform> =
            std::sync::Arc::new(PowerTransform::new(concentration.reciprocal()));
        let own = std::sync::Arc::new(AffineTransform::new(0, &scale));
        TransformedDistribution::new(Exponential::new(scale.detach().ones_like()), vec![power, own])
    }
}

impl Distribution for Weibull {
    common!(Weibull);
    transformed!(fn log_prob cdf icdf);
    fn support(&self) -> Constraint {
        constraints::positive()
    }
    fn mean(&self) -> Tensor {
        &self.scale * (self.concentration.reciprocal() + 1.0).lgamma().exp()
    }
    fn mode(&self) -> Tensor {
        let k = &self.concentration;
        &self.scale * ((k - 1.0) / k).pow(&k.reciprocal())
    }
    fn variance(&self) -> Tensor {
        let r = self.concentration.reciprocal();
        let (second, mean) = ((&r * 2.0 + 1.0).lgamma(), (&r + 1.0).lgamma());
        self.scale.square() * (second.exp() - (mean * 2.0).exp())
    }
    fn entropy(&self) -> Tensor {
        let r = self.concentration.reciprocal();
        (1.0 - &r) * EULER + (&self.scale * r).log() + 1.0
    }
}

univariate! {
    /// The generalised Pareto distribution (`torch.distributions.GeneralizedPareto`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, GeneralizedPareto};
    /// assert_eq!(GeneralizedPareto::new(1.0, 2.0, 0.0).mean().item(), 3.0);
    /// ```
    GeneralizedPareto {
        /// The least.
        loc: constraints::real(),
        /// The scale.
        scale: constraints::positive(),
        /// The shape: 0 of an exponential distribution, below 0 of one with an end.
        concentration: constraints::real(),
    }
}

impl GeneralizedPareto {
    /// Where the shape is 0, and the shape with 1 there.
    fn safe(&self) -> (Tensor, Tensor) {
        let zero = self.concentration.isclose(&self.concentration.zeros_like(), Default::default());
        (zero.clone(), fill(&self.concentration, &zero, 1.0))
    }

    /// The logarithm of the probability of a sample above `value`.
    #[track_caller]
    pub fn log_survival_function(&self, value: &Tensor) -> Tensor {
        super::distribution::check_value(self, value);
        let z = (value - &self.loc) / &self.scale;
        let (zero, shape) = self.safe();
        zero.where_(&-&z, &(-(&shape * &z).log1p() / &shape))
    }

    /// The logarithm of [`cdf`](Distribution::cdf).
    #[track_caller]
    pub fn log_cdf(&self, value: &Tensor) -> Tensor {
        (-self.log_survival_function(value).exp()).log1p()
    }
}

impl Distribution for GeneralizedPareto {
    common!(GeneralizedPareto);
    fn support(&self) -> Constraint {
        let end = &self.loc - &self.scale / &self.concentration;
        let end = self.concentration.lt(0.0).where_(&end, f64::INFINITY);
        constraints::interval(&self.loc, end)
    }
    fn has_rsample(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        let valid = self.concentration.lt(1.0);
        let safe = valid.where_(&self.concentration, 0.5);
        valid.where_(&(&self.loc + &self.scale / (1.0 - safe)), f64::NAN)
    }
    fn mode(&self) -> Tensor {
        self.loc.clone()
    }
    fn variance(&self) -> Tensor {
        let valid = self.concentration.lt(0.5);
        let safe = valid.where_(&self.concentration, 0.25);
        let rest = (1.0 - &safe).square() * (1.0 - safe * 2.0);
        valid.where_(&(self.scale.square() / rest), f64::NAN)
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        self.icdf(&uniform(&self.shape.extended(sample_shape), &self.loc))
    }
    checked! {
        fn log_prob(d, value) {
            let z = (value - &d.loc) / &d.scale;
            let (zero, shape) = d.safe();
            let power = shape.reciprocal() + z.ones_like();
            let term = power.eq(0.0).where_(&power, &(&power * (&shape * &z).log1p()));
            -d.scale.log() - zero.where_(&z, &term)
        }
    }
    #[track_caller]
    fn cdf(&self, value: &Tensor) -> Tensor {
        self.log_cdf(value).exp()
    }
    #[track_caller]
    fn icdf(&self, value: &Tensor) -> Tensor {
        let (zero, shape) = self.safe();
        let log = (-value).log1p();
        let power = &self.loc + &self.scale / &shape * (-(&shape * &log)).expm1();
        zero.where_(&(&self.loc - &self.scale * &log), &power)
    }
    fn entropy(&self) -> Tensor {
        self.scale.log() + &self.concentration + 1.0
    }
}
