//! Rows: division that rounds, and its remainders.

use super::{Row, apply, apply_inplace};
use crate::error::{Error, throw};
use crate::tensor::{Operand, Tensor, result_type};

crate::pointwise! {
    table checked without functions;

    /// Remainder of the floored division ([`Tensor::remainder`]).
    numeric remainder(x, other) = remainder(x, other);
        grad(g, x, other) { x: g, other: -(g * floor_divide(x, other)) }
        sample { other: 0.7..3.0 }

    /// Quotient rounded down ([`Tensor::floor_divide`]).
    numeric floor_divide(x, other) = floor_divide(x, other);
        grad(g) { x: 0.0, other: 0.0 }
        sample { other: 0.7..3.0 }

    /// Quotient rounded towards zero ([`Tensor::div_rounded`]).
    numeric trunc_divide(x, other) = trunc(x / other);
        grad(g) { x: 0.0, other: 0.0 }
        sample { other: 0.7..3.0 }

    /// Remainder of the division rounded towards zero ([`Tensor::fmod`]).
    numeric fmod(x, other) = fmod(x, other);
        grad(g, x, other) { x: g, other: -(g * trunc(x / other)) }
        sample { other: 0.7..3.0 }
}

/// How [`Tensor::div_rounded`] rounds (PyTorch's `rounding_mode`).
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::pointwise::Rounding;
/// let x = Tensor::from([-7i64, 7]);
/// assert_eq!(x.div_rounded(2, Rounding::Floor).to_vec::<i64>(), [-4, 3]);
/// assert_eq!(x.div_rounded(2, Rounding::Trunc).to_vec::<i64>(), [-3, 3]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rounding {
    /// Down.
    Floor,
    /// Towards zero.
    Trunc,
}

impl Rounding {
    fn row(self) -> &'static Row {
        match self {
            Rounding::Floor => &checked::floor_divide,
            Rounding::Trunc => &checked::trunc_divide,
        }
    }
}

impl Tensor {
    /// Quotient rounded to an integer (`torch.div` with `rounding_mode`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::pointwise::Rounding;
    /// let x = Tensor::from([-7f32, 7.]);
    /// assert_eq!(x.div_rounded(2.0, Rounding::Floor).to_vec::<f32>(), [-4.0, 3.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for integers when `other` has a zero, [`Error::Dtype`] for bool.
    #[track_caller]
    pub fn div_rounded<'a>(&self, other: impl Into<Operand<'a>>, rounding: Rounding) -> Tensor {
        let other = self.checked_divisor("div_rounded", other.into());
        apply(rounding.row(), &[self.into(), other], &[])
    }

    /// In-place form of [`div_rounded`](Self::div_rounded).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// use torchrs::ops::pointwise::Rounding;
    /// let x = Tensor::from([-7i64, 7]);
    /// assert_eq!(x.div_rounded_(2, Rounding::Trunc).to_vec::<i64>(), [-3, 3]);
    /// ```
    #[track_caller]
    pub fn div_rounded_<'a>(&self, other: impl Into<Operand<'a>>, rounding: Rounding) -> &Tensor {
        let other = self.checked_divisor("div_rounded_", other.into());
        apply_inplace(rounding.row(), &[self.into(), other], &[]);
        self
    }

    /// Remainder of the division rounded towards zero, which has the sign of `self` (`torch.fmod`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-7i64, 7]);
    /// assert_eq!(x.fmod(3).to_vec::<i64>(), [-1, 1]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for integers when `other` has a zero.
    #[track_caller]
    pub fn fmod<'a>(&self, other: impl Into<Operand<'a>>) -> Tensor {
        let other = self.checked_divisor("fmod", other.into());
        apply(&checked::fmod, &[self.into(), other], &[])
    }

    /// In-place form of [`fmod`](Self::fmod).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-7i64, 7]);
    /// assert_eq!(x.fmod_(-3).to_vec::<i64>(), [-1, 1]);
    /// ```
    #[track_caller]
    pub fn fmod_<'a>(&self, other: impl Into<Operand<'a>>) -> &Tensor {
        let other = self.checked_divisor("fmod_", other.into());
        apply_inplace(&checked::fmod, &[self.into(), other], &[]);
        self
    }

    /// Remainder of the floored division, which has the sign of `other` (`torch.remainder`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-7i64, 7]);
    /// assert_eq!(x.remainder(3).to_vec::<i64>(), [2, 1]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for integers when `other` has a zero.
    #[track_caller]
    pub fn remainder<'a>(&self, other: impl Into<Operand<'a>>) -> Tensor {
        let other = self.checked_divisor("remainder", other.into());
        apply(&checked::remainder, &[self.into(), other], &[])
    }

    /// In-place form of [`remainder`](Self::remainder).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-7i64, 7]);
    /// assert_eq!(x.remainder_(-3).to_vec::<i64>(), [-1, -2]);
    /// ```
    #[track_caller]
    pub fn remainder_<'a>(&self, other: impl Into<Operand<'a>>) -> &Tensor {
        let other = self.checked_divisor("remainder_", other.into());
        apply_inplace(&checked::remainder, &[self.into(), other], &[]);
        self
    }

    /// Quotient rounded down (`torch.floor_divide`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-7i64, 7]);
    /// assert_eq!(x.floor_divide(2).to_vec::<i64>(), [-4, 3]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for integers when `other` has a zero.
    #[track_caller]
    pub fn floor_divide<'a>(&self, other: impl Into<Operand<'a>>) -> Tensor {
        let other = self.checked_divisor("floor_divide", other.into());
        apply(&checked::floor_divide, &[self.into(), other], &[])
    }

    /// In-place form of [`floor_divide`](Self::floor_divide).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-7f32, 7.]);
    /// assert_eq!(x.floor_divide_(2.0).to_vec::<f32>(), [-4.0, 3.0]);
    /// ```
    #[track_caller]
    pub fn floor_divide_<'a>(&self, other: impl Into<Operand<'a>>) -> &Tensor {
        let other = self.checked_divisor("floor_divide_", other.into());
        apply_inplace(&checked::floor_divide, &[self.into(), other], &[]);
        self
    }

    #[track_caller]
    fn checked_divisor<'a>(&self, op: &str, other: Operand<'a>) -> Operand<'a> {
        checked_divisor(op, self.into(), other)
    }
}

/// Integers have no quotient by zero.
#[track_caller]
pub(super) fn checked_divisor<'a>(op: &str, x: Operand<'_>, other: Operand<'a>) -> Operand<'a> {
    if !result_type(x, other).is_floating_point() {
        let zero = match other {
            Operand::Scalar(s) => s.to_i64() == 0,
            Operand::Tensor(t) if t.device().is_meta() => false,
            Operand::Tensor(t) => t.eq(0).contiguous().to_vec::<bool>().contains(&true),
        };
        if zero {
            throw(Error::argument(op, "other", "integer division by zero"));
        }
    }
    other
}
