//! Slices and elements by index on GPUs: what the ops of those names do there.
//! Indices are checked by the kernels, since looking at them here would mean to wait for the device.

use super::reduction::ScatterReduce;
use crate::autograd::no_grad;
use crate::cuda::cuda_args;
use crate::cuda::{
    Kernel, Program, launch::Argument, refusal::Refusal, refusal::Rule, sources::kernels_by,
    sources::program,
};
use crate::error::{Error, throw};
use crate::ops::{gpu::Gpu, gpu::kernel_of, gpu::unit, shape::around::around};
use crate::tensor::{Dtype, Scalar, Tensor};

pub(in crate::ops) static PROGRAM: Program = program!("indexing": "refusal.cuh", "indexing.cu");

kernels_by! {
    units of PROGRAM:
    TAKE "take";
    PUT "put";
    GATHER "gather";
    SCATTER "scatter";
}

kernels_by! {
    numbers of PROGRAM:
    ADD "add";
    SCATTER_ADD "scatter_add";
}

static SCATTER_WITH: [[Kernel; 3]; 3] = [
    kernels_by!(PROGRAM "scatter_prod": "_f64" "_f32" "_i64"),
    kernels_by!(PROGRAM "scatter_amax": "_f64" "_f32" "_i64"),
    kernels_by!(PROGRAM "scatter_amin": "_f64" "_f32" "_i64"),
];

/// Of one kernel for each type, that for elements of a type, and the type in which they are added.
fn adding(kernels: &'static [Kernel; 9], dtype: Dtype) -> (&'static Kernel, Dtype) {
    let sums = match dtype {
        Dtype::F64 | Dtype::I64 => dtype,
        _ if dtype.is_floating_point() => Dtype::F32,
        _ => Dtype::I32,
    };
    (kernel_of("index_add", kernels, dtype), sums)
}

/// Dimensions of an index that the kernels walk.
const MOST_DIMS: usize = 8;

/// `Places` of `kernels/indexing.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Places {
    count: i64,
    size: i64,
    along: i64,
    sizes: [i64; MOST_DIMS],
    whole: [i64; MOST_DIMS],
    beside: [i64; MOST_DIMS],
    dims: i32,
    reserved: i32,
    refusal: Refusal,
}

// SAFETY: the same fields in the same order on the other side.
unsafe impl Argument for Places {}

impl Places {
    /// Of a dense index into dimension `d` of `whole`, with strides of the tensor beside it.
    #[track_caller]
    fn new(
        gpu: Gpu,
        op: &str,
        index: &Tensor,
        d: usize,
        whole: &Tensor,
        beside: &[isize],
    ) -> Places {
        let dims = index.dim();
        if dims > MOST_DIMS {
            throw(Error::shape(op, format!("at most {MOST_DIMS} dimensions on a GPU, not {dims}")));
        }
        let mut places = Places {
            count: index.numel() as i64,
            size: whole.shape().get(d).map_or(1, |&n| n as i64),
            along: whole.strides().get(d).map_or(1, |&n| n as i64),
            sizes: [1; MOST_DIMS],
            whole: [0; MOST_DIMS],
            beside: [0; MOST_DIMS],
            dims: dims.max(1) as i32,
            reserved: 0,
            refusal: gpu.refusal(op, "index", Rule::Index),
        };
        // An empty one may have other dimensions.
        for k in 0..if index.numel() == 0 { 0 } else { dims } {
            places.sizes[k] = index.shape()[k] as i64;
            places.whole[k] = if k == d { 0 } else { whole.strides()[k] as i64 };
            places.beside[k] = beside.get(k).map_or(0, |&s| s as i64);
        }
        places
    }
}

/// The slices `index` of dimension `d` of the contiguous `x`.
#[track_caller]
pub(in crate::ops) fn take_slices(gpu: Gpu, x: &Tensor, d: usize, index: &Tensor) -> Tensor {
    let [outer, n, inner] = around(x.shape(), d);
    let m = index.numel();
    let mut shape = x.layout().shape.clone();
    shape.get_mut(d).into_iter().for_each(|size| *size = m);
    let out = Tensor::empty(&shape, (x.dtype(), gpu.device()));
    let refusal = gpu.refusal("index_select", "index", Rule::Index);
    move_slices(gpu, &TAKE, [&out, x], index, [outer, n, m, inner], refusal);
    out
}

/// Overwrites the slices `index` of dimension `d` of the dense `x` with those of `rows`.
#[track_caller]
pub(in crate::ops) fn put_slices(gpu: Gpu, x: &Tensor, d: usize, index: &Tensor, rows: &Tensor) {
    let [outer, n, inner] = around(x.shape(), d);
    let refusal = gpu.refusal("index_put_", "indices", Rule::Index);
    move_slices(gpu, &PUT, [x, rows], index, [outer, n, index.numel(), inner], refusal);
}

#[track_caller]
fn move_slices(
    gpu: Gpu,
    kernels: &'static [Kernel; 5],
    [to, from]: [&Tensor; 2],
    index: &Tensor,
    [outer, n, m, inner]: [usize; 4],
    refusal: Refusal,
) {
    let row = inner * to.dtype().size();
    let (to, from) = (to.device_ptr(), from.device_ptr());
    let unit = unit([row, to as usize, from as usize]);
    let row = row >> unit;
    let shape = gpu.for_each(outer * m * row);
    let sizes = [outer, n, m, row].map(|n| n as i64);
    let [outer, n, m, row] = sizes;
    let index = index.device_ptr();
    // SAFETY: dense tensors of these sizes, a dense i64 index whose values the kernel checks.
    unsafe {
        gpu.launch(&kernels[unit], shape, cuda_args!(to, from, index, outer, n, m, row, refusal));
    }
}

