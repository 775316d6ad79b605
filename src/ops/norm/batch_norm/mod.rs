//! Batch normalisation over all dimensions but the second.
//!
//! With n numbers per channel, xh = (x - mean) r, r = 1 / sqrt(var + eps), y = xh w + b:
//!
//! ```text
//! training:    mean and var (over n) are the batch's; the running ones move towards them by `momentum`
//!              (the running variance towards the unbiased one, over n - 1);
//!              dx = w r (dy - mean(dy) - xh mean(dy xh))
//! evaluation:  mean and var are the running ones, constants; dx = w r dy
//! dw = sum of dy xh        db = sum of dy
//! ```
//!
//! Memory is read once for the statistics (`cpu/folds/moments.rs`), once to write. Half types are computed in f32;
//! weight, bias and statistics may be f32 beside a half input.

mod cpu;
pub(in crate::ops) mod cuda;
mod relu;

use smallvec::{SmallVec, smallvec};

use cpu::Sizes;

use crate::autograd::{BackwardCtx, no_grad, record};
use crate::cpu::{
    folds::moments::BLOCK, numbers::float::Float, numbers::widen::Real, threads::parallel_for,
    threads::parts::Parts, threads::parts::with_scratch,
};
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, positive, values};
use crate::ops::{compute_type, gpu};
use crate::tensor::{Shape, Tensor, dispatch};

/// A norm's operands but for the input.
#[derive(Clone, Copy)]
pub(crate) struct Norm<'a> {
    /// Mean and variance.
    pub running: [Option<&'a Tensor>; 2],
    /// Weight and bias.
    pub affine: [Option<&'a Tensor>; 2],
    /// How many batches the running statistics have seen: training adds one.
    pub batches: Option<&'a Tensor>,
    pub options: Options,
}

/// Options of both directions.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    pub training: bool,
    pub momentum: f64,
    pub eps: f64,
}

impl<'a> Norm<'a> {
    /// All that have one number per channel.
    fn parameters(&self) -> [(&'static str, Option<&'a Tensor>); 4] {
        let ([mean, var], [weight, bias]) = (self.running, self.affine);
        [("running_mean", mean), ("running_var", var), ("weight", weight), ("bias", bias)]
    }

    /// Counts a batch.
    fn count(&self) {
        if self.options.training {
            no_grad(|| self.batches.map(|batches| batches.add_(1i64)));
        }
    }

    /// The sizes of the input.
    ///
    /// # Panics
    /// Throws for an input or parameters of another shape, and without statistics.
    #[track_caller]
    fn check(&self, x: &Tensor) -> Sizes {
        let Some(sizes) = sizes(x) else {
            throw(Error::shape(
                "batch_norm",
                format!("input {:?} must be [N, C] or [N, C, ..]", x.shape()),
            ))
        };
        for (name, p) in self.parameters() {
            match p {
                Some(p) if p.shape() != [sizes.channels] => throw(Error::shape(
                    "batch_norm",
                    format!(
                        "{name} has shape {:?}, the input {:?} has {} channels",
                        p.shape(),
                        x.shape(),
                        sizes.channels
                    ),
                )),
                None if !self.options.training && name.starts_with("running") => {
                    throw(Error::argument(
                        "batch_norm",
                        name,
                        "missing; without `training` the running statistics are needed",
                    ))
                }
                _ => {}
            }
        }
        if self.options.training && sizes.count() == 1 {
            throw(Error::shape(
                "batch_norm",
                format!(
                    "input {:?} has one number per channel: training needs more to have a variance",
                    x.shape()
                ),
            ));
        }
        for p in self.parameters().iter().filter_map(|(_, p)| *p) {
            gpu::of("batch_norm", &[x, p]);
        }
        sizes
    }
}

impl Tensor {
    /// `nn::functional::batch_norm`, whose options these are.
    #[allow(clippy::too_many_arguments, reason = "PyTorch's signature")]
    #[track_caller]
    pub(crate) fn batch_norm(
        &self,
        running_mean: Option<&Tensor>,
        running_var: Option<&Tensor>,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        training: bool,
        momentum: f64,
        eps: f64,
    ) -> Tensor {
        self.batch_norm_of(&Norm {
            running: [running_mean, running_var],
            affine: [weight, bias],
            batches: None,
            options: Options { training, momentum, eps },
        })
    }

