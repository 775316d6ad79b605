//! Layer normalisation and root-mean-square normalisation over the last dimensions.
//!
//! With D numbers in a row, xh = (x - mean) r, r = 1 / sqrt(var + eps), var = mean((x - mean)^2):
//!
//! ```text
//! layer_norm: y = xh w + b        dx = r (g - mean(g) - xh mean(g xh))      with g = dy w
//! rms_norm:   y = x r w, r = 1 / sqrt(mean(x^2) + eps)
//!                                 dx = r (g - xh mean(g xh))                with xh = x r
//! dw = sum over rows of dy xh     db = sum over rows of dy
//! ```
//!
//! One pass for the mean, one for the variance (over a row that is then in the cache), one to write;
//! mean and r of each row are kept. Half types are computed in f32.

mod added;
mod cpu;
pub(in crate::ops) mod cuda;

use smallvec::{SmallVec, smallvec};

use crate::amp::{cast_op, get_autocast_dtype, is_autocast_enabled};
use crate::autograd::{BackwardCtx, no_grad, record};
use crate::cpu::{numbers::widen::Real, threads::parallel_for, threads::parts::Parts};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, positive, values};
use crate::ops::{compute_type, gpu, gpu::Gpu};
use crate::tensor::{Dtype, Element, Shape, Tensor, dispatch};

