//! Rows: the regularised incomplete gamma functions (`torch.special.gammainc` and `gammaincc`), which have a derivative by their
//! second operand.

use super::apply;
use super::row::Row;
use super::underived::without_derivative_by;
use crate::error::{Error, throw};
use crate::tensor::{Operand, Tensor, result_type};

crate::pointwise! {
    table rows without functions;

    /// The lower one ([`Tensor::igamma`]).
    float igamma(a, x) = igamma(a, x);
        grad(g, a, x) { x: g * exp((a - 1.0) * log(x) - x - lgamma(a)) }
        sample { a: 0.5..4.0, x: 0.3..5.0 }

    /// The upper one ([`Tensor::igammac`]).
    float igammac(a, x) = igammac(a, x);
        grad(g, a, x) { x: -(g * exp((a - 1.0) * log(x) - x - lgamma(a))) }
        sample { a: 0.5..4.0, x: 0.3..5.0 }
}

/// The row's op on tensors or numbers.
#[track_caller]
fn of(row: &'static Row, a: Operand<'_>, x: Operand<'_>) -> Tensor {
    for operand in [a, x] {
        let Operand::Tensor(t) = operand else { continue };
        let dtype = result_type(t, operand);
        if !dtype.is_floating_point() {
            let message =
                format!("takes floating-point tensors, got {dtype}; convert it with `to_dtype`");
            throw(Error::dtype(row.name, message));
        }
    }
    without_derivative_by(row.name, "self", a, apply(row, &[a, x], &[]))
}

/// [`Tensor::igamma`] of tensors or numbers.
#[track_caller]
pub(in crate::ops) fn lower(a: Operand<'_>, x: Operand<'_>) -> Tensor {
    of(&rows::igamma, a, x)
}

/// [`Tensor::igammac`] of tensors or numbers.
#[track_caller]
pub(in crate::ops) fn upper(a: Operand<'_>, x: Operand<'_>) -> Tensor {
    of(&rows::igammac, a, x)
}

impl Tensor {
    /// Regularised lower incomplete gamma function of `self`, the order, and `other` (`torch.igamma`,
    /// `torch.special.gammainc`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([1f64]).igamma(2.0);
    /// assert!((y.item() - (1.0 - (-2f64).exp())).abs() < 1e-12);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for integers. Backward throws where `self` requires a gradient: PyTorch has no derivative by the
    /// order.
    #[track_caller]
    pub fn igamma<'a>(&'a self, other: impl Into<Operand<'a>>) -> Tensor {
        lower(self.into(), other.into())
    }

    /// Regularised upper incomplete gamma function of `self`, the order, and `other` (`torch.igammac`,
    /// `torch.special.gammaincc`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let y = Tensor::from([1f64]).igammac(2.0);
    /// assert!((y.item() - (-2f64).exp()).abs() < 1e-12);
    /// ```
    ///
    /// # Panics
    /// As [`igamma`](Self::igamma).
    #[track_caller]
    pub fn igammac<'a>(&'a self, other: impl Into<Operand<'a>>) -> Tensor {
        upper(self.into(), other.into())
    }

    /// In-place form of [`igamma`](Self::igamma).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let a = Tensor::from([1f64]);
    /// assert!((a.igamma_(2.0).item() - (1.0 - (-2f64).exp())).abs() < 1e-12);
    /// ```
    #[track_caller]
    pub fn igamma_<'a>(&self, other: impl Into<Operand<'a>>) -> &Tensor {
        let y = lower((&self.clone_contiguous()).into(), other.into());
        self.assign_same_shape("igamma_", &y)
    }

    /// In-place form of [`igammac`](Self::igammac).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let a = Tensor::from([1f64]);
    /// assert!((a.igammac_(2.0).item() - (-2f64).exp()).abs() < 1e-12);
    /// ```
    #[track_caller]
    pub fn igammac_<'a>(&self, other: impl Into<Operand<'a>>) -> &Tensor {
        let y = upper((&self.clone_contiguous()).into(), other.into());
        self.assign_same_shape("igammac_", &y)
    }
}
