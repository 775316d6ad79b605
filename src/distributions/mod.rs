//! Probability distributions (`torch.distributions`): samples and gradients through them, densities, moments,
//! divergences; constraints, and transforms to them. All are made of tensor ops, so that they work on every device and
//! any number of times differentiable.
//!
//! ```
//! use torchrs::Tensor;
//! use torchrs::distributions::{Distribution, Normal, kl_divergence};
//! let (loc, scale) = (Tensor::from([0.5f64]).requires_grad_(true), Tensor::from([1f64]));
//! let posterior = Normal::new(&loc, &scale);
//! let z = posterior.rsample(&[16]);
//! let kl = kl_divergence(&posterior, &Normal::new(0.0, 1.0));
//! (z.square().mean() + kl.sum()).backward();
//! assert!(loc.grad().is_some());
//! ```
//!
//! Parameters are numbers or tensors. Where PyTorch takes one of several, the constructor says which:
//! `Bernoulli::from_logits`, `MultivariateNormal::from_scale_tril`. Parameters and values are checked, as in PyTorch,
//! unless [`with_validate_args`] or [`set_default_validate_args`] says otherwise.

mod bernoulli;
mod beta;
mod categorical;
pub mod constraints;
mod counts;
mod distribution;
mod families;
mod gamma;
mod kl;
mod macros;
mod matrices;
mod mixture;
mod multivariate;
mod normal;
mod params;
mod registry;
mod transformed;
pub mod transforms;
mod von_mises;

pub use bernoulli::{
    Bernoulli, ContinuousBernoulli, Geometric, LogitRelaxedBernoulli, RelaxedBernoulli,
};
pub use beta::{Beta, Dirichlet, Kumaraswamy};
pub use categorical::{
    Categorical, ExpRelaxedCategorical, OneHotCategorical, OneHotCategoricalStraightThrough,
    RelaxedOneHotCategorical,
};
pub use constraints::Constraint;
pub use counts::{Binomial, Multinomial, NegativeBinomial, Poisson};
pub use distribution::{
    Distribution, IntoDistribution, set_default_validate_args, with_validate_args,
};
pub use families::{
    Cauchy, Exponential, GeneralizedPareto, Gumbel, HalfCauchy, Laplace, Pareto, Uniform, Weibull,
};
pub use gamma::{Chi2, FisherSnedecor, Gamma, InverseGamma, StudentT};
pub use kl::{kl_divergence, register_kl};
pub use matrices::{LKJCholesky, Wishart};
pub use mixture::MixtureSameFamily;
pub use multivariate::{LowRankMultivariateNormal, MultivariateNormal};
pub use normal::{HalfNormal, LogNormal, LogisticNormal, Normal};
pub use params::Param;
pub use registry::{biject_to, transform_to};
pub use transformed::{Independent, TransformedDistribution};
pub use transforms::Transform;
pub use von_mises::VonMises;
