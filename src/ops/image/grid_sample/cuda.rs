//! Grid sampling on a GPU: `kernels/grid_sample.cu`.

use std::ptr::null_mut;

use super::options::{GridSampleMode, GridSampleOptions, GridSamplePadding};
use super::sizes::Sizes;
use crate::cuda::{
    Kernel, Program, launch::Argument, launch::Shape, sources::kernels_by, sources::program,
};
use crate::ops::gpu::{Gpu, address};
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static PROGRAM: Program = program!("grid_sample": "grid_sample.cu");

/// Kernels by element type and mode; those of volumes come behind.
type Kernels = [[Kernel; 6]; 2];
static FORWARD: Kernels = [
    kernels_by!(PROGRAM "sample_f64": "_nearest" "_linear" "_cubic" "_nearest_volume" "_linear_volume" "_cubic_volume"),
    kernels_by!(PROGRAM "sample_f32": "_nearest" "_linear" "_cubic" "_nearest_volume" "_linear_volume" "_cubic_volume"),
];
static BACKWARD: Kernels = [
    kernels_by!(PROGRAM "sample_backward_f64": "_nearest" "_linear" "_cubic" "_nearest_volume" "_linear_volume" "_cubic_volume"),
    kernels_by!(PROGRAM "sample_backward_f32": "_nearest" "_linear" "_cubic" "_nearest_volume" "_linear_volume" "_cubic_volume"),
];

/// `Grid` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Grid {
    x: *mut u8,
    grid: *mut u8,
    dy: *mut u8,
    dx: *mut u8,
    dgrid: *mut u8,
    y: *mut u8,
    batch: i64,
    channels: i64,
    volume: i64,
    points: i64,
    sizes: [i64; 3],
    dims: i32,
    padding: i32,
    align: i32,
    reserved: i32,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Grid {}

/// The task of dense tensors, without what is written.
fn task(sizes: Sizes, x: &Tensor, grid: &Tensor, options: GridSampleOptions) -> Grid {
    let dims = x.dim() - 2;
    let mut all = [1; 3];
    all[3 - dims..].iter_mut().zip(&x.shape()[2..]).for_each(|(to, &n)| *to = n as i64);
    Grid {
        x: x.device_ptr(),
        grid: grid.device_ptr(),
        dy: null_mut(),
        dx: null_mut(),
        dgrid: null_mut(),
        y: null_mut(),
        batch: sizes.batch as i64,
        channels: sizes.channels as i64,
        volume: sizes.volume as i64,
        points: sizes.points as i64,
        sizes: all,
        dims: dims as i32,
        padding: match options.padding_mode {
            GridSamplePadding::Zeros => 0,
            GridSamplePadding::Border => 1,
            GridSamplePadding::Reflection => 2,
        },
        align: i32::from(options.align_corners),
        reserved: 0,
    }
}

fn kernel(kernels: &'static Kernels, x: &Tensor, mode: GridSampleMode) -> &'static Kernel {
    let mode = match mode {
        GridSampleMode::Nearest => 0,
        GridSampleMode::Bilinear => 1,
        GridSampleMode::Bicubic => 2,
    };
    let volumes = if x.dim() == 5 { 3 } else { 0 };
    &kernels[usize::from(x.dtype() == Dtype::F32)][mode + volumes]
}

/// A thread for each point, or several for parts of the channels where there are few points.
#[track_caller]
fn shape(gpu: Gpu, sizes: Sizes, splits: bool) -> Shape {
    /// Threads that fill a device.
    const ENOUGH: usize = 1 << 18;
    let points = sizes.batch * sizes.points;
    let parts = (ENOUGH / points.max(1)).clamp(1, sizes.channels.clamp(1, 64));
    let mut shape = gpu.for_each(points);
    shape.grid[1] = if splits { parts as u32 } else { 1 };
    shape
}

/// `y` from `x` and `grid`; all dense and of one type, f32 or f64.
#[track_caller]
pub(super) fn forward(
    gpu: Gpu,
    sizes: Sizes,
    [x, grid, y]: [&Tensor; 3],
    options: GridSampleOptions,
) {
    let task = Grid { y: y.device_ptr(), ..task(sizes, x, grid, options) };
    let kernel = kernel(&FORWARD, x, options.mode);
    // SAFETY: dense tensors of these sizes; places are inside of a channel.
    unsafe { gpu.launch(kernel, shape(gpu, sizes, true), crate::cuda::cuda_args!(task)) };
}

/// Gradients by `x`, which is added to zeros, and by the grid, each where wanted.
#[track_caller]
pub(super) fn backward(
    gpu: Gpu,
    sizes: Sizes,
    [x, grid, dy]: [&Tensor; 3],
    [dx, dgrid]: [Option<&Tensor>; 2],
    options: GridSampleOptions,
) {
    let task = Grid {
        dy: dy.device_ptr(),
        dx: address(dx),
        dgrid: address(dgrid),
        ..task(sizes, x, grid, options)
    };
    let kernel = kernel(&BACKWARD, x, options.mode);
    // SAFETY: dense tensors of these sizes; places are inside of a channel.
    unsafe {
        gpu.launch(kernel, shape(gpu, sizes, dgrid.is_none()), crate::cuda::cuda_args!(task))
    };
}
