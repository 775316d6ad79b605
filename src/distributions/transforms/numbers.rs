//! Transforms of single numbers.

use super::vectors::assert_dims;
use super::{Transform, growing, named, without_parameters};
use crate::distributions::constraints::{self, Constraint};
use crate::distributions::params::{Param, eps, joint, sum_last, tiny};
use crate::tensor::Tensor;

/// e^x.
#[derive(Clone, Copy, Debug)]
pub struct ExpTransform;

impl Transform for ExpTransform {
    without_parameters!(ExpTransform);
    growing!(constraints::real() => constraints::positive());
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        x.exp()
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        y.log()
    }
    #[track_caller]
    fn log_abs_det_jacobian(&self, x: &Tensor, _: &Tensor) -> Tensor {
        x.clone()
    }
}

/// x^exponent of positive numbers.
#[derive(Clone, Debug)]
pub struct PowerTransform {
    exponent: Param,
}

impl PowerTransform {
    /// With this exponent.
    pub fn new(exponent: impl Into<Param>) -> Self {
        PowerTransform { exponent: exponent.into() }
    }
}

impl Transform for PowerTransform {
    named!(PowerTransform);
    fn domain(&self) -> Constraint {
        constraints::positive()
    }
    fn codomain(&self) -> Constraint {
        constraints::positive()
    }
    fn is_bijective(&self) -> bool {
        true
    }
    fn sign(&self) -> Param {
        sign_of(&self.exponent)
    }
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        x.pow(self.exponent.operand())
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        match &self.exponent {
            Param::Number(v) => y.pow(1.0 / v),
            Param::Tensor(t) => y.pow(&t.reciprocal()),
        }
    }
    #[track_caller]
    fn log_abs_det_jacobian(&self, x: &Tensor, y: &Tensor) -> Tensor {
        (y.mul(self.exponent.operand()) / x).abs().log()
    }
    #[track_caller]
    fn forward_shape(&self, shape: &[usize]) -> Vec<usize> {
        joint(self.name(), "exponent", shape, self.exponent.shape())
    }
    #[track_caller]
    fn inverse_shape(&self, shape: &[usize]) -> Vec<usize> {
        self.forward_shape(shape)
    }
    fn equals(&self, other: &dyn Transform) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| self.exponent.equals(&other.exponent))
    }
}

/// 1, 0 or -1.
fn sign_of(p: &Param) -> Param {
    match p {
        Param::Number(v) if *v == 0.0 => 0.into(),
        Param::Number(v) => v.signum().into(),
        Param::Tensor(t) => t.sign().into(),
    }
}

/// 1 / (1 + e^-x), away from 0 and 1 by the type's precision.
#[derive(Clone, Copy, Debug)]
pub struct SigmoidTransform;

/// The sigmoid function away from 0 and 1.
pub(super) fn clipped_sigmoid(x: &Tensor) -> Tensor {
    x.sigmoid().clamp(tiny(x.dtype()), 1.0 - eps(x.dtype()))
}

impl Transform for SigmoidTransform {
    without_parameters!(SigmoidTransform);
    growing!(constraints::real() => constraints::unit_interval());
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        clipped_sigmoid(x)
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        let y = y.clamp(tiny(y.dtype()), 1.0 - eps(y.dtype()));
        y.log() - (-&y).log1p()
    }
    #[track_caller]
    fn log_abs_det_jacobian(&self, x: &Tensor, _: &Tensor) -> Tensor {
        -softplus(&-x) - softplus(x)
    }
}

/// log(1 + e^x).
#[derive(Clone, Copy, Debug)]
pub struct SoftplusTransform;

/// log(1 + e^x), as PyTorch has it: x itself above 20.
pub(in crate::distributions) fn softplus(x: &Tensor) -> Tensor {
    x.softplus(1.0, 20.0)
}

