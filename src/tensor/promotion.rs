//! Type promotion, as PyTorch's: <https://pytorch.org/docs/stable/tensor_attributes.html>.

use super::{Dtype, Operand};

/// The smallest type that holds the values of both (`torch.promote_types`).
pub fn promote_types(a: Dtype, b: Dtype) -> Dtype {
    use Dtype::*;
    if a == b {
        return a;
    }
    if a.is_complex() || b.is_complex() {
        let wide = [a, b].into_iter().any(|d| d.to_real() == F64);
        return if wide { C128 } else { C64 };
    }
    match (a.is_floating_point(), b.is_floating_point()) {
        (true, false) => return a,
        (false, true) => return b,
        (true, true) => {
            return if a == F64 || b == F64 { F64 } else { F32 };
        }
        (false, false) => {}
    }
    match (a, b) {
        (Bool, other) | (other, Bool) => other,
        (U8, I8) | (I8, U8) => I16,
        (U8, signed) | (signed, U8) => signed,
        _ if a.size() > b.size() => a,
        _ => b,
    }
}

/// Collects operands and gives the type that an op on them computes in (`torch.result_type`):
/// tensors with dimensions first, then 0-dim tensors, then plain numbers; a lower class only
/// matters when it is of a higher category (bool < integer < float < complex).
#[derive(Default, Clone, Copy)]
pub struct ResultType {
    dimensioned: Option<Dtype>,
    zero_dim: Option<Dtype>,
    number: Option<Dtype>,
}

impl ResultType {
    /// Adds a tensor's dtype; `dim` is its number of dimensions.
    #[inline]
    pub fn tensor(mut self, dtype: Dtype, dim: usize) -> Self {
        let class = if dim > 0 { &mut self.dimensioned } else { &mut self.zero_dim };
        *class = join(*class, Some(dtype));
        self
    }

    /// Adds a plain number of the given dtype.
    #[inline]
    pub fn number(mut self, dtype: Dtype) -> Self {
        self.number = join(self.number, Some(dtype));
        self
    }

    /// Adds an operand.
    #[inline]
    pub fn operand(self, operand: Operand<'_>) -> Self {
        match operand {
            Operand::Tensor(t) => self.tensor(t.dtype(), t.dim()),
            Operand::Scalar(s) => self.number(s.dtype()),
        }
    }

    /// The result; [`Dtype::F32`] when nothing was added.
    #[inline]
    pub fn dtype(self) -> Dtype {
        combine(self.dimensioned, combine(self.zero_dim, self.number)).unwrap_or(Dtype::F32)
    }
}

fn join(a: Option<Dtype>, b: Option<Dtype>) -> Option<Dtype> {
    match (a, b) {
        (Some(a), Some(b)) => Some(promote_types(a, b)),
        (a, b) => a.or(b),
    }
}

fn combine(higher: Option<Dtype>, lower: Option<Dtype>) -> Option<Dtype> {
    match (higher, lower) {
        (Some(h), Some(l)) => Some(if h.is_floating_point() && l.is_complex() {
            h.to_complex()
        } else if h.is_differentiable() {
            h
        } else if h == Dtype::Bool || l.is_differentiable() {
            promote_types(h, l)
        } else {
            h
        }),
        (h, l) => h.or(l),
    }
}

/// The type that an op on `a` and `b` computes in (`torch.result_type`).
pub fn result_type<'a>(a: impl Into<Operand<'a>>, b: impl Into<Operand<'a>>) -> Dtype {
    ResultType::default().operand(a.into()).operand(b.into()).dtype()
}

/// True when a value of `from` may be written into a tensor of `to` by an in-place op
/// (`torch.can_cast`): never from a higher category to a lower one.
pub fn can_cast(from: Dtype, to: Dtype) -> bool {
    if from.is_complex() && !to.is_complex() {
        return false;
    }
    if from.is_floating_point() && !to.is_differentiable() {
        return false;
    }
    !(from != Dtype::Bool && to == Dtype::Bool)
}
