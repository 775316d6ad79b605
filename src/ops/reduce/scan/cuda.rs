//! Scans on a GPU: `kernels/scan.cu`.

use crate::cuda::{
    device, family::FLOATS, family::Family, family::NUMBERS, launch::Argument, launch::Shape,
    sources::family,
};
use std::ptr::null_mut;

use crate::error::throw;
use crate::ops::{gpu::Gpu, gpu::format_of, shape::around::around};
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static SCANS: Family = family!("scan": "scan.cu").with(&[
    (NUMBERS, &["Add", "Mul", "Largest", "Smallest"]),
    (FLOATS, &["LogAddExp", "MulBackward"]),
]);

/// Threads of a block, and neighbouring elements of each: as in the kernels.
const THREADS: usize = 256;
const EACH: usize = 8;
/// What an operation's `Acc` takes at most.
const ACC_BYTES: usize = 16;
/// Chunks are blocks along y.
const MOST_CHUNKS: usize = 65_535;

/// `Scan` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Task {
    x: *const u8,
    g: *const u8,
    products: *const u8,
    y: *mut u8,
    places: *mut u8,
    parts: *mut u8,
    outer: i64,
    n: i64,
    inner: i64,
    chunk: i64,
    chunks: i64,
    reversed: i32,
    totals: i32,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Task {}

/// The running value of an operation along `d`, from the end if `reversed`; integers as i64.
#[track_caller]
pub(super) fn scan(gpu: Gpu, name: &'static str, x: &Tensor, d: usize, reversed: bool) -> Tensor {
    let to = if x.dtype().is_floating_point() { x.dtype() } else { Dtype::I64 };
    let x = x.detach().contiguous();
    let out = Tensor::empty(x.shape(), (to, x.device()));
    run(gpu, name, [&x; 3], d, reversed, &out, None);
    out
}

/// The gradient of running products for that of the result, `g`.
#[track_caller]
pub(super) fn products_backward(gpu: Gpu, x: &Tensor, g: &Tensor, d: usize) -> Tensor {
    let products = scan(gpu, "Mul", x, d, false);
    let (x, g) = (x.detach().contiguous(), g.detach().contiguous());
    let out = x.empty_like();
    run(gpu, "MulBackward", [&x, &g, &products], d, true, &out, None);
    out
}

/// The running extremes along `d`, and where they were last reached.
#[track_caller]
pub(super) fn extremes(gpu: Gpu, largest: bool, x: &Tensor, d: usize) -> (Tensor, Tensor) {
    let x = x.detach().contiguous();
    let values = x.empty_like();
    let places = Tensor::empty(x.shape(), (Dtype::I64, x.device()));
    let name = if largest { "Largest" } else { "Smallest" };
    run(gpu, name, [&x; 3], d, false, &values, Some(&places));
    (values, places)
}

#[track_caller]
fn run(
    gpu: Gpu,
    name: &'static str,
    [x, g, products]: [&Tensor; 3],
    d: usize,
    reversed: bool,
    out: &Tensor,
    places: Option<&Tensor>,
) {
    if x.numel() == 0 {
        return;
    }
    let [outer, n, inner] = around(x.shape(), d);
    let figures = device::properties(gpu.index).unwrap_or_else(|error| throw(error));
    let multiprocessors = figures.multiprocessors as usize;
    // As many chunks as fill the device, while each is worth a block or a thread.
    // Short lines are worth a thread each, wherever they lie.
    let by_rows = inner == 1 && (n > 64 || outer == 1);
    let (wanted, least) = match by_rows {
        true => ((multiprocessors * 4).div_ceil(outer), THREADS * EACH * 4),
        false => ((multiprocessors * 1024).div_ceil(outer * inner), 32),
    };
    let chunks = wanted.min(n.div_ceil(least)).min(MOST_CHUNKS);
    let chunk = n.div_ceil(chunks);
    let chunks = n.div_ceil(chunk);
    let lines = outer * inner;
    let parts =
        (chunks > 1).then(|| Tensor::empty([lines * chunks * ACC_BYTES], (Dtype::U8, x.device())));
    let op = Task {
        x: x.device_ptr(),
        g: g.device_ptr(),
        products: products.device_ptr(),
        y: out.device_ptr(),
        places: places.map_or(null_mut(), Tensor::device_ptr),
        parts: parts.as_ref().map_or(null_mut(), Tensor::device_ptr),
        outer: outer as i64,
        n: n as i64,
        inner: inner as i64,
        chunk: chunk as i64,
        chunks: chunks as i64,
        reversed: i32::from(reversed),
        totals: 0,
    };
    let (entry, shape) = if by_rows {
        ("scan_rows", Shape::plane(outer * chunks, 1, THREADS as u32))
    } else {
        let threads = lines.next_power_of_two().min(THREADS);
        ("scan_columns", Shape::plane(lines.div_ceil(threads), chunks, threads as u32))
    };
    let start = |entry, shape, op: Task| {
        let kernel = SCANS.kernel(format_of(x.dtype()), name, entry);
        // SAFETY: the kernel's parameter; dense tensors of these types and sizes, the results are new.
        unsafe { gpu.launch(kernel, shape, crate::cuda::cuda_args!(op)) };
    };
    if chunks > 1 {
        start(entry, shape, Task { totals: 1, ..op });
        start("scan_totals", Shape::plane(lines, 1, THREADS as u32), op);
    }
    start(entry, shape, op);
}
