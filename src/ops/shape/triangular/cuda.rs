//! Triangles of matrices on a GPU.

use crate::cuda::cuda_args;
use crate::cuda::{Program, sources::kernels_by, sources::program};
use crate::ops::gpu::{Gpu, unit};
use crate::tensor::Tensor;

pub(in crate::ops) static PROGRAM: Program = program!("triangular": "triangular.cu");

kernels_by! {
    units of PROGRAM:
    TRIANGLE "triangle";
}

/// A copy of the dense matrices `x` with zeros above or below a diagonal.
#[track_caller]
pub(super) fn triangle(gpu: Gpu, x: &Tensor, diagonal: i64, lower: bool) -> Tensor {
    let out = Tensor::empty(x.shape(), (x.dtype(), gpu.device()));
    let [.., rows, columns] = x.shape() else { return out };
    let (rows, columns, count) = (*rows as i64, *columns as i64, x.numel() as i64);
    let (to, from, lower) = (out.device_ptr(), x.device_ptr(), lower as i32);
    let args = cuda_args!(to, from, count, rows, columns, diagonal, lower);
    // SAFETY: two dense tensors of this type and shape.
    unsafe { gpu.launch(&TRIANGLE[unit([x.dtype().size()])], gpu.for_each(x.numel()), args) };
    out
}
