//! Gradient clipping (`torch.nn.utils.clip_grad_norm_` and relatives): one pass over all gradients
//! for the norm, one for the scaling.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::cpu::threads::parallel_for;
use crate::cpu::vectorize::{Kernel, vectorize};
use crate::error::{Error, Result, throw};
use crate::ops::multi_tensor::{Real, Task, Update, run};
use crate::tensor::{Element, dispatch, promote_types};
use crate::{Dtype, Tensor, no_grad};

/// Elements per partial sum. Sums do not depend on the number of threads.
const CHUNK: usize = 16 << 10;
/// Sums that one vector loop keeps apart.
const LANES: usize = 16;

/// Scales the gradients of `parameters` so that the norm of all of them taken together is at most
/// `max_norm`. Gives the norm before, as a 0-dim tensor. Parameters without a gradient are left out.
///
/// ```
/// use torchrs::{Tensor, nn::clip_grad_norm_};
/// let w = Tensor::from([0f32, 0.]).requires_grad_(true);
/// w.set_grad(Some(Tensor::from([3f32, 4.])));
/// assert_eq!(clip_grad_norm_(&[w.clone()], 1.0).item(), 5.0);
/// assert!((w.grad().unwrap().to_vec::<f32>()[0] - 0.6).abs() < 1e-6);
/// ```
pub fn clip_grad_norm_(parameters: &[Tensor], max_norm: f64) -> Tensor {
    let grads: Vec<Tensor> = parameters.iter().filter_map(Tensor::grad).collect();
    let norm = get_total_norm(&grads, 2.0);
    scale(&grads, max_norm, &norm);
    norm
}

/// [`clip_grad_norm_`] by another norm: `norm_type` is its order, which may be infinite.
///
/// # Errors
/// With `error_if_nonfinite`, [`Error::Argument`] when the norm is infinite or NaN; the gradients
/// are then as they were.
pub fn clip_grad_norm_with(
    parameters: &[Tensor],
    max_norm: f64,
    norm_type: f64,
    error_if_nonfinite: bool,
) -> Result<Tensor> {
    let grads: Vec<Tensor> = parameters.iter().filter_map(Tensor::grad).collect();
    let norm = get_total_norm(&grads, norm_type);
    if error_if_nonfinite && !norm.item().is_finite() {
        let message = format!(
            "the total norm of order {norm_type} is {}, so the gradients cannot be clipped; allow \
             it with error_if_nonfinite = false",
            norm.item()
        );
        return Err(Error::argument("clip_grad_norm_", "parameters", message));
    }
    scale(&grads, max_norm, &norm);
    Ok(norm)
}

/// Limits every element of the gradients of `parameters` to -`clip_value` .. `clip_value`.
///
/// # Panics
/// Throws [`Error::Argument`] when `clip_value` is negative.
#[track_caller]
pub fn clip_grad_value_(parameters: &[Tensor], clip_value: f64) {
    if clip_value.is_nan() || clip_value < 0.0 {
        let message = format!("{clip_value}; must be at least 0");
        throw(Error::argument("clip_grad_value_", "clip_value", message));
    }
    let grads: Vec<Tensor> = parameters.iter().filter_map(Tensor::grad).collect();
    update_all(&grads, Limit(clip_value));
}

