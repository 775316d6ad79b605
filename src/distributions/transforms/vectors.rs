//! Transforms of vectors, and of shapes.

use super::numbers::clipped_sigmoid;
use super::{Transform, named, without_parameters};
use crate::distributions::constraints::{self, Constraint};
use crate::distributions::params::{concat, options, tiny};
use crate::error::{Error, throw};
use crate::ops::PadMode;
use crate::tensor::Tensor;

/// Throws unless a shape has at least so many dimensions.
#[track_caller]
pub(super) fn assert_dims(op: &str, shape: &[usize], least: usize) {
    if shape.len() < least {
        throw(Error::shape(op, format!("shape {shape:?} has fewer than {least} dimensions")));
    }
}

/// `x` with a column of ones before it (`true`) or behind it.
pub(super) fn with_one(x: &Tensor, before: bool) -> Tensor {
    let padding = if before { [1, 0] } else { [0, 1] };
    x.pad(&padding, PadMode::Constant(1.0.into()))
}

/// All but the last element of the last dimension.
pub(super) fn but_last(x: &Tensor) -> Tensor {
    x.narrow(-1, 0, x.size(-1) - 1)
}

/// Softmax. Its inverse gives one of many arguments, the logarithms.
#[derive(Clone, Copy, Debug)]
pub struct SoftmaxTransform;

impl Transform for SoftmaxTransform {
    without_parameters!(SoftmaxTransform);
    fn domain(&self) -> Constraint {
        constraints::real_vector()
    }
    fn codomain(&self) -> Constraint {
        constraints::simplex()
    }
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        x.softmax(-1)
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        y.log()
    }
    #[track_caller]
    fn forward_shape(&self, shape: &[usize]) -> Vec<usize> {
        assert_dims(self.name(), shape, 1);
        shape.to_vec()
    }
    #[track_caller]
    fn inverse_shape(&self, shape: &[usize]) -> Vec<usize> {
        self.forward_shape(shape)
    }
}

/// From n numbers to n + 1 probabilities: each number tells what part of the rest of a stick is broken off.
#[derive(Clone, Copy, Debug)]
pub struct StickBreakingTransform;

/// The logarithms of n, n - 1, ..., 1: of how many parts are still to come.
fn log_rest(n: usize, like: &Tensor) -> Tensor {
    Tensor::arange(n as i64, 0i64, -1i64, options(like)).log()
}

impl Transform for StickBreakingTransform {
    without_parameters!(StickBreakingTransform);
    fn domain(&self) -> Constraint {
        constraints::real_vector()
    }
    fn codomain(&self) -> Constraint {
        constraints::simplex()
    }
    fn is_bijective(&self) -> bool {
        true
    }
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        let broken = clipped_sigmoid(&(x - log_rest(x.size(-1), x)));
        let rest = (1.0 - &broken).cumprod(-1);
        with_one(&broken, false) * with_one(&rest, true)
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        let parts = but_last(y);
        let rest = (1.0 - parts.cumsum(-1)).clamp_min(tiny(y.dtype()));
        parts.log() - rest.log() + log_rest(parts.size(-1), y)
    }
    #[track_caller]
    fn log_abs_det_jacobian(&self, x: &Tensor, y: &Tensor) -> Tensor {
        let x = x - log_rest(x.size(-1), x);
        (x.logsigmoid() - &x + but_last(y).log()).sum_dim(&[-1], false)
    }
    #[track_caller]
    fn forward_shape(&self, shape: &[usize]) -> Vec<usize> {
        assert_dims(self.name(), shape, 1);
        let n = shape.len() - 1;
        concat(&[&shape[..n], &[shape[n] + 1]])
    }
    #[track_caller]
    fn inverse_shape(&self, shape: &[usize]) -> Vec<usize> {
        assert_dims(self.name(), shape, 1);
        let n = shape.len() - 1;
        if shape[n] == 0 {
            throw(Error::shape(self.name(), format!("shape {shape:?} has no last element")));
        }
        concat(&[&shape[..n], &[shape[n] - 1]])
    }
}

/// Events of another shape with the same numbers.
#[derive(Clone, Debug)]
pub struct ReshapeTransform {
    in_shape: Vec<usize>,
    out_shape: Vec<usize>,
}

impl ReshapeTransform {
    /// From events of one shape to those of another.
    ///
    /// # Panics
    /// Throws when the two have different numbers of elements.
    #[track_caller]
    pub fn new(in_shape: &[usize], out_shape: &[usize]) -> Self {
        if in_shape.iter().product::<usize>() != out_shape.iter().product::<usize>() {
            throw(Error::argument(
                "ReshapeTransform",
                "out_shape",
                format!("{out_shape:?} has not as many elements as `in_shape`, {in_shape:?}"),
            ));
        }
        ReshapeTransform { in_shape: in_shape.to_vec(), out_shape: out_shape.to_vec() }
    }

    /// A shape with its end replaced.
    #[track_caller]
    fn replaced(&self, shape: &[usize], from: &[usize], to: &[usize]) -> Vec<usize> {
        if !shape.ends_with(from) {
            throw(Error::shape(
                self.name(),
                format!("shape {shape:?} does not end with the event's, {from:?}"),
            ));
        }
        concat(&[&shape[..shape.len() - from.len()], to])
    }
}

impl Transform for ReshapeTransform {
    named!(ReshapeTransform);
    fn domain(&self) -> Constraint {
        constraints::independent(constraints::real(), self.in_shape.len())
    }
    fn codomain(&self) -> Constraint {
        constraints::independent(constraints::real(), self.out_shape.len())
    }
    fn is_bijective(&self) -> bool {
        true
    }
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        x.reshape_to(&self.forward_shape(x.shape()))
    }
    #[track_caller]
    fn inverse(&self, y: &Tensor) -> Tensor {
        y.reshape_to(&self.inverse_shape(y.shape()))
    }
    #[track_caller]
    fn log_abs_det_jacobian(&self, x: &Tensor, _: &Tensor) -> Tensor {
        x.new_zeros(self.replaced(x.shape(), &self.in_shape, &[]))
    }
    #[track_caller]
    fn forward_shape(&self, shape: &[usize]) -> Vec<usize> {
        self.replaced(shape, &self.in_shape, &self.out_shape)
    }
    #[track_caller]
    fn inverse_shape(&self, shape: &[usize]) -> Vec<usize> {
        self.replaced(shape, &self.out_shape, &self.in_shape)
    }
    fn equals(&self, other: &dyn Transform) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|o| o.in_shape == self.in_shape && o.out_shape == self.out_shape)
    }
}
