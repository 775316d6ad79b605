//! Rows: arithmetic of one and two operands.

use super::operands::refuse_bools;
use super::{apply, apply_inplace};
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Operand, Scalar, Tensor};

crate::pointwise! {
    table rows for Tensor;

    /// Sum (`torch.add`); of bool, "or".
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2.]);
    /// assert_eq!(x.add(&Tensor::from([10f32, 20.])).to_vec::<f32>(), [11.0, 22.0]);
    /// assert_eq!(x.add_(0.5).to_vec::<f32>(), [1.5, 2.5]);
    /// ```
    pub arith add / add_ (x, other) = x + other;
        grad(g) { x: g, other: g }
        complex(z) { join(z.pairs(0) + z.pairs(1)) }

    /// Sum with a multiple (`torch.add` with `alpha`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2.]);
    /// let y = Tensor::from([10f32, 20.]);
    /// assert_eq!(x.add_scaled(&y, 0.5).to_vec::<f32>(), [6.0, 12.0]);
    /// assert_eq!(x.add_scaled_(&y, 2.0).to_vec::<f32>(), [21.0, 42.0]);
    /// ```
    pub arith add_scaled / add_scaled_ (x, other; alpha = 0.75) = x + other * alpha;
        grad(g) { x: g, other: g * alpha }
        complex(z) { join(z.pairs(0).add_scaled(&z.pairs(1), z.param(0))) }

    /// Difference (`torch.sub`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2.]);
    /// assert_eq!(x.sub(&Tensor::from([10f32, 20.])).to_vec::<f32>(), [-9.0, -18.0]);
    /// assert_eq!(x.sub_(0.5).to_vec::<f32>(), [0.5, 1.5]);
    /// ```
    pub difference sub / sub_ (x, other) = x - other;
        grad(g) { x: g, other: -g }
        complex(z) { join(z.pairs(0) - z.pairs(1)) }

    /// Product (`torch.mul`); of bool, "and".
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2.]);
    /// assert_eq!(x.mul(&Tensor::from([[3f32], [4.]])).to_vec::<f32>(), [3.0, 6.0, 4.0, 8.0]);
    /// assert_eq!(x.mul_(0.5).to_vec::<f32>(), [0.5, 1.0]);
    /// ```
    pub arith mul / mul_ (x, other) = x * other;
        grad(g, x, other) { x: g * other, other: g * x }
        complex(z) { product_of(z) }

    /// Quotient in floating point (`torch.div`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2.]);
    /// assert_eq!(x.div(4.0).to_vec::<f32>(), [0.25, 0.5]);
    /// assert_eq!(x.div_(&Tensor::from([2f32, 8.])).to_vec::<f32>(), [0.5, 0.25]);
    /// assert_eq!(Tensor::from([1i64, 2]).div(2).to_vec::<f32>(), [0.5, 1.0]);
    /// ```
    pub float div / div_ (x, other) = x / other;
        grad(g, x, other) { x: g / other, other: -(g * (x / other / other)) }
        sample { other: 0.5..3.0 }
        complex(z) { quotient_of(z) }

    /// Negative (`torch.neg`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, -2]);
    /// assert_eq!(x.neg().to_vec::<i64>(), [-1, 2]);
    /// assert_eq!(x.neg_().neg_().to_vec::<i64>(), [1, -2]);
    /// ```
    pub numeric neg / neg_ (x) = -x;
        grad(g) { x: -g }
        complex(z) { join(-z.pairs(0)) }

    /// Absolute value (`torch.abs`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, -2]);
    /// assert_eq!(x.abs().to_vec::<i64>(), [1, 2]);
    /// assert_eq!(x.abs_().to_vec::<i64>(), [1, 2]);
    /// ```
    pub arith abs / abs_ (x) = abs(x);
        grad(g, x) { x: g * sign(x) }
        complex(z) { abs(&z.z(0)) }

    /// -1, 0 or 1 (`torch.sign`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-3f32, 0., 5.]);
    /// assert_eq!(x.sign().to_vec::<f32>(), [-1.0, 0.0, 1.0]);
    /// assert_eq!(x.sign_().to_vec::<f32>(), [-1.0, 0.0, 1.0]);
    /// ```
    pub arith sign / sign_ (x) = sign(x);
        grad(g) { x: 0.0 }

    /// 1 / x (`torch.reciprocal`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([2f32, -4.]);
    /// assert_eq!(x.reciprocal().to_vec::<f32>(), [0.5, -0.25]);
    /// assert_eq!(x.reciprocal_().to_vec::<f32>(), [0.5, -0.25]);
    /// ```
    pub float reciprocal / reciprocal_ (x) = 1.0 / x;
        grad(g, y) { x: -(g * y * y) }
        sample { x: 0.5..3.0 }
        complex(z) { div(&z.one(), &z.z(0)) }

    /// The larger of two (`torch.maximum`); NaN if one is. At a tie each gets half of the gradient.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 5., f32::NAN]);
    /// let y = Tensor::from([3f32, 2., 0.]);
    /// assert_eq!(x.maximum(&y).narrow(0, 0, 2).to_vec::<f32>(), [3.0, 5.0]);
    /// assert!(x.maximum_(&y).i(2).item().is_nan());
    /// ```
    pub arith maximum / maximum_ (x, other) = maximum(x, other);
        grad(g, x, other) {
            x: select(eq(x, other), g * 0.5, select(lt(x, other), 0.0, g)),
            other: select(eq(x, other), g * 0.5, select(gt(x, other), 0.0, g)),
        }

    /// The smaller of two (`torch.minimum`); NaN if one is. At a tie each gets half of the gradient.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 5., f32::NAN]);
    /// let y = Tensor::from([3f32, 2., 0.]);
    /// assert_eq!(x.minimum(&y).narrow(0, 0, 2).to_vec::<f32>(), [1.0, 2.0]);
    /// assert!(x.minimum_(&y).i(2).item().is_nan());
    /// ```
    pub arith minimum / minimum_ (x, other) = minimum(x, other);
        grad(g, x, other) {
            x: select(eq(x, other), g * 0.5, select(gt(x, other), 0.0, g)),
            other: select(eq(x, other), g * 0.5, select(lt(x, other), 0.0, g)),
        }

    /// The larger of two, and the other one where one is NaN (`torch.fmax`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 5., f32::NAN]);
    /// let y = Tensor::from([3f32, 2., 0.]);
    /// assert_eq!(x.fmax(&y).to_vec::<f32>(), [3.0, 5.0, 0.0]);
    /// assert_eq!(x.fmax_(4.0).to_vec::<f32>(), [4.0, 5.0, 4.0]);
    /// ```
    pub arith fmax / fmax_ (x, other) = select(ge(x, other) | ne(other, other), x, other);
        grad(g, x, other) {
            x: select(eq(x, other), g * 0.5, select(ge(x, other) | ne(other, other), g, 0.0)),
            other: select(eq(x, other), g * 0.5, select(ge(x, other) | ne(other, other), 0.0, g)),
        }

    /// The smaller of two, and the other one where one is NaN (`torch.fmin`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 5., f32::NAN]);
    /// let y = Tensor::from([3f32, 2., 0.]);
    /// assert_eq!(x.fmin(&y).to_vec::<f32>(), [1.0, 2.0, 0.0]);
    /// assert_eq!(x.fmin_(4.0).to_vec::<f32>(), [1.0, 4.0, 4.0]);
    /// ```
    pub arith fmin / fmin_ (x, other) = select(le(x, other) | ne(other, other), x, other);
        grad(g, x, other) {
            x: select(eq(x, other), g * 0.5, select(le(x, other) | ne(other, other), g, 0.0)),
            other: select(eq(x, other), g * 0.5, select(le(x, other) | ne(other, other), 0.0, g)),
        }

    /// The absolute value of `x` with the sign of `other` (`torch.copysign`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, -2., 3.]);
    /// assert_eq!(x.copysign(&Tensor::from([-1f32, 1., -0.])).to_vec::<f32>(), [-1.0, 2.0, -3.0]);
    /// assert_eq!(x.copysign_(1.0).to_vec::<f32>(), [1.0, 2.0, 3.0]);
    /// ```
    pub float copysign / copysign_ (x, other) = select(signbit(other), -abs(x), abs(x));
        grad(g, x, other) {
            x: g * (sign(x) * select(signbit(other), -1.0, 1.0) + 0.0 * x),
            other: 0.0,
        }
}

