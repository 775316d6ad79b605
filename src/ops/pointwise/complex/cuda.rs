//! Complex numbers on a GPU: `kernels/complex.cu`.

use crate::cuda::cuda_args;
use crate::cuda::{Kernel, family::Family, family::REALS, launch::Argument, sources::family};
use crate::ops::gpu::{Gpu, format_of};
use crate::tensor::{Dtype, Shape, Tensor};

pub(in crate::ops) static COMPLEX: Family =
    family!("complex": "complex.cu").with(&[(REALS, &["Pairs"])]);

/// `Zip` on the other side.
#[derive(Clone, Copy)]
#[repr(C)]
struct Zip {
    x: *const u8,
    y: *const u8,
    out: *mut u8,
    n: i64,
    x_period: i64,
    y_period: i64,
}

// SAFETY: the same fields in the same order on the other side, without references.
unsafe impl Argument for Zip {}

/// The kernel for a complex type.
fn kernel(dtype: Dtype, entry: &'static str) -> &'static Kernel {
    COMPLEX.kernel(format_of(dtype.to_real()), "Pairs", entry)
}

/// An operand that repeats in a result of this shape, and after how many elements; else a copy that fills it.
fn repeated(x: &Tensor, shape: &[usize]) -> (Tensor, i64) {
    let own = x.shape().iter().skip_while(|&&n| n == 1).count();
    let tail = &x.shape()[x.dim() - own..];
    let x = x.detach();
    let x = if shape.ends_with(tail) { x } else { x.expand(shape) }.contiguous();
    let n = x.numel();
    (x, n as i64)
}

/// A kernel for two tensors of one complex type, whose shapes broadcast to this one.
#[track_caller]
pub(super) fn zip(gpu: Gpu, entry: &'static str, x: &Tensor, y: &Tensor, shape: &Shape) -> Tensor {
    let out = Tensor::empty(shape, (x.dtype(), gpu.device()));
    let n = out.numel();
    if n == 0 {
        return out;
    }
    let ((x, x_period), (y, y_period)) = (repeated(x, shape), repeated(y, shape));
    let task = Zip {
        x: x.device_ptr(),
        y: y.device_ptr(),
        out: out.device_ptr(),
        n: n as i64,
        x_period,
        y_period,
    };
    // SAFETY: the kernel's parameter; dense tensors of this type whose elements repeat, the result is new.
    unsafe { gpu.launch(kernel(x.dtype(), entry), gpu.for_each(n), cuda_args!(task)) };
    out
}

/// A kernel for each number, with results of a type.
#[track_caller]
fn map(gpu: Gpu, entry: &'static str, x: &Tensor, to: Dtype) -> Tensor {
    let x = x.detach().contiguous();
    let out = Tensor::empty(x.shape(), (to, gpu.device()));
    let (from, at, n) = (x.device_ptr(), out.device_ptr(), x.numel());
    let count = n as i64;
    // SAFETY: the kernel's parameters; dense tensors of these types and one size, the result is new.
    unsafe {
        gpu.launch(kernel(x.dtype(), entry), gpu.for_each(n), cuda_args!(from, at, count));
    }
    out
}

/// The conjugates.
#[track_caller]
pub(super) fn conj(gpu: Gpu, x: &Tensor) -> Tensor {
    map(gpu, "conjugate", x, x.dtype())
}

/// Powers of e.
#[track_caller]
pub(super) fn exp(gpu: Gpu, x: &Tensor) -> Tensor {
    map(gpu, "exponential", x, x.dtype())
}

/// Absolute values.
#[track_caller]
pub(super) fn abs(gpu: Gpu, x: &Tensor) -> Tensor {
    map(gpu, "absolute", x, x.dtype().to_real())
}

/// The gradient of absolute values for that of the result.
#[track_caller]
pub(super) fn abs_backward(gpu: Gpu, x: &Tensor, g: &Tensor) -> Tensor {
    let (x, g) = (x.detach().contiguous(), g.detach().contiguous());
    let out = x.empty_like();
    let (from, by, at, n) = (x.device_ptr(), g.device_ptr(), out.device_ptr(), x.numel());
    let count = n as i64;
    // SAFETY: as in `map`.
    unsafe {
        gpu.launch(kernel(x.dtype(), "along"), gpu.for_each(n), cuda_args!(from, by, at, count));
    }
    out
}
