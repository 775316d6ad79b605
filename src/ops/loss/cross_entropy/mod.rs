//! Cross entropy of class scores (log-softmax and negative log likelihood in one) and the negative
//! log likelihood alone.
//!
//! For scores `x` of a row with class `t`, class weights `w` and smoothing `e` over C classes:
//! `l = log sum_c e^{x_c}`, `loss = (1 - e) w_t (l - x_t) + e/C sum_c w_c (l - x_c)`.
//! `d loss / d x_c = A e^{x_c - l} - e/C w_c - (1 - e) w_t [c = t]` with
//! `A = (1 - e) w_t + e/C sum_c w_c`. The mean is over the weights `w_t`. Rows whose target is
//! `ignore_index` give 0 and count for nothing.
//!
//! Forward keeps the scores and one `l` per row; backward makes the gradient from them in one pass:
//! the log-softmax itself is never written to memory.

mod batch;
mod cpu;
pub(in crate::ops) mod cuda;
pub(in crate::ops) mod linear;
mod nll;
mod options;

pub use linear::{Chunks, LinearCrossEntropyOptions, linear_cross_entropy};
pub use options::{CrossEntropyOptions, Reduction};

pub use nll::NLLLossOptions;

use smallvec::smallvec;

use crate::amp::{Region, cast_op};
use crate::autograd::record;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, Order, positive, values};
use crate::ops::gpu::{self, Gpu};
use crate::profiler;
use crate::tensor::{Dtype, Tensor, dispatch};
use batch::{Batch, check_smoothing, check_weight, divisor, no_class_to_ignore, of_one_row};
use cpu::{Rows, backward_rows, forward_rows};

impl Tensor {
    /// Mean cross entropy of these class scores against `target` (`torch.nn.functional.cross_entropy`).
    ///
    /// Scores are `[N, C]`, `[N, C, d...]` or `[C]`; targets class indices (i64 or u8) of shape `[N]`,
    /// `[N, d...]` or `[]`, or class probabilities of the scores' shape.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let loss = Tensor::from([[0f32, 0.]]).cross_entropy(&Tensor::from([1i64]));
    /// assert_eq!(loss.item() as f32, std::f32::consts::LN_2);
    /// ```
    ///
    /// # Panics
    /// Throws when shapes or types do not fit, and for a class that is out of range, naming it.
    #[track_caller]
    pub fn cross_entropy(&self, target: &Tensor) -> Tensor {
        self.cross_entropy_with(target, CrossEntropyOptions::default())
    }

    /// [`cross_entropy`](Self::cross_entropy) with options.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// use torchrs::ops::{CrossEntropyOptions, Reduction};
    /// let x = Tensor::zeros([2, 2], Dtype::F64);
    /// let weight = Some(Tensor::from([3f64, 1.]));
    /// let options = CrossEntropyOptions { weight, reduction: Reduction::Sum, ..Default::default() };
    /// let loss = x.cross_entropy_with(&Tensor::from([0i64, 1]), options);
    /// assert!((loss.item() - 4.0 * 2f64.ln()).abs() < 1e-6);
    /// ```
    ///
    /// # Panics
    /// As `cross_entropy`; also for weights of another shape and a smoothing outside 0..=1.
    #[track_caller]
    pub fn cross_entropy_with(&self, target: &Tensor, options: CrossEntropyOptions) -> Tensor {
        let has_classes = !target.dtype().is_floating_point();
        if has_classes && let Some(region) = Region::of_widening("cross_entropy", self) {
            let _span = profiler::op("cross_entropy");
            // The kernels compute in f32 whatever they read: a copy of all scores in f32 would say nothing more.
            return region.run(|wide| self.cross_entropy_as(target, &options, wide));
        }
        cast_op!("cross_entropy", [x = self, t = target] => x.cross_entropy_with(&t, options));
        self.cross_entropy_as(target, &options, self.dtype())
    }

