//! What the kernels of several ops share: operands in the type that is computed in, and sums.

use crate::Tensor;
use crate::autograd::no_grad;
use crate::cpu::float::{Float, simd_fn};
use crate::cpu::moments;
use crate::cpu::parts::Parts;
use crate::cpu::threads::parallel_for;
use crate::ops::gpu;
use crate::ops::matmul::cuda;
use crate::tensor::{Dtype, dispatch};

/// `x` as a contiguous tensor without history, in f32 if it is of a half type.
pub fn widen(x: &Tensor) -> Tensor {
    let x = x.untracked();
    let wide = no_grad(|| match x.dtype() {
        Dtype::F16 | Dtype::BF16 => x.to_dtype(Dtype::F32).contiguous(),
        _ => x.contiguous(),
    });
    wide.untracked()
}

/// Dense and of a type, without history.
pub fn dense(x: &Tensor, dtype: Dtype) -> Tensor {
    no_grad(|| x.detach().to_dtype(dtype).contiguous())
}

/// A kernel's result, rounded to `dtype` if it is of a half type.
pub fn narrow(x: Tensor, dtype: Dtype) -> Tensor {
    if x.dtype() == dtype { x } else { no_grad(|| x.to_dtype(dtype)) }
}

/// The sum of a matrix's rows.
pub fn column_sums(matrix: &Tensor) -> Tensor {
    if let Some(gpu) = gpu::of("linear", &[matrix]) {
        let [rows, columns] = [matrix.shape()[0], matrix.shape()[1]];
        return no_grad(|| cuda::channel_sums(gpu, matrix, rows, columns));
    }
    let wide = widen(matrix);
    let out = Tensor::empty([matrix.shape()[1]], wide.dtype());
    dispatch!(compute wide.dtype(), "linear", T => {
        // SAFETY: `widen` gives a contiguous tensor of this type; `out` is new.
        let (matrix, out) = unsafe { (wide.as_slice::<T>(), out.as_mut_slice::<T>()) };
        sum_rows(matrix, out);
    });
    narrow(out, matrix.dtype())
}

/// The sum of the rows of a row-major matrix with `out.len()` columns.
pub fn sum_rows<T: Float>(matrix: &[T], out: &mut [T]) {
    let n = out.len();
    let out = Parts::new(out);
    parallel_for(n, (1 << 16) * n / matrix.len().max(1) + 16, |columns| {
        // SAFETY: the threads' columns are disjoint.
        let out = unsafe { out.slice(columns.clone()) };
        sum_columns(matrix, n, columns.start, out);
    });
}

simd_fn! {
    /// Sums of `out.len()` columns from `first` on, of so many at a time that each row is some cache lines that follow
    /// one another: of 64 rows one after another, of those in pairs.
    fn sum_columns<T, FMA>(matrix: &[T], n: usize, first: usize, out: &mut [T]) {
        let _ = FMA;
        out.fill(T::ZERO);
        let mut partial = [T::ZERO; 512];
        // A binary counter whose digits are sums of 64 rows, 128, ...
        let mut digits: Vec<T> = Vec::new();
        let chunk = 64 * n.max(1);
        for (block, first) in out.chunks_mut(512).zip((first..).step_by(512)) {
            let width = block.len();
            let partial = &mut partial[..width];
            for (number, rows) in matrix.chunks(chunk).enumerate() {
                partial.fill(T::ZERO);
                for row in rows.chunks_exact(n) {
                    for (sum, &x) in partial.iter_mut().zip(&row[first..]) {
                        *sum += x;
                    }
                }
                for _ in 0..(number + 1).trailing_zeros() {
                    let left = digits.len() - width;
                    for (sum, &x) in partial.iter_mut().zip(&digits[left..]) {
                        *sum += x;
                    }
                    digits.truncate(left);
                }
                if rows.len() < matrix.len() {
                    digits.extend_from_slice(partial);
                } else {
                    block.copy_from_slice(partial);
                }
            }
            while !digits.is_empty() {
                let left = digits.len() - width;
                for (sum, &x) in block.iter_mut().zip(&digits[left..]) {
                    *sum += x;
                }
                digits.truncate(left);
            }
        }
    }
}

/// The sum of `[batch, C, ..]` over all dimensions but the second, whose size is `out.len()`.
pub fn sum_channels<T: Float>(x: &[T], batch: usize, out: &mut [T]) {
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
