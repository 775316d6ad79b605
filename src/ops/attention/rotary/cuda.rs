//! Rotary position embedding on a GPU: `kernels/rotary.cu`.

use super::{DIMS, OP, Rows};
use crate::cuda::{Program, cuda_args, launch::Argument, sources::kernels_by, sources::program};
use crate::ops::gpu::{Gpu, kernel_of};
use crate::tensor::Tensor;

pub(in crate::ops) static PROGRAM: Program = program!("rotary": "rotary.cu");

kernels_by! {
    floats of PROGRAM:
    TURN "rotary";
}

/// `Rotary` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Task {
    sizes: [i64; DIMS],
    x: [i64; DIMS],
    cos: [i64; DIMS],
    sin: [i64; DIMS],
    count: i64,
    width: i64,
    pairs: i64,
    back: i64,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Task {}

/// Writes the turned rows.
#[track_caller]
pub(super) fn turn(gpu: Gpu, rows: &Rows, out: &Tensor, back: bool) {
    let numbers = |n: [usize; DIMS]| n.map(|n| n as i64);
    let [x, cos, sin] = rows.strides.map(numbers);
    let task = Task {
        sizes: numbers(rows.sizes),
        x,
        cos,
        sin,
        count: rows.count as i64,
        width: rows.width as i64,
        pairs: rows.pairs as i64,
        back: i64::from(back),
    };
    let threads = rows.count * (rows.width - rows.pairs);
    let tensors = [out, &rows.x, &rows.cos, &rows.sin].map(Tensor::device_ptr);
    let [to, from, cos, sin] = tensors;
    let args = cuda_args!(to, from, cos, sin, task);
    let kernel = kernel_of(OP, &TURN, out.dtype());
    // SAFETY: places by the tensors' own strides; `out` is dense, and as large as what is read.
    unsafe { gpu.launch(kernel, gpu.for_each(threads), args) };
}