    /// Batch normalisation that counts batches, too.
    #[track_caller]
    pub(crate) fn batch_norm_of(&self, norm: &Norm<'_>) -> Tensor {
        if self.shape() == [0] {
            // PyTorch takes nothing at all as any number of channels.
            norm.count();
            return self.clone_contiguous();
        }
        let sizes = norm.check(self);
        let (y, stats) = match gpu::of("batch_norm", &[self]) {
            Some(gpu) => {
                let found = cuda::forward(gpu, self, norm, None);
                (found.y, found.stats)
            }
            None => {
                norm.count();
                on_cpu(self, sizes, norm.parameters().map(|(_, p)| p), norm.options)
            }
        };
        let [weight, bias] = norm.affine;
        let options = norm.options;
        let inputs: SmallVec<[&Tensor; 3]> =
            [Some(self), weight, bias].into_iter().flatten().collect();
        record("batch_norm", &inputs, y, |saver| {
            let (x, stats) = (saver.save(self), saver.save(&stats));
            let weight = weight.map(|w| saver.save(w));
            let with_bias = bias.is_some();
            move |ctx| {
                let (dy, x, stats) = (ctx.grad(0), ctx.get(&x), ctx.get(&stats));
                let weight = weight.as_ref().map(|w| ctx.get(w));
                let saved = Saved { x, stats, weight, options, sizes };
                let [dx, dw, db] = if ctx.create_graph() {
                    composed(&dy, &saved)
                } else {
                    fused(ctx, &dy, &saved)
                };
                let mut grads: SmallVec<[Option<Tensor>; 3]> = smallvec![Some(dx)];
                if let Some(w) = &saved.weight {
                    grads.push(Some(compute_type::narrow(dw, w.dtype())));
                }
                if with_bias {
                    grads.push(Some(db));
                }
                grads
            }
        })
    }
}

struct Saved {
    x: Tensor,
    stats: Tensor,
    weight: Option<Tensor>,
    options: Options,
    sizes: Sizes,
}

/// The result, and mean, 1 / sqrt(var + eps) and unbiased variance of each channel; `parameters` are the
/// running statistics, which training moves, weight and bias.
fn on_cpu(
    x: &Tensor,
    sizes: Sizes,
    parameters: [Option<&Tensor>; 4],
    options: Options,
) -> (Tensor, Tensor) {
    let Options { training, eps, momentum } = options;
    let wide = compute_type::widen(x);
    let at =
        |p: Option<&Tensor>| p.map(|p| no_grad(|| compute_type::widen(p).to_dtype(wide.dtype())));
    let [mean, var, w, b] = parameters.map(at);
    let y = Tensor::empty(x.shape(), wide.dtype().on_host());
    let stats = Tensor::zeros([3, sizes.channels], wide.dtype().on_host());
    dispatch!(compute wide.dtype(), "batch_norm", T => {
        // SAFETY: contiguous tensors of this type; the outputs are new.
        let (x, y, stats) = unsafe { (wide.as_slice::<T>(), y.as_mut_slice::<T>(), stats.as_mut_slice::<T>()) };
        // SAFETY: contiguous tensors of this type, which nobody writes.
        let [mean, var, w, b] = [&mean, &var, &w, &b].map(|p| p.as_ref().map(|p| unsafe { p.as_slice::<T>() }));
        let known = mean.zip(var).filter(|_| !training);
        forward(sizes, x, known, w, b, eps, y, stats);
    });
    if training && sizes.count() > 0 {
        let toward = |running: Option<&Tensor>, row: i64| {
            if let Some(running) = running {
                no_grad(|| {
                    let moved =
                        running.detach() * (1.0 - momentum) + stats.select(0, row) * momentum;
                    running.copy_(&moved.to_dtype(running.dtype()));
                });
            }
        };
        toward(parameters[0], 0);
        toward(parameters[1], 2);
    }
    (compute_type::narrow(y, x.dtype()), stats)
}

