//! Pooling on GPUs.

use crate::cuda::cuda_args;
use crate::cuda::{Kernel, Program, launch::Argument, sources::kernels_by, sources::program};
use crate::error::{Error, throw};
use crate::ops::{MemoryFormat, gpu, gpu::Gpu, gpu::address, gpu::kernel_of};
use crate::tensor::{Dtype, Tensor};

pub(in crate::ops) static PROGRAM: Program = program!("pooling": "quotient.cuh", "pooling.cu");

kernels_by! {
    floats of PROGRAM:
    MAXIMA "maxima";
    MAXIMA_BACKWARD "maxima_backward";
    PICK "pick";
    MEANS "means";
    LARGE_MEANS "large_means";
    MEANS_BACKWARD "means_backward";
}

/// One dimension's windows: `Dim` of `kernels/pooling.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Dim {
    size: i32,
    out: i32,
    kernel: i32,
    stride: i32,
    padding: i32,
    dilation: i32,
    adaptive: i32,
    counts_padding: i32,
}

impl Dim {
    /// As many nearly equal ranges as `out`.
    pub fn adaptive(size: usize, out: usize) -> Dim {
        let adaptive = Dim::sliding(size, out, [1, 1, 0, 1]);
        Dim { adaptive: 1, ..adaptive }
    }

    /// Windows by kernel, stride, padding and dilation.
    pub fn sliding(size: usize, out: usize, window: [usize; 4]) -> Dim {
        let [kernel, stride, padding, dilation] = window.map(|n| n as i32);
        let (size, out, adaptive, counts_padding) = (size as i32, out as i32, 0, 0);
        Dim { size, out, kernel, stride, padding, dilation, adaptive, counts_padding }
    }

    /// Whether means count what lies in the padding.
    pub fn counting_padding(self, counts: bool) -> Dim {
        Dim { counts_padding: counts as i32, ..self }
    }

    /// Positions of a window, about.
    fn reach(&self) -> i32 {
        if self.adaptive == 1 { self.size / self.out.max(1) } else { self.kernel }
    }
}

/// Windows of three dimensions: `Window` of `kernels/pooling.cu`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Window {
    dims: [Dim; 3],
    planes: i64,
    divisor: f64,
    channels: i64,
}

// SAFETY: the same fields in the same order on the other side.
unsafe impl Argument for Window {}

impl Window {
    /// Windows of the last dimensions of so many planes, each with a number by which its sum is divided.
    pub fn new(last: &[Dim], planes: usize, divisor: Option<i64>) -> Window {
        for dim in last.iter().filter(|dim| dim.adaptive == 1) {
            let (size, out) = (dim.size as u64 + 1, dim.out as u64 + 1);
            if size * out > u64::from(u32::MAX) {
                let message =
                    format!("{} windows over a size of {}: too many on a GPU", dim.out, dim.size);
                throw(Error::shape("adaptive pooling", message));
            }
        }
        let mut dims = [Dim::adaptive(1, 1); 3];
        dims[3 - last.len()..].copy_from_slice(last);
        let divisor = divisor.unwrap_or(0) as f64;
        Window { dims, planes: planes as i64, divisor, channels: 1 }
    }
}

/// The order in memory in which `x` is pooled, if its windows are of its last `dims` dimensions: its own if channels
/// lie last.
fn order(x: &Tensor, dims: usize) -> MemoryFormat {
    if x.dim() == dims + 2 { gpu::order(x) } else { MemoryFormat::Contiguous }
}

/// The window for tensors in an order.
fn in_order(window: Window, order: MemoryFormat, shape: &[usize]) -> Window {
    if order == MemoryFormat::Contiguous {
        return window;
    }
    Window { planes: shape[0] as i64, channels: shape[1] as i64, ..window }
}

