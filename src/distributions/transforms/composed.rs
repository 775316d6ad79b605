//! Transforms of transforms: inverses, chains, and batch dimensions that are taken as part of an event.

use std::sync::Arc;

use super::vectors::assert_dims;
use super::{Transform, all_same, named, same};
use crate::distributions::constraints::{self, Constraint};
use crate::distributions::params::{Param, sum_last};
use crate::tensor::Tensor;

/// What undoes another transform; made by [`inv`](super::inv).
#[derive(Clone, Debug)]
pub struct InverseTransform {
    undone: Arc<dyn Transform>,
}

impl InverseTransform {
    pub(super) fn new(undone: Arc<dyn Transform>) -> Self {
        InverseTransform { undone }
    }
}

impl Transform for InverseTransform {
    named!(InverseTransform);
    fn domain(&self) -> Constraint {
        self.undone.codomain()
    }
    fn codomain(&self) -> Constraint {
        self.undone.domain()
    }
    fn is_bijective(&self) -> bool {
        self.undone.is_bijective()
    }
    #[track_caller]
    fn sign(&self) -> Param {
        self.undone.sign()
    }
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.undone.inverse(x)
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        self.undone.forward(y)
    }
    #[track_caller]
    fn log_abs_det_jacobian(&self, x: &Tensor, y: &Tensor) -> Tensor {
        -self.undone.log_abs_det_jacobian(y, x)
    }
    #[track_caller]
    fn forward_shape(&self, shape: &[usize]) -> Vec<usize> {
        self.undone.inverse_shape(shape)
    }
    #[track_caller]
    fn inverse_shape(&self, shape: &[usize]) -> Vec<usize> {
        self.undone.forward_shape(shape)
    }
    fn equals(&self, other: &dyn Transform) -> bool {
        other.undone().is_some_and(|other| same(&self.undone, other))
    }
    fn undone(&self) -> Option<&Arc<dyn Transform>> {
        Some(&self.undone)
    }
}

/// Transforms one after the other, the first one first. Without any it is the identity.
#[derive(Clone, Debug)]
pub struct ComposeTransform {
    parts: Vec<Arc<dyn Transform>>,
}

impl ComposeTransform {
    /// The chain of these.
    pub fn new(parts: Vec<Arc<dyn Transform>>) -> Self {
        ComposeTransform { parts }
    }
}

/// The transform that changes nothing.
pub fn identity_transform() -> Arc<dyn Transform> {
    Arc::new(ComposeTransform::new(Vec::new()))
}