crate::pointwise! {
    table checked without functions;

    /// x^2 ([`Tensor::square`]).
    arith square(x) = x * x;
        grad(g, x) { x: g * (2.0 * x) }
        complex(z) { mul(&z.z(0), &z.z(0)) }

    /// 0 below 0, 1 above, and `values` at 0 ([`Tensor::heaviside`]).
    arith heaviside(x, values) = select(eq(x, 0.0), values, select(gt(x, 0.0), 1.0, 0.0));

    /// `x` to the power `exponent` ([`Tensor::pow`]).
    arith pow(x, exponent) = pow(x, exponent);
        grad(g, x, exponent, y) {
            x: select(
                eq(exponent, 0.0),
                0.0,
                g * (exponent * pow(x, select(eq(exponent, 0.0), 1.0, exponent - 1.0)))
            ),
            exponent: select(
                eq(x, 0.0) & ge(exponent, 0.0),
                0.0,
                g * y * log(select(eq(x, 0.0) & ge(exponent, 0.0), 1.0, x))
            ),
        }
        sample { x: 0.3..3.0, exponent: -2.0..2.0 }
        complex(z) { pow(z) }

    /// x^3 ([`Tensor::pow`]).
    arith cube(x) = x * x * x;
        grad(g, x) { x: g * 3.0 * x * x }
}

