//! Linear maps of one dimension on a GPU.

use crate::cuda::cuda_args;
use crate::cuda::{Kernel, Program, sources::program};
use crate::ops::gpu::Gpu;
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static PROGRAM: Program = program!("resample": "quotient.cuh", "resample.cu");
static RESAMPLE: [Kernel; 2] =
    [Kernel::new(&PROGRAM, "resample_f64"), Kernel::new(&PROGRAM, "resample_f32")];

/// `y[o, i, j]`: the sum over `starts[i]..starts[i + 1]` of the weights times `x[o, place, j]`; f64 or f32.
#[track_caller]
pub(super) fn resample(
    gpu: Gpu,
    [x, y]: [&Tensor; 2],
    [starts, places]: [&[u32]; 2],
    weights: &[f64],
    [size, rows, inner]: [usize; 3],
) {
    let tables = [starts, places].map(|table| {
        let table: Vec<i32> = table.iter().map(|&n| n as i32).collect();
        gpu.table(&table)
    });
    let weights = gpu.table(weights);
    let [starts, places] = [tables[0].device_ptr(), tables[1].device_ptr()];
    let (to, from, weights) = (y.device_ptr(), x.device_ptr(), weights.device_ptr());
    let [count, size, rows, inner] = [y.numel(), size, rows, inner].map(|n| n as i64);
    let kernel = &RESAMPLE[(x.dtype() == Dtype::F32) as usize];
    let args = cuda_args!(to, from, starts, places, weights, count, size, rows, inner);
    // SAFETY: dense tensors of these sizes; the tables name positions of `x` only.
    unsafe { gpu.launch(kernel, gpu.for_each(y.numel()), args) };
}
