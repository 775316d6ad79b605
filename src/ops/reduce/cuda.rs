//! Reductions on a GPU: `kernels/reduce.cu`.

use super::dims::Dims;
use crate::cuda::{
    family::FLOATS, family::Family, family::NUMBERS, fold, fold::Operation, launch::Argument,
    sources::family,
};
use crate::error::throw;
use crate::loops::fold::Plan;
use crate::ops::gpu::{Gpu, address, format_of};
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static REDUCTIONS: Family =
    family!("reduce": "fold.cuh", "reduce.cu", "fold_entries.cuh").with(&[
        (NUMBERS, &["Sum", "Prod", "Max", "Min", "Any", "All", "Largest", "Smallest"]),
        (FLOATS, &["Squares", "Magnitudes", "Var", "LogSumExp"]),
    ]);

const DIVIDE: i32 = 1;
const ROOT: i32 = 2;

/// What is done to each result before it is rounded.
#[derive(Clone, Copy)]
pub(super) enum Finish {
    Nothing,
    Divide(f64),
    Root,
    DivideThenRoot(f64),
}

/// `Reduction` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Reduction {
    x: *const u8,
    out: *mut u8,
    places: *mut u8,
    divisor: f64,
    format: i32,
    size: i32,
    finishing: i32,
    reserved: i32,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Reduction {}

/// `x` folded by the operation of that name, as type `to`: a new contiguous tensor, not recorded.
#[track_caller]
pub(super) fn reduce(
    gpu: Gpu,
    name: &'static str,
    x: &Tensor,
    dims: &Dims,
    to: Dtype,
    finish: Finish,
) -> Tensor {
    let out = Tensor::empty(dims.shape(x), (to, gpu.device()));
    run(gpu, name, x, dims, Some(&out), None, finish);
    out
}

/// The extremes along the only reduced dimension, and their indices.
#[track_caller]
pub(super) fn extremes(gpu: Gpu, largest: bool, x: &Tensor, dims: &Dims) -> (Tensor, Tensor) {
    let new = |dtype| Tensor::empty(dims.shape(x), (dtype, gpu.device()));
    let (values, places) = (new(x.dtype()), new(Dtype::I64));
    let name = if largest { "Largest" } else { "Smallest" };
    run(gpu, name, x, dims, Some(&values), Some(&places), Finish::Nothing);
    (values, places)
}

/// [`extremes`]' indices alone.
#[track_caller]
pub(super) fn places(gpu: Gpu, largest: bool, x: &Tensor, dims: &Dims) -> Tensor {
    let places = Tensor::empty(dims.shape(x), (Dtype::I64, gpu.device()));
    let name = if largest { "Largest" } else { "Smallest" };
    run(gpu, name, x, dims, None, Some(&places), Finish::Nothing);
    places
}

#[track_caller]
fn run(
    gpu: Gpu,
    name: &'static str,
    x: &Tensor,
    dims: &Dims,
    out: Option<&Tensor>,
    places: Option<&Tensor>,
    finish: Finish,
) {
    let (divisor, finishing) = match finish {
        Finish::Nothing => (1.0, 0),
        Finish::Divide(n) => (n, DIVIDE),
        Finish::Root => (1.0, ROOT),
        Finish::DivideThenRoot(n) => (n, DIVIDE | ROOT),
    };
    let format = out.map_or(Dtype::I64, Tensor::dtype);
    let op = Reduction {
        x: x.device_ptr(),
        out: address(out),
        places: address(places),
        divisor,
        format: format_of(format) as i32,
        size: format.size() as i32,
        finishing,
        reserved: 0,
    };
    let plan = Plan::new(x.shape(), x.strides(), &|d| dims.reduced[d]);
    let operation = Operation { family: &REDUCTIONS, format: format_of(x.dtype()), variant: name };
    // SAFETY: the plan's positions are elements of `x`; each output has its place in the results, which are
    // new. What is freed is used again on the same stream only.
    let done = unsafe { fold::fold(&operation, &plan, &[x.device_ptr()], op, gpu.stream()) };
    if let Err(error) = done {
        throw(error);
    }
}
