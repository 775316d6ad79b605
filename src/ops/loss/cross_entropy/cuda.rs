//! Cross entropy and negative log likelihood on a GPU: `kernels/cross_entropy.cu`, `kernels/nll.cu`. Classes
//! that are out of range are found by the kernels, which end all work on the device: to look first would be
//! to wait.

use crate::cuda::{
    family::FLOATS, family::Family, fold, fold::Operation, fold::rows_shape, launch::Argument,
    launch::Shape, refusal::Refusal, refusal::Rule, sources::family,
};
use std::ptr::{null, null_mut};

use super::batch::Batch;
use crate::error::throw;
use crate::loops::{Format, fold::Plan};
use crate::ops::gpu::{Gpu, address, format_of};
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static FOLDS: Family =
    family!("cross_entropy": "fold.cuh", "rows.cuh", "refusal.cuh", "cross_entropy.cu", "fold_entries.cuh")
        .with(&[(FLOATS, &["Loss"]), (&[Format::F64, Format::F32], &["Average"])]);
pub(in crate::ops) static ROWS: Family = family!("cross_entropy_backward": "fold.cuh", "rows.cuh", "refusal.cuh", "cross_entropy.cu", "rows_entries.cuh").with(&[(FLOATS, &["Gradient", "Step"])]);
pub(in crate::ops) static NLL: Family =
    family!("nll": "refusal.cuh", "nll.cu").with(&[(FLOATS, &["Nll"])]);

/// `Classes` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Classes {
    x: *const u8,
    target: *const u8,
    weight: *const u8,
    all_weights: *const u8,
    lse: *mut u8,
    losses: *mut u8,
    weights: *mut u8,
    g: *const u8,
    total: *const u8,
    out: *mut u8,
    rows: i64,
    classes: i64,
    step: i64,
    ignored: i64,
    smoothing: f64,
    one: i32,
    first: i32,
    refusal: Refusal,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Classes {}

/// `Average` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Average {
    losses: *const u8,
    weights: *const u8,
    out: *mut u8,
    total: *mut u8,
    format: i32,
    reserved: i32,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Average {}

/// `Nll` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Nll {
    x: *const u8,
    out: *mut u8,
    factors: *mut u8,
    target: *const u8,
    weight: *const u8,
    rows: i64,
    classes: i64,
    ignored: i64,
    refusal: Refusal,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Nll {}

fn wide(batch: &Batch, shape: &[usize]) -> Tensor {
    Tensor::empty(shape, (batch.x.dtype().compute(), batch.x.device()))
}

/// The operands of the kernels; `all_weights` must live until they are started.
fn classes(batch: &Batch, smoothing: f64, all_weights: Option<&Tensor>) -> Classes {
    Classes {
        x: batch.x.device_ptr(),
        target: batch.target.device_ptr(),
        weight: address(batch.weight.as_ref()),
        all_weights: address(all_weights),
        lse: null_mut(),
        losses: null_mut(),
        weights: null_mut(),
        g: null(),
        total: null(),
        out: null_mut(),
        rows: batch.target.numel() as i64,
        classes: batch.x.shape()[1] as i64,
        step: batch.x.strides()[0] as i64,
        ignored: batch.ignore_index,
        smoothing,
        one: 0,
        first: 0,
        refusal: Refusal::NONE,
    }
}

/// The rows' logarithms of sums of exponentials, losses and weights, in the type of computation.
#[track_caller]
pub(super) fn forward(gpu: Gpu, batch: &Batch, smoothing: f64) -> [Tensor; 3] {
    let out = [(); 3].map(|()| wide(batch, &[batch.target.numel()]));
    forward_into(gpu, "cross_entropy", batch, smoothing, &out, 0);
    out
}

/// [`forward`] into lists that are there, of rows that so many others come before.
#[track_caller]
pub(super) fn forward_into(
    gpu: Gpu,
    op: &'static str,
    batch: &Batch,
    smoothing: f64,
    out: &[Tensor; 3],
    first: usize,
) {
    let all_weights = batch.weight.as_ref().filter(|_| smoothing > 0.0).map(Tensor::sum);
    let [lse, losses, weights] = out.each_ref().map(Tensor::device_ptr);
    let refusal = gpu.refusal(op, "target", Rule::Class);
    let op = Classes {
        lse,
        losses,
        weights,
        refusal,
        first: first as i32,
        ..classes(batch, smoothing, all_weights.as_ref())
    };
    let x = &batch.x;
    let plan = Plan::new(x.shape(), x.strides(), &|d| d == 1);
    let operation = Operation { family: &FOLDS, format: format_of(x.dtype()), variant: "Loss" };
    // SAFETY: dense tensors of these types, made in `Batch::new`; the results are new.
    let done = unsafe { fold::fold(&operation, &plan, &[x.device_ptr()], op, gpu.stream()) };
    done.unwrap_or_else(|error| throw(error));
}

/// The sum of the losses over the sum of the weights, of type `to`, and that sum.
#[track_caller]
pub(super) fn average(gpu: Gpu, losses: &Tensor, weights: &Tensor, to: Dtype) -> [Tensor; 2] {
    let out = [to, losses.dtype()].map(|dtype| Tensor::empty([], (dtype, losses.device())));
    let op = Average {
        losses: losses.device_ptr(),
        weights: weights.device_ptr(),
        out: out[0].device_ptr(),
        total: out[1].device_ptr(),
        format: format_of(to) as i32,
        reserved: 0,
    };
    let plan = Plan::new(losses.shape(), losses.strides(), &|_| true);
    let operation =
        Operation { family: &FOLDS, format: format_of(losses.dtype()), variant: "Average" };
    let inputs = [op.losses, op.weights];
    // SAFETY: dense lists of one type; the results are new.
    let done = unsafe { fold::fold(&operation, &plan, &inputs, op, gpu.stream()) };
    done.unwrap_or_else(|error| throw(error));
    out
}

