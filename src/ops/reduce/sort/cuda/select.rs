//! Elements by their places along a dimension, and back: `kernels/select.cu`.

use crate::cuda::{family::Family, family::NUMBERS, launch::Argument, sources::family};
use crate::ops::{gpu::Gpu, gpu::format_of, shape::around::around};
use crate::tensor::Tensor;

pub(in crate::ops) static SELECT: Family =
    family!("select": "select.cu").with(&[(NUMBERS, &["Select"])]);

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

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Select {}

/// The elements at `places` along `d`.
#[track_caller]
pub(in crate::ops::reduce::sort) fn take(
    gpu: Gpu,
    x: &Tensor,
    d: usize,
    places: &Tensor,
) -> Tensor {
    let out = Tensor::empty(places.shape(), (x.dtype(), x.device()));
    select(gpu, "take", &x.detach().contiguous(), &out, x.shape(), d, places);
    out
}

/// Zeros of `shape` with `g` at the places along `d`, which are all different.
#[track_caller]
pub(in crate::ops::reduce::sort) fn put_back(
    gpu: Gpu,
    g: &Tensor,
    d: usize,
    places: &Tensor,
    shape: &[usize],
) -> Tensor {
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
    unsafe { gpu.launch(kernel, gpu.for_each(places.numel()), crate::cuda::cuda_args!(op)) };
}
