//! Layer normalisation on a GPU: `kernels/layer_norm.cu`. Nothing is widened in memory: half types are
//! computed in f32 as they are read, beside parameters of their type or of f32.

use crate::cuda::{
    family::FLOATS, family::Family, fold, fold::Operation, fold::is_wide_row, fold::rows_shape,
    launch::Argument, launch::Shape, sources::family,
};
use std::ptr::{null, null_mut};

use crate::error::throw;
use crate::loops::{Format, fold::Plan};
use crate::ops::gpu::{Gpu, address, format_of};
use crate::ops::products::matmul::cuda::multiprocessors;
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static ROWS: Family =
    family!("layer_norm": "fold.cuh", "rows.cuh", "layer_norm.cu", "rows_entries.cuh")
        .with(&[(FLOATS, &["Forward", "Backward"])]);
pub(in crate::ops) static FOLDS: Family =
    family!("layer_norm_parameters": "fold.cuh", "rows.cuh", "layer_norm.cu", "fold_entries.cuh")
        .with(&[(FLOATS, &["Parameters"])]);

/// Without a variant of its own.
pub(in crate::ops) static BOTH: Family =
    family!("layer_norm_both": "fold.cuh", "rows.cuh", "layer_norm.cu", "layer_norm_both.cu")
        .with(&[(&[Format::F32, Format::F16, Format::BF16], &["Both"])]);

/// Elements of a row for which a warp, and a block, keep all that they need: as in `kernels/layer_norm_both.cu`.
const WARP: usize = 1024;
const BLOCK: usize = 4096;
/// Blocks of the two kernels that are at work on a multiprocessor.
const WARPS_AT_WORK: usize = 1;
const BLOCKS_AT_WORK: usize = 2;

/// `LayerNorm` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Task {
    x: *const u8,
    dy: *const u8,
    w: *const u8,
    b: *const u8,
    y: *mut u8,
    mean: *mut u8,
    scale: *mut u8,
    dw: *mut u8,
    db: *mut u8,
    n: i64,
    count: i64,
    eps: f64,
    centered: i32,
    wide_weight: i32,
    weight_format: i32,
    weight_size: i32,
    // Of the result, or of its gradient.
    result_format: i32,
    added_format: i32,
    added: *const u8,
    sum: *mut u8,
    dsum: *const u8,
    dadded: *mut u8,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Task {}

fn task(x: &Tensor, stats: &Tensor, n: usize, weight: Dtype, centered: bool) -> Task {
    let rows = stats.shape()[1];
    let mean = stats.device_ptr();
    Task {
        x: x.device_ptr(),
        dy: null_mut(),
        w: null_mut(),
        b: null_mut(),
        y: null_mut(),
        mean,
        scale: mean.wrapping_add(rows * stats.dtype().size()),
        dw: null_mut(),
        db: null_mut(),
        n: n as i64,
        count: rows as i64,
        eps: 0.0,
        centered: i32::from(centered),
        wide_weight: i32::from(weight != x.dtype()),
        weight_format: format_of(weight) as i32,
        weight_size: weight.size() as i32,
        result_format: format_of(x.dtype()) as i32,
        added_format: format_of(x.dtype()) as i32,
        added: null(),
        sum: null_mut(),
        dsum: null(),
        dadded: null_mut(),
    }
}

/// The type of the parameters, which have one.
fn dtype_of(parameters: [Option<&Tensor>; 2], x: &Tensor) -> Dtype {
    parameters.into_iter().flatten().next().map_or(x.dtype(), Tensor::dtype)
}

/// What forward gives.
pub(super) struct Normal {
    /// `x + added`, if there is such.
    pub(super) sum: Option<Tensor>,
    /// The norm of `x`, or of the sum.
    pub(super) y: Tensor,
    /// `[2, rows]`: the rows' means and 1 / sqrt(variance + eps).
    pub(super) stats: Tensor,
}

/// The longest row of which a block keeps all.
const KEPT: usize = 32 * 256;

/// Whether [`forward`] takes something that is added to rows of `n` elements of this type.
pub(super) fn is_added(dtype: Dtype, n: usize) -> bool {
    n <= KEPT && dtype != Dtype::F64
}

