//! Parts put together on a GPU, some tens of them by one launch.

use crate::cuda::cuda_args;
use crate::cuda::{Program, launch::Argument, sources::kernels_by, sources::program};
use crate::ops::{gpu::Gpu, gpu::unit, shape::around::around};
use crate::tensor::Tensor;

pub(in crate::ops) static PROGRAM: Program = program!("cat": "cat.cu");

kernels_by! {
    units of PROGRAM:
    JOIN "join";
}

/// Tensors that are joined by one launch.
const MOST_PARTS: usize = 32;

/// `Part` of `kernels/cat.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Part {
    from: *mut u8,
    first: i64,
    row: i64,
}

/// `Parts` of `kernels/cat.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Parts {
    to: *mut u8,
    outer: i64,
    pitch: i64,
    parts: [Part; MOST_PARTS],
}

// SAFETY: the same fields in the same order on the other side.
unsafe impl Argument for Parts {}

/// Copies dense tensors of `out`'s type to entries of dimension `d` of the fresh `out`, each from its
/// start on.
#[track_caller]
pub(super) fn join(gpu: Gpu, out: &Tensor, d: usize, parts: &[(&Tensor, usize)]) {
    let size = out.dtype().size();
    let [outer, n, inner] = around(out.shape(), d);
    let to = out.device_ptr();
    for group in parts.chunks(MOST_PARTS) {
        let numbers = group.iter().flat_map(|(part, start)| {
            let n = part.shape()[d];
            [part.device_ptr() as usize, n * inner * size, start * inner * size]
        });
        let unit = unit(numbers.chain([to as usize, n * inner * size]));
        let units = |n: usize| ((n * inner * size) >> unit) as i64;
        let none = Part { from: std::ptr::null_mut(), first: 0, row: 0 };
        let mut all = Parts { to, outer: outer as i64, pitch: units(n), parts: [none; MOST_PARTS] };
        let mut most = 0;
        for (place, (part, start)) in all.parts.iter_mut().zip(group) {
            let row = units(part.shape()[d]);
            *place = Part { from: part.device_ptr(), first: units(*start), row };
            most = most.max(outer * row as usize);
        }
        let mut shape = gpu.for_each(most);
        shape.grid[1] = group.len() as u32;
        // SAFETY: each part's rows lie inside the output's.
        unsafe { gpu.launch(&JOIN[unit], shape, cuda_args!(all)) };
    }
}
