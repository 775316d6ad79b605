//! The transforms of lines, and their derivatives. With w = exp(-2 pi i / n):
//!
//! ```text
//! forward:   y[k] = s sum_j x[j] w^(jk)
//! backward:  y[k] = s sum_j x[j] w^(-jk)
//! ```
//!
//! where the scale s is 1, 1/n or 1/sqrt(n). Of real numbers only the first n/2 + 1 results are kept:
//! the others are their conjugates, y[n - k] = conj(y[k]).
//!
//! The gradient of the complex transform is the transform in the other direction with the same scale:
//! its matrix is symmetric, and gradients go through the conjugate. Of the real one it is the real part
//! of that, with zeros in place of what was not kept; of its inverse it is the real transform, doubled
//! where a result stands for its conjugate too.
//! These are made of the transforms again, so derivatives of any order follow.
//!
//! On the CPU a line is transformed by `rustfft` (complex) and `realfft` (real), whose planners keep what they
//! have planned. Lines lie in the last dimension; others are moved there, which is a copy. [`cuda`] has what
//! GPUs do.
use std::sync::Arc;

use smallvec::smallvec;
use torchrs_numeric::fft::{ComplexToReal, Fft, FftDirection, RealToComplex};

use super::cuda;
use super::direction::Direction;
use crate::autograd::{BackwardCtx, no_grad, record};
use crate::cpu::{folds::fold::SharedMut, threads::GRAIN, threads::parallel_for};
use crate::ops::gpu;
use crate::tensor::{Complex, Dtype, Element, Shape, Tensor};

/// f32 and f64 with their plans.
trait Real: Element + torchrs_numeric::fft::Real {}
impl<T: Element + torchrs_numeric::fft::Real> Real for T {}

/// Lines that one thread takes at least.
fn grain(n: usize) -> usize {
    GRAIN / (n * n.ilog2().max(1) as usize)
}

fn scaled<T: Real>(numbers: &mut [T], scale: f64) {
    if scale != 1.0 {
        let scale = <T as Element>::from_f64(scale);
        numbers.iter_mut().for_each(|x| *x = *x * scale);
    }
}

/// The complex tensor `x` with lines along `dim` in a dense last dimension; the same tensor if they
/// are there.
fn with_lines_last(x: &Tensor, dim: usize) -> Tensor {
    x.detach().movedim(dim as i64, -1).contiguous()
}

fn from_lines_last(x: Tensor, dim: usize) -> Tensor {
    x.movedim(-1, dim as i64).detach()
}

/// The complex transform along `dims`, in this order; scaled once.
pub(crate) fn complex_to_complex(
    x: &Tensor,
    dims: &[usize],
    direction: Direction,
    scale: f64,
) -> Tensor {
    let out = no_grad(|| {
        let mut y = x.detach();
        if let (Some(gpu), false) = (gpu::of("fft", &[x]), dims.is_empty()) {
            y = y.contiguous();
            for (i, &dim) in dims.iter().enumerate() {
                let scale = if i == 0 { scale } else { 1.0 };
                y = cuda::transform(gpu, &y, dim, direction, scale);
            }
            return y;
        }
        for (i, &dim) in dims.iter().enumerate() {
            let scale = if i == 0 { scale } else { 1.0 };
            // A copy of our own, which is transformed in place.
            let lines = y.movedim(dim as i64, -1).clone_contiguous();
            match lines.dtype() {
                Dtype::C64 => transform::<f32>(&lines, direction, scale),
                _ => transform::<f64>(&lines, direction, scale),
            }
            y = from_lines_last(lines, dim);
        }
        if y.is_contiguous() && !dims.is_empty() { y } else { y.clone_contiguous() }
    });
    let dims: Shape = dims.into();
    record("fft_c2c", &[x], out, |_| {
        move |ctx: &BackwardCtx<'_>| {
            let g = complex_to_complex(&ctx.grad(0), &dims, direction.other(), scale);
            smallvec![Some(g)]
        }
    })
}

/// Transforms the lines of a fresh dense complex tensor.
fn transform<T: Real>(lines: &Tensor, direction: Direction, scale: f64) {
    let n = lines.size(-1);
    if lines.numel() == 0 {
        return;
    }
    let plan: Arc<dyn Fft<T>> = T::complex(
        n,
        match direction {
            Direction::Forward => FftDirection::Forward,
            Direction::Backward => FftDirection::Inverse,
        },
    );
    let memory = SharedMut(lines.data_ptr().cast::<Complex<T>>());
    parallel_for(lines.numel() / n, grain(n), |range| {
        let mut scratch = vec![Complex::new(T::zero(), T::zero()); plan.get_inplace_scratch_len()];
        // SAFETY: these lines of the fresh tensor are this thread's alone.
        let lines = unsafe { memory.slice(range.start * n..range.end * n) };
        plan.process_with_scratch(lines, &mut scratch);
        if scale != 1.0 {
            let scale = <T as Element>::from_f64(scale);
            lines.iter_mut().for_each(|z| *z = *z * scale);
        }
    });
}

