//! The first elements of an order without sorting the others: `kernels/first.cu`.

use super::{FIRST, THREADS, TILE, take};
use crate::cuda::launch::{Argument, Shape};
use crate::ops::gpu::{Gpu, format_of};
use crate::{Dtype, Tensor};

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
pub(super) fn places(gpu: Gpu, x: &Tensor, d: usize, descending: bool, k: usize, out: &Tensor) {
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
    unsafe { gpu.launch(kernel, Shape::plane(lines, 1, THREADS), crate::cuda_args!(task)) };
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
    super::order(gpu, &values, 1, descending, k, &chosen);
    take(gpu, &found, 1, &chosen)
}
