//! How the samples of linear algebra are made: matrices with what a function asks for.

use super::checks::eye_like;
use crate::ops::checks::samples::{OpSample, values};
use crate::tensor::Tensor;

/// A sample that is called with changed inputs: matrices with what the op asks for.
pub(super) fn sample(name: &str, shapes: &[&[usize]], f: fn(&[Tensor]) -> Tensor) -> OpSample {
    let shapes = shapes.iter().enumerate();
    let inputs: Vec<Tensor> = shapes.map(|(i, s)| values(s, i as u64 + 1)).collect();
    OpSample::new(name, inputs, f).no_half().slack(64.0)
}

/// Far from singular.
pub(super) fn heavy(x: &Tensor) -> Tensor {
    x + eye_like(x) * 6.0
}

/// Symmetric and positive definite.
pub(super) fn positive(x: &Tensor) -> Tensor {
    x.matmul(&x.mt()) + eye_like(x)
}

/// With real eigenvalues that are far from each other.
pub(super) fn apart(x: &Tensor) -> Tensor {
    let steps = eye_like(x).cumsum(-1).sum_dim(&[-2], true);
    x * 0.25 + eye_like(x) * steps * 4.0
}