/// The forward transform of real numbers along `dim`: the first n/2 + 1 results.
pub(crate) fn real_to_complex(x: &Tensor, dim: usize, scale: f64) -> Tensor {
    let n = x.shape()[dim];
    let out = no_grad(|| {
        let lines = with_lines_last(x, dim);
        let half = match (gpu::of("rfft", &[x]), x.dtype()) {
            (Some(gpu), _) => cuda::transform_real(gpu, &lines, scale),
            (None, Dtype::F32) => transform_real::<f32>(&lines, scale),
            _ => transform_real::<f64>(&lines, scale),
        };
        from_lines_last(half, dim).contiguous()
    });
    record("fft_r2c", &[x], out, |_| {
        move |ctx: &BackwardCtx<'_>| {
            let full = super::shape::resized(&ctx.grad(0), dim, n);
            let g = complex_to_complex(&full, &[dim], Direction::Backward, scale);
            smallvec![Some(g.real())]
        }
    })
}

fn transform_real<T: Real>(lines: &Tensor, scale: f64) -> Tensor {
    let n = lines.size(-1);
    let m = n / 2 + 1;
    let mut shape: Shape = lines.shape().into();
    *shape.last_mut().expect("lines are the last dimension") = m;
    let out = Tensor::empty(&shape, T::DTYPE.to_complex().on_host());
    if out.numel() == 0 {
        return out;
    }
    let plan: Arc<dyn RealToComplex<T>> = T::forward(n);
    // SAFETY: dense numbers of type T, which nobody writes meanwhile.
    let from = unsafe { lines.as_slice::<T>() };
    let to = SharedMut(out.data_ptr().cast::<Complex<T>>());
    parallel_for(from.len() / n, grain(n), |range| {
        let (mut input, mut scratch) = (plan.make_input_vec(), plan.make_scratch_vec());
        for line in range {
            input.copy_from_slice(&from[line * n..(line + 1) * n]);
            scaled(&mut input, scale);
            // SAFETY: a line of the fresh tensor, this thread's alone.
            let output = unsafe { to.slice(line * m..(line + 1) * m) };
            plan.process_with_scratch(&mut input, output, &mut scratch)
                .expect("the buffers have the plan's lengths");
        }
    });
    out
}

/// The backward transform to `n` real numbers along `dim`, from the first n/2 + 1 coefficients.
pub(crate) fn complex_to_real(x: &Tensor, dim: usize, n: usize, scale: f64) -> Tensor {
    let out = no_grad(|| {
        let lines = with_lines_last(x, dim);
        let real = match (gpu::of("irfft", &[x]), x.dtype()) {
            (Some(gpu), _) => cuda::transform_half(gpu, &lines, n, scale),
            (None, Dtype::C64) => transform_half::<f32>(&lines, n, scale),
            _ => transform_half::<f64>(&lines, n, scale),
        };
        from_lines_last(real, dim).contiguous()
    });
    record("fft_c2r", &[x], out, |_| {
        move |ctx: &BackwardCtx<'_>| {
            let g = real_to_complex(&ctx.grad(0), dim, scale);
            // Coefficient k stands for n - k as well, where that is another one.
            let m = n / 2 + 1;
            let mut shape = Shape::from_elem(1, g.dim());
            shape[dim] = m;
            let weights = Tensor::full(&shape, 2.0, (g.dtype().to_real(), g.device()));
            weights.narrow(dim as i64, 0, 1).fill_(1.0);
            if n.is_multiple_of(2) {
                weights.narrow(dim as i64, m - 1, 1).fill_(1.0);
            }
            smallvec![Some(g * weights)]
        }
    })
}

fn transform_half<T: Real>(lines: &Tensor, n: usize, scale: f64) -> Tensor {
    let m = n / 2 + 1;
    let mut shape: Shape = lines.shape().into();
    *shape.last_mut().expect("lines are the last dimension") = n;
    let out = Tensor::empty(&shape, T::DTYPE.on_host());
    if out.numel() == 0 {
        return out;
    }
    let plan: Arc<dyn ComplexToReal<T>> = T::backward(n);
    assert_eq!(lines.dtype(), T::DTYPE.to_complex());
    let from = lines.data_ptr().cast::<Complex<T>>();
    // SAFETY: dense complex numbers of type T, which nobody writes meanwhile.
    let from = unsafe { std::slice::from_raw_parts(from, lines.numel()) };
    let to = SharedMut(out.data_ptr().cast::<T>());
    parallel_for(from.len() / m, grain(n), |range| {
        let (mut input, mut scratch) = (plan.make_input_vec(), plan.make_scratch_vec());
        for line in range {
            input.copy_from_slice(&from[line * m..(line + 1) * m]);
            // Of a real signal these are real; what else is given there does not count.
            input[0].im = T::zero();
            if n.is_multiple_of(2) {
                input[m - 1].im = T::zero();
            }
            // SAFETY: a line of the fresh tensor, this thread's alone.
            let output = unsafe { to.slice(line * n..(line + 1) * n) };
            plan.process_with_scratch(&mut input, output, &mut scratch)
                .expect("the buffers have the plan's lengths");
            scaled(output, scale);
        }
    });
    out
}