impl Tensor {
    /// Each row (the last `normalized_shape.len()` dimensions) shifted and scaled to mean 0 and
    /// variance 1, then times `weight` plus `bias` (`torch.nn.functional.layer_norm`).
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when the input does not end with `normalized_shape` or weight or bias
    /// are of another shape, [`Error::Dtype`] when dtypes differ or are not floating-point.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([[1f64, 3.], [10., 30.]]).layer_norm(&[2], None, None, 0.0);
    /// assert_eq!(y.to_vec::<f64>(), [-1., 1., -1., 1.]);
    /// ```
    #[track_caller]
    pub fn layer_norm(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Tensor {
        self.layer_norm_as(normalized_shape, [weight, bias], eps, None)
    }

    /// [`layer_norm`](Self::layer_norm) as another type, if one is given, without a copy between.
    #[track_caller]
    fn layer_norm_as(
        &self,
        normalized_shape: &[usize],
        [weight, bias]: [Option<&Tensor>; 2],
        eps: f64,
        to: Option<Dtype>,
    ) -> Tensor {
        cast_op!("layer_norm", [x = self, w = weight, b = bias] => {
            x.layer_norm_as(normalized_shape, [w.as_ref(), b.as_ref()], eps, to)
        });
        norm("layer_norm", self, normalized_shape, [weight, bias], eps, true, to)
    }

    /// [`layer_norm`](Self::layer_norm) in the type that products take: inside `autocast` its half type. The bits are those
    /// of the result and a cast.
    #[track_caller]
    pub(crate) fn layer_norm_for_linear(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Tensor {
        self.layer_norm_as(normalized_shape, [weight, bias], eps, product_type(self))
    }

    /// [`Tensor::layer_norm`], and the mean and 1 / sqrt(variance + eps) of each row, which are
    /// constants to autograd (`torch.native_layer_norm`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (y, mean, rstd) = Tensor::from([[1f64, 5.]]).native_layer_norm(&[2], None, None, 0.0);
    /// assert_eq!((y.to_vec::<f64>(), mean.item(), rstd.item()), (vec![-1.0, 1.0], 3.0, 0.5));
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::layer_norm`].
    #[track_caller]
    pub fn native_layer_norm(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> (Tensor, Tensor, Tensor) {
        let y = self.layer_norm(normalized_shape, weight, bias, eps);
        let (mean, scale) = no_grad(|| {
            let x = compute_type::widen(self);
            let outer = self.dim() - normalized_shape.len();
            let dims: Vec<i64> = (outer..self.dim()).map(|d| d as i64).collect();
            let mean = x.mean_dim(&dims, true);
            let scale = (x.var_dim(&dims, 0, true) + eps).rsqrt();
            (mean.to_dtype(self.dtype()), scale.to_dtype(self.dtype()))
        });
        (y, mean, scale)
    }

    /// Each row (the last `normalized_shape.len()` dimensions) divided by the root of its mean
    /// square, times `weight` (`torch.nn.functional.rms_norm`). `eps` `None` is the dtype's machine
    /// epsilon.
    ///
    /// # Panics
    /// As [`Tensor::layer_norm`].
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([3f64, -3.]).rms_norm(&[2], None, Some(0.0));
    /// assert_eq!(y.to_vec::<f64>(), [1., -1.]);
    /// ```
    #[track_caller]
    pub fn rms_norm(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Tensor>,
        eps: Option<f64>,
    ) -> Tensor {
        self.rms_norm_as(normalized_shape, weight, eps, None)
    }

    /// [`rms_norm`](Self::rms_norm) as another type, if one is given, without a copy between.
    #[track_caller]
    fn rms_norm_as(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Tensor>,
        eps: Option<f64>,
        to: Option<Dtype>,
    ) -> Tensor {
        cast_op!("rms_norm", [x = self, w = weight] => {
            x.rms_norm_as(normalized_shape, w.as_ref(), eps, to)
        });
        // Half types are computed in f32, whose epsilon then counts, as in PyTorch.
        let epsilon = if self.dtype() == f64::DTYPE { f64::EPSILON } else { f32::EPSILON as f64 };
        let eps = eps.unwrap_or(epsilon);
        norm("rms_norm", self, normalized_shape, [weight, None], eps, false, to)
    }

    /// [`rms_norm`](Self::rms_norm) in the type that products take, as
    /// [`layer_norm_for_linear`](Self::layer_norm_for_linear).
    #[track_caller]
    pub(crate) fn rms_norm_for_linear(
        &self,
        normalized_shape: &[usize],
        weight: Option<&Tensor>,
        eps: Option<f64>,
    ) -> Tensor {
        self.rms_norm_as(normalized_shape, weight, eps, product_type(self))
    }
}

/// What a linear layer would cast its input to, if it would.
fn product_type(x: &Tensor) -> Option<Dtype> {
    let is_cast = x.dtype() != f64::DTYPE && is_autocast_enabled(x.device());
    is_cast.then(|| get_autocast_dtype(x.device()))
}

/// The norm, with a result of x's type or of `to`, a half type. On a GPU x is f32 then.
#[track_caller]
fn norm(
    op: &'static str,
    x: &Tensor,
    normalized_shape: &[usize],
    parameters: [Option<&Tensor>; 2],
    eps: f64,
    centered: bool,
    to: Option<Dtype>,
) -> Tensor {
    let [weight, bias] = parameters;
    let outer = x.dim().wrapping_sub(normalized_shape.len());
    let fits = !normalized_shape.is_empty()
        && outer <= x.dim()
        && x.shape()[outer..] == *normalized_shape
        && parameters.iter().flatten().all(|p| p.shape() == normalized_shape);
    if !fits {
        throw(Error::shape(
            op,
            format!(
                "input {:?}, weight {:?} and bias {:?} do not fit normalized_shape \
                 {normalized_shape:?}: the input must end with it, the others be equal to it",
                x.shape(),
                weight.map(Tensor::shape),
                bias.map(Tensor::shape)
            ),
        ));
    }
    let device = gpu::of(op, &[x]);
    for p in parameters.iter().flatten() {
        gpu::of(op, &[x, p]);
    }
    // The input may be of a half type where the parameters are f32, as in mixed precision.
    let mut given = parameters.iter().flatten().map(|p| p.dtype()).peekable();
    let mixed = given.peek().is_some()
        && x.dtype().compute() != x.dtype()
        && given.all(|d| d == Dtype::F32);
    if mixed && device.is_none() {
        let (wide, own) = (x.to_dtype(Dtype::F32), Some(x.dtype()));
        let y = norm(op, &wide, normalized_shape, parameters, eps, centered, own);
        return y.to_dtype(to.unwrap_or(x.dtype()));
    }
    let odd = |p: &&&Tensor| p.dtype() != x.dtype() && !mixed;
    if let Some(p) = parameters.iter().flatten().find(odd) {
        throw(Error::dtype(
            op,
            format!(
                "input {}, weight or bias {}: must be equal; convert with `.to_dtype`",
                x.dtype(),
                p.dtype()
            ),
        ));
    }
    let n = normalized_shape.iter().product::<usize>();
    let rows = x.shape()[..outer].iter().product::<usize>();
    let to = to.unwrap_or(x.dtype());
    let (y, stats) = match device {
        Some(gpu) => {
            let normal = cuda::forward(gpu, x, None, [rows, n], parameters, eps, centered, to);
            (normal.y, normal.stats)
        }
        None => {
            let (y, stats) = on_cpu(op, x, [rows, n], parameters, eps, centered);
            (no_grad(|| y.to_dtype(to)), stats)
        }
    };
    let inputs: SmallVec<[&Tensor; 3]> = [Some(x), weight, bias].into_iter().flatten().collect();
    record(op, &inputs, y, |saver| {
        let (x, stats) = (saver.save(x), saver.save(&stats));
        let weight = weight.map(|w| saver.save(w));
        let (with_bias, normalized) = (bias.is_some(), Shape::from_slice(normalized_shape));
        let parameter = bias.map(Tensor::dtype);
        move |ctx| {
            let (dy, x) = (ctx.grad(0), ctx.get(&x));
            let weight = weight.as_ref().map(|w| ctx.get(w));
            if ctx.create_graph() {
                // Beside parameters of f32 all is computed in it.
                let own = x.dtype();
                let [dy, x] = match mixed {
                    true => [dy, x].map(|t| t.to_dtype(Dtype::F32)),
                    false => [dy.to_dtype(own), x],
                };
                let weight = weight.as_ref();
                let unit = ctx.get(&stats).select(0, 1);
                let needs = |i| ctx.needs(i);
                let mut grads =
                    composed(&needs, &dy, &x, weight, with_bias, &normalized, &unit, eps, centered);
                grads[0] = grads[0].take().map(|dx| dx.to_dtype(own));
                return grads;
            }
            let stats = ctx.get(&stats);
            if let Some(gpu) = gpu::of(op, &[&x]) {
                let weight = weight.as_ref();
                let to = weight.map(Tensor::dtype).or(parameter);
                return fused_on_gpu(
                    gpu,
                    ctx,
                    &dy,
                    &x,
                    weight,
                    to,
                    with_bias,
                    &normalized,
                    &stats,
                    centered,
                );
            }
            let dy = no_grad(|| dy.to_dtype(x.dtype()));
            fused(ctx, &dy, &x, weight.as_ref(), with_bias, &normalized, &stats, centered)
        }
    })
}

/// The result, and mean and scale of each row.
fn on_cpu(
    op: &'static str,
    x: &Tensor,
    [rows, n]: [usize; 2],
    parameters: [Option<&Tensor>; 2],
    eps: f64,
    centered: bool,
) -> (Tensor, Tensor) {
    let (dtype, wide) = (x.dtype(), compute_type::widen(x));
    let [w, b] = parameters.map(|p| p.map(compute_type::widen));
    let y = Tensor::empty(x.shape(), wide.dtype().on_host());
    let stats = Tensor::empty([2, rows], wide.dtype().on_host());
    dispatch!(compute wide.dtype(), op, T => {
        // SAFETY: `widen` gives contiguous tensors of this type; the outputs are new.
        let (x, y, stats) = unsafe { (wide.as_slice::<T>(), y.as_mut_slice::<T>(), stats.as_mut_slice::<T>()) };
        // SAFETY: contiguous tensors of this type, which nobody writes.
        let [w, b] = [&w, &b].map(|p| p.as_ref().map_or(&[][..], |p| unsafe { p.as_slice::<T>() }));
        let (mean, scale) = stats.split_at_mut(rows);
        let parts = (Parts::new(y), Parts::new(mean), Parts::new(scale));
        parallel_for(rows, (16 << 10) / n.max(1) + 1, |range| {
            // SAFETY: each row is one thread's.
            let (y, mean, scale) = unsafe {
                (parts.0.slice(range.start * n..range.end * n), parts.1.slice(range.clone()), parts.2.slice(range.clone()))
            };
            cpu::forward(&x[range.start * n..range.end * n], w, b, T::of(eps), centered, y, mean, scale);
        });
    });
    (compute_type::narrow(y, dtype), stats)
}

/// The gradients by kernels; those of the parameters are of type `to`.
#[allow(clippy::too_many_arguments, reason = "what backward has saved")]
#[track_caller]
fn fused_on_gpu(
    gpu: Gpu,
    ctx: &BackwardCtx,
    dy: &Tensor,
    x: &Tensor,
    weight: Option<&Tensor>,
    to: Option<Dtype>,
    with_bias: bool,
    normalized: &[usize],
    stats: &Tensor,
    centered: bool,
) -> SmallVec<[Option<Tensor>; 3]> {
    let n = normalized.iter().product::<usize>();
    let places =
        [weight.is_some().then_some(1), with_bias.then_some(1 + usize::from(weight.is_some()))];
    let wanted = places.map(|place| place.is_some_and(|place| ctx.needs(place)));
    let to = to.filter(|_| wanted.contains(&true));
    let both = to.filter(|_| ctx.needs(0));
    let both =
        both.and_then(|to| cuda::both(gpu, dy, x, n, weight, stats, centered, wanted, to, None));
    let (dx, of_parameters) = match both {
        Some((dx, _, of_parameters)) => (Some(dx), of_parameters),
        None => (
            ctx.needs(0).then(|| cuda::backward(gpu, dy, x, n, weight, stats, centered)),
            match to {
                Some(to) => cuda::parameters(gpu, dy, x, n, stats, wanted, to),
                None => [None, None],
            },
        ),
    };
    let mut grads: SmallVec<[Option<Tensor>; 3]> = smallvec![dx];
    for (grad, place) in of_parameters.into_iter().zip(places) {
        if place.is_some() {
            grads.push(grad.map(|grad| grad.reshape_to(normalized)));
        }
    }
    grads
}

/// The three gradients in one pass over the rows.
#[allow(clippy::too_many_arguments, reason = "what backward has saved")]
fn fused(
    ctx: &BackwardCtx,
    dy: &Tensor,
    x: &Tensor,
    weight: Option<&Tensor>,
    with_bias: bool,
    normalized: &[usize],
    stats: &Tensor,
    centered: bool,
) -> SmallVec<[Option<Tensor>; 3]> {
    let dtype = x.dtype();
    let n = normalized.iter().product::<usize>();
    let (dy, x) = (compute_type::widen(dy), compute_type::widen(x));
    // A bias alone is as one beside a weight of ones; without either nothing is added up over the rows.
    let w = match weight {
        None if with_bias => Some(Tensor::ones([n], x.dtype().on_host())),
        weight => weight.map(compute_type::widen),
    };
    let per_row = if w.is_some() { n } else { 0 };
    let rows = stats.shape()[1];
    // Blocks of rows, each with its own dw and db, which are added up in the order of the blocks.
    let blocks = (rows / 8).clamp(1, 32);
    let dx = Tensor::empty(x.shape(), x.dtype().on_host());
    let sums = Tensor::zeros([blocks, 2, per_row], x.dtype().on_host());
    let parameters = Tensor::zeros([2, per_row], x.dtype().on_host());
    dispatch!(compute x.dtype(), "layer_norm", T => {
        // SAFETY: contiguous tensors of this type; the outputs are new.
        let (dy, x, stats) = unsafe { (dy.as_slice::<T>(), x.as_slice::<T>(), stats.as_slice::<T>()) };
        // SAFETY: a contiguous tensor of this type, which nobody writes.
        let w = w.as_ref().map_or(&[][..], |w| unsafe { w.as_slice::<T>() });
        // SAFETY: contiguous new tensors of this type.
        let (dx, sums, totals) = unsafe { (dx.as_mut_slice::<T>(), sums.as_mut_slice::<T>(), parameters.as_mut_slice::<T>()) };
        let (dx, sums_of) = (Parts::new(dx), Parts::new(sums));
        let grain = ((16 << 10) / n.max(1) + 1).div_ceil(rows.div_ceil(blocks).max(1));
        parallel_for(blocks, grain, |range| for t in range {
            let (from, to) = (rows * t / blocks, rows * (t + 1) / blocks);
            // SAFETY: each block is one thread's.
            let (dx, sums) = unsafe { (dx.slice(from * n..to * n), sums_of.slice(2 * t * per_row..2 * (t + 1) * per_row)) };
            let (mean, scale) = (&stats[from..to], &stats[rows + from..rows + to]);
            let (dw, db) = sums.split_at_mut(per_row);
            cpu::backward(&dy[from * n..to * n], &x[from * n..to * n], w, mean, scale, centered, dx, dw, db);
        });
        for part in sums.chunks_exact(2 * per_row.max(1)) {
            for (total, &sum) in totals.iter_mut().zip(part) {
                *total += sum;
            }
        }
    });
    let mut grads: SmallVec<[Option<Tensor>; 3]> =
        smallvec![ctx.needs(0).then(|| compute_type::narrow(dx, dtype))];
    let parameter = |i| {
        Some(compute_type::narrow(parameters.select(0, i).reshape_to(normalized).detach(), dtype))
    };
    if weight.is_some() {
        grads.push(if ctx.needs(1) { parameter(0) } else { None });
    }
    if with_bias {
        grads.push(if ctx.needs(grads.len()) { parameter(1) } else { None });
    }
    grads
}

/// The same from recorded ops, for second derivatives.
#[allow(clippy::too_many_arguments, reason = "what backward has saved")]
fn composed(
    needs: &dyn Fn(usize) -> bool,
    dy: &Tensor,
    x: &Tensor,
    weight: Option<&Tensor>,
    with_bias: bool,
    normalized: &[usize],
    unit: &Tensor,
    eps: f64,
    centered: bool,
) -> SmallVec<[Option<Tensor>; 3]> {
    let n = normalized.iter().product::<usize>() as f64;
    let mut per_row = Shape::from_slice(x.shape());
    per_row[x.dim() - normalized.len()..].fill(1);
    let mean = |t: &Tensor| t.sum_to(&per_row) * (1.0 / n);
    // The result is the same in any unit; in that of forward's scale no square leaves the type's range.
    let unit = unit.reshape_to(&per_row).to_dtype(x.dtype());
    let measured = x * &unit;
    let shifted = if centered { &measured - mean(&measured) } else { measured };
    let least = (&unit * eps.abs().sqrt()).square() * eps.signum();
    let scale = (mean(&(&shifted * &shifted)) + least).rsqrt();
    let xh = &shifted * &scale;
    let scale = scale * unit;
    let g = weight.map_or(dy.clone(), |w| dy * w);
    let along = &xh * mean(&(&g * &xh));
    let dx = if centered { &g - mean(&g) - along } else { &g - along } * scale;
    let mut grads: SmallVec<[Option<Tensor>; 3]> = smallvec![needs(0).then_some(dx)];
    if weight.is_some() {
        grads.push(needs(1).then(|| (dy * &xh).sum_to(normalized)));
    }
    if with_bias {
        grads.push(needs(grads.len()).then(|| dy.sum_to(normalized)));
    }
    grads
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    vec![
        OpSample::new(
            "layer_norm(weight, bias)",
            [values([3, 4, 5], 1), positive([4, 5], 2), values([4, 5], 3)],
            |x| x[0].layer_norm(&[4, 5], Some(&x[1]), Some(&x[2]), 1e-5),
        ),
        OpSample::new("layer_norm(weight)", [values([3, 40], 1), positive([40], 2)], |x| {
            x[0].layer_norm(&[40], Some(&x[1]), None, 1e-5)
        }),
        OpSample::new("layer_norm(bias)", [values([2, 6], 1), positive([6], 2)], |x| {
            x[0].layer_norm(&[6], None, Some(&x[1]), 1e-5)
        }),
        OpSample::new("layer_norm()", [values([7], 1)], |x| {
            x[0].layer_norm(&[7], None, None, 1e-3)
        }),
        OpSample::new("rms_norm(weight)", [values([3, 37], 1), positive([37], 2)], |x| {
            x[0].rms_norm(&[37], Some(&x[1]), Some(1e-5))
        }),
        OpSample::new("rms_norm()", [positive([2, 3, 4], 1)], |x| {
            x[0].rms_norm(&[3, 4], None, None)
        }),
    ]
}

/// Normalised rows by the definition, which the kernel is tested against.
#[cfg(test)]
fn reference(x: &[f64], n: usize, w: &[f64], b: &[f64], eps: f64) -> Vec<f64> {
    let row = |x: &[f64]| {
        let mean = x.iter().sum::<f64>() / n as f64;
        let var = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
        let y = |(i, v): (usize, &f64)| (v - mean) / (var + eps).sqrt() * w[i] + b[i];
        x.iter().enumerate().map(y).collect::<Vec<_>>()
    };
    x.chunks(n).flat_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Dtype::F32;

    #[test]
    fn the_kernel_equals_the_definition() {
        for (rows, n) in [(1, 1), (3, 31), (5, 64), (2, 1000), (2, 5003)] {
            let (x, w, b) = (values([rows, n], 1), positive([n], 2), values([n], 3));
            let want =
                reference(&x.to_vec::<f64>(), n, &w.to_vec::<f64>(), &b.to_vec::<f64>(), 1e-5);
            let y = x.layer_norm(&[n], Some(&w), Some(&b), 1e-5);
            let [x, w, b] = [&x, &w, &b].map(|t| t.to_dtype(F32));
            let y32 = x.layer_norm(&[n], Some(&w), Some(&b), 1e-5);
            for ((y, y32), want) in y.to_vec::<f64>().iter().zip(y32.to_vec::<f64>()).zip(want) {
                assert!((y - want).abs() < 1e-12 && (y32 - want).abs() < 1e-5, "{y} {y32} {want}");
            }
        }
    }

    #[test]
    fn a_large_mean_does_not_spoil_the_variance() {
        let data: Vec<f32> = (0..256).map(|i| 1000.0 + (i % 2) as f32).collect();
        let y = Tensor::from_slice(&data, [256]).layer_norm(&[256], None, None, 0.0);
        assert!(y.to_vec::<f32>().iter().all(|v| (v.abs() - 1.0).abs() < 1e-4));
    }

    #[test]
    fn shapes_that_do_not_fit_are_named() {
        let x = values([2, 6], 1);
        let error = crate::error::catch(|| x.layer_norm(&[5], None, None, 1e-5)).unwrap_err();
        assert!(
            error.to_string().contains("[2, 6]") && error.to_string().contains("[5]"),
            "{error}"
        );
    }
}