/// The rows of `n` elements normalised, of type `to`, after `added` was added to them.
#[track_caller]
#[allow(clippy::too_many_arguments, reason = "what a norm is of")]
pub(super) fn forward(
    gpu: Gpu,
    x: &Tensor,
    added: Option<&Tensor>,
    [rows, n]: [usize; 2],
    parameters: [Option<&Tensor>; 2],
    eps: f64,
    centered: bool,
    to: Dtype,
) -> Normal {
    let dtype = dtype_of(parameters, x);
    let x = x.detach().contiguous();
    let added = added.map(|added| added.detach().contiguous());
    let [w, b] = parameters.map(|p| p.map(|p| p.detach().contiguous()));
    let sum = added.as_ref().map(|_| x.empty_like());
    let y = Tensor::empty(x.shape(), (to, x.device()));
    let stats = Tensor::empty([2, rows], (x.dtype().compute(), x.device()));
    let op = Task {
        w: address(w.as_ref()),
        b: address(b.as_ref()),
        y: y.device_ptr(),
        eps,
        result_format: format_of(to) as i32,
        added_format: format_of(added.as_ref().map_or(x.dtype(), Tensor::dtype)) as i32,
        added: address(added.as_ref()),
        sum: address(sum.as_ref()),
        ..task(&x, &stats, n, dtype, centered)
    };
    start(gpu, "Forward", &x, rows, n, op);
    Normal { sum, y, stats }
}

/// The gradient of the input, of the input's type.
#[track_caller]
pub(super) fn backward(
    gpu: Gpu,
    dy: &Tensor,
    x: &Tensor,
    n: usize,
    weight: Option<&Tensor>,
    stats: &Tensor,
    centered: bool,
) -> Tensor {
    let dtype = dtype_of([weight, None], x);
    let (x, dy) = (x.detach().contiguous(), dy.detach().contiguous());
    let weight = weight.map(|w| w.detach().contiguous());
    let dx = x.empty_like();
    let op = Task {
        dy: dy.device_ptr(),
        w: address(weight.as_ref()),
        y: dx.device_ptr(),
        result_format: format_of(dy.dtype()) as i32,
        ..task(&x, stats, n, dtype, centered)
    };
    start(gpu, "Backward", &x, stats.shape()[1], n, op);
    dx
}

/// What backward of a sum and its norm gives besides.
#[derive(Clone, Copy)]
pub(super) struct Sum<'a> {
    /// The sum's own gradient, if it has one; of the input's type.
    pub(super) dsum: Option<&'a Tensor>,
    /// The type of what was added, if its gradient is wanted in another than the input's.
    pub(super) added: Option<Dtype>,
}

/// The gradient of the input; of what was added to it, where that is of another type; of weight and shift.
pub(super) type Both = (Tensor, Option<Tensor>, [Option<Tensor>; 2]);