    /// [`cross_entropy_with`](Self::cross_entropy_with) as a number, or numbers, of this type.
    #[track_caller]
    fn cross_entropy_as(
        &self,
        target: &Tensor,
        options: &CrossEntropyOptions,
        result: Dtype,
    ) -> Tensor {
        crate::tensor::dtype::assert_real("cross_entropy", target.dtype());
        let smoothing = options.label_smoothing;
        check_smoothing("cross_entropy", smoothing);
        if target.dtype().is_floating_point() && target.shape() == self.shape() {
            return against_probabilities(self, target, options);
        }
        let target = &of_one_row(self, target);
        let weight = options.weight.as_ref();
        let batch = Batch::new("cross_entropy", self, target, weight, options.ignore_index);
        let shape = target.layout().shape.clone();
        fused(&batch, options, &shape, result)
    }
}

/// The fused op on `[rows, classes]`.
#[track_caller]
fn fused(batch: &Batch, options: &CrossEntropyOptions, shape: &[usize], result: Dtype) -> Tensor {
    let Batch { x, target, weight, ignore_index } = batch;
    if let Some(gpu) = gpu::of("cross_entropy", &[x]) {
        return fused_on_gpu(gpu, batch, options, shape, result);
    }
    let (n, reduction) = (target.numel(), options.reduction);
    let smoothing = options.label_smoothing;
    let list = || Tensor::empty([n], x.dtype().compute().on_host());
    let (lse, losses) = (list(), list());
    lse_and_losses(batch, smoothing, [&lse, &losses]);
    let total = match reduction {
        Reduction::Mean => batch.total_weight(),
        _ => 1.0,
    };
    let losses = batch.reduce(losses, total, reduction, shape).to_dtype(result);
    record("cross_entropy", &[x], losses, |saver| {
        let (x, target) = (saver.save(x), saver.save(target));
        let (lse, weight) = (saver.save(&lse), weight.as_ref().map(|w| saver.save(w)));
        let ignore_index = *ignore_index;
        move |ctx| {
            let x = ctx.get(&x);
            let (target, weight) = (ctx.get(&target), weight.as_ref().map(|w| ctx.get(w)));
            // Where no row counts, all gradients are 0.
            let g = if total == 0.0 { ctx.grad(0) } else { ctx.grad(0) / total };
            let saved = Batch { x, target, weight, ignore_index };
            smallvec![Some(if ctx.create_graph() {
                saved.in_type(result, |saved| composed_backward(saved, &g, smoothing))
            } else {
                fused_backward(&saved, &ctx.get(&lse), &g, smoothing)
            })]
        }
    })
}

/// [`fused`] on a GPU, where the mean's divisor is a tensor, so that nothing waits for it.
#[track_caller]
fn fused_on_gpu(
    gpu: Gpu,
    batch: &Batch,
    options: &CrossEntropyOptions,
    shape: &[usize],
    result: Dtype,
) -> Tensor {
    let Batch { x, target, weight, ignore_index } = batch;
    let smoothing = options.label_smoothing;
    let [lse, losses, weights] = cuda::forward(gpu, batch, smoothing);
    let (loss, total) = match options.reduction {
        Reduction::None => (losses.reshape_to(shape).to_dtype(result), None),
        Reduction::Sum => (losses.sum().to_dtype(result), None),
        Reduction::Mean => {
            let [mean, total] = cuda::average(gpu, &losses, &weights, result);
            (mean, Some(total))
        }
    };
    record("cross_entropy", &[x], loss, |saver| {
        let (x, target) = (saver.save(x), saver.save(target));
        let (lse, weight) = (saver.save(&lse), weight.as_ref().map(|w| saver.save(w)));
        let total = total.map(|total| saver.save(&total));
        let (ignore_index, each) = (*ignore_index, options.reduction == Reduction::None);
        move |ctx| {
            let x = ctx.get(&x);
            let (target, weight) = (ctx.get(&target), weight.as_ref().map(|w| ctx.get(w)));
            let total = total.as_ref().map(|total| ctx.get(total));
            let g = if each { ctx.grad(0).reshape([-1]) } else { ctx.grad(0) };
            let saved = Batch { x, target, weight, ignore_index };
            smallvec![Some(if ctx.create_graph() {
                let g = total.map_or(g.clone(), |total| &g / divisor(&total).to_dtype(g.dtype()));
                saved.in_type(result, |saved| composed_backward(saved, &g, smoothing))
            } else {
                cuda::backward(gpu, &saved, &ctx.get(&lse), &g, total.as_ref(), smoothing)
            })]
        }
    })
}

