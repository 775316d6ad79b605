//! Ways from numbers without bounds to those of a constraint: what an optimizer changes, and what a distribution takes.

use std::sync::Arc;

use super::constraints::Constraint;
use super::distribution::missing;
use super::params::Param;
use super::transforms::{
    AffineTransform, CatTransform, ComposeTransform, CorrCholeskyTransform, ExpTransform,
    IndependentTransform, LowerCholeskyTransform, PositiveDefiniteTransform, SigmoidTransform,
    SoftmaxTransform, StackTransform, StickBreakingTransform, Transform, identity_transform,
};

/// A bijection from unconstrained numbers to those of `constraint`, for densities: its determinant is known
/// (`torch.distributions.biject_to`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::{biject_to, constraints};
/// let y = biject_to(&constraints::simplex()).forward(&Tensor::from([0f64, 0.]));
/// assert!(y.allclose(&Tensor::full([3], 1.0 / 3.0, torchrs::Dtype::F64), Default::default()));
/// ```
///
/// # Panics
/// Throws for constraints that have none: discrete ones, and those of matrices but for `corr_cholesky`.
#[track_caller]
pub fn biject_to(constraint: &Constraint) -> Arc<dyn Transform> {
    match constraint {
        Constraint::Simplex => Arc::new(StickBreakingTransform),
        Constraint::CorrCholesky => Arc::new(CorrCholeskyTransform),
        Constraint::Independent { base, reinterpreted_batch_ndims } => {
            Arc::new(IndependentTransform::new(biject_to(base), *reinterpreted_batch_ndims))
        }
        Constraint::Cat { constraints, dim, lengths } => {
            let parts = constraints.iter().map(biject_to).collect();
            Arc::new(CatTransform::new(parts, *dim, lengths))
        }
        Constraint::Stack { constraints, dim } => {
            Arc::new(StackTransform::new(constraints.iter().map(biject_to).collect(), *dim))
        }
        _ => of_numbers(constraint).unwrap_or_else(|| missing(constraint.name(), "biject_to")),
    }
}

/// A transform from unconstrained numbers to those of `constraint`, for optimizers: plain, and not always a bijection
/// (`torch.distributions.transform_to`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::{constraints, transform_to};
/// let y = transform_to(&constraints::interval(2, 4)).forward(&Tensor::from([0f64]));
/// assert_eq!(y.item(), 3.0);
/// ```
///
/// # Panics
/// Throws for constraints that have none: discrete ones.
#[track_caller]
pub fn transform_to(constraint: &Constraint) -> Arc<dyn Transform> {
    match constraint {
        Constraint::Simplex => Arc::new(SoftmaxTransform),
        Constraint::LowerCholesky => Arc::new(LowerCholeskyTransform),
        Constraint::PositiveDefinite | Constraint::PositiveSemidefinite => {
            Arc::new(PositiveDefiniteTransform)
        }
        Constraint::CorrCholesky => Arc::new(CorrCholeskyTransform),
        Constraint::Independent { base, reinterpreted_batch_ndims } => {
            Arc::new(IndependentTransform::new(transform_to(base), *reinterpreted_batch_ndims))
        }
        Constraint::Cat { constraints, dim, lengths } => {
            let parts = constraints.iter().map(transform_to).collect();
            Arc::new(CatTransform::new(parts, *dim, lengths))
        }
        Constraint::Stack { constraints, dim } => {
            Arc::new(StackTransform::new(constraints.iter().map(transform_to).collect(), *dim))
        }
        _ => of_numbers(constraint).unwrap_or_else(|| missing(constraint.name(), "transform_to")),
    }
}

/// The transform to a constraint of single numbers, which is a bijection.
fn of_numbers(constraint: &Constraint) -> Option<Arc<dyn Transform>> {
    let behind = |first: Arc<dyn Transform>, loc: &Param, scale: Param| -> Arc<dyn Transform> {
        Arc::new(ComposeTransform::new(vec![first, Arc::new(AffineTransform::new(loc, scale))]))
    };
    Some(match constraint {
        Constraint::Real => identity_transform(),
        // PyTorch takes one class for all of these, so that bounds of 0 are added, too.
        Constraint::GreaterThan { lower_bound } | Constraint::GreaterThanEq { lower_bound } => {
            behind(Arc::new(ExpTransform), lower_bound, 1.into())
        }
        Constraint::LessThan { upper_bound } => {
            behind(Arc::new(ExpTransform), upper_bound, (-1).into())
        }
        Constraint::Interval { lower_bound, upper_bound }
        | Constraint::HalfOpenInterval { lower_bound, upper_bound } => {
            match (lower_bound, upper_bound) {
                (Param::Number(0.0), Param::Number(1.0)) => Arc::new(SigmoidTransform),
                (Param::Number(low), Param::Number(high)) => {
                    behind(Arc::new(SigmoidTransform), lower_bound, (high - low).into())
                }
                (low, Param::Tensor(high)) => {
                    behind(Arc::new(SigmoidTransform), low, high.sub(low.operand()).into())
                }
                (Param::Tensor(low), high) => behind(
                    Arc::new(SigmoidTransform),
                    lower_bound,
                    low.rsub(high.operand(), 1).into(),
                ),
            }
        }
        _ => return None,
    })
}