impl Transform for ComposeTransform {
    named!(ComposeTransform);
    fn domain(&self) -> Constraint {
        let (Some(first), Some(last)) = (self.parts.first(), self.parts.last()) else {
            return constraints::real();
        };
        let mut dims = last.codomain().event_dim();
        for part in self.parts.iter().rev() {
            let (from, to) = (part.domain().event_dim(), part.codomain().event_dim());
            dims = (dims + from).saturating_sub(to).max(from);
        }
        constraints::of_dims(first.domain(), dims)
    }
    fn codomain(&self) -> Constraint {
        let (Some(first), Some(last)) = (self.parts.first(), self.parts.last()) else {
            return constraints::real();
        };
        let mut dims = first.domain().event_dim();
        for part in &self.parts {
            let (from, to) = (part.domain().event_dim(), part.codomain().event_dim());
            dims = (dims + to).saturating_sub(from).max(to);
        }
        constraints::of_dims(last.codomain(), dims)
    }
    fn is_bijective(&self) -> bool {
        self.parts.iter().all(|part| part.is_bijective())
    }
    #[track_caller]
    fn sign(&self) -> Param {
        self.parts.iter().fold(1.into(), |sign, part| product(&sign, &part.sign()))
    }
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        self.parts.iter().fold(x.clone(), |x, part| part.forward(&x))
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        self.parts.iter().rev().fold(y.clone(), |y, part| part.inverse(&y))
    }
    #[track_caller]
    fn log_abs_det_jacobian(&self, x: &Tensor, y: &Tensor) -> Tensor {
        let Some((_, but_last)) = self.parts.split_last() else { return x.zeros_like() };
        let mut steps = vec![x.clone()];
        for part in but_last {
            let next = part.forward(&steps[steps.len() - 1]);
            steps.push(next);
        }
        steps.push(y.clone());
        let mut event_dim = self.domain().event_dim();
        let mut sum: Option<Tensor> = None;
        for (i, part) in self.parts.iter().enumerate() {
            let term = part.log_abs_det_jacobian(&steps[i], &steps[i + 1]);
            let (from, to) = (part.domain().event_dim(), part.codomain().event_dim());
            let term = sum_last(&term, event_dim - from);
            sum = Some(match sum {
                Some(sum) => sum + term,
                None => term,
            });
            event_dim = event_dim + to - from;
        }
        sum.unwrap_or_else(|| x.zeros_like())
    }
    #[track_caller]
    fn forward_shape(&self, shape: &[usize]) -> Vec<usize> {
        self.parts.iter().fold(shape.to_vec(), |shape, part| part.forward_shape(&shape))
    }
    #[track_caller]
    fn inverse_shape(&self, shape: &[usize]) -> Vec<usize> {
        self.parts.iter().rev().fold(shape.to_vec(), |shape, part| part.inverse_shape(&shape))
    }
    fn equals(&self, other: &dyn Transform) -> bool {
        other.parts().is_some_and(|other| all_same(&self.parts, other))
    }
    fn parts(&self) -> Option<&[Arc<dyn Transform>]> {
        Some(&self.parts)
    }
}

/// The product of two signs.
pub(in crate::distributions) fn product(a: &Param, b: &Param) -> Param {
    match (a, b) {
        (Param::Number(a), Param::Number(b)) => Param::Number(a * b),
        (Param::Tensor(t), other) | (other, Param::Tensor(t)) => t.mul(other.operand()).into(),
    }
}

/// A transform whose last batch dimensions are taken as part of an event.
#[derive(Clone, Debug)]
pub struct IndependentTransform {
    base: Arc<dyn Transform>,
    reinterpreted_batch_ndims: usize,
}

impl IndependentTransform {
    /// `base` with that many batch dimensions as part of an event.
    pub fn new(base: impl super::IntoTransform, reinterpreted_batch_ndims: usize) -> Self {
        IndependentTransform { base: base.into_transform(), reinterpreted_batch_ndims }
    }
}

impl Transform for IndependentTransform {
    named!(IndependentTransform);
    fn domain(&self) -> Constraint {
        constraints::independent(self.base.domain(), self.reinterpreted_batch_ndims)
    }
    fn codomain(&self) -> Constraint {
        constraints::independent(self.base.codomain(), self.reinterpreted_batch_ndims)
    }
    fn is_bijective(&self) -> bool {
        self.base.is_bijective()
    }
    #[track_caller]
    fn sign(&self) -> Param {
        self.base.sign()
    }
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        assert_dims(self.name(), x.shape(), self.domain().event_dim());
        self.base.forward(x)
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        assert_dims(self.name(), y.shape(), self.codomain().event_dim());
        self.base.inverse(y)
    }
    #[track_caller]
    fn log_abs_det_jacobian(&self, x: &Tensor, y: &Tensor) -> Tensor {
        assert_dims(self.name(), x.shape(), self.domain().event_dim());
        sum_last(&self.base.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)
    }
    #[track_caller]
    fn forward_shape(&self, shape: &[usize]) -> Vec<usize> {
        self.base.forward_shape(shape)
    }
    #[track_caller]
    fn inverse_shape(&self, shape: &[usize]) -> Vec<usize> {
        self.base.inverse_shape(shape)
    }
}