#[allow(clippy::too_many_arguments, reason = "the operands of one kernel")]
fn forward<T: Float>(
    sizes: Sizes,
    x: &[T],
    known: Option<(&[T], &[T])>,
    w: Option<&[T]>,
    b: Option<&[T]>,
    eps: f64,
    y: &mut [T],
    stats: &mut [T],
) {
    let n = sizes.count() as f64;
    let (y, stats) = (Parts::new(y), Parts::new(stats));
    let channels = sizes.channels;
    parallel_for(channels, grain(sizes), |range| {
        for c in range {
            let (mean, var) = match known {
                Some((mean, var)) => (mean[c].as_f64(), var[c].as_f64()),
                None => {
                    let moments = with_scratch(BLOCK, |block| cpu::moments(sizes, c, x, block));
                    (moments.mean, moments.variance())
                }
            };
            let scale = 1.0 / (var + eps).sqrt();
            for (row, value) in [mean, scale, var * n / (n - 1.0)].into_iter().enumerate() {
                // SAFETY: each channel is one thread's.
                unsafe { stats.put(row * channels + c, T::of(value)) };
            }
            let scale = T::of(scale * w.map_or(1.0, |w| w[c].as_f64()));
            let shift = b.map_or(T::ZERO, |b| b[c]);
            for n in 0..sizes.batch {
                let plane = sizes.plane(n, c);
                // SAFETY: each channel is one thread's.
                let y = unsafe { y.slice(plane.clone()) };
                cpu::rescale(&x[plane], T::of(mean), scale, shift, y);
            }
        }
    });
}

/// `[batch, channels, ..]` of `x`, if it has those dimensions.
fn sizes(x: &Tensor) -> Option<Sizes> {
    let [batch, channels, rest @ ..] = x.shape() else { return None };
    Some(Sizes { batch: *batch, channels: *channels, plane: rest.iter().product() })
}

/// Channels that make a parallel loop's share worth a thread.
fn grain(sizes: Sizes) -> usize {
    (32 << 10) / sizes.count().max(1) + 1
}

/// dx, dw and db by kernels.
fn fused(ctx: &BackwardCtx, dy: &Tensor, saved: &Saved) -> [Tensor; 3] {
    let Saved { x, stats, weight, options, sizes } = saved;
    if let Some(gpu) = gpu::of("batch_norm", &[x, dy]) {
        let cuda::Gradients { dx, dw, db, .. } = cuda::backward(gpu, dy, saved, None, ctx.needs(0));
        // Nobody asks for what is missing.
        return [dx.unwrap_or_else(|| x.detach()), dw, db];
    }
    let dtype = x.dtype();
    let (dy, x) = (compute_type::widen(dy), compute_type::widen(x));
    let w = weight.as_ref().map(|w| no_grad(|| compute_type::widen(w).to_dtype(x.dtype())));
    let dx = Tensor::empty(x.shape(), x.dtype().on_host());
    let parameters = Tensor::empty([2, sizes.channels], x.dtype().on_host());
    dispatch!(compute x.dtype(), "batch_norm", T => {
        // SAFETY: contiguous tensors of this type; the outputs are new.
        let (dy, x, stats) = unsafe { (dy.as_slice::<T>(), x.as_slice::<T>(), stats.as_slice::<T>()) };
        // SAFETY: a contiguous tensor of this type, which nobody writes.
        let w = w.as_ref().map(|w| unsafe { w.as_slice::<T>() });
        // SAFETY: contiguous new tensors of this type.
        let (dx, sums) = unsafe { (dx.as_mut_slice::<T>(), parameters.as_mut_slice::<T>()) };
        let (dx, sums) = (Parts::new(dx), Parts::new(sums));
        let (channels, n) = (sizes.channels, sizes.count() as f64);
        parallel_for(channels, grain(*sizes), |range| for c in range {
            let (mean, scale) = (stats[c], stats[channels + c]);
            let (plain, mut along) = cpu::sums(*sizes, c, dy, x, mean);
            along *= scale.as_f64();
            for (row, value) in [along, plain].into_iter().enumerate() {
                // SAFETY: each channel is one thread's.
                unsafe { sums.put(row * channels + c, T::of(value)) };
            }
            if !ctx.needs(0) {
                continue;
            }
            let factor = scale * w.map_or(T::of(1.0), |w| w[c]);
            let (plain, along) = if options.training { (plain / n, along / n) } else { (0.0, 0.0) };
            let slope = T::of(along * scale.as_f64());
            for n in 0..sizes.batch {
                let p = sizes.plane(n, c);
                // SAFETY: each channel is one thread's.
                let dx = unsafe { dx.slice(p.clone()) };
                cpu::propagate(&dy[p.clone()], &x[p], mean, T::of(plain), slope, factor, dx);
            }
        });
    });
    let parameter = |i| parameters.select(0, i).detach();
    [compute_type::narrow(dx, dtype), parameter(0), parameter(1)]
}

