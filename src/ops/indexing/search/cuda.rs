//! Places in sorted sequences and counts in ranges on a GPU: `kernels/search.cu`.

use crate::cuda::cuda_args;
use crate::cuda::{
    Kernel, Program, launch::Argument, refusal::Refusal, refusal::Rule, sources::kernels_by,
    sources::program,
};
use crate::ops::gpu::{Gpu, kernel_of};
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static PROGRAM: Program = program!("search": "refusal.cuh", "search.cu");
static COUNT_NUMBERS: Kernel = Kernel::new(&PROGRAM, "count_numbers");

kernels_by! {
    numbers of PROGRAM:
    SEARCH "search";
    COUNT "count";
}

/// `Search` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Search {
    to: *mut u8,
    n: i64,
    per_row: i64,
    count: i64,
    shared: i32,
    right: i32,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Search {}

/// `Ranges` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Ranges {
    counts: *mut u8,
    n: i64,
    bins: i64,
    low: f64,
    high: f64,
    shared: i32,
    reserved: i32,
    refusal: Refusal,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Ranges {}

/// For each of `values`, in rows of `per_row`, its place in its row of the last dimension of `sorted`, or in the
/// one sequence that this is.
#[track_caller]
pub(in crate::ops) fn search(
    gpu: Gpu,
    sorted: &Tensor,
    values: &Tensor,
    per_row: usize,
    right: bool,
) -> Tensor {
    let out = Tensor::empty(values.shape(), (Dtype::I64, gpu.device()));
    let dtype = match (sorted.dtype(), values.dtype()) {
        (a, b) if a == b => a,
        (a, b) if a.is_floating_point() || b.is_floating_point() => Dtype::F64,
        _ => Dtype::I64,
    };
    let [sorted, values] = [sorted, values].map(|t| t.detach().to_dtype(dtype).contiguous());
    let task = Search {
        to: out.device_ptr(),
        n: sorted.size(-1) as i64,
        per_row: per_row.max(1) as i64,
        count: values.numel() as i64,
        shared: i32::from(sorted.dim() == 1),
        right: i32::from(right),
    };
    let (elements, wanted) = (sorted.device_ptr(), values.device_ptr());
    // SAFETY: dense tensors of this type and these sizes, and a place for each value.
    unsafe {
        let shape = gpu.for_each(values.numel());
        gpu.launch(kernel_of("search", &SEARCH, dtype), shape, cuda_args!(task, elements, wanted));
    }
    out
}

/// How often each number from 0 to `bins` - 1 occurs in a list of such i64.
#[track_caller]
pub(in crate::ops) fn count_numbers(gpu: Gpu, x: &Tensor, bins: usize) -> Tensor {
    count(gpu, &COUNT_NUMBERS, x, bins, [0.0; 2])
}

/// How many elements are in each of `bins` equal ranges.
#[track_caller]
pub(in crate::ops) fn count_ranges(gpu: Gpu, x: &Tensor, bins: usize, limits: [f64; 2]) -> Tensor {
    count(gpu, kernel_of("search", &COUNT, x.dtype()), x, bins, limits)
}

#[track_caller]
fn count(
    gpu: Gpu,
    kernel: &'static Kernel,
    x: &Tensor,
    bins: usize,
    [low, high]: [f64; 2],
) -> Tensor {
    /// Counts that a block keeps: 32 KiB.
    const MOST_SHARED: usize = 8192;
    /// Elements that a block has at least, where there are that many.
    const LEAST: usize = 8192;
    let out = Tensor::zeros([bins], (Dtype::I64, gpu.device()));
    let x = x.detach().contiguous();
    let shared = bins <= MOST_SHARED;
    let task = Ranges {
        counts: out.device_ptr(),
        n: x.numel() as i64,
        bins: bins as i64,
        low,
        high,
        shared: i32::from(shared),
        reserved: 0,
        refusal: gpu.refusal("bincount", "input", Rule::Index),
    };
    let mut shape = gpu.for_each(x.numel());
    if shared {
        // A block's counts are written for many elements at once.
        let blocks = x.numel().div_ceil(LEAST.max(4 * bins)) as u32;
        shape.grid[0] = shape.grid[0].min(blocks);
        shape = shape.with_shared(4 * bins);
    }
    let from = x.device_ptr();
    // SAFETY: a dense tensor of this type and a count for each range.
    unsafe { gpu.launch(kernel, shape, cuda_args!(task, from)) };
    out
}
