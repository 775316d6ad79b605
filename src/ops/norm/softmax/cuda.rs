//! Softmax on a GPU: `kernels/softmax.cu`.

use crate::cuda::{
    family::FLOATS, family::Family, fold::columns_shape, fold::rows_shape, launch::Argument,
    sources::family,
};
use crate::error::throw;
use crate::ops::{gpu::Gpu, gpu::address, gpu::format_of, shape::around::around};
use crate::tensor::Tensor;

pub(in crate::ops) static SOFTMAX: Family =
    family!("softmax": "fold.cuh", "rows.cuh", "softmax.cu", "rows_entries.cuh")
        .with(&[(FLOATS, &["Forward", "Backward"])]);

/// `Softmax` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Task {
    a: *const u8,
    b: *const u8,
    out: *mut u8,
    outer: i64,
    n: i64,
    inner: i64,
    log: i32,
    reserved: i32,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Task {}

/// The result for `a`, or with `b` the gradient for the result `a` and its gradient `b`; both are dense.
#[track_caller]
pub(super) fn run(gpu: Gpu, log: bool, a: &Tensor, b: Option<&Tensor>, d: usize) -> Tensor {
    let out = a.empty_like();
    if a.numel() == 0 {
        return out;
    }
    let [outer, n, inner] = around(a.shape(), d);
    let format = format_of(a.dtype());
    let b_at = address(b);
    let (entry, shape) = if inner == 1 {
        rows_shape("softmax", outer, n, format, &[a.device_ptr(), b_at, out.device_ptr()])
            .unwrap_or_else(|error| throw(error))
    } else {
        ("columns", columns_shape(outer * inner, n))
    };
    let variant = if b.is_some() { "Backward" } else { "Forward" };
    let task = Task {
        a: a.device_ptr(),
        b: b_at,
        out: out.device_ptr(),
        outer: outer as i64,
        n: n as i64,
        inner: inner as i64,
        log: i32::from(log),
        reserved: 0,
    };
    // SAFETY: the kernel's parameter; dense tensors of this type and shape, the result is new.
    unsafe {
        gpu.launch(SOFTMAX.kernel(format, variant, entry), shape, crate::cuda::cuda_args!(task))
    };
    out
}