impl Tensor {
    /// Difference with a multiple, `self - alpha other` (`torch.sub` with `alpha`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2]);
    /// assert_eq!(x.sub_scaled(&Tensor::from([10i64, 20]), 2).to_vec::<i64>(), [-19, -38]);
    /// ```
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
        refuse_bools("sub_scaled", &[self.into(), other]);
        self.add_scaled(other, negative(alpha.into()))
    }

    /// In-place form of [`sub_scaled`](Self::sub_scaled).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2.]);
    /// x.sub_scaled_(&Tensor::from([10f32, 20.]), 0.5);
    /// assert_eq!(x.to_vec::<f32>(), [-4.0, -8.0]);
    /// ```
    #[track_caller]
    pub fn sub_scaled_<'a>(
        &self,
        other: impl Into<Operand<'a>>,
        alpha: impl Into<Scalar>,
    ) -> &Tensor {
        let other = other.into();
        refuse_bools("sub_scaled_", &[self.into(), other]);
        apply_inplace(&rows::add_scaled, &[self.into(), other], &[negative(alpha.into())]);
        self
    }

    /// Difference the other way round, `other - alpha self` (`torch.rsub`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2.]);
    /// assert_eq!(x.rsub(10.0, 2.0).to_vec::<f32>(), [8.0, 6.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for bool.
    #[track_caller]
    pub fn rsub<'a>(&self, other: impl Into<Operand<'a>>, alpha: impl Into<Scalar>) -> Tensor {
        let other = other.into();
        refuse_bools("rsub", &[other, self.into()]);
        apply(&rows::add_scaled, &[other, self.into()], &[negative(alpha.into())])
    }

    /// Square (`torch.square`); of bool i64, as of all powers by a whole number.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// assert_eq!(Tensor::from([-3f32, 2.]).square().to_vec::<f32>(), [9.0, 4.0]);
    /// assert_eq!(Tensor::from([true]).square().dtype(), Dtype::I64);
    /// ```
    #[track_caller]
    pub fn square(&self) -> Tensor {
        match self.dtype() {
            Dtype::Bool => self.to_dtype(Dtype::I64),
            _ => apply(&checked::square, &[self.into()], &[]),
        }
    }

    /// In-place form of [`square`](Self::square).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([-3f32, 2.]).square_().to_vec::<f32>(), [9.0, 4.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] for bool.
    #[track_caller]
    pub fn square_(&self) -> &Tensor {
        if self.dtype() == Dtype::Bool {
            throw(Error::dtype(
                "square_",
                "the result is i64 and cannot be written into a bool tensor",
            ));
        }
        apply_inplace(&checked::square, &[self.into()], &[]);
        self
    }

    /// 0 below 0, 1 above, and `values` at 0 (`torch.heaviside`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-2f32, 0., 3.]);
    /// assert_eq!(x.heaviside(0.5).to_vec::<f32>(), [0.0, 0.5, 1.0]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] when `values` is a tensor of another type.
    #[track_caller]
    pub fn heaviside<'a>(&self, values: impl Into<Operand<'a>>) -> Tensor {
        let values = self.of_one_type("heaviside", "values", values.into());
        apply(&checked::heaviside, &[self.into(), values], &[])
    }

    /// In-place form of [`heaviside`](Self::heaviside).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([-2f32, 0., 3.]);
    /// assert_eq!(x.heaviside_(1.0).to_vec::<f32>(), [0.0, 1.0, 1.0]);
    /// ```
    #[track_caller]
    pub fn heaviside_<'a>(&self, values: impl Into<Operand<'a>>) -> &Tensor {
        let values = self.of_one_type("heaviside_", "values", values.into());
        apply_inplace(&checked::heaviside, &[self.into(), values], &[]);
        self
    }

    /// An operand of an op that promotes no types.
    #[track_caller]
    pub(super) fn of_one_type<'a>(&self, op: &str, name: &str, other: Operand<'a>) -> Operand<'a> {
        if let Operand::Tensor(t) = other
            && t.dtype() != self.dtype()
        {
            let (x, y) = (self.dtype(), t.dtype());
            throw(Error::dtype(
                op,
                format!("takes tensors of one type, got {x} and `{name}` of {y}"),
            ));
        }
        other
    }

    /// `base` to the power of this tensor (`torch.pow` of a number and a tensor).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([0f32, 3., -1.]).rpow(2.0).to_vec::<f32>(), [1.0, 8.0, 0.5]);
    /// ```
    #[track_caller]
    pub fn rpow<'a>(&self, base: impl Into<Operand<'a>>) -> Tensor {
        apply(&checked::pow, &[base.into(), self.into()], &[])
    }

    /// [`pow`](Self::pow) in f64, whatever the types (`torch.float_power`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let y = Tensor::from([2i64, 3]);
    /// let x = y.float_power(-1);
    /// assert_eq!((x.dtype(), x.i(0).item()), (Dtype::F64, 0.5));
    /// ```
    #[track_caller]
    pub fn float_power<'a>(&self, exponent: impl Into<Operand<'a>>) -> Tensor {
        let x = self.to_dtype(Dtype::F64);
        match exponent.into() {
            Operand::Tensor(t) => x.pow(&t.to_dtype(Dtype::F64)),
            Operand::Scalar(s) => x.pow(s),
        }
    }

    /// `base` to the power of this tensor in f64, whatever the types (`torch.float_power` of a number and a tensor).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([2i64, -1]).rfloat_power(2).to_vec::<f64>(), [4.0, 0.5]);
    /// ```
    #[track_caller]
    pub fn rfloat_power<'a>(&self, base: impl Into<Operand<'a>>) -> Tensor {
        match base.into() {
            Operand::Tensor(t) => t.float_power(self),
            Operand::Scalar(s) => self.to_dtype(Dtype::F64).rpow(s.to_f64()),
        }
    }

    /// This tensor times 2 to the power `other` (`torch.ldexp`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 3.]);
    /// assert_eq!(x.ldexp(&Tensor::from([4i64, -1])).to_vec::<f32>(), [16.0, 1.5]);
    /// ```
    #[track_caller]
    pub fn ldexp<'a>(&self, other: impl Into<Operand<'a>>) -> Tensor {
        match other.into() {
            // The power has the tensor's type, so that half types stay.
            Operand::Tensor(t)
                if self.dtype().is_floating_point() && self.dtype() != Dtype::F32 =>
            {
                self * t.rpow(&Tensor::full([], 2.0, (self.dtype(), self.device())))
            }
            Operand::Tensor(t) => self * t.exp2(),
            Operand::Scalar(s) => self * s.to_f64().exp2(),
        }
    }

    /// In-place form of [`ldexp`](Self::ldexp).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 3.]);
    /// assert_eq!(x.ldexp_(2).to_vec::<f32>(), [4.0, 12.0]);
    /// ```
    #[track_caller]
    pub fn ldexp_<'a>(&self, other: impl Into<Operand<'a>>) -> &Tensor {
        self.assign_same_shape("ldexp_", &self.clone_contiguous().ldexp(other))
    }

    /// In-place form of [`float_power`](Self::float_power): the tensor must be f64.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([2f64, 3.]);
    /// assert_eq!(x.float_power_(2).to_vec::<f64>(), [4.0, 9.0]);
    /// ```
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

    /// `self` to the power `exponent`, a tensor or a number (`torch.pow`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([2f32, 3.]);
    /// assert_eq!(x.pow(3.0).to_vec::<f32>(), [8.0, 27.0]);
    /// assert_eq!(Tensor::from([2i64, 3]).pow(&Tensor::from([5i64, 2])).to_vec::<i64>(), [32, 9]);
    /// ```
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
                3.0 => apply(&checked::cube, &[self.into()], &[]),
                _ => apply(&checked::pow, &[self.into(), exponent], &[]),
            },
            _ => apply(&checked::pow, &[self.into(), exponent], &[]),
        }
    }

    /// In-place form of [`pow`](Self::pow).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([4f32, 9.]);
    /// assert_eq!(x.pow_(0.5).to_vec::<f32>(), [2.0, 3.0]);
    /// ```
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
}

fn negative(s: Scalar) -> Scalar {
    match s {
        Scalar::F(v) => Scalar::F(-v),
        Scalar::I(v) => Scalar::I(v.wrapping_neg()),
        Scalar::B(v) => Scalar::I(-i64::from(v)),
    }
}
