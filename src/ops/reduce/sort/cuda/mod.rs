//! Sorting on a GPU: `kernels/sort.cu`, `kernels/rank.cu`, `kernels/select.cu`; the first of an order in `first.rs`.

mod first;

use crate::cuda::sources::family;
use std::ptr::null_mut;

use super::around;
use crate::cuda::family::{Family, NUMBERS};
use crate::cuda::launch::{Argument, Shape};
use crate::ops::gpu::{Gpu, format_of};
use crate::{Dtype, Tensor};

pub(in crate::ops) static SORT: Family =
    family!("sort": "order.cuh", "keys.cuh", "sort.cu").with(&[(NUMBERS, &["Sort"])]);
pub(in crate::ops) static FIRST: Family =
    family!("first": "order.cuh", "keys.cuh", "before.cuh", "first.cu")
        .with(&[(NUMBERS, &["First"])]);
pub(in crate::ops) static RANK: Family =
    family!("rank": "order.cuh", "before.cuh", "rank.cu").with(&[(NUMBERS, &["Rank"])]);
pub(in crate::ops) static SELECT: Family =
    family!("select": "select.cu").with(&[(NUMBERS, &["Select"])]);

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

/// `Select` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Select {
    x: *const u8,
    y: *mut u8,
    places: *const u8,
    outer: i64,
    n: i64,
    k: i64,
    inner: i64,
}

// SAFETY: as above.
unsafe impl Argument for Select {}

/// `Rank` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct RankTask {
    x: *const u8,
    places: *mut u8,
    lines: i64,
    n: i64,
    k: i64,
    mode: i32,
    reserved: i32,
}

// SAFETY: as above.
unsafe impl Argument for RankTask {}

/// The element that is looked for in a line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rank {
    /// That of a rank, counted from 0.
    Number(usize),
    /// The middle, or the first NaN.
    Middle,
    /// The middle of those that are not NaN.
    NumbersMiddle,
}

/// The places along `d` of the elements of a rank, of size 1 there; none where sorting is quicker, which has several
/// short lines or parts of long ones in a block.
#[track_caller]
pub(super) fn place_of_rank(gpu: Gpu, x: &Tensor, d: usize, rank: Rank) -> Option<Tensor> {
    /// Elements that are more than a block's threads, and those that are too many for one block where there are
    /// few lines.
    const SHORT: usize = 256;
    const LONG: usize = 1 << 14;
    /// Lines that keep a device busy.
    const MANY: usize = 64;
    let [outer, n, inner] = around(x.shape(), d);
    let lines = outer * inner;
    if lines == 0 || n <= SHORT || (n > LONG && lines < MANY) || n > u32::MAX as usize / 2 {
        return None;
    }
    let dense = x.detach().movedim(d as i64, -1).contiguous();
    let mut shape = dense.layout().shape.clone();
    *shape.last_mut()? = 1;
    let places = Tensor::empty(&shape, (Dtype::I64, x.device()));
    let (mode, k) = match rank {
        Rank::Number(k) => (0, k),
        Rank::Middle => (1, 0),
        Rank::NumbersMiddle => (2, 0),
    };
    let task = RankTask {
        x: dense.device_ptr(),
        places: places.device_ptr(),
        lines: lines as i64,
        n: n as i64,
        k: k as i64,
        mode,
        reserved: 0,
    };
    let kernel = RANK.kernel(format_of(x.dtype()), "Rank", "place_of_rank");
    // SAFETY: the kernel's parameter; dense tensors of these types and sizes, the result is new.
    unsafe { gpu.launch(kernel, Shape::plane(lines, 1, THREADS), crate::cuda_args!(task)) };
    Some(places.movedim(-1, d as i64).contiguous())
}

/// The places of the `k` first elements along `d`, in order; `out` is for them.
#[track_caller]
pub(super) fn order(gpu: Gpu, x: &Tensor, d: usize, descending: bool, k: usize, out: &Tensor) {
    if out.numel() == 0 {
        return;
    }
    let x = x.detach().contiguous();
    let [outer, n, inner] = around(x.shape(), d);
    if n > TILE && k <= TILE && k < n {
        return first::places(gpu, &x, d, descending, k, out);
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
        unsafe { gpu.launch(kernel, shape, crate::cuda_args!(op)) };
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

/// The elements at `places` along `d`.
#[track_caller]
pub(super) fn take(gpu: Gpu, x: &Tensor, d: usize, places: &Tensor) -> Tensor {
    let out = Tensor::empty(places.shape(), (x.dtype(), x.device()));
    select(gpu, "take", &x.detach().contiguous(), &out, x.shape(), d, places);
    out
}

/// Zeros of `shape` with `g` at the places along `d`, which are all different.
#[track_caller]
pub(super) fn put_back(gpu: Gpu, g: &Tensor, d: usize, places: &Tensor, shape: &[usize]) -> Tensor {
    let out = Tensor::zeros(shape, (g.dtype(), g.device()));
    select(gpu, "put_back", &g.detach().contiguous(), &out, shape, d, places);
    out
}

#[track_caller]
fn select(
    gpu: Gpu,
    entry: &'static str,
    x: &Tensor,
    y: &Tensor,
    shape: &[usize],
    d: usize,
    places: &Tensor,
) {
    let places = places.contiguous();
    let [outer, n, inner] = around(shape, d);
    let op = Select {
        x: x.device_ptr(),
        y: y.device_ptr(),
        places: places.device_ptr(),
        outer: outer as i64,
        n: n as i64,
        k: (places.numel() / (outer * inner).max(1)) as i64,
        inner: inner as i64,
    };
    let kernel = SELECT.kernel(format_of(x.dtype()), "Select", entry);
    // SAFETY: the kernel's parameter; dense tensors of these types and sizes, the result is new.
    unsafe { gpu.launch(kernel, gpu.for_each(places.numel()), crate::cuda_args!(op)) };
}
