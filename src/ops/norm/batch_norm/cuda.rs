//! Batch normalisation on a GPU: `kernels/batch_norm.cu`. Channels may be last in memory, and stay there;
//! nothing is widened in memory.

use crate::cuda::{
    family::FLOATS, family::Family, fold, fold::Operation, fold::planes_shape, launch::Argument,
    launch::Shape, sources::family,
};
use std::ptr::{null_mut, without_provenance};

use super::{Norm, Options, Saved};

use crate::autograd::no_grad;
use crate::error::throw;
use crate::loops::fold::Plan;
use crate::ops::{MemoryFormat, gpu::Gpu, gpu::address, gpu::format_of, gpu::order};
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static FOLDS: Family =
    family!("batch_norm_folds": "fold.cuh", "rows.cuh", "batch_norm.cu", "batch_norm_columns.cuh", "fold_entries.cuh")
        .with(&[(FLOATS, &["Statistics", "Sums", "SumsMasked", "SumsWritten", "SumsSummed"])]);
pub(in crate::ops) static EACH: Family =
    family!("batch_norm": "fold.cuh", "rows.cuh", "batch_norm.cu", "batch_norm_entries.cuh").with(
        &[(FLOATS, &["Forward", "ForwardRelu", "ForwardAddRelu", "Backward", "BackwardMasked"])],
    );

/// `BatchNorm` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Task {
    x: *const u8,
    dy: *const u8,
    y: *mut u8,
    stats: *mut u8,
    along: *mut u8,
    plain: *mut u8,
    w: *mut u8,
    b: *mut u8,
    running_mean: *mut u8,
    running_var: *mut u8,
    batches: *mut u8,
    residual: *const u8,
    dr: *mut u8,
    more: *const u8,
    mask: *mut u8,
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
    mask_shift: i32,
    reserved: i32,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Task {}

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
        along: null_mut(),
        plain: null_mut(),
        w: null_mut(),
        b: null_mut(),
        running_mean: null_mut(),
        running_var: null_mut(),
        batches: null_mut(),
        residual: null_mut(),
        dr: null_mut(),
        more: null_mut(),
        mask: null_mut(),
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
        mask_shift: 0,
        reserved: 0,
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
        // A mask of single elements is for what reads single ones.
        let whole = op.mask.is_null() || op.mask_shift != 0;
        match op.last == 1 && whole && fold::is_wide_row(rows[1], operation.format, inputs) {
            true => fold::fold_wide_columns(&operation, rows, op, gpu.stream()),
            false => fold::fold(&operation, &plan, inputs, op, gpu.stream()),
        }
    };
    done.unwrap_or_else(|error| throw(error));
}

/// Whether all elements are worked on sixteen bytes at a time, and the shape for it.
#[track_caller]
fn shape_of(gpu: Gpu, x: &Tensor, op: &Task) -> (bool, Shape) {
    let mut all = vec![op.x, op.y, op.dy, op.residual];
    // Bytes with a bit each are for single elements.
    all.extend((!op.mask.is_null() && op.mask_shift == 0).then_some(without_provenance(1)));
    let (rows, length) = (op.rows as usize, op.length as usize);
    let shape = planes_shape(rows, length, op.last == 1, format_of(x.dtype()), &all, gpu.index);
    shape.unwrap_or_else(|error| throw(error))
}

/// Works on all elements.
#[track_caller]
fn each(gpu: Gpu, variant: &'static str, x: &Tensor, (wide, shape): (bool, Shape), op: Task) {
    let entry = if wide { "each_wide" } else { "each" };
    let kernel = EACH.kernel(format_of(x.dtype()), variant, entry);
    // SAFETY: the kernel's parameter; tensors of these types and sizes that lie alike, the result is new.
    unsafe { gpu.launch(kernel, shape, crate::cuda::cuda_args!(op)) };
}

/// What follows the norm in the same pass: a tensor of the same shape and type is added, then comes `relu`.
pub(super) struct Relu<'a> {
    pub residual: Option<&'a Tensor>,
    /// Whether backward will ask which results are not 0.
    pub masked: bool,
}

/// Which results of [`forward`] are not 0.
pub(super) struct Mask {
    /// How the elements lie whose neighbours are neighbours here.
    pub order: MemoryFormat,
    /// 2^shift neighbours are a byte's bits.
    pub shift: i32,
    pub bits: Tensor,
}

impl Mask {
    /// For results like `x`, which are written sixteen bytes at a time if `wide`.
    fn new(x: &Tensor, order: MemoryFormat, wide: bool) -> Mask {
        let each = if wide { 16 / x.dtype().size() } else { 1 };
        let bits = Tensor::empty([x.numel() / each], (Dtype::U8, x.device()));
        Mask { order, shift: each.trailing_zeros() as i32, bits }
    }
}

/// What [`forward`] gives.
pub(super) struct Found {
    pub y: Tensor,
    /// `[3, channels]`: mean, 1 / sqrt(var + eps), unbiased variance.
    pub stats: Tensor,
    pub mask: Option<Mask>,
}