/// The maxima over the last `dims` dimensions, of this shape, and their places in their planes if they are wanted.
#[track_caller]
pub(crate) fn maxima(
    gpu: Gpu,
    x: &Tensor,
    dims: usize,
    shape: &[usize],
    with_places: bool,
    window: Window,
) -> (Tensor, Option<Tensor>) {
    let order = order(x, dims);
    let (x, window) = (x.detach().contiguous_in(order), in_order(window, order, shape));
    let y = Tensor::empty_in(shape, (x.dtype(), x.device()), order);
    let places = with_places.then(|| Tensor::empty_in(shape, (Dtype::I32, x.device()), order));
    let (to, from) = (y.device_ptr(), x.device_ptr());
    let at = address(places.as_ref());
    let args = cuda_args!(to, at, from, window);
    // SAFETY: dense tensors of the window's sizes and order, of which the outputs are new.
    unsafe { gpu.launch(kernel_of("pooling", &MAXIMA, x.dtype()), gpu.for_each(y.numel()), args) };
    (y, places)
}

/// dx of this shape: the sums of `dy` where its maxima were.
#[track_caller]
pub(crate) fn maxima_backward(
    gpu: Gpu,
    dy: &Tensor,
    places: &Tensor,
    dims: usize,
    shape: &[usize],
    window: Window,
) -> Tensor {
    let order = order(places, dims);
    let (dy, window) = (dy.detach().contiguous_in(order), in_order(window, order, shape));
    let dx = Tensor::empty_in(shape, (dy.dtype(), dy.device()), order);
    let (to, from, places) = (dx.device_ptr(), dy.device_ptr(), places.device_ptr());
    let args = cuda_args!(to, from, places, window);
    // SAFETY: dense tensors of the window's sizes and order, of which one is new.
    unsafe {
        gpu.launch(
            kernel_of("pooling", &MAXIMA_BACKWARD, dy.dtype()),
            gpu.for_each(dx.numel()),
            args,
        )
    };
    dx
}

/// The numbers of `x` where the maxima were.
#[track_caller]
pub(crate) fn pick(gpu: Gpu, x: &Tensor, places: &Tensor, dims: usize, window: Window) -> Tensor {
    let order = order(places, dims);
    let (x, window) = (x.detach().contiguous_in(order), in_order(window, order, x.shape()));
    let y = Tensor::empty_in(places.shape(), (x.dtype(), x.device()), order);
    let (to, from, places) = (y.device_ptr(), x.device_ptr(), places.device_ptr());
    let args = cuda_args!(to, from, places, window);
    // SAFETY: dense tensors of the window's sizes and order, of which one is new.
    unsafe { gpu.launch(kernel_of("pooling", &PICK, x.dtype()), gpu.for_each(y.numel()), args) };
    y
}

/// The means of the last two dimensions' windows, of this shape.
#[track_caller]
pub(crate) fn means(gpu: Gpu, x: &Tensor, shape: &[usize], window: Window) -> Tensor {
    // A warp for each of the large ones, unless neighbouring threads read neighbouring channels.
    let large = window.dims.iter().map(Dim::reach).product::<i32>() >= 32;
    let warps = large && order(x, 2) == MemoryFormat::Contiguous;
    let (kernels, lanes) = if warps { (&LARGE_MEANS, 32) } else { (&MEANS, 1) };
    from_windows(gpu, kernels, lanes, x, shape, window)
}

/// dx of this shape: each number of `dy` divided over its window.
#[track_caller]
pub(crate) fn means_backward(gpu: Gpu, dy: &Tensor, shape: &[usize], window: Window) -> Tensor {
    from_windows(gpu, &MEANS_BACKWARD, 1, dy, shape, window)
}

#[track_caller]
fn from_windows(
    gpu: Gpu,
    kernels: &'static [Kernel; 4],
    lanes: usize,
    x: &Tensor,
    shape: &[usize],
    window: Window,
) -> Tensor {
    let order = order(x, 2);
    let (x, window) = (x.detach().contiguous_in(order), in_order(window, order, shape));
    let y = Tensor::empty_in(shape, (x.dtype(), x.device()), order);
    let (to, from) = (y.device_ptr(), x.device_ptr());
    let args = cuda_args!(to, from, window);
    // SAFETY: dense tensors of the window's sizes and order, of which one is new.
    unsafe {
        gpu.launch(kernel_of("pooling", kernels, x.dtype()), gpu.for_each(y.numel() * lanes), args)
    };
    y
}
