//! The gamma distribution, and those that are made of it: chi-squared, inverse gamma, Student's t, Fisher and
//! Snedecor's F.

use std::f64::consts::PI;

use super::constraints::{self, Constraint};
use super::distribution::{Distribution, Shape};
use super::macros::{by_transform, checked, common, refined, transformed, univariate};
use super::params::{Param, broadcast, fill, first, of_batch, standard_normal, tiny};
use super::transformed::TransformedDistribution;
use super::transforms::PowerTransform;
use super::with_validate_args;
use crate::autograd::no_grad;
use crate::tensor::Tensor;

univariate! {
    /// The gamma distribution (`torch.distributions.Gamma`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::distributions::{Distribution, Gamma};
    /// let concentration = Tensor::from([2f64]).requires_grad_(true);
    /// let d = Gamma::new(&concentration, 4.0);
    /// assert_eq!(d.mean().item(), 0.5);
    /// d.rsample(&[100]).mean().backward();
    /// assert!(concentration.grad().is_some());
    /// ```
    Gamma {
        /// The shape.
        concentration: constraints::positive(),
        /// 1 / the scale.
        rate: constraints::positive(),
    }
}

/// `x`, but not below the smallest number of its type; the gradient is that of `x`.
fn above_zero(x: &Tensor) -> Tensor {
    let missing = no_grad(|| x.clamp_min(tiny(x.dtype())) - x);
    x + missing
}

impl Distribution for Gamma {
    common!(Gamma);
    fn support(&self) -> Constraint {
        constraints::nonnegative()
    }
    fn has_rsample(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        &self.concentration / &self.rate
    }
    fn mode(&self) -> Tensor {
        ((&self.concentration - 1.0) / &self.rate).clamp_min(0.0)
    }
    fn variance(&self) -> Tensor {
        &self.concentration / self.rate.square()
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        let shape = self.shape.extended(sample_shape);
        above_zero(&(self.concentration.expand(&shape).standard_gamma() / &self.rate))
    }
    checked! {
        fn log_prob(d, value) {
            let a = &d.concentration;
            a.xlogy(&d.rate) + (a - 1.0).xlogy(value) - &d.rate * value - a.lgamma()
        }
        fn cdf(d, value) {
            d.concentration.igamma(&(&d.rate * value))
        }
    }
    fn entropy(&self) -> Tensor {
        let a = &self.concentration;
        a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma()
    }
}

/// The chi-squared distribution: a [`Gamma`] of shape df / 2 and rate 1/2 (`torch.distributions.Chi2`).
///
/// ```
/// use torchrs::distributions::{Chi2, Distribution};
/// assert_eq!((Chi2::new(3.0).mean().item(), Chi2::new(3.0).variance().item()), (3.0, 6.0));
/// ```
#[derive(Clone, Debug)]
pub struct Chi2 {
    gamma: Gamma,
    shape: Shape,
}

impl Chi2 {
    /// Of so many degrees of freedom.
    ///
    /// # Panics
    /// Throws when parameters are checked and `df` is not positive.
    #[track_caller]
    pub fn new(df: impl Into<Param>) -> Self {
        let [df] = broadcast("Chi2", ["df"], [df.into()]);
        let shape = Shape::new(df.shape(), &[]);
        shape.check("Chi2", "df", &df, &constraints::positive());
        Chi2 { gamma: Gamma::new(df * 0.5, 0.5), shape }
    }

    /// The degrees of freedom.
    pub fn df(&self) -> Tensor {
        self.gamma.concentration() * 2.0
    }

    /// The shape of the gamma distribution.
    pub fn concentration(&self) -> &Tensor {
        self.gamma.concentration()
    }

    /// The rate of the gamma distribution: 1/2.
    pub fn rate(&self) -> &Tensor {
        self.gamma.rate()
    }

    /// The same with its batch expanded to a shape.
    #[track_caller]
    pub fn expand(&self, batch_shape: &[usize]) -> Self {
        Chi2 { gamma: self.gamma.expand(batch_shape), shape: self.shape.expanded(batch_shape) }
    }
}

refined!(Chi2);

impl Distribution for Chi2 {
    common!(Chi2);
    fn parent(&self) -> Option<&dyn Distribution> {
        Some(&self.gamma)
    }
    fn support(&self) -> Constraint {
        constraints::nonnegative()
    }
    fn has_rsample(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        self.gamma.mean()
    }
    fn mode(&self) -> Tensor {
        self.gamma.mode()
    }
    fn variance(&self) -> Tensor {
        self.gamma.variance()
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        self.gamma.rsample(sample_shape)
    }
    checked! {
        fn log_prob(d, value) {
            d.gamma.log_prob(value)
        }
        fn cdf(d, value) {
            d.gamma.cdf(value)
        }
    }
    fn entropy(&self) -> Tensor {
        self.gamma.entropy()
    }
}

by_transform! {
    /// 1 / a gamma number (`torch.distributions.InverseGamma`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, InverseGamma};
    /// assert_eq!(InverseGamma::new(3.0, 1.0).mean().item(), 0.5);
    /// ```
    InverseGamma {
        /// The shape of the gamma number.
        concentration: constraints::positive(),
        /// The rate of the gamma number, which is the scale here.
        rate: constraints::positive(),
    } = TransformedDistribution::new(
        Gamma::new(&concentration, &rate),
        PowerTransform::new(rate.new_full([0usize; 0], -1.0)),
    )
}

