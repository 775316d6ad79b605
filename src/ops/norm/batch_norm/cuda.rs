//! Batch normalisation on a GPU: `kernels/batch_norm.cu`. Channels may be last in memory, and stay there;
//! nothing is widened in memory.

use crate::cuda::{
    family::FLOATS, family::Family, fold, fold::Operation, fold::planes_shape, launch::Argument,
    sources::family,
};
use std::ptr::null_mut;

use crate::autograd::no_grad;
use crate::error::throw;
use crate::loops::fold::Plan;
use crate::ops::{MemoryFormat, gpu::Gpu, gpu::address, gpu::format_of, gpu::order};
use crate::tensor::Tensor;

pub(in crate::ops) static FOLDS: Family =
    family!("batch_norm_folds": "fold.cuh", "rows.cuh", "batch_norm.cu", "batch_norm_columns.cuh", "fold_entries.cuh")
        .with(&[(FLOATS, &["Statistics", "Sums"])]);
pub(in crate::ops) static EACH: Family =
    family!("batch_norm": "fold.cuh", "rows.cuh", "batch_norm.cu", "batch_norm_entries.cuh")
        .with(&[(FLOATS, &["Forward", "Backward"])]);

/// `BatchNorm` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Task {
    x: *const u8,
    dy: *const u8,
    y: *mut u8,
    stats: *mut u8,
    sums: *mut u8,
    w: *mut u8,
    b: *mut u8,
    running_mean: *mut u8,
    running_var: *mut u8,
    channels: i64,
    count: i64,
    rows: i64,
    length: i64,
    eps: f64,
    momentum: f64,
    w_format: i32,
    b_format: i32,
    mean_format: i32,
    var_format: i32,
    last: i32,
    training: i32,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Task {}

/// Options of both directions.
#[derive(Clone, Copy)]
pub(super) struct Options {
    pub training: bool,
    pub eps: f64,
    pub momentum: f64,
}

/// A new tensor like `x`, which is dense in this order.
fn like(x: &Tensor, order: MemoryFormat) -> Tensor {
    if order == MemoryFormat::Contiguous {
        return x.empty_like();
    }
    Tensor::empty_in(x.shape(), (x.dtype(), x.device()), order)
}

fn task(x: &Tensor, stats: &Tensor, order: MemoryFormat, options: Options) -> Task {
    let channels = x.shape()[1];
    let plane = x.shape()[2..].iter().product::<usize>();
    // Without planes the channels of an item are side by side.
    let last = order != MemoryFormat::Contiguous || plane == 1;
    let length = if last { channels } else { plane };
    Task {
        x: x.device_ptr(),
        dy: null_mut(),
        y: null_mut(),
        stats: stats.device_ptr(),
        sums: null_mut(),
        w: null_mut(),
        b: null_mut(),
        running_mean: null_mut(),
        running_var: null_mut(),
        channels: channels as i64,
        count: (x.shape()[0] * plane) as i64,
        rows: (x.numel() / length.max(1)) as i64,
        length: length as i64,
        eps: options.eps,
        momentum: options.momentum,
        w_format: 0,
        b_format: 0,
        mean_format: 0,
        var_format: 0,
        last: i32::from(last),
        training: i32::from(options.training),
    }
}

/// Folds the elements of each channel.
#[track_caller]
fn fold_channels(gpu: Gpu, variant: &'static str, x: &Tensor, inputs: &[*const u8], op: Task) {
    let plan = Plan::new(x.shape(), x.strides(), &|d| d != 1);
    let operation = Operation { family: &FOLDS, format: format_of(x.dtype()), variant };
    let rows = [op.rows as usize, op.channels as usize];
    // SAFETY: tensors of these types and sizes that lie alike; results are new or the running statistics.
    let done = unsafe {
        match op.last == 1 && fold::is_wide_row(rows[1], operation.format, inputs) {
            true => fold::fold_wide_columns(&operation, rows, op, gpu.stream()),
            false => fold::fold(&operation, &plan, inputs, op, gpu.stream()),
        }
    };
    done.unwrap_or_else(|error| throw(error));
}