/// The operands of the kernels, as slices.
fn rows<'a, T: cpu::Scores>(
    x: &'a Tensor,
    target: &'a Tensor,
    weight: &'a Option<Tensor>,
    ignore_index: i64,
    smoothing: f64,
) -> Rows<'a, T> {
    // SAFETY: contiguous and of these types, made in `Batch::new`; nobody writes to them.
    unsafe {
        Rows {
            x: x.as_slice(),
            target: target.as_slice(),
            weight: weight.as_ref().map(|w| w.as_slice()),
            classes: x.shape()[1],
            ignore_index,
            smoothing,
        }
    }
}

/// Writes the logarithm of the sum of exponentials and the loss of each row, on the host, into dense lists.
fn lse_and_losses(batch: &Batch, smoothing: f64, [lse, losses]: [&Tensor; 2]) {
    let Batch { x, target, weight, ignore_index } = batch;
    dispatch!(float x.dtype(), "cross_entropy", T => {
        let rows = rows::<T>(x, target, weight, *ignore_index, smoothing);
        forward_rows(&rows, lse.data_ptr().cast(), losses.data_ptr().cast());
    });
}

/// The gradient in one pass; `g` is a number, or one per row.
fn fused_backward(batch: &Batch, lse: &Tensor, g: &Tensor, smoothing: f64) -> Tensor {
    let Batch { x, target, weight, ignore_index } = batch;
    let out = x.empty_like();
    let g = g.to_dtype(x.dtype().compute()).contiguous();
    dispatch!(float x.dtype(), "cross_entropy", T => {
        let rows = rows::<T>(x, target, weight, *ignore_index, smoothing);
        // SAFETY: contiguous and of the wide type; `out` is fresh and as large as `x`.
        unsafe { backward_rows(&rows, lse.as_slice(), g.reshape([-1]).as_slice(), out.as_mut_slice()) };
    });
    out
}

/// The gradient in terms of recorded ops: `g (A softmax(x) - B)` with constant `A` and `B`.
fn composed_backward(batch: &Batch, g: &Tensor, smoothing: f64) -> Tensor {
    let Batch { x, target, weight, ignore_index } = batch;
    let (n, classes) = (x.shape()[0], x.shape()[1]);
    let g = if g.dim() == 0 { g.clone() } else { g.reshape([n as i64, 1]) };
    if x.device().is_apart() {
        let [a, b] = coefficients(batch, smoothing);
        return g * (a * x.softmax(1) - b);
    }
    let w = weight.as_ref().map_or(vec![1.0; classes], |w| w.to_vec::<f64>());
    let spread = smoothing / classes as f64;
    let (mut a, mut b) = (vec![0f64; n], vec![0f64; n * classes]);
    for (i, t) in target.to_vec::<i64>().into_iter().enumerate() {
        if t == *ignore_index {
            continue;
        }
        let own = (1.0 - smoothing) * w[t as usize];
        a[i] = own + spread * w.iter().sum::<f64>();
        b[i * classes..][..classes].iter_mut().zip(&w).for_each(|(b, w)| *b = spread * w);
        b[i * classes + t as usize] += own;
    }
    let a = Tensor::from_slice(&a, [n, 1]).to_dtype(x.dtype());
    let b = Tensor::from_slice(&b, [n, classes]).to_dtype(x.dtype());
    g * (a * x.softmax(1) - b)
}

/// `A` and `B` of [`composed_backward`], made on the device.
fn coefficients(batch: &Batch, smoothing: f64) -> [Tensor; 2] {
    let Batch { x, target, weight, ignore_index } = batch;
    let (n, classes) = (target.numel() as i64, x.shape()[1]);
    let options = (x.dtype(), x.device());
    let w = match weight {
        Some(w) => w.to_dtype(x.dtype()),
        None => Tensor::ones([classes], options),
    };
    let target = target.reshape([n, 1]);
    let counts = target.ne(*ignore_index).to_dtype(x.dtype());
    let own = Tensor::arange(0, classes as i64, 1, (Dtype::I64, x.device())).eq(&target);
    let own = own.to_dtype(x.dtype()) * &w * (1.0 - smoothing);
    let spread = w * (smoothing / classes as f64);
    let a = (own.sum_dim(&[1], true) + spread.sum()) * &counts;
    [a, (own + spread) * counts]
}