/// The result, and what backward needs. In training it moves the running statistics and counts the batch.
#[track_caller]
pub(super) fn forward(gpu: Gpu, x: &Tensor, norm: &Norm<'_>, relu: Option<Relu<'_>>) -> Found {
    let Norm { running, affine, options, .. } = *norm;
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
    let [w, b] = affine.map(|p| p.map(|p| p.detach().contiguous()));
    let format = |t: Option<&Tensor>| t.map_or(0, |t| format_of(t.dtype()) as i32);
    let dense = running.map(|t| t.map(|t| t.detach().contiguous()));
    let [mean, var] = dense.each_ref().map(Option::as_ref);
    let op = Task {
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
        let counted = counted(&x, norm);
        fold_channels(gpu, "Statistics", &x, &[op.x], Task { batches: address(counted), ..op });
        if let Some(batches) = counted {
            batches.storage().bump_version();
        } else {
            norm.count();
        }
        for (running, dense) in running.into_iter().zip(&dense) {
            match (running, dense) {
                (Some(to), Some(moved)) if to.device_ptr() != moved.device_ptr() => {
                    no_grad(|| to.copy_(moved));
                }
                (Some(to), _) => to.storage().bump_version(),
                _ => {}
            }
        }
    } else {
        norm.count();
    }
    let residual = relu.as_ref().and_then(|relu| relu.residual);
    let residual = residual.map(|r| packed(r, order));
    let op = Task { y: y.device_ptr(), residual: address(residual.as_ref()), ..op };
    let shape = shape_of(gpu, &x, &op);
    let masked = relu.as_ref().is_some_and(|relu| relu.masked);
    let mask = masked.then(|| Mask::new(&x, order, shape.0));
    let variant = match (&relu, &residual) {
        (None, _) => "Forward",
        (Some(_), None) => "ForwardRelu",
        (Some(_), Some(_)) => "ForwardAddRelu",
    };
    each(gpu, variant, &x, shape, with_mask(op, mask.as_ref()));
    Found { y, stats, mask }
}

/// The number of batches, if the kernel of the statistics can count there.
#[track_caller]
fn counted<'a>(x: &Tensor, norm: &Norm<'a>) -> Option<&'a Tensor> {
    let fits = |t: &&Tensor| t.dtype() == Dtype::I64 && t.device() == x.device() && t.numel() == 1;
    let counted = norm.batches.filter(fits)?;
    counted.assert_inplace_legal("batch_norm");
    // Without channels no thread counts.
    (x.shape()[1] > 0).then_some(counted)
}

fn with_mask(op: Task, mask: Option<&Mask>) -> Task {
    let Some(mask) = mask else { return op };
    Task { mask: mask.bits.device_ptr(), mask_shift: mask.shift, ..op }
}

/// `t` without history, dense in an order, and beginning where sixteen bytes do: what is beside x decides neither how many
/// elements are read at a time nor, with that, in which order they are added up.
fn packed(t: &Tensor, order: MemoryFormat) -> Tensor {
    no_grad(|| {
        let t = t.detach().contiguous_in(order);
        match t.device_ptr().addr().is_multiple_of(16) {
            true => t,
            false => like(&t, order).copy_(&t).detach(),
        }
    })
}

/// What goes into [`backward`]: only gradients where the result of `relu` is not 0 count.
pub(super) struct Remaining<'a> {
    pub mask: &'a Mask,
    /// Of a norm with a residual: its gradient is asked for.
    pub residual: bool,
    /// What is to be added to the gradient of the result, if there is a residual.
    pub more: Option<&'a Tensor>,
}

/// What [`backward`] gives: dw and db always.
pub(super) struct Gradients {
    pub dx: Option<Tensor>,
    pub dr: Option<Tensor>,
    pub dw: Tensor,
    pub db: Tensor,
}

/// The gradients; of the input if it is `wanted`.
#[track_caller]
pub(super) fn backward(
    gpu: Gpu,
    dy: &Tensor,
    saved: &Saved,
    relu: Option<Remaining<'_>>,
    wanted: bool,
) -> Gradients {
    let Saved { x, stats, weight, options, .. } = saved;
    // Hooks of saved tensors may have given x another order than the mask's.
    let order = relu.as_ref().map_or_else(|| order(x), |relu| relu.mask.order);
    let x = no_grad(|| x.detach().contiguous_in(order));
    let dy = match relu {
        // As what `relu` makes of it.
        Some(_) => packed(dy, order),
        None => no_grad(|| dy.detach().contiguous_in(order)),
    };
    let more = relu.as_ref().and_then(|relu| relu.more).map(|more| packed(more, order));
    let dr = relu.as_ref().filter(|relu| relu.residual).map(|_| like(&x, order));
    let weight = weight.as_ref().map(|w| w.detach().contiguous());
    // Each is a tensor of its own, which a parameter keeps without a copy.
    let sum = || Tensor::empty([x.shape()[1]], (stats.dtype(), x.device()));
    let (dw, db) = (sum(), sum());
    let op = Task {
        dy: dy.device_ptr(),
        along: dw.device_ptr(),
        plain: db.device_ptr(),
        w: address(weight.as_ref()),
        w_format: weight.as_ref().map_or(0, |w| format_of(w.dtype()) as i32),
        ..task(&x, stats, order, *options)
    };
    let masked = with_mask(op, relu.as_ref().map(|relu| relu.mask));
    let summed = Task { dr: address(dr.as_ref()), more: address(more.as_ref()), ..masked };
    // The sums write the residual's gradient, of which that of the input is made.
    let (sums, of_each, op) = match (&relu, &dr, &more) {
        (None, ..) => ("Sums", "Backward", op),
        (Some(_), None, _) => ("SumsMasked", "BackwardMasked", masked),
        (Some(_), Some(dr), None) => {
            ("SumsWritten", "Backward", Task { dy: dr.device_ptr(), ..op })
        }
        (Some(_), Some(dr), Some(_)) => {
            ("SumsSummed", "Backward", Task { dy: dr.device_ptr(), ..op })
        }
    };
    fold_channels(gpu, sums, &x, &[op.x, op.dy], summed);
    let dx = wanted.then(|| {
        let dx = like(&x, order);
        let op = Task { y: dx.device_ptr(), ..op };
        each(gpu, of_each, &x, shape_of(gpu, &x, &op), op);
        dx
    });
    Gradients { dx, dr, dw, db }
}