/// The same from recorded ops, for second derivatives.
fn composed(dy: &Tensor, saved: &Saved) -> [Tensor; 3] {
    let Saved { x, stats, weight, options, sizes } = saved;
    let mut per_channel: Shape = Shape::from_elem(1, x.dim());
    per_channel[1] = sizes.channels;
    let of_n = 1.0 / sizes.count() as f64;
    let sum = |t: &Tensor| t.sum_to(&per_channel);
    let known = |row| stats.select(0, row).reshape_to(&per_channel).to_dtype(x.dtype());
    let unit = known(1);
    let (shifted, scale) = if options.training {
        // The result is the same in any unit; in that of forward's scale no square leaves the type's range.
        let measured = x * &unit;
        let shifted = &measured - sum(&measured) * of_n;
        let least = (&unit * options.eps.abs().sqrt()).square() * options.eps.signum();
        let scale = (sum(&(&shifted * &shifted)) * of_n + least).rsqrt();
        (shifted, scale)
    } else {
        (x - known(0), unit.clone())
    };
    let xh = &shifted * &scale;
    let scale = if options.training { scale * unit } else { scale };
    let (along, plain) = (sum(&(dy * &xh)), sum(dy));
    let mut dx =
        if options.training { dy - &plain * of_n - &xh * (&along * of_n) } else { dy.clone() }
            * scale;
    if let Some(w) = weight {
        dx = dx * w.reshape_to(&per_channel);
    }
    let channels = [sizes.channels];
    [dx, along.reshape_to(&channels), plain.reshape_to(&channels)]
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let running = || (values([3], 5), positive([3], 6));
    vec![
        OpSample::new(
            "batch_norm(training)",
            [values([4, 3, 2, 5], 1), positive([3], 2), values([3], 3)],
            |x| x[0].batch_norm(None, None, Some(&x[1]), Some(&x[2]), true, 0.1, 1e-5),
        ),
        OpSample::new("batch_norm(training, 2-dim, no parameters)", [values([7, 3], 1)], |x| {
            x[0].batch_norm(None, None, None, None, true, 0.1, 1e-5)
        }),
        OpSample::new(
            "batch_norm_relu",
            [values([4, 3, 2, 5], 1), positive([3], 2), values([3], 3)],
            |x| x[0].batch_norm_relu(&of_batch([Some(&x[1]), Some(&x[2])]), None),
        ),
        OpSample::new(
            "batch_norm_relu(residual)",
            [values([4, 3, 2, 5], 1), positive([3], 2), values([4, 3, 2, 5], 3)],
            |x| x[0].batch_norm_relu(&of_batch([Some(&x[1]), None]), Some(&x[2])),
        ),
        OpSample::new("batch_norm(training, bias)", [values([4, 3, 9], 1), values([3], 3)], |x| {
            x[0].batch_norm(None, None, None, Some(&x[1]), true, 0.1, 1e-5)
        }),
        OpSample::new(
            "batch_norm(evaluation)",
            [values([4, 3, 4], 1), positive([3], 2), values([3], 3)],
            move |x| {
                let (mean, var) = running();
                let at = |t: Tensor| t.to_dtype(x[0].dtype()).to_device(x[0].device());
                x[0].batch_norm(
                    Some(&at(mean)),
                    Some(&at(var)),
                    Some(&x[1]),
                    Some(&x[2]),
                    false,
                    0.1,
                    1e-5,
                )
            },
        ),
    ]
}