/// Cross entropy against class probabilities: `-sum_c w_c p_c log softmax(x)_c`, with the
/// probabilities smoothed; the mean is over the samples.
fn against_probabilities(x: &Tensor, target: &Tensor, options: &CrossEntropyOptions) -> Tensor {
    let class_dim = if x.dim() < 2 { 0 } else { 1 };
    if x.dim() == 0 {
        throw(Error::shape("cross_entropy", "the input has no class dimension"));
    }
    // Below 0 it is no class, as the default.
    if options.ignore_index >= 0 {
        no_class_to_ignore("cross_entropy");
    }
    let classes = x.size(class_dim);
    let smoothing = options.label_smoothing;
    let p = if smoothing > 0.0 {
        target * (1.0 - smoothing) + smoothing / classes as f64
    } else {
        target.clone()
    };
    let mut terms = x.log_softmax(class_dim) * p;
    if let Some(weight) = &options.weight {
        let weight = check_weight("cross_entropy", weight, classes, x.dtype());
        let mut shape = vec![1; x.dim()];
        shape[class_dim as usize] = classes;
        terms = terms * weight.reshape_to(&shape).to_dtype(x.dtype());
    }
    let losses = -terms.sum_dim(&[class_dim], false);
    match options.reduction {
        Reduction::None => losses,
        Reduction::Sum => losses.sum(),
        Reduction::Mean => losses.sum() / (x.numel() as f64 / classes as f64),
    }
}

crate::ops::table::ops! {
    self { samples, kernels: [cuda::FOLDS, cuda::NLL, cuda::ROWS] }
    linear { samples }
    nll { samples }
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let x = || vec![values([4, 5], 2)];
    let classes = || Tensor::from([0i64, 4, 2, 2]);
    let weighted = |name: &str, reduction, smoothing| {
        let weight = positive([5], 3);
        OpSample::new(name, x(), move |x| {
            x[0].cross_entropy_with(
                &Tensor::from([1i64, -100, 0, 3]).to_device(x[0].device()),
                CrossEntropyOptions {
                    weight: Some(weight.to_dtype(x[0].dtype()).to_device(x[0].device())),
                    reduction,
                    label_smoothing: smoothing,
                    ..Default::default()
                },
            )
        })
    };
    vec![
        OpSample::new("cross_entropy", x(), move |x| {
            x[0].cross_entropy(&classes().to_device(x[0].device()))
        }),
        OpSample::new("cross_entropy, long", [values([3, 500], 1)], |x| {
            x[0].cross_entropy(&Tensor::from([7i64, 499, 0]).to_device(x[0].device()))
        }),
        OpSample::new("cross_entropy [N, C, d]", [values([2, 3, 4], 2)], |x| {
            x[0].cross_entropy(
                &Tensor::from([[0i64, 1, 2, 0], [2, 2, 1, 0]]).to_device(x[0].device()),
            )
        }),
        OpSample::new("cross_entropy [C]", [values([5], 2)], |x| {
            x[0].cross_entropy(&Tensor::scalar(3i64).to_device(x[0].device()))
        }),
        weighted("cross_entropy, weights, ignored", Reduction::Mean, 0.0),
        weighted("cross_entropy, none, smoothing", Reduction::None, 0.2),
        weighted("cross_entropy, mean, smoothing", Reduction::Mean, 0.1),
        weighted("cross_entropy, sum", Reduction::Sum, 0.0),
        OpSample::new(
            "cross_entropy, probabilities",
            [values([2, 3], 1), positive([2, 3], 4)],
            |x| {
                let options = CrossEntropyOptions { label_smoothing: 0.3, ..Default::default() };
                x[0].cross_entropy_with(&x[1], options.clone())
            },
        ),
        OpSample::new("cross_entropy, all ignored", x(), |x| {
            let options = CrossEntropyOptions { reduction: Reduction::Sum, ..Default::default() };
            x[0].cross_entropy_with(
                &Tensor::from([-100i64; 4]).to_device(x[0].device()),
                options.clone(),
            )
        })
        .order(Order::First),
    ]
}
