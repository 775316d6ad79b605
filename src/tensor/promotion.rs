//! Type promotion, as PyTorch's: <https://pytorch.org/docs/stable/tensor_attributes.html>.

use super::{Dtype, Operand};

/// The smallest type that holds the values of both (`torch.promote_types`).
///
/// ```
/// use torchrs::{Dtype, tensor::promote_types};
/// assert_eq!(promote_types(Dtype::U8, Dtype::I8), Dtype::I16);
/// assert_eq!(promote_types(Dtype::F16, Dtype::BF16), Dtype::F32);
/// assert_eq!(promote_types(Dtype::I64, Dtype::F16), Dtype::F16);
/// ```
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
///
/// ```
/// use torchrs::{Dtype, tensor::ResultType};
/// // An f16 matrix times a plain number stays f16; an i32 one becomes f32.
/// let with_number = |dtype| ResultType::default().tensor(dtype, 2).number(Dtype::F32).dtype();
/// assert_eq!((with_number(Dtype::F16), with_number(Dtype::I32)), (Dtype::F16, Dtype::F32));
/// ```
#[derive(Default, Clone, Copy)]
pub struct ResultType {
    dimensioned: Option<Dtype>,
    zero_dim: Option<Dtype>,
    number: Option<Dtype>,
}

impl ResultType {
    /// Adds a tensor's dtype; `dim` is its number of dimensions.
    ///
    /// ```
    /// use torchrs::{Dtype, tensor::ResultType};
    /// // A 0-dim f64 tensor does not widen an f32 vector.
    /// let types = ResultType::default().tensor(Dtype::F32, 1).tensor(Dtype::F64, 0);
    /// assert_eq!(types.dtype(), Dtype::F32);
    /// assert_eq!(types.tensor(Dtype::F64, 1).dtype(), Dtype::F64);
    /// ```
    #[inline]
    pub fn tensor(mut self, dtype: Dtype, dim: usize) -> Self {
        let class = if dim > 0 { &mut self.dimensioned } else { &mut self.zero_dim };
        *class = join(*class, Some(dtype));
        self
    }

    /// Adds a plain number of the given dtype.
    ///
    /// ```
    /// use torchrs::{Dtype, tensor::ResultType};
    /// let bytes = ResultType::default().tensor(Dtype::U8, 1);
    /// assert_eq!(bytes.number(Dtype::I64).dtype(), Dtype::U8);
    /// assert_eq!(bytes.number(Dtype::F32).dtype(), Dtype::F32);
    /// ```
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
///
/// ```
/// use torchrs::{Dtype, Tensor, tensor::result_type};
/// let x = Tensor::zeros([2], Dtype::F16);
/// assert_eq!((result_type(&x, 2.0), (&x * 2.0).dtype()), (Dtype::F16, Dtype::F16));
/// assert_eq!(result_type(&x, &Tensor::zeros([2], Dtype::F32)), Dtype::F32);
/// ```
pub fn result_type<'a>(a: impl Into<Operand<'a>>, b: impl Into<Operand<'a>>) -> Dtype {
    ResultType::default().operand(a.into()).operand(b.into()).dtype()
}

/// True when a value of `from` may be written into a tensor of `to` by an in-place op
/// (`torch.can_cast`): never from a higher category to a lower one.
///
/// ```
/// use torchrs::{Dtype, tensor::can_cast};
/// assert!(can_cast(Dtype::F64, Dtype::F16) && can_cast(Dtype::I64, Dtype::F32));
/// assert!(!can_cast(Dtype::F32, Dtype::I64) && !can_cast(Dtype::I64, Dtype::Bool));
/// ```
pub fn can_cast(from: Dtype, to: Dtype) -> bool {
    if from.is_complex() && !to.is_complex() {
        return false;
    }
    if from.is_floating_point() && !to.is_differentiable() {
        return false;
    }
    !(from != Dtype::Bool && to == Dtype::Bool)
}