/// [`backward`] and [`parameters`] in one visit of the rows, where they are short enough.
#[track_caller]
#[allow(clippy::too_many_arguments, reason = "what backward has saved")]
pub(super) fn both(
    gpu: Gpu,
    dy: &Tensor,
    x: &Tensor,
    n: usize,
    weight: Option<&Tensor>,
    stats: &Tensor,
    centered: bool,
    wanted: [bool; 2],
    to: Dtype,
    of_sum: Option<Sum<'_>>,
) -> Option<Both> {
    let rows = stats.shape()[1];
    if x.dtype() == Dtype::F64 || n > BLOCK || rows == 0 {
        return None;
    }
    let (x, dy) = (x.detach().contiguous(), dy.detach().contiguous());
    let weight = weight.map(|w| w.detach().contiguous());
    let dx = x.empty_like();
    let out = wanted.map(|wanted| wanted.then(|| Tensor::empty([n], (to, x.device()))));
    let dsum = of_sum.and_then(|of| of.dsum).map(|dsum| dsum.detach().contiguous());
    let dadded = of_sum.and_then(|of| of.added);
    let dadded = dadded.map(|dtype| Tensor::empty(x.shape(), (dtype, x.device())));
    let op = Task {
        added_format: format_of(dadded.as_ref().map_or(x.dtype(), Tensor::dtype)) as i32,
        dsum: address(dsum.as_ref()),
        dadded: address(dadded.as_ref()),
        dy: dy.device_ptr(),
        w: address(weight.as_ref()),
        y: dx.device_ptr(),
        dw: address(out[0].as_ref()),
        db: address(out[1].as_ref()),
        result_format: format_of(dy.dtype()) as i32,
        ..task(&x, stats, n, to, centered)
    };
    let format = format_of(x.dtype());
    let addresses = [op.x, op.dy, op.w, op.y.cast_const(), op.dsum, op.dadded.cast_const()];
    if !is_wide_row(n, format, &addresses) {
        return None;
    }
    let short = n <= WARP;
    let (entry, lanes, at_work) =
        if short { ("both_short", 32, WARPS_AT_WORK) } else { ("both_long", 256, BLOCKS_AT_WORK) };
    let groups = 256 / lanes;
    let blocks = rows.div_ceil(groups as usize).min(at_work * multiprocessors(gpu));
    let parts = Tensor::empty([blocks, 2, n], (x.dtype().compute(), x.device()));
    let (at, count) = (parts.device_ptr(), blocks as i64);
    let shape = Shape { block: [lanes, groups, 1], ..Shape::plane(blocks, 1, 1) };
    let kernel = |entry| BOTH.kernel(format, "Both", entry);
    // SAFETY: the kernels' parameters; dense tensors of these types and sizes, of which the results are new, and a part
    // for each block.
    unsafe {
        gpu.launch(kernel(entry), shape, crate::cuda::cuda_args!(op, at));
        let shape = Shape { block: [32, 8, 1], ..Shape::plane((2 * n).div_ceil(32), 1, 1) };
        // It reads none of these, and whoever counts bytes goes by addresses.
        let (x, dy, w, none) = (null(), null(), null(), null_mut());
        let op = Task { x, dy, w, y: none, mean: none, scale: none, dsum: x, dadded: none, ..op };
        gpu.launch(kernel("add_blocks"), shape, crate::cuda::cuda_args!(op, at, count));
    }
    Some((dx, dadded, out))
}

#[track_caller]
fn start(gpu: Gpu, variant: &'static str, x: &Tensor, rows: usize, n: usize, op: Task) {
    let format = format_of(x.dtype());
    let mut addresses = vec![op.x, op.y.cast_const()];
    let more = [op.dy, op.w, op.b, op.added, op.sum.cast_const()];
    addresses.extend(more.iter().filter(|at| !at.is_null()));
    let (entry, shape) =
        rows_shape("layer_norm", rows, n, format, &addresses).unwrap_or_else(|error| throw(error));
    let kernel = ROWS.kernel(format, variant, entry);
    // SAFETY: the kernel's parameter; dense tensors of these types and sizes, the results are new.
    unsafe { gpu.launch(kernel, shape, crate::cuda::cuda_args!(op)) };
}

/// The gradients of weight and shift, lists of `n` numbers of type `to`: those that are wanted.
#[track_caller]
pub(super) fn parameters(
    gpu: Gpu,
    dy: &Tensor,
    x: &Tensor,
    n: usize,
    stats: &Tensor,
    wanted: [bool; 2],
    to: Dtype,
) -> [Option<Tensor>; 2] {
    let (x, dy) = (x.detach().contiguous(), dy.detach().contiguous());
    let out = wanted.map(|wanted| wanted.then(|| Tensor::empty([n], (to, x.device()))));
    if wanted == [false; 2] {
        return out;
    }
    let op = Task {
        dy: dy.device_ptr(),
        result_format: format_of(dy.dtype()) as i32,
        dw: address(out[0].as_ref()),
        db: address(out[1].as_ref()),
        ..task(&x, stats, n, to, true)
    };
    let plan = Plan::new(&[stats.shape()[1], n], &[n as isize, 1], &|d| d == 0);
    let format = format_of(x.dtype());
    let operation = Operation { family: &FOLDS, format, variant: "Parameters" };
    // SAFETY: dense tensors of these sizes; the results are new.
    let done = unsafe { fold::fold(&operation, &plan, &[op.x, op.dy], op, gpu.stream()) };
    done.unwrap_or_else(|error| throw(error));
    out
}
