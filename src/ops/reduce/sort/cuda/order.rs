//! The places of the first elements of an order: all of them by sorting (`kernels/sort.cu`), few of many without
//! (`kernels/first.cu`).

use std::ptr::null_mut;

use super::select::take;
use crate::cuda::{
    family::Family, family::NUMBERS, launch::Argument, launch::Shape, sources::family,
};
use crate::ops::{gpu::Gpu, gpu::format_of, shape::around::around};
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static SORT: Family =
    family!("sort": "order.cuh", "keys.cuh", "sort.cu").with(&[(NUMBERS, &["Sort"])]);

pub(in crate::ops) static FIRST: Family =
    family!("first": "order.cuh", "keys.cuh", "before.cuh", "first.cu")
        .with(&[(NUMBERS, &["First"])]);

/// Keys that a block has at once, and its threads: as in the kernels.
const TILE: usize = 2048;
const THREADS: u32 = 256;

/// `Sort` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Task {
    x: *const u8,
    places: *mut u8,
    from: *mut u8,
    to: *mut u8,
    outer: i64,
    n: i64,
    inner: i64,
    k: i64,
    run: i64,
    length: i32,
    descending: i32,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Task {}

/// The places of the `k` first elements along `d`, in order; `out` is for them.
#[track_caller]
pub(in crate::ops::reduce::sort) fn order(
    gpu: Gpu,
    x: &Tensor,
    d: usize,
    descending: bool,
    k: usize,
    out: &Tensor,
) {
    if out.numel() == 0 {
        return;
    }
    let x = x.detach().contiguous();
    let [outer, n, inner] = around(x.shape(), d);
    if n > TILE && k <= TILE && k < n {
        return places(gpu, &x, d, descending, k, out);
    }
    let (lines, tiles) = (outer * inner, n.div_ceil(TILE));
    let length = n.next_power_of_two().min(TILE);
    // An element of eight bytes has its place beside it.
    let key_bytes = if x.dtype().size() == 8 { 16 } else { 8 };
    let keys = || Tensor::empty([lines * n * key_bytes], (Dtype::U8, x.device()));
    let buffers = (tiles > 1).then(|| [keys(), keys()]);
    let [mut from, mut to] = match &buffers {
        Some(buffers) => buffers.each_ref().map(Tensor::device_ptr),
        None => [null_mut(); 2],
    };
    let op = Task {
        x: x.device_ptr(),
        places: out.device_ptr(),
        from: null_mut(),
        to,
        outer: outer as i64,
        n: n as i64,
        inner: inner as i64,
        k: k as i64,
        run: TILE as i64,
        length: length as i32,
        descending: i32::from(descending),
    };
    let start = |entry, grid: [usize; 2], op: Task| {
        let kernel = SORT.kernel(format_of(x.dtype()), "Sort", entry);
        let shape = Shape::plane(grid[0], grid[1], THREADS);
        // SAFETY: the kernel's parameter; dense tensors of these types and sizes, the results are new.
        unsafe { gpu.launch(kernel, shape, crate::cuda::cuda_args!(op)) };
    };
    start("sort_tiles", [lines.div_ceil(TILE / length), tiles], op);
    let mut run = TILE;
    while run < n {
        (from, to) = (to, from);
        let last = 2 * run >= n;
        let goal = if last { null_mut() } else { to };
        let op = Task { from, to: goal, run: run as i64, ..op };
        start("merge_runs", [tiles, lines], op);
        run *= 2;
    }
}

/// `First` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct First {
    x: *const u8,
    places: *mut u8,
    lines: i64,
    n: i64,
    k: i64,
    inner: i64,
    descending: i32,
    reserved: i32,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for First {}

/// A line is a block's work; where there are few and long ones, parts of them are.
const PART: usize = 8 * TILE;
const FEW: usize = 128;

/// The places of the `k` first elements along `d`, at most [`TILE`] of more, in order; `out` is for them.
#[track_caller]
fn places(gpu: Gpu, x: &Tensor, d: usize, descending: bool, k: usize, out: &Tensor) {
    let n = x.shape()[d];
    let lines = x.numel() / n;
    let rows = x.movedim(d as i64, -1).contiguous().reshape_to(&[lines, n]);
    let inner = x.shape()[d + 1..].iter().product();
    if lines >= FEW || n < 4 * PART {
        return of_rows(gpu, &rows, descending, k, inner, out);
    }
    let found = of_long_rows(gpu, &rows, descending, k);
    let lead = x.shape()[..d].iter().product();
    let found = found.reshape_to(&[lead, inner, k]).transpose(1, 2);
    out.copy_(&found.contiguous().reshape_to(out.shape()));
}

/// Of each row of a dense matrix; `inner` neighbouring rows have their results side by side.
#[track_caller]
fn of_rows(gpu: Gpu, rows: &Tensor, descending: bool, k: usize, inner: usize, out: &Tensor) {
    let [lines, n] = [rows.shape()[0], rows.shape()[1]];
    let task = First {
        x: rows.device_ptr(),
        places: out.device_ptr(),
        lines: lines as i64,
        n: n as i64,
        k: k as i64,
        inner: inner as i64,
        descending: i32::from(descending),
        reserved: 0,
    };
    let kernel = FIRST.kernel(format_of(rows.dtype()), "First", "first_of_lines");
    // SAFETY: the kernel's parameter; dense tensors of these types and sizes, the result is new.
    unsafe { gpu.launch(kernel, Shape::plane(lines, 1, THREADS), crate::cuda::cuda_args!(task)) };
}

/// The first of each part, then the first of those: equal elements stay in the order of their places.
#[track_caller]
fn of_long_rows(gpu: Gpu, rows: &Tensor, descending: bool, k: usize) -> Tensor {
    let [lines, n] = [rows.shape()[0], rows.shape()[1]];
    let (parts, rest) = (n / PART, n % PART);
    let list = |rows: usize, k: usize| Tensor::empty([rows, k], (Dtype::I64, gpu.device()));
    let places = |from: usize, to: usize, step: usize| {
        Tensor::arange(from as i64, to as i64, step as i64, (Dtype::I64, gpu.device()))
    };
    let whole = rows.narrow(1, 0, parts * PART).contiguous().reshape_to(&[lines * parts, PART]);
    let found = list(lines * parts, k);
    of_rows(gpu, &whole, descending, k, 1, &found);
    let starts = places(0, parts * PART, PART).unsqueeze(-1);
    let mut found = (found.reshape_to(&[lines, parts, k]) + starts).reshape_to(&[lines, parts * k]);
    if rest > 0 {
        // All of them, in the order of their places.
        let others = places(n - rest, n, 1).expand(&[lines, rest]);
        found = Tensor::cat(&[found, others], 1);
    }
    let values = take(gpu, rows, 1, &found);
    let chosen = list(lines, k);
    order(gpu, &values, 1, descending, k, &chosen);
    take(gpu, &found, 1, &chosen)
}
