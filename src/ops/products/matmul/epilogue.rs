//! What a product is put together with, and the transposed matrix that it is taken of.

use crate::tensor::Tensor;

/// The transposed matrix, of which nothing is recorded.
pub(super) fn turned(matrix: &Tensor) -> Tensor {
    let mut layout = matrix.layout().clone();
    layout.shape.swap(0, 1);
    layout.strides.swap(0, 1);
    matrix.alias(layout)
}

/// What is added to a product: `beta start + alpha A B`.
pub(super) struct Epilogue<'a> {
    pub(super) start: &'a Tensor,
    pub(super) beta: f64,
    pub(super) alpha: f64,
}
