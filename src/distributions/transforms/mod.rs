//! Functions with an inverse and the logarithm of their determinant (`torch.distributions.transforms`): a
//! [`TransformedDistribution`](super::TransformedDistribution) is made of them, and the ways to constrained numbers.
//!
//! ```
//! use torchrs::Tensor;
//! use torchrs::distributions::transforms::{AffineTransform, ComposeTransform, ExpTransform, IntoTransform, Transform};
//! let both = ComposeTransform::new(vec![ExpTransform.into_transform(), AffineTransform::new(1.0, 2.0).into_transform()]);
//! let x = Tensor::from([0f64]);
//! let y = both.forward(&x);
//! assert_eq!(y.item(), 3.0);
//! assert_eq!(both.inverse(&y).item(), 0.0);
//! assert!((both.log_abs_det_jacobian(&x, &y).item() - 2f64.ln()).abs() < 1e-12);
//! ```

mod composed;
mod matrices;
mod numbers;
mod parts;
mod vectors;

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use super::constraints::Constraint;
use super::distribution::missing;
use super::params::Param;
use crate::tensor::Tensor;

pub(super) use composed::product;
pub use composed::{ComposeTransform, IndependentTransform, InverseTransform, identity_transform};
pub use matrices::{CorrCholeskyTransform, LowerCholeskyTransform, PositiveDefiniteTransform};
pub(super) use numbers::softplus;
pub use numbers::{
    AbsTransform, AffineTransform, ExpTransform, PowerTransform, SigmoidTransform,
    SoftplusTransform, TanhTransform,
};
pub use parts::{CatTransform, CumulativeDistributionTransform, StackTransform};
pub use vectors::{ReshapeTransform, SoftmaxTransform, StickBreakingTransform};

/// A function that can be undone. Its events are those of [`domain`](Self::domain) and
/// [`codomain`](Self::codomain); what stands before them is a batch.
pub trait Transform: Debug + Send + Sync + Any {
    /// The name of its type, as PyTorch has it.
    fn name(&self) -> &'static str;

    /// Where its arguments are.
    fn domain(&self) -> Constraint;

    /// Where its results are.
    fn codomain(&self) -> Constraint;

    /// Whether every result has one argument.
    fn is_bijective(&self) -> bool {
        false
    }

    /// 1 where it grows, -1 where it falls; of functions of one number only.
    #[track_caller]
    fn sign(&self) -> Param {
        missing(self.name(), "sign")
    }

    /// The result for `x`.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor;

    /// The argument whose result is `y`, or one of them.
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor;

    /// The logarithm of the absolute value of the Jacobian's determinant at `x`, whose result is `y`: one number
    /// for each event.
    #[track_caller]
    fn log_abs_det_jacobian(&self, x: &Tensor, y: &Tensor) -> Tensor {
        let _ = (x, y);
        missing(self.name(), "log_abs_det_jacobian")
    }

    /// The shape of results for arguments of a shape.
    #[track_caller]
    fn forward_shape(&self, shape: &[usize]) -> Vec<usize> {
        shape.to_vec()
    }

    /// The shape of arguments of results of a shape.
    #[track_caller]
    fn inverse_shape(&self, shape: &[usize]) -> Vec<usize> {
        shape.to_vec()
    }

    /// Whether the other is the same function: true only where that is known.
    fn equals(&self, other: &dyn Transform) -> bool {
        let _ = other;
        false
    }

    /// What this one undoes, if it is an inverse.
    fn undone(&self) -> Option<&Arc<dyn Transform>> {
        None
    }

    /// The parts of a chain.
    fn parts(&self) -> Option<&[Arc<dyn Transform>]> {
        None
    }

    /// For a look at the concrete type.
    fn as_any(&self) -> &dyn Any;
}

/// What can be given as a transform: one by value, or one that is shared.
pub trait IntoTransform {
    /// The transform, shared.
    fn into_transform(self) -> Arc<dyn Transform>;
}

impl<T: Transform> IntoTransform for T {
    fn into_transform(self) -> Arc<dyn Transform> {
        Arc::new(self)
    }
}

impl IntoTransform for Arc<dyn Transform> {
    fn into_transform(self) -> Arc<dyn Transform> {
        self
    }
}

/// What can be given as transforms one after the other: a lone one, or a list.
pub trait IntoTransforms {
    /// The transforms, in the order in which they are applied.
    fn into_transforms(self) -> Vec<Arc<dyn Transform>>;
}

impl<T: IntoTransform> IntoTransforms for T {
    fn into_transforms(self) -> Vec<Arc<dyn Transform>> {
        vec![self.into_transform()]
    }
}

impl IntoTransforms for Vec<Arc<dyn Transform>> {
    fn into_transforms(self) -> Vec<Arc<dyn Transform>> {
        self
    }
}

/// The function that undoes `transform` (`Transform.inv`); that of an inverse is what it undoes.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::distributions::transforms::{self, ExpTransform};
/// let log = transforms::inv(ExpTransform);
/// assert_eq!(log.forward(&Tensor::from([1f64])).item(), 0.0);
/// ```
pub fn inv(transform: impl IntoTransform) -> Arc<dyn Transform> {
    let transform = transform.into_transform();
    if let Some(undone) = transform.undone() {
        return undone.clone();
    }
    match transform.parts() {
        Some(parts) => {
            Arc::new(ComposeTransform::new(parts.iter().rev().cloned().map(inv).collect()))
        }
        None => Arc::new(InverseTransform::new(transform)),
    }
}

/// Whether two transforms are known to be one function.
pub(super) fn same(a: &Arc<dyn Transform>, b: &Arc<dyn Transform>) -> bool {
    Arc::ptr_eq(a, b) || a.equals(&**b)
}

/// Whether two lists are.
pub(super) fn all_same(a: &[Arc<dyn Transform>], b: &[Arc<dyn Transform>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

/// The methods of the trait that say what a transform is.
macro_rules! named {
    ($name:ident) => {
        fn name(&self) -> &'static str {
            stringify!($name)
        }
        fn as_any(&self) -> &dyn std::any::Any {
            self
        }
    };
}
use named;

/// Those of a function without parameters, too: it is one whose type is the same.
macro_rules! without_parameters {
    ($name:ident) => {
        named!($name);
        fn equals(&self, other: &dyn Transform) -> bool {
            other.as_any().is::<Self>()
        }
    };
}
use without_parameters;

/// Those of a bijection of single numbers that grows; with an arrow, of one between two constraints.
macro_rules! growing {
    () => {
        fn is_bijective(&self) -> bool {
            true
        }
        fn sign(&self) -> Param {
            1.into()
        }
    };
    ($domain:expr => $codomain:expr) => {
        fn domain(&self) -> Constraint {
            $domain
        }
        fn codomain(&self) -> Constraint {
            $codomain
        }
        growing!();
    };
}
use growing;
