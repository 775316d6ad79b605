//! Sums of rows and of channels: gradients of biases.

use crate::autograd::no_grad;
use crate::cpu::{
    folds::moments, numbers::float::Float, numbers::float::simd_fn, threads::parallel_for,
    threads::parts::Parts,
};
use crate::tensor::Tensor;

/// The sum of a matrix's rows.
pub(crate) fn column_sums(matrix: &Tensor) -> Tensor {
    no_grad(|| matrix.sum_dim(&[0], false))
}

/// The sum of `[batch, C, ..]` over all dimensions but the second, whose size is `out.len()`.
pub(crate) fn sum_channels<T: Float>(x: &[T], batch: usize, out: &mut [T]) {
    let channels = out.len();
    let plane = x.len() / (batch * channels).max(1);
    let parts = Parts::new(out);
    parallel_for(channels, (128 << 10) / (plane * batch).max(1) + 1, |range| {
        for c in range {
            // SAFETY: each channel is one thread's.
            let out = unsafe { parts.slice(c..c + 1) };
            let sum = |n: usize| sum(&x[(n * channels + c) * plane..][..plane]).as_f64();
            out[0] = T::of((0..batch).map(sum).sum());
        }
    });
}

simd_fn! {
    /// The sum of a slice.
    pub fn sum<T, FMA>(x: &[T]) -> T {
        let _ = FMA;
        T::of(moments::sum(x))
    }
}