/// Works on all elements.
#[track_caller]
fn each(gpu: Gpu, variant: &'static str, x: &Tensor, op: Task) {
    let format = format_of(x.dtype());
    let mut addresses = vec![op.x, op.y.cast_const()];
    addresses.extend((!op.dy.is_null()).then_some(op.dy));
    let (rows, length) = (op.rows as usize, op.length as usize);
    let shape = planes_shape(rows, length, op.last == 1, format, &addresses, gpu.index);
    let (wide, shape) = shape.unwrap_or_else(|error| throw(error));
    let kernel = EACH.kernel(format, variant, if wide { "each_wide" } else { "each" });
    // SAFETY: the kernel's parameter; tensors of these types and sizes that lie alike, the result is new.
    unsafe { gpu.launch(kernel, shape, crate::cuda::cuda_args!(op)) };
}

/// The result, and `[3, channels]`: mean, 1 / sqrt(var + eps), unbiased variance. Moves the running statistics
/// in training.
#[track_caller]
pub(super) fn forward(
    gpu: Gpu,
    x: &Tensor,
    running: [Option<&Tensor>; 2],
    parameters: [Option<&Tensor>; 2],
    options: Options,
) -> (Tensor, Tensor) {
    let order = order(x);
    let x = no_grad(|| x.detach().contiguous_in(order));
    let y = like(&x, order);
    let channels = x.shape()[1];
    let kind = (x.dtype().compute(), x.device());
    // Of no numbers nothing is known.
    let stats = match options.training && x.numel() == 0 {
        true => Tensor::zeros([3, channels], kind),
        false => Tensor::empty([3, channels], kind),
    };
    let [w, b] = parameters.map(|p| p.map(|p| p.detach().contiguous()));
    let format = |t: Option<&Tensor>| t.map_or(0, |t| format_of(t.dtype()) as i32);
    let dense = running.map(|t| t.map(|t| t.detach().contiguous()));
    let [mean, var] = dense.each_ref().map(Option::as_ref);
    let op = Task {
        y: y.device_ptr(),
        w: address(w.as_ref()),
        b: address(b.as_ref()),
        running_mean: address(mean),
        running_var: address(var),
        w_format: format(w.as_ref()),
        b_format: format(b.as_ref()),
        mean_format: format(mean),
        var_format: format(var),
        ..task(&x, &stats, order, options)
    };
    if !options.training {
        let kernel = EACH.kernel(format_of(x.dtype()), "Forward", "known");
        // SAFETY: the kernel's parameter; lists of one number per channel.
        unsafe { gpu.launch(kernel, gpu.for_each(channels), crate::cuda::cuda_args!(op)) };
    } else if op.count > 0 {
        running.iter().flatten().for_each(|t| t.assert_inplace_legal("batch_norm"));
        fold_channels(gpu, "Statistics", &x, &[op.x], op);
        for (running, dense) in running.into_iter().zip(&dense) {
            match (running, dense) {
                (Some(to), Some(moved)) if to.device_ptr() != moved.device_ptr() => {
                    no_grad(|| to.copy_(moved));
                }
                (Some(to), _) => to.storage().bump_version(),
                _ => {}
            }
        }
    }
    each(gpu, "Forward", &x, op);
    (y, stats)
}

/// dx if it is wanted, and `[2, channels]`, dw and db.
#[track_caller]
pub(super) fn backward(
    gpu: Gpu,
    dy: &Tensor,
    x: &Tensor,
    stats: &Tensor,
    weight: Option<&Tensor>,
    options: Options,
    wanted: bool,
) -> (Option<Tensor>, Tensor) {
    let order = order(x);
    let [x, dy] = no_grad(|| [x, dy].map(|t| t.detach().contiguous_in(order)));
    let weight = weight.map(|w| w.detach().contiguous());
    let sums = Tensor::empty([2, x.shape()[1]], (stats.dtype(), x.device()));
    let op = Task {
        dy: dy.device_ptr(),
        sums: sums.device_ptr(),
        w: address(weight.as_ref()),
        w_format: weight.as_ref().map_or(0, |w| format_of(w.dtype()) as i32),
        ..task(&x, stats, order, options)
    };
    fold_channels(gpu, "Sums", &x, &[op.x, op.dy], op);
    let dx = wanted.then(|| {
        let dx = like(&x, order);
        each(gpu, "Backward", &x, Task { y: dx.device_ptr(), ..op });
        dx
    });
    (dx, sums)
}
