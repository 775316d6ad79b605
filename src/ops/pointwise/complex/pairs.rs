//! Complex numbers as pairs of real ones, and back.

use crate::autograd::{BackwardCtx, record};
use crate::storage::Device;
use crate::tensor::{Dtype, Operand, Scalar, Tensor};
use smallvec::smallvec;

/// A complex tensor of the given type and device from any operand. A 0-dim tensor of the host goes to a GPU.
#[track_caller]
pub(super) fn as_complex(x: Operand<'_>, dtype: Dtype, device: Device) -> Tensor {
    match x {
        Operand::Tensor(t) if t.dim() == 0 => t.to_dtype(dtype).to_device(device),
        Operand::Tensor(t) => t.to_dtype(dtype),
        Operand::Scalar(s) => Tensor::full([], s, (dtype, device)),
    }
}

/// A real operand in the type of complex numbers' parts: a number, or with a last dimension of size 1 to go
/// with those of pairs.
#[track_caller]
pub(super) fn factor(x: Operand<'_>, dtype: Dtype) -> Tensor {
    match x {
        Operand::Tensor(t) if t.dim() == 0 => t.to_dtype(dtype.to_real()),
        Operand::Tensor(t) => t.to_dtype(dtype.to_real()).unsqueeze(-1),
        Operand::Scalar(s) => Tensor::full([], s, dtype.to_real().on_host()),
    }
}

/// `f` of complex tensors as pairs of real numbers; it keeps the last dimension.
#[track_caller]
pub(in crate::ops) fn by_pairs(x: &Tensor, f: impl FnOnce(&Tensor) -> Tensor) -> Tensor {
    join(f(&x.view_as_real()))
}

/// A product of complex tensors of one type, of which `f` is that of real ones.
#[track_caller]
pub(in crate::ops) fn bilinear(
    a: &Tensor,
    b: &Tensor,
    f: impl Fn(&Tensor, &Tensor) -> Tensor,
) -> Tensor {
    let ([x, y], [u, v]) = ([a.real(), a.imag()], [b.real(), b.imag()]);
    Tensor::complex(&(f(&x, &u) - f(&y, &v)), &(f(&x, &v) + f(&y, &u)))
}

/// Pairs that nobody else has as complex numbers: not a view, for the pairs are gone.
pub(in crate::ops) fn join(pairs: Tensor) -> Tensor {
    let Some(layout) = pairs.layout().joined() else { return join(pairs.clone_contiguous()) };
    let joined = Tensor::from_parts(pairs.storage().clone(), layout, pairs.dtype().to_complex());
    record_join(&pairs, joined)
}

pub(super) fn record_join(pairs: &Tensor, joined: Tensor) -> Tensor {
    record("view_as_complex", &[pairs], joined, |_| {
        move |ctx: &BackwardCtx<'_>| smallvec![Some(ctx.grad(0).view_as_real())]
    })
}

/// The operands of a row of which one is complex: what its clause `complex(z) { .. }` is made of.
pub struct Numbers<'a> {
    pub(super) inputs: &'a [Operand<'a>],
    pub(super) params: &'a [Scalar],
    pub(super) dtype: Dtype,
    pub(super) device: Device,
}

impl<'a> Numbers<'a> {
    /// Operand `k`.
    pub fn input(&self, k: usize) -> Operand<'a> {
        self.inputs[k]
    }

    /// Operand `k` as a tensor of the complex type that all promote to.
    #[track_caller]
    pub fn z(&self, k: usize) -> Tensor {
        as_complex(self.inputs[k], self.dtype, self.device)
    }

    /// Its real and imaginary parts, side by side.
    #[track_caller]
    pub fn pairs(&self, k: usize) -> Tensor {
        self.z(k).view_as_real()
    }

    /// Whether operand `k` is complex itself.
    pub fn is_complex(&self, k: usize) -> bool {
        matches!(self.inputs[k], Operand::Tensor(t) if t.is_complex())
    }

    /// A real operand `k` as what pairs are multiplied by.
    #[track_caller]
    pub fn factor(&self, k: usize) -> Tensor {
        factor(self.inputs[k], self.dtype)
    }

    /// Parameter `k`.
    pub fn param(&self, k: usize) -> f64 {
        self.params[k].to_f64()
    }

    /// A one of the common type.
    pub fn one(&self) -> Tensor {
        Tensor::ones([], (self.dtype, self.device))
    }
}
