//! Rows: arithmetic of one and two operands.

use super::{apply, apply_inplace};
use crate::Tensor;
use crate::error::{Error, throw};
use crate::tensor::{Operand, Scalar, result_type};

crate::pointwise! {
    table rows for Tensor;

    /// Sum (`torch.add`); of bool, "or".
    pub arith add / add_ (x, other) = x + other;
        grad(g) { x: g, other: g }

    /// Sum with a multiple (`torch.add` with `alpha`).
    pub arith add_scaled / add_scaled_ (x, other; alpha = 0.75) = x + other * alpha;
        grad(g) { x: g, other: g * alpha }

    /// Difference (`torch.sub`).
    pub numeric sub / sub_ (x, other) = x - other;
        grad(g) { x: g, other: -g }

    /// Product (`torch.mul`); of bool, "and".
    pub arith mul / mul_ (x, other) = x * other;
        grad(g, x, other) { x: g * other, other: g * x }

    /// Quotient in floating point (`torch.div`).
    pub float div / div_ (x, other) = x / other;
        grad(g, x, other) { x: g / other, other: -(g * (x / other / other)) }
        sample { other: 0.5..3.0 }

    /// Negative (`torch.neg`).
    pub numeric neg / neg_ (x) = -x;
        grad(g) { x: -g }

    /// Absolute value (`torch.abs`).
    pub arith abs / abs_ (x) = abs(x);
        grad(g, x) { x: g * sign(x) }

    /// -1, 0 or 1 (`torch.sign`).
    pub arith sign / sign_ (x) = sign(x);
        grad(g) { x: 0.0 }

    /// Square (`torch.square`).
    pub arith square / square_ (x) = x * x;
        grad(g, x) { x: g * 2.0 * x }

    /// 1 / x (`torch.reciprocal`).
    pub float reciprocal / reciprocal_ (x) = 1.0 / x;
        grad(g, y) { x: -(g * y * y) }
        sample { x: 0.5..3.0 }

    /// The larger of two (`torch.maximum`); NaN if one is. At a tie each gets half of the gradient.
    pub arith maximum / maximum_ (x, other) = maximum(x, other);
        grad(g, x, other) {
            x: select(eq(x, other), g * 0.5, select(gt(x, other), g, 0.0)),
            other: select(eq(x, other), g * 0.5, select(gt(x, other), 0.0, g)),
        }

    /// The smaller of two (`torch.minimum`); NaN if one is. At a tie each gets half of the gradient.
    pub arith minimum / minimum_ (x, other) = minimum(x, other);
        grad(g, x, other) {
            x: select(eq(x, other), g * 0.5, select(lt(x, other), g, 0.0)),
            other: select(eq(x, other), g * 0.5, select(lt(x, other), 0.0, g)),
        }
}

crate::pointwise! {
    table checked without functions;

    /// `x` to the power `exponent` ([`Tensor::pow`]).
    arith pow(x, exponent) = pow(x, exponent);
        grad(g, x, exponent, y) {
            x: select(eq(exponent, 0.0), 0.0, g * exponent * pow(x, exponent - 1.0)),
            exponent: select(eq(x, 0.0) & ge(exponent, 0.0), 0.0, g * y * log(x)),
        }
        sample { x: 0.3..3.0, exponent: -2.0..2.0 }

    /// Remainder of the floored division ([`Tensor::remainder`]).
    numeric remainder(x, other) = remainder(x, other);
        grad(g, x, other) { x: g, other: -(g * floor_divide(x, other)) }
        sample { other: 0.7..3.0 }

    /// Quotient rounded down ([`Tensor::floor_divide`]).
    numeric floor_divide(x, other) = floor_divide(x, other);
        grad(g) { x: 0.0, other: 0.0 }
        sample { other: 0.7..3.0 }
}

impl Tensor {
    /// `self` to the power `exponent`, a tensor or a number (`torch.pow`).
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for a negative integer number as the exponent of integers.
    #[track_caller]
    pub fn pow<'a>(&self, exponent: impl Into<Operand<'a>>) -> Tensor {
        let exponent = self.checked_exponent("pow", exponent.into());
        match exponent {
            // The usual exponents have faster formulas, where the type of the result is the same.
            Operand::Scalar(s) if self.dtype().is_floating_point() => match s.to_f64() {
                1.0 => self * 1.0,
                2.0 => self.square(),
                0.5 => self.sqrt(),
                -0.5 => self.rsqrt(),
                -1.0 => self.reciprocal(),
                3.0 => self.square() * self,
                _ => apply(&checked::pow, &[self.into(), exponent], &[]),
            },
            _ => apply(&checked::pow, &[self.into(), exponent], &[]),
        }
    }

    /// In-place form of [`pow`](Self::pow).
    #[track_caller]
    pub fn pow_<'a>(&self, exponent: impl Into<Operand<'a>>) -> &Tensor {
        let exponent = self.checked_exponent("pow_", exponent.into());
        apply_inplace(&checked::pow, &[self.into(), exponent], &[]);
        self
    }

    #[track_caller]
    fn checked_exponent<'a>(&self, op: &str, exponent: Operand<'a>) -> Operand<'a> {
        if let Operand::Scalar(Scalar::I(n)) = exponent
            && n < 0
            && !self.dtype().is_floating_point()
        {
            throw(Error::argument(
                op,
                "exponent",
                format!(
                    "{n}: integers have no negative integer powers; convert to a floating-point type"
                ),
            ));
        }
        exponent
    }

    /// Remainder of the floored division, which has the sign of `other` (`torch.remainder`).
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for integers when `other` has a zero.
    #[track_caller]
    pub fn remainder<'a>(&self, other: impl Into<Operand<'a>>) -> Tensor {
        let other = self.checked_divisor("remainder", other.into());
        apply(&checked::remainder, &[self.into(), other], &[])
    }

    /// In-place form of [`remainder`](Self::remainder).
    #[track_caller]
    pub fn remainder_<'a>(&self, other: impl Into<Operand<'a>>) -> &Tensor {
        let other = self.checked_divisor("remainder_", other.into());
        apply_inplace(&checked::remainder, &[self.into(), other], &[]);
        self
    }

    /// Quotient rounded down (`torch.floor_divide`).
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for integers when `other` has a zero.
    #[track_caller]
    pub fn floor_divide<'a>(&self, other: impl Into<Operand<'a>>) -> Tensor {
        let other = self.checked_divisor("floor_divide", other.into());
        apply(&checked::floor_divide, &[self.into(), other], &[])
    }

    /// In-place form of [`floor_divide`](Self::floor_divide).
    #[track_caller]
    pub fn floor_divide_<'a>(&self, other: impl Into<Operand<'a>>) -> &Tensor {
        let other = self.checked_divisor("floor_divide_", other.into());
        apply_inplace(&checked::floor_divide, &[self.into(), other], &[]);
        self
    }

    #[track_caller]
    fn checked_divisor<'a>(&self, op: &str, other: Operand<'a>) -> Operand<'a> {
        if !result_type(self, other).is_floating_point() {
            let zero = match other {
                Operand::Scalar(s) => s.to_i64() == 0,
                Operand::Tensor(t) => t.eq(0).contiguous().to_vec::<bool>().contains(&true),
            };
            if zero {
                throw(Error::argument(op, "other", "integer division by zero"));
            }
        }
        other
    }
}