impl Transform for SoftplusTransform {
    without_parameters!(SoftplusTransform);
    growing!(constraints::real() => constraints::positive());
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        softplus(x)
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        (-(-y).expm1()).log() + y
    }
    #[track_caller]
    fn log_abs_det_jacobian(&self, x: &Tensor, _: &Tensor) -> Tensor {
        -softplus(&-x)
    }
}

/// tanh(x).
#[derive(Clone, Copy, Debug)]
pub struct TanhTransform;

impl Transform for TanhTransform {
    without_parameters!(TanhTransform);
    growing!(constraints::real() => constraints::interval(-1, 1));
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        x.tanh()
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        y.atanh()
    }
    #[track_caller]
    fn log_abs_det_jacobian(&self, x: &Tensor, _: &Tensor) -> Tensor {
        // log(1 - tanh(x)^2), written so that nothing cancels.
        (std::f64::consts::LN_2 - x - softplus(&(x * -2.0))) * 2.0
    }
}

/// |x|. Of the two arguments of a result its inverse gives the positive one.
#[derive(Clone, Copy, Debug)]
pub struct AbsTransform;

impl Transform for AbsTransform {
    without_parameters!(AbsTransform);
    fn domain(&self) -> Constraint {
        constraints::real()
    }
    fn codomain(&self) -> Constraint {
        constraints::positive()
    }
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        x.abs()
    }
    fn inverse(&self, y: &Tensor) -> Tensor {
        y.clone()
    }
}

/// loc + scale x.
#[derive(Clone, Debug)]
pub struct AffineTransform {
    loc: Param,
    scale: Param,
    event_dim: usize,
}

impl AffineTransform {
    /// With this shift and this factor, numbers or tensors.
    pub fn new(loc: impl Into<Param>, scale: impl Into<Param>) -> Self {
        AffineTransform { loc: loc.into(), scale: scale.into(), event_dim: 0 }
    }

    /// With events of that many dimensions: the determinant is of all their numbers.
    pub fn event_dim(mut self, event_dim: usize) -> Self {
        self.event_dim = event_dim;
        self
    }

    fn reals(&self) -> Constraint {
        constraints::of_dims(constraints::real(), self.event_dim)
    }
}

impl Transform for AffineTransform {
    named!(AffineTransform);
    fn domain(&self) -> Constraint {
        self.reals()
    }
    fn codomain(&self) -> Constraint {
        self.reals()
    }
    fn is_bijective(&self) -> bool {
        true
    }
    fn sign(&self) -> Param {
        sign_of(&self.scale)
    }
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        x.mul(self.scale.operand()).add(self.loc.operand())
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        y.sub(self.loc.operand()).div(self.scale.operand())
    }
    #[track_caller]
    fn log_abs_det_jacobian(&self, x: &Tensor, _: &Tensor) -> Tensor {
        assert_dims(self.name(), x.shape(), self.event_dim);
        let result = match &self.scale {
            Param::Number(v) => x.full_like(v.abs().ln()),
            Param::Tensor(t) => t.abs().log(),
        };
        let shape = &x.shape()[..x.dim() - self.event_dim];
        if self.event_dim == 0 {
            return result.expand(shape);
        }
        // A factor with fewer dimensions than an event counts once for each number.
        let whole = joint(self.name(), "scale", x.shape(), result.shape());
        sum_last(&result.expand(&whole), self.event_dim).expand(shape)
    }
    #[track_caller]
    fn forward_shape(&self, shape: &[usize]) -> Vec<usize> {
        let shape = joint(self.name(), "loc", shape, self.loc.shape());
        joint(self.name(), "scale", &shape, self.scale.shape())
    }
    #[track_caller]
    fn inverse_shape(&self, shape: &[usize]) -> Vec<usize> {
        self.forward_shape(shape)
    }
    fn equals(&self, other: &dyn Transform) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|o| self.loc.equals(&o.loc) && self.scale.equals(&o.scale))
    }
}
