//! Transforms that differ along a dimension, and the one by a distribution.

use std::sync::Arc;

use super::{Transform, growing, named};
use crate::distributions::constraints::{self, Constraint};
use crate::distributions::params::{Param, assert_size, sum_last};
use crate::distributions::{Distribution, IntoDistribution};
use crate::error::{Error, throw};
use crate::tensor::Tensor;

/// The most dimensions of an event.
fn event_dim(transforms: &[Arc<dyn Transform>]) -> usize {
    transforms
        .iter()
        .map(|t| t.domain().event_dim().max(t.codomain().event_dim()))
        .max()
        .unwrap_or(0)
}

/// Parts along a dimension, each with its own transform.
#[derive(Clone, Debug)]
pub struct CatTransform {
    transforms: Vec<Arc<dyn Transform>>,
    dim: i64,
    lengths: Vec<usize>,
}

impl CatTransform {
    /// Parts of these lengths along `dim`.
    ///
    /// # Panics
    /// Throws unless there are as many lengths as transforms.
    #[track_caller]
    pub fn new(transforms: Vec<Arc<dyn Transform>>, dim: i64, lengths: &[usize]) -> Self {
        if transforms.len() != lengths.len() {
            let (n, m) = (lengths.len(), transforms.len());
            throw(Error::argument(
                "CatTransform",
                "lengths",
                format!("{n} lengths of {m} transforms"),
            ));
        }
        CatTransform { transforms, dim, lengths: lengths.to_vec() }
    }

    /// Each transform with its parts of tensors.
    #[track_caller]
    fn each<'a>(
        &'a self,
        tensors: &'a [&'a Tensor],
    ) -> impl Iterator<Item = (&'a Arc<dyn Transform>, Vec<Tensor>)> {
        for x in tensors {
            assert_size("CatTransform", x, self.dim, self.lengths.iter().sum());
        }
        let mut start = 0;
        self.transforms.iter().zip(&self.lengths).map(move |(transform, &length)| {
            let parts = tensors.iter().map(|x| x.narrow(self.dim, start, length)).collect();
            start += length as i64;
            (transform, parts)
        })
    }
}

impl Transform for CatTransform {
    named!(CatTransform);
    fn domain(&self) -> Constraint {
        let parts = self.transforms.iter().map(|t| t.domain()).collect();
        constraints::cat(parts, self.dim, &self.lengths)
    }
    fn codomain(&self) -> Constraint {
        let parts = self.transforms.iter().map(|t| t.codomain()).collect();
        constraints::cat(parts, self.dim, &self.lengths)
    }
    fn is_bijective(&self) -> bool {
        self.transforms.iter().all(|t| t.is_bijective())
    }
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let parts: Vec<Tensor> = self.each(&[x]).map(|(t, x)| t.forward(&x[0])).collect();
        Tensor::cat(&parts, self.dim)
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        let parts: Vec<Tensor> = self.each(&[y]).map(|(t, y)| t.inverse(&y[0])).collect();
        Tensor::cat(&parts, self.dim)
    }
    #[track_caller]
    fn log_abs_det_jacobian(&self, x: &Tensor, y: &Tensor) -> Tensor {
        let most = event_dim(&self.transforms);
        let term = |(t, parts): (&Arc<dyn Transform>, Vec<Tensor>)| {
            let own = t.domain().event_dim().max(t.codomain().event_dim());
            sum_last(&t.log_abs_det_jacobian(&parts[0], &parts[1]), most - own)
        };
        let terms: Vec<Tensor> = self.each(&[x, y]).map(term).collect();
        let dim = if self.dim >= 0 { self.dim - x.dim() as i64 } else { self.dim };
        let dim = dim + most as i64;
        if dim < 0 {
            return Tensor::cat(&terms, dim);
        }
        // The dimension belongs to the event.
        let sum = terms.into_iter().reduce(|sum, term| sum + term);
        sum.unwrap_or_else(|| x.new_zeros([0usize; 0]))
    }
}

/// Entries of a dimension, each with its own transform.
#[derive(Clone, Debug)]
pub struct StackTransform {
    transforms: Vec<Arc<dyn Transform>>,
    dim: i64,
}

impl StackTransform {
    /// One transform for each entry of `dim`.
    pub fn new(transforms: Vec<Arc<dyn Transform>>, dim: i64) -> Self {
        StackTransform { transforms, dim }
    }

    /// What `f` gives for each transform and its place, stacked.
    #[track_caller]
    fn stacked(
        &self,
        tensors: &[&Tensor],
        f: impl Fn(&Arc<dyn Transform>, &[Tensor]) -> Tensor,
    ) -> Tensor {
        for x in tensors {
            assert_size("StackTransform", x, self.dim, self.transforms.len());
        }
        let each = self.transforms.iter().enumerate().map(|(i, transform)| {
            let entries: Vec<Tensor> =
                tensors.iter().map(|x| x.select(self.dim, i as i64)).collect();
            f(transform, &entries)
        });
        Tensor::stack(&each.collect::<Vec<_>>(), self.dim)
    }
}

impl Transform for StackTransform {
    named!(StackTransform);
    fn domain(&self) -> Constraint {
        constraints::stack(self.transforms.iter().map(|t| t.domain()).collect(), self.dim)
    }
    fn codomain(&self) -> Constraint {
        constraints::stack(self.transforms.iter().map(|t| t.codomain()).collect(), self.dim)
    }
    fn is_bijective(&self) -> bool {
        self.transforms.iter().all(|t| t.is_bijective())
    }
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.stacked(&[x], |t, x| t.forward(&x[0]))
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        self.stacked(&[y], |t, y| t.inverse(&y[0]))
    }
    #[track_caller]
    fn log_abs_det_jacobian(&self, x: &Tensor, y: &Tensor) -> Tensor {
        self.stacked(&[x, y], |t, parts| t.log_abs_det_jacobian(&parts[0], &parts[1]))
    }
}

/// The cumulative distribution function of a distribution.
#[derive(Clone, Debug)]
pub struct CumulativeDistributionTransform {
    distribution: Arc<dyn Distribution>,
}

impl CumulativeDistributionTransform {
    /// That of this distribution.
    pub fn new(distribution: impl IntoDistribution) -> Self {
        CumulativeDistributionTransform { distribution: distribution.into_distribution() }
    }
}

impl Transform for CumulativeDistributionTransform {
    named!(CumulativeDistributionTransform);
    fn domain(&self) -> Constraint {
        self.distribution.support()
    }
    fn codomain(&self) -> Constraint {
        constraints::unit_interval()
    }
    growing!();
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.distribution.cdf(x)
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        self.distribution.icdf(y)
    }
    #[track_caller]
    fn log_abs_det_jacobian(&self, x: &Tensor, _: &Tensor) -> Tensor {
        self.distribution.log_prob(x)
    }
}