/// By the batch's statistics.
#[cfg(test)]
fn of_batch(affine: [Option<&Tensor>; 2]) -> Norm<'_> {
    let options = Options { training: true, momentum: 0.1, eps: 1e-5 };
    Norm { running: [None, None], affine, batches: None, options }
}

/// Training's output, mean and unbiased variance by the definition, which the kernel is tested
/// against, for `[batch, channels, plane]`.
#[cfg(test)]
fn reference(x: &[f64], sizes: Sizes, eps: f64) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let planes = |c| (0..sizes.batch).map(move |n| sizes.plane(n, c));
    let (mut y, mut means, mut vars) = (x.to_vec(), vec![], vec![]);
    for c in 0..sizes.channels {
        let numbers: Vec<f64> = planes(c).flat_map(|p| x[p].to_vec()).collect();
        let n = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / n;
        let squares = numbers.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
        for p in planes(c) {
            y[p].iter_mut().for_each(|v| *v = (*v - mean) / (squares / n + eps).sqrt());
        }
        means.push(mean);
        vars.push(squares / (n - 1.0));
    }
    (y, means, vars)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::{Dtype::BF16, Dtype::F32};

    #[test]
    fn the_kernel_equals_the_definition_and_moves_the_running_statistics() {
        // Planes of all sizes: some blocks of numbers are many planes, some planes are many blocks.
        for (batch, plane) in [(3, 77), (70, 64), (300, 3), (2, 5003)] {
            check(batch, plane);
        }
    }

    fn check(batch: usize, plane: usize) {
        let x = values([batch, 5, plane], 1);
        let sizes = Sizes { batch, channels: 5, plane };
        let (want, means, vars) = reference(&x.to_vec::<f64>(), sizes, 1e-5);
        for (dtype, tolerance) in [(x.dtype(), 1e-12), (F32, 1e-5), (BF16, 4e-2)] {
            let statistics = if dtype == BF16 { F32 } else { dtype };
            let (mean, var) = (Tensor::zeros([5], statistics), Tensor::ones([5], statistics));
            let y =
                x.to_dtype(dtype).batch_norm(Some(&mean), Some(&var), None, None, true, 0.25, 1e-5);
            for (y, want) in y.to_vec::<f64>().iter().zip(&want) {
                assert!((y - want).abs() < tolerance, "{y} {want} {dtype}");
            }
            for (c, (m, v)) in mean.to_vec::<f64>().iter().zip(var.to_vec::<f64>()).enumerate() {
                assert!((m - 0.25 * means[c]).abs() < tolerance, "{m}");
                assert!((v - 0.75 - 0.25 * vars[c]).abs() < tolerance, "{v}");
            }
        }
    }

    #[test]
    fn a_large_mean_does_not_spoil_the_variance() {
        let data: Vec<f32> = (0..512).map(|i| 1000.0 + (i / 2 % 2) as f32).collect();
        let y =
            Tensor::from_slice(&data, [256, 2]).batch_norm(None, None, None, None, true, 0.1, 0.0);
        assert!(y.to_vec::<f32>().iter().all(|v| (v.abs() - 1.0).abs() < 1e-4));
    }

    #[test]
    fn misuse_is_named() {
        let text = |x: &Tensor, w: Option<&Tensor>, training| {
            crate::error::catch(|| x.batch_norm(None, None, w, None, training, 0.1, 1e-5))
                .unwrap_err()
                .to_string()
        };
        let x = values([4, 3], 1);
        assert!(text(&x, None, false).contains("running_mean"));
        assert!(text(&x, Some(&values([4], 1)), true).contains("3 channels"));
        assert!(text(&values([1, 3], 1), None, true).contains("one number per channel"));
    }
}
