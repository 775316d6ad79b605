//! Products of cuBLASLt that end with an activation function, and those that end with its derivative and the gradient of
//! the row that was added: what would be read and written between two kernels stays in registers.

use crate::cuda::cublaslt::{Activation, Addresses, Epilogue, Lie, Problem};
use crate::ops::gpu::Gpu;
use crate::tensor::{Dtype, Tensor};

use super::cublaslt::{is_fit, kind, lie, start_product};

/// A function of a product with a bias, and what its derivative needs.
pub(super) struct Active {
    pub(super) out: Tensor,
    pub(super) kept: Tensor,
}

/// `f(x w + bias)`, of matrices; none where cuBLASLt does not compute it.
#[track_caller]
pub(super) fn active(
    gpu: Gpu,
    x: &Tensor,
    w: &Tensor,
    bias: &Tensor,
    function: Activation,
) -> Option<Active> {
    let (rows, n) = (x.shape()[0], w.shape()[1]);
    let halves = matches!(x.dtype(), Dtype::F16 | Dtype::BF16);
    if !halves || !function.takes(n) || bias.strides() != [1] {
        return None;
    }
    let on = |shape: &[usize], dtype| Tensor::uninitialised_on(shape, dtype, gpu.device());
    let out = on(&[rows, n], x.dtype());
    let kept = match function {
        Activation::Relu => on(&[rows, function.kept_step(n) / 8], Dtype::U8),
        Activation::GeluTanh => on(&[rows, n], x.dtype()),
    };
    let epilogue = Epilogue::Active(function);
    run(gpu, &out, x, w, epilogue, bias, &kept).then_some(Active { out, kept })
}

/// The gradient before the function, of `g w` behind it, and the bias's; none where cuBLASLt does not compute them.
#[track_caller]
pub(super) fn backward(
    gpu: Gpu,
    g: &Tensor,
    w: &Tensor,
    kept: &Tensor,
    function: Activation,
) -> Option<(Tensor, Tensor)> {
    let (rows, n) = (g.shape()[0], w.shape()[1]);
    let [out, bias] = [&[rows, n][..], &[n]]
        .map(|shape| Tensor::uninitialised_on(shape, g.dtype(), gpu.device()));
    let epilogue = Epilogue::Backward(function);
    run(gpu, &out, g, w, epilogue, &bias, kept).then_some((out, bias))
}

#[track_caller]
fn run(
    gpu: Gpu,
    out: &Tensor,
    a: &Tensor,
    b: &Tensor,
    epilogue: Epilogue,
    vector: &Tensor,
    kept: &Tensor,
) -> bool {
    let size = [out.shape()[0], out.shape()[1], a.shape()[1]];
    let (Some(left), Some(right)) = (lie(a, 0), lie(b, 0)) else { return false };
    let Some(kind) = kind(out.dtype()).filter(|kind| kind.has(epilogue) && is_fit(size, 1)) else {
        return false;
    };
    let result = Lie { turned: false, step: size[1] as i64, batch: 0 };
    let problem = Problem {
        kind,
        wide: false,
        size,
        batch: 1,
        left,
        right,
        start: result,
        out: result,
        epilogue,
    };
    let to = out.device_ptr();
    let addresses = Addresses {
        left: a.device_ptr(),
        right: b.device_ptr(),
        start: to,
        out: to,
        vector: vector.device_ptr(),
        kept: kept.device_ptr(),
    };
    // SAFETY: tensors of this GPU that lie as described: vector and what is kept have the problem's sizes; results are new.
    unsafe { start_product(gpu, &problem, addresses, (1.0, 0.0)) }
}