/// The gradient of the scores for that of the loss, `g`: one number, or one per row. It is divided by `total`.
#[track_caller]
pub(super) fn backward(
    gpu: Gpu,
    batch: &Batch,
    lse: &Tensor,
    g: &Tensor,
    total: Option<&Tensor>,
    smoothing: f64,
) -> Tensor {
    let out = batch.x.empty_like();
    let all_weights = batch.weight.as_ref().filter(|_| smoothing > 0.0).map(Tensor::sum);
    let g = g.to_dtype(batch.x.dtype().compute()).contiguous();
    let op = Classes {
        lse: lse.device_ptr(),
        g: g.device_ptr(),
        total: address(total),
        out: out.device_ptr(),
        one: i32::from(g.dim() == 0),
        ..classes(batch, smoothing, all_weights.as_ref())
    };
    let (rows, n) = (batch.target.numel(), batch.x.shape()[1]);
    let format = format_of(out.dtype());
    let (entry, shape) = rows_shape("cross_entropy", rows, n, format, &[op.x, op.out])
        .unwrap_or_else(|error| throw(error));
    let kernel = ROWS.kernel(format, "Gradient", entry);
    // SAFETY: the kernel's parameter; dense tensors of these types, `out` is new.
    unsafe { gpu.launch(kernel, shape, crate::cuda::cuda_args!(op)) };
    out
}

/// The rows' losses and weights, into lists that are there, and the gradients of the scores in their place, for a
/// gradient of 1 of each loss, divided by `total` if there is one. So many rows come `first`. The scores' rows may have
/// room behind them, which is written over.
#[track_caller]
pub(super) fn step(
    gpu: Gpu,
    batch: &Batch,
    smoothing: f64,
    [losses, weights]: [&Tensor; 2],
    total: Option<&Tensor>,
    first: usize,
) {
    let all_weights = batch.weight.as_ref().filter(|_| smoothing > 0.0).map(Tensor::sum);
    let op = Classes {
        losses: losses.device_ptr(),
        weights: weights.device_ptr(),
        total: address(total),
        out: batch.x.device_ptr(),
        first: first as i32,
        refusal: gpu.refusal("linear_cross_entropy", "target", Rule::Class),
        ..classes(batch, smoothing, all_weights.as_ref())
    };
    let (rows, n) = (batch.target.numel(), op.step as usize);
    let format = format_of(batch.x.dtype());
    let (entry, shape) = rows_shape("linear_cross_entropy", rows, n, format, &[op.x, op.out])
        .unwrap_or_else(|error| throw(error));
    let kernel = ROWS.kernel(format, "Step", entry);
    // SAFETY: the kernel's parameter; dense tensors of these types, of which the scores are the caller's own.
    unsafe { gpu.launch(kernel, shape, crate::cuda::cuda_args!(op)) };
    batch.x.storage().bump_version();
}

/// Minus the weight of every row's class, 0 for the ignored.
#[track_caller]
pub(super) fn factors(gpu: Gpu, batch: &Batch) -> Tensor {
    let out = wide(batch, &[batch.target.numel()]);
    let op = Nll {
        factors: out.device_ptr(),
        weight: address(batch.weight.as_ref()),
        ignored: batch.ignore_index,
        refusal: gpu.refusal("nll_loss", "target", Rule::Class),
        ..nll(&batch.target, batch.x.shape()[1])
    };
    start(gpu, "factors", batch.x.dtype(), batch.target.numel(), op);
    out
}

/// The elements of the rows' classes times the factors.
#[track_caller]
pub(super) fn pick(gpu: Gpu, x: &Tensor, target: &Tensor, factors: &Tensor) -> Tensor {
    let out = Tensor::empty([target.numel()], (x.dtype(), x.device()));
    let op = Nll {
        x: x.device_ptr(),
        out: out.device_ptr(),
        factors: factors.device_ptr(),
        ..nll(target, x.shape()[1])
    };
    start(gpu, "pick", x.dtype(), target.numel(), op);
    out
}

/// Zeros with the dense list `g`, times the factors, in the places of the classes.
#[track_caller]
pub(super) fn place(
    gpu: Gpu,
    g: &Tensor,
    target: &Tensor,
    factors: &Tensor,
    classes: usize,
) -> Tensor {
    let out = Tensor::empty([target.numel(), classes], (g.dtype(), g.device()));
    let op = Nll {
        x: g.device_ptr(),
        out: out.device_ptr(),
        factors: factors.device_ptr(),
        ..nll(target, classes)
    };
    start(gpu, "place", g.dtype(), out.numel(), op);
    out
}

fn nll(target: &Tensor, classes: usize) -> Nll {
    Nll {
        x: null(),
        out: null_mut(),
        factors: null_mut(),
        target: target.device_ptr(),
        weight: null(),
        rows: target.numel() as i64,
        classes: classes as i64,
        ignored: 0,
        refusal: Refusal::NONE,
    }
}

#[track_caller]
fn start(gpu: Gpu, entry: &'static str, dtype: Dtype, threads: usize, op: Nll) {
    let shape: Shape = gpu.for_each(threads);
    // SAFETY: the kernel's parameter; dense tensors of these types, results are new.
    unsafe {
        gpu.launch(NLL.kernel(format_of(dtype), "Nll", entry), shape, crate::cuda::cuda_args!(op))
    };
}