impl Distribution for InverseGamma {
    common!(InverseGamma);
    transformed!(fn log_prob cdf icdf);
    fn support(&self) -> Constraint {
        constraints::positive()
    }
    fn mean(&self) -> Tensor {
        let a = &self.concentration;
        a.gt(1.0).where_(&(&self.rate / (a - 1.0)), f64::INFINITY)
    }
    fn mode(&self) -> Tensor {
        &self.rate / (&self.concentration + 1.0)
    }
    fn variance(&self) -> Tensor {
        let a = &self.concentration;
        let variance = self.rate.square() / ((a - 1.0).square() * (a - 2.0));
        a.gt(2.0).where_(&variance, f64::INFINITY)
    }
    fn entropy(&self) -> Tensor {
        let a = &self.concentration;
        a + self.rate.log() + a.lgamma() - (a + 1.0) * a.digamma()
    }
}

univariate! {
    /// Student's t distribution (`torch.distributions.StudentT`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, StudentT};
    /// assert_eq!(StudentT::new(3.0, 1.0, 2.0).variance().item(), 12.0);
    /// ```
    StudentT {
        /// The degrees of freedom.
        df: constraints::positive(),
        /// The median: 0 in PyTorch, where none is given.
        loc: constraints::real(),
        /// The scale: 1 in PyTorch, where none is given.
        scale: constraints::positive(),
    }
}

impl Distribution for StudentT {
    common!(StudentT);
    fn support(&self) -> Constraint {
        constraints::real()
    }
    fn has_rsample(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        fill(&self.loc, &self.df.le(1.0), f64::NAN)
    }
    fn mode(&self) -> Tensor {
        self.loc.clone()
    }
    fn variance(&self) -> Tensor {
        let finite = self.df.gt(2.0);
        // Elsewhere a number of which the gradient is one, too.
        let df = finite.where_(&self.df, 3.0);
        let variance = self.scale.square() * &df / (&df - 2.0);
        let variance = finite.where_(&variance, f64::INFINITY);
        fill(&variance, &self.df.le(1.0), f64::NAN)
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        let x = standard_normal(&self.shape.extended(sample_shape), &self.df);
        let chi2 = with_validate_args(false, || Chi2::new(&self.df)).rsample(sample_shape);
        &self.loc + &self.scale * (x * (chi2 / &self.df).rsqrt())
    }
    checked! {
        fn log_prob(d, value) {
            let y = (value - &d.loc) / &d.scale;
            let norm = d.scale.log() + d.df.log() * 0.5 + 0.5 * PI.ln() + (&d.df * 0.5).lgamma()
                - ((&d.df + 1.0) * 0.5).lgamma();
            -((&d.df + 1.0) * 0.5) * (y.square() / &d.df).log1p() - norm
        }
    }
    fn entropy(&self) -> Tensor {
        let (half, more) = (&self.df * 0.5, (&self.df + 1.0) * 0.5);
        let log_beta = half.lgamma() + 0.5 * PI.ln() - more.lgamma();
        self.scale.log()
            + &more * (more.digamma() - half.digamma())
            + self.df.log() * 0.5
            + log_beta
    }
}

univariate! {
    /// Fisher and Snedecor's F distribution (`torch.distributions.FisherSnedecor`).
    ///
    /// ```
    /// use torchrs::distributions::{Distribution, FisherSnedecor};
    /// assert_eq!(FisherSnedecor::new(2.0, 4.0).mean().item(), 2.0);
    /// ```
    FisherSnedecor {
        /// The degrees of freedom of the numerator.
        df1: constraints::positive(),
        /// The degrees of freedom of the denominator.
        df2: constraints::positive(),
    }
}

impl Distribution for FisherSnedecor {
    common!(FisherSnedecor);
    fn support(&self) -> Constraint {
        constraints::positive()
    }
    fn has_rsample(&self) -> bool {
        true
    }
    fn mean(&self) -> Tensor {
        let df2 = fill(&self.df2, &self.df2.le(2.0), f64::NAN);
        &df2 / (&df2 - 2.0)
    }
    fn mode(&self) -> Tensor {
        let mode = (&self.df1 - 2.0) / &self.df1 * &self.df2 / (&self.df2 + 2.0);
        fill(&mode, &self.df1.le(2.0), f64::NAN)
    }
    fn variance(&self) -> Tensor {
        let df2 = fill(&self.df2, &self.df2.le(4.0), f64::NAN);
        let above = df2.square() * 2.0 * (&self.df1 + &df2 - 2.0);
        above / (&self.df1 * (&df2 - 2.0).square() * (&df2 - 4.0))
    }
    #[track_caller]
    fn rsample(&self, sample_shape: &[usize]) -> Tensor {
        let of = |df: &Tensor| {
            with_validate_args(false, || Gamma::new(df * 0.5, df)).rsample(sample_shape)
        };
        above_zero(&(of(&self.df1) / above_zero(&of(&self.df2))))
    }
    checked! {
        fn log_prob(d, value) {
            let (a, b, ratio) = (&d.df1 * 0.5, &d.df2 * 0.5, &d.df1 / &d.df2);
            let norm = (&a + &b).lgamma() - a.lgamma() - b.lgamma();
            norm + &a * ratio.log() + (&a - 1.0) * value.log()
                - (&a + &b) * (&ratio * value).log1p()
        }
    }
}