/// The norm of order `norm_type` of all tensors taken together, as a 0-dim tensor of their common
/// dtype (`torch.nn.utils.get_total_norm`). 0 when there are none.
///
/// # Panics
/// Throws [`Error::Argument`] unless the order is above 0.
#[track_caller]
pub fn get_total_norm(tensors: &[Tensor], norm_type: f64) -> Tensor {
    if norm_type.is_nan() || norm_type <= 0.0 {
        let message = format!("{norm_type}; must be above 0");
        throw(Error::argument("get_total_norm", "norm_type", message));
    }
    let dtype = tensors.iter().map(Tensor::dtype).reduce(promote_types).unwrap_or(Dtype::F32);
    let tensors: Vec<Tensor> =
        no_grad(|| tensors.iter().map(|t| t.detach().contiguous()).collect());
    let mut chunks = Vec::new();
    for tensor in &tensors {
        chunks.extend((0..tensor.numel()).step_by(CHUNK).map(|start| (tensor, start)));
    }
    let partial: Vec<AtomicU64> = chunks.iter().map(|_| AtomicU64::new(0)).collect();
    parallel_for(chunks.len(), 2, |range| {
        for i in range {
            let (tensor, start) = chunks[i];
            let value = dispatch!(float tensor.dtype(), "get_total_norm", T => {
                // SAFETY: the tensor is contiguous and of type T; nobody writes gradients now.
                let all = unsafe { tensor.as_slice::<T>() };
                fold(&all[start..all.len().min(start + CHUNK)], norm_type)
            });
            partial[i].store(value.to_bits(), Relaxed);
        }
    });
    let partial = partial.iter().map(|bits| f64::from_bits(bits.load(Relaxed)));
    let norm = if norm_type.is_infinite() {
        partial.fold(0.0, Real::maximum)
    } else {
        partial.sum::<f64>().powf(1.0 / norm_type)
    };
    Tensor::full([], norm, dtype)
}

/// Sum of the powers of the magnitudes, or the largest magnitude.
fn fold<T: Element>(values: &[T], norm_type: f64) -> f64 {
    if norm_type == 2.0 {
        vectorize(SumOfSquares(values))
    } else if norm_type.is_infinite() {
        values.iter().fold(0.0, |most, value| most.maximum(value.to_f64().abs()))
    } else {
        values.iter().map(|value| value.to_f64().abs().powf(norm_type)).sum()
    }
}

struct SumOfSquares<'a, T>(&'a [T]);

impl<T: Element> Kernel for SumOfSquares<'_, T> {
    type Output = f64;
    #[inline(always)]
    fn run<const FMA: bool>(self) -> f64 {
        let mut sums = [0f64; LANES];
        let (blocks, rest) = self.0.as_chunks::<LANES>();
        for block in blocks {
            for (sum, value) in sums.iter_mut().zip(block) {
                let value = value.to_f64();
                *sum += value * value;
            }
        }
        for (sum, value) in sums.iter_mut().zip(rest) {
            let value = value.to_f64();
            *sum += value * value;
        }
        sums.iter().sum()
    }
}

/// Multiplies by `max_norm / norm` if that makes gradients smaller (or NaN).
fn scale(grads: &[Tensor], max_norm: f64, norm: &Tensor) {
    let factor = max_norm / (norm.item() + 1e-6);
    if factor < 1.0 || factor.is_nan() {
        update_all(grads, Scale(factor));
    }
}

fn update_all<U: Update<1, 0>>(grads: &[Tensor], update: U) {
    no_grad(|| {
        let dense: Vec<Tensor> = grads.iter().map(|g| g.detach().contiguous()).collect();
        let task = |g: &Tensor| Task { update, written: [g.clone()], read: [] };
        run(&dense.iter().map(task).collect::<Vec<_>>());
        for (grad, dense) in grads.iter().zip(&dense).filter(|(grad, _)| !grad.is_contiguous()) {
            grad.copy_(dense);
        }
    });
}

#[derive(Clone, Copy)]
struct Scale(f64);

impl Update<1, 0> for Scale {
    #[inline(always)]
    fn apply<T: Real>(self, [g]: [&mut [T]; 1], []: [&[T]; 0]) {
        let factor = T::from_f64(self.0);
        g.iter_mut().for_each(|g| *g = *g * factor);
    }
}

#[derive(Clone, Copy)]
struct Limit(f64);

impl Update<1, 0> for Limit {
    #[inline(always)]
    fn apply<T: Real>(self, [g]: [&mut [T]; 1], []: [&[T]; 0]) {
        let (low, high) = (T::from_f64(-self.0), T::from_f64(self.0));
        for g in g {
            let above = if *g < low { low } else { *g };
            *g = if above > high { high } else { above };
        }
    }
}
