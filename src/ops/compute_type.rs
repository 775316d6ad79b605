//! What the kernels of several ops share: operands in the type that is computed in, results in the type that was asked for.

use crate::autograd::no_grad;
use crate::tensor::{Dtype, Tensor};

/// `x` as a contiguous tensor without history, in f32 if it is of a half type.
pub(crate) fn widen(x: &Tensor) -> Tensor {
    let x = x.untracked();
    let wide = no_grad(|| match x.dtype() {
        Dtype::F16 | Dtype::BF16 => x.to_dtype(Dtype::F32).contiguous(),
        _ => x.contiguous(),
    });
    wide.untracked()
}

/// Dense and of a type, without history.
pub(crate) fn dense(x: &Tensor, dtype: Dtype) -> Tensor {
    no_grad(|| x.detach().to_dtype(dtype).contiguous())
}

/// A kernel's result, rounded to `dtype` if it is of a half type.
pub(crate) fn narrow(x: Tensor, dtype: Dtype) -> Tensor {
    if x.dtype() == dtype { x } else { no_grad(|| x.to_dtype(dtype)) }
}