/// Runs `add` on `x`, or on a copy in the type in which its elements are added, which is then written back.
fn in_sums(x: &Tensor, sums: Dtype, add: impl FnOnce(&Tensor)) {
    if sums == x.dtype() {
        return add(x);
    }
    no_grad(|| {
        let x = x.detach();
        let wide = x.to_dtype(sums);
        add(&wide);
        x.copy_(&wide);
    });
}

/// Adds the slices of `src` to the slices `index` of dimension `d` of `x`, but for those whose index is
/// `skipped`; all dense. Several for one place are added in no fixed order, as in PyTorch.
#[track_caller]
pub(in crate::ops) fn add_slices(
    gpu: Gpu,
    x: &Tensor,
    d: usize,
    index: &Tensor,
    src: &Tensor,
    skipped: Option<i64>,
) {
    let (kernel, sums) = adding(&ADD, x.dtype());
    let [outer, n, inner] = around(x.shape(), d).map(|n| n as i64);
    let (m, skipped) = (index.numel() as i64, skipped.unwrap_or(-1));
    let refusal = gpu.refusal("index_add_", "index", Rule::Index);
    in_sums(x, sums, |x| {
        let (to, from, index) = (x.device_ptr(), src.device_ptr(), index.device_ptr());
        let args = cuda_args!(to, from, index, outer, n, m, inner, skipped, refusal);
        // SAFETY: dense tensors of these types and sizes; the kernel checks the index.
        unsafe { gpu.launch(kernel, gpu.for_each(src.numel()), args) };
    });
}

/// `y[p] = x[p']`, p' being p with the coordinate along `d` replaced by `index[p]`.
#[track_caller]
pub(in crate::ops) fn gather(gpu: Gpu, x: &Tensor, d: usize, index: &Tensor) -> Tensor {
    let out = Tensor::empty(index.shape(), (x.dtype(), gpu.device()));
    let places = Places::new(gpu, "gather", index, d, x, out.strides());
    let kernel = &GATHER[unit([x.dtype().size()])];
    let (to, from, index) = (out.device_ptr(), x.device_ptr(), index.device_ptr());
    // SAFETY: places inside of both tensors, the index's values being checked by the kernel.
    unsafe { gpu.launch(kernel, gpu.for_each(out.numel()), cuda_args!(to, from, index, places)) };
    out
}

/// `x[p'] = src[p]`; of several for one place any is left.
#[track_caller]
pub(in crate::ops) fn scatter(gpu: Gpu, x: &Tensor, d: usize, index: &Tensor, src: &Tensor) {
    let places = Places::new(gpu, "scatter_", index, d, x, src.strides());
    launch_scatter(gpu, &SCATTER[unit([x.dtype().size()])], x, src, index, places);
}

/// `x[p'] = value`.
#[track_caller]
pub(in crate::ops) fn scatter_value(gpu: Gpu, x: &Tensor, d: usize, index: &Tensor, value: Scalar) {
    let one = Tensor::full([], value, (x.dtype(), gpu.device()));
    let places = Places::new(gpu, "scatter_value_", index, d, x, &[]);
    launch_scatter(gpu, &SCATTER[unit([x.dtype().size()])], x, &one, index, places);
}

/// `x[p'] += src[p]`, in no fixed order.
#[track_caller]
pub(in crate::ops) fn scatter_add(gpu: Gpu, x: &Tensor, d: usize, index: &Tensor, src: &Tensor) {
    let (kernel, sums) = adding(&SCATTER_ADD, x.dtype());
    in_sums(x, sums, |x| {
        let places = Places::new(gpu, "scatter_add_", index, d, x, src.strides());
        launch_scatter(gpu, kernel, x, src, index, places);
    });
}

/// `x[p']` put together with `src[p]` by a product or an extreme, for f64, f32 and i64. Products are in no fixed
/// order.
#[track_caller]
pub(in crate::ops) fn scatter_with(
    gpu: Gpu,
    x: &Tensor,
    d: usize,
    index: &Tensor,
    src: &Tensor,
    reduce: ScatterReduce,
) {
    let kernels = match reduce {
        ScatterReduce::Amax => &SCATTER_WITH[1],
        ScatterReduce::Amin => &SCATTER_WITH[2],
        _ => &SCATTER_WITH[0],
    };
    let kernel = match x.dtype() {
        Dtype::F64 => &kernels[0],
        Dtype::F32 => &kernels[1],
        _ => &kernels[2],
    };
    let places = Places::new(gpu, "scatter_reduce", index, d, x, src.strides());
    launch_scatter(gpu, kernel, x, src, index, places);
}

#[track_caller]
fn launch_scatter(
    gpu: Gpu,
    kernel: &Kernel,
    x: &Tensor,
    src: &Tensor,
    index: &Tensor,
    places: Places,
) {
    let shape = gpu.for_each(index.numel());
    let (to, from, index) = (x.device_ptr(), src.device_ptr(), index.device_ptr());
    // SAFETY: places inside of both tensors, the index's values being checked by the kernel.
    unsafe { gpu.launch(kernel, shape, cuda_args!(to, from, index, places)) };
}
