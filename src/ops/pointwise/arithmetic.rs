//! Rows: arithmetic of one and two operands.

use super::{Row, apply, apply_inplace};
use crate::error::{Error, throw};
use crate::tensor::{Operand, Scalar, result_type};
use crate::{Dtype, Tensor};

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

    /// The larger of two, and the other one where one is NaN (`torch.fmax`).
    pub arith fmax / fmax_ (x, other) = select(ge(x, other) | ne(other, other), x, other);
        grad(g, x, other) {
            x: select(eq(x, other), g * 0.5, select(ge(x, other) | ne(other, other), g, 0.0)),
            other: select(eq(x, other), g * 0.5, select(ge(x, other) | ne(other, other), 0.0, g)),
        }

    /// The smaller of two, and the other one where one is NaN (`torch.fmin`).
    pub arith fmin / fmin_ (x, other) = select(le(x, other) | ne(other, other), x, other);
        grad(g, x, other) {
            x: select(eq(x, other), g * 0.5, select(le(x, other) | ne(other, other), g, 0.0)),
            other: select(eq(x, other), g * 0.5, select(le(x, other) | ne(other, other), 0.0, g)),
        }

    /// The absolute value of `x` with the sign of `other` (`torch.copysign`).
    pub float copysign / copysign_ (x, other) = select(signbit(other), -abs(x), abs(x));
        grad(g, x, other) { x: g * sign(x) * select(signbit(other), -1.0, 1.0), other: 0.0 }

    /// 0 below 0, 1 above, and `values` at 0 (`torch.heaviside`).
    pub arith heaviside / heaviside_ (x, values)
        = select(eq(x, 0.0), values, select(gt(x, 0.0), 1.0, 0.0));
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Difference with a multiple, `self - alpha other` (`torch.sub` with `alpha`).
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for bool.
    #[track_caller]
    pub fn sub_scaled<'a>(
        &self,
        other: impl Into<Operand<'a>>,
        alpha: impl Into<Scalar>,
    ) -> Tensor {
        let other = other.into();
        refuse_bool("sub_scaled", self, other);
        self.add_scaled(other, negative(alpha.into()))
    }

    /// In-place form of [`sub_scaled`](Self::sub_scaled).
    #[track_caller]
    pub fn sub_scaled_<'a>(
        &self,
        other: impl Into<Operand<'a>>,
        alpha: impl Into<Scalar>,
    ) -> &Tensor {
        let other = other.into();
        refuse_bool("sub_scaled_", self, other);
        apply_inplace(&rows::add_scaled, &[self.into(), other], &[negative(alpha.into())]);
        self
    }

    /// Difference the other way round, `other - alpha self` (`torch.rsub`).
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for bool.
    #[track_caller]
    pub fn rsub<'a>(&self, other: impl Into<Operand<'a>>, alpha: impl Into<Scalar>) -> Tensor {
        let other = other.into();
        refuse_bool("rsub", self, other);
        apply(&rows::add_scaled, &[other, self.into()], &[negative(alpha.into())])
    }

    /// `base` to the power of this tensor (`torch.pow` of a number and a tensor).
    #[track_caller]
    pub fn rpow<'a>(&self, base: impl Into<Operand<'a>>) -> Tensor {
        apply(&checked::pow, &[base.into(), self.into()], &[])
    }

    /// [`pow`](Self::pow) in f64, whatever the types (`torch.float_power`).
    #[track_caller]
    pub fn float_power<'a>(&self, exponent: impl Into<Operand<'a>>) -> Tensor {
        let x = self.to_dtype(Dtype::F64);
        match exponent.into() {
            Operand::Tensor(t) => x.pow(&t.to_dtype(Dtype::F64)),
            Operand::Scalar(s) => x.pow(s),
        }
    }

    /// This tensor times 2 to the power `other` (`torch.ldexp`).
    #[track_caller]
    pub fn ldexp<'a>(&self, other: impl Into<Operand<'a>>) -> Tensor {
        match other.into() {
            Operand::Tensor(t) => self * t.exp2(),
            Operand::Scalar(s) => self * s.to_f64().exp2(),
        }
    }

    /// In-place form of [`ldexp`](Self::ldexp).
    #[track_caller]
    pub fn ldexp_<'a>(&self, other: impl Into<Operand<'a>>) -> &Tensor {
        self.assign_same_shape("ldexp_", &self.clone_contiguous().ldexp(other))
    }

    /// In-place form of [`float_power`](Self::float_power): the tensor must be f64.
    #[track_caller]
    pub fn float_power_<'a>(&self, exponent: impl Into<Operand<'a>>) -> &Tensor {
        if self.dtype() != Dtype::F64 {
            let message = format!("the result is f64 and cannot be written into {}", self.dtype());
            throw(Error::dtype("float_power_", message));
        }
        self.assign_same_shape("float_power_", &self.clone_contiguous().float_power(exponent))
    }

    /// Overwrites the tensor with a result that must not have been broadcast beyond it.
    #[track_caller]
    pub(in crate::ops) fn assign_same_shape(&self, op: &str, result: &Tensor) -> &Tensor {
        if self.shape() != result.shape() {
            let (x, y) = (self.shape(), result.shape());
            let message = format!("the result has shape {y:?} and cannot be written into {x:?}");
            throw(Error::shape(op, message));
        }
        self.copy_(result)
    }

    /// Quotient rounded to an integer (`torch.div` with `rounding_mode`).
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for integers when `other` has a zero, [`Error::Dtype`] for bool.
    #[track_caller]
    pub fn div_rounded<'a>(&self, other: impl Into<Operand<'a>>, rounding: Rounding) -> Tensor {
        let other = self.checked_divisor("div_rounded", other.into());
        apply(rounding.row(), &[self.into(), other], &[])
    }

    /// In-place form of [`div_rounded`](Self::div_rounded).
    #[track_caller]
    pub fn div_rounded_<'a>(&self, other: impl Into<Operand<'a>>, rounding: Rounding) -> &Tensor {
        let other = self.checked_divisor("div_rounded_", other.into());
        apply_inplace(rounding.row(), &[self.into(), other], &[]);
        self
    }

    /// Remainder of the division rounded towards zero, which has the sign of `self` (`torch.fmod`).
    ///
    /// # Panics
    /// Throws [`Error::Argument`] for integers when `other` has a zero.
    #[track_caller]
    pub fn fmod<'a>(&self, other: impl Into<Operand<'a>>) -> Tensor {
        let other = self.checked_divisor("fmod", other.into());
        apply(&checked::fmod, &[self.into(), other], &[])
    }

    /// In-place form of [`fmod`](Self::fmod).
    #[track_caller]
    pub fn fmod_<'a>(&self, other: impl Into<Operand<'a>>) -> &Tensor {
        let other = self.checked_divisor("fmod_", other.into());
        apply_inplace(&checked::fmod, &[self.into(), other], &[]);
        self
    }

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
            && !self.dtype().is_differentiable()
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
        checked_divisor(op, self.into(), other)
    }
}

/// Integers have no quotient by zero.
#[track_caller]
pub(super) fn checked_divisor<'a>(op: &str, x: Operand<'_>, other: Operand<'a>) -> Operand<'a> {
    if !result_type(x, other).is_floating_point() {
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

fn negative(s: Scalar) -> Scalar {
    match s {
        Scalar::F(v) => Scalar::F(-v),
        Scalar::I(v) => Scalar::I(v.wrapping_neg()),
        Scalar::B(v) => Scalar::I(-i64::from(v)),
    }
}

#[track_caller]
fn refuse_bool(op: &str, x: &Tensor, other: Operand<'_>) {
    if result_type(x, other) == Dtype::Bool {
        throw(Error::dtype(op, "takes numbers, got bool; for bool use the logical ops"));
    }
}
