//! Rows: comparisons, logic and bits.
#![allow(clippy::eq_op, reason = "`x - x` is NaN for what is not finite, `x != x` is true for NaN")]

use super::division::Rounding;
use crate::error::{Error, throw};
use crate::tensor::{Dtype, Operand, Tensor};

crate::pointwise! {
    table rows for Tensor;

    /// Equal (`torch.eq`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2., f32::NAN]);
    /// assert_eq!(x.eq(&x).to_vec::<bool>(), [true, true, false]);
    /// assert_eq!(x.eq_(2.0).to_vec::<f32>(), [0.0, 1.0, 0.0]);
    /// ```
    pub compare eq / eq_ (x, other) = eq(x, other);
        complex(z) { z.pairs(0).eq(&z.pairs(1)).all_dim(&[-1], false) }
    /// Not equal (`torch.ne`); true for NaN.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2., f32::NAN]);
    /// assert_eq!(x.ne(&x).to_vec::<bool>(), [false, false, true]);
    /// assert_eq!(x.ne_(2.0).to_vec::<f32>(), [1.0, 0.0, 1.0]);
    /// ```
    pub compare ne / ne_ (x, other) = ne(x, other);
        complex(z) { z.pairs(0).ne(&z.pairs(1)).any_dim(&[-1], false) }
    /// Less (`torch.lt`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2, 3]);
    /// assert_eq!(x.lt(2).to_vec::<bool>(), [true, false, false]);
    /// assert_eq!(x.lt_(2).to_vec::<i64>(), [1, 0, 0]);
    /// ```
    pub compare lt / lt_ (x, other) = lt(x, other);
    /// Less or equal (`torch.le`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2, 3]);
    /// assert_eq!(x.le(2).to_vec::<bool>(), [true, true, false]);
    /// assert_eq!(x.le_(2).to_vec::<i64>(), [1, 1, 0]);
    /// ```
    pub compare le / le_ (x, other) = le(x, other);
    /// Greater (`torch.gt`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2, 3]);
    /// assert_eq!(x.gt(2).to_vec::<bool>(), [false, false, true]);
    /// assert_eq!(x.gt_(2).to_vec::<i64>(), [0, 0, 1]);
    /// ```
    pub compare gt / gt_ (x, other) = gt(x, other);
    /// Greater or equal (`torch.ge`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 2, 3]);
    /// assert_eq!(x.ge(2).to_vec::<bool>(), [false, true, true]);
    /// assert_eq!(x.ge_(2).to_vec::<i64>(), [0, 1, 1]);
    /// ```
    pub compare ge / ge_ (x, other) = ge(x, other);

    /// Both are not zero (`torch.logical_and`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f32, 2., 2.]);
    /// let y = Tensor::from([3f32, 0., 3.]);
    /// assert_eq!(x.logical_and(&y).to_vec::<bool>(), [false, false, true]);
    /// assert_eq!(x.logical_and_(&y).to_vec::<f32>(), [0.0, 0.0, 1.0]);
    /// ```
    pub compare logical_and / logical_and_ (x, other) = ne(x, 0.0) & ne(other, 0.0);
    /// One is not zero (`torch.logical_or`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f32, 2., 0.]);
    /// let y = Tensor::from([3f32, 0., 0.]);
    /// assert_eq!(x.logical_or(&y).to_vec::<bool>(), [true, true, false]);
    /// assert_eq!(x.logical_or_(&y).to_vec::<f32>(), [1.0, 1.0, 0.0]);
    /// ```
    pub compare logical_or / logical_or_ (x, other) = ne(x, 0.0) | ne(other, 0.0);
    /// Exactly one is not zero (`torch.logical_xor`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f32, 2., 2.]);
    /// let y = Tensor::from([3f32, 0., 3.]);
    /// assert_eq!(x.logical_xor(&y).to_vec::<bool>(), [true, true, false]);
    /// assert_eq!(x.logical_xor_(&y).to_vec::<f32>(), [1.0, 1.0, 0.0]);
    /// ```
    pub compare logical_xor / logical_xor_ (x, other) = ne(x, 0.0) ^ ne(other, 0.0);
    /// Is zero (`torch.logical_not`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0f32, 2.]);
    /// assert_eq!(x.logical_not().to_vec::<bool>(), [true, false]);
    /// assert_eq!(x.logical_not_().to_vec::<f32>(), [1.0, 0.0]);
    /// ```
    pub compare logical_not / logical_not_ (x) = eq(x, 0.0);
        complex(z) { z.z(0).eq(0i64) }

    /// Is not a number (`torch.isnan`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, f32::INFINITY, f32::NAN]);
    /// assert_eq!(x.isnan().to_vec::<bool>(), [false, false, true]);
    /// ```
    pub compare isnan(x) = ne(x, x);
        complex(z) { z.pairs(0).isnan().any_dim(&[-1], false) }
    /// Is plus or minus infinity (`torch.isinf`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, f32::NEG_INFINITY, f32::NAN]);
    /// assert_eq!(x.isinf().to_vec::<bool>(), [false, true, false]);
    /// ```
    pub compare isinf(x) = eq(abs(x), INFINITY);
        complex(z) { z.pairs(0).isinf().any_dim(&[-1], false) }
    /// Is neither infinite nor NaN (`torch.isfinite`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, f32::INFINITY, f32::NAN]);
    /// assert_eq!(x.isfinite().to_vec::<bool>(), [true, false, false]);
    /// ```
    pub compare isfinite(x) = eq(x - x, 0.0);
        complex(z) { z.pairs(0).isfinite().all_dim(&[-1], false) }

    /// Is plus infinity (`torch.isposinf`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, f32::INFINITY, f32::NEG_INFINITY]);
    /// assert_eq!(x.isposinf().to_vec::<bool>(), [false, true, false]);
    /// ```
    pub compare isposinf(x) = eq(x, INFINITY);
    /// Is minus infinity (`torch.isneginf`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, f32::INFINITY, f32::NEG_INFINITY]);
    /// assert_eq!(x.isneginf().to_vec::<bool>(), [false, false, true]);
    /// ```
    pub compare isneginf(x) = eq(x, -INFINITY);
    /// Is negative or -0 (`torch.signbit`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([1f32, -1., 0., -0.]).signbit().to_vec::<bool>(), [false, true, false, true]);
    /// ```
    pub compare signbit(x) = signbit(x);

    /// Bits set in both (`torch.bitwise_and`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0b1100i64]);
    /// assert_eq!(x.bitwise_and(0b1010).item(), 8.0);
    /// assert_eq!(x.bitwise_and_(0b0110).item(), 4.0);
    /// ```
    pub bitwise bitwise_and / bitwise_and_ (x, other) = x & other;
    /// Bits set in one (`torch.bitwise_or`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0b1100i64]);
    /// assert_eq!(x.bitwise_or(0b1010).item(), 14.0);
    /// assert_eq!(x.bitwise_or_(0b0001).item(), 13.0);
    /// ```
    pub bitwise bitwise_or / bitwise_or_ (x, other) = x | other;
    /// Bits set in exactly one (`torch.bitwise_xor`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0b1100i64]);
    /// assert_eq!(x.bitwise_xor(0b1010).item(), 6.0);
    /// assert_eq!(x.bitwise_xor_(0b0100).item(), 8.0);
    /// ```
    pub bitwise bitwise_xor / bitwise_xor_ (x, other) = x ^ other;
    /// All bits flipped (`torch.bitwise_not`); of bool, "not".
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([0i64, 5]);
    /// assert_eq!(x.bitwise_not().to_vec::<i64>(), [-1, -6]);
    /// assert_eq!(x.bitwise_not_().to_vec::<i64>(), [-1, -6]);
    /// assert_eq!(Tensor::from([true, false]).bitwise_not().to_vec::<bool>(), [false, true]);
    /// ```
    pub bitwise bitwise_not / bitwise_not_ (x) = !x;

    /// Shifted left by `other` bits (`torch.bitwise_left_shift`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1i64, 3]);
    /// assert_eq!(x.bitwise_left_shift(&Tensor::from([4i64, 1])).to_vec::<i64>(), [16, 6]);
    /// assert_eq!(x.bitwise_left_shift_(2).to_vec::<i64>(), [4, 12]);
    /// ```
    pub bitwise bitwise_left_shift / bitwise_left_shift_ (x, other) = shift_left(x, other);
    /// Shifted right by `other` bits, keeping the sign (`torch.bitwise_right_shift`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([16i64, -16]);
    /// assert_eq!(x.bitwise_right_shift(2).to_vec::<i64>(), [4, -4]);
    /// assert_eq!(x.bitwise_right_shift_(3).to_vec::<i64>(), [2, -2]);
    /// ```
    pub bitwise bitwise_right_shift / bitwise_right_shift_ (x, other) = shift_right(x, other);
    /// Greatest common divisor (`torch.gcd`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([12i64, 7]);
    /// assert_eq!(x.gcd(18).to_vec::<i64>(), [6, 1]);
    /// assert_eq!(x.gcd_(8).to_vec::<i64>(), [4, 1]);
    /// ```
    pub bitwise gcd / gcd_ (x, other) = gcd(x, other);
}

/// Limits of [`Tensor::isclose`]; the defaults are PyTorch's.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::pointwise::Closeness;
/// let x = Tensor::from([1f64, f64::NAN]);
/// let y = Tensor::from([1.01f64, f64::NAN]);
/// assert!(!x.allclose(&y, Closeness::default()));
/// assert!(x.allclose(&y, Closeness { atol: 0.1, equal_nan: true, ..Default::default() }));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Closeness {
    /// Allowed distance, relative to the second value.
    pub rtol: f64,
    /// Allowed distance.
    pub atol: f64,
    /// NaN is close to NaN.
    pub equal_nan: bool,
}

impl Default for Closeness {
    fn default() -> Self {
        Closeness { rtol: 1e-5, atol: 1e-8, equal_nan: false }
    }
}

impl Tensor {
    /// Least common multiple (`torch.lcm`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// assert_eq!(Tensor::from([12i64, 0]).lcm(18).to_vec::<i64>(), [36, 0]);
    /// ```
    #[track_caller]
    pub fn lcm<'a>(&self, other: impl Into<Operand<'a>>) -> Tensor {
        let other = other.into();
        let divisor = self.gcd(other);
        // Where both are 0, so is their multiple.
        let share = self.div_rounded(&divisor.maximum(1i64), Rounding::Trunc);
        (share.mul(other)).abs()
    }

    /// In-place form of [`lcm`](Self::lcm) (`torch.Tensor.lcm_`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([4i64, 5]);
    /// assert_eq!(x.lcm_(6).to_vec::<i64>(), [12, 30]);
    /// ```
    #[track_caller]
    pub fn lcm_<'a>(&self, other: impl Into<Operand<'a>>) -> &Tensor {
        self.copy_(&self.lcm(other))
    }

    /// Where values are equal, or finite and at most `atol + rtol |other|` apart (`torch.isclose`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f64, 2., f64::INFINITY]);
    /// let y = Tensor::from([1f64 + 1e-7, 2.1, f64::INFINITY]);
    /// assert_eq!(x.isclose(&y, Default::default()).to_vec::<bool>(), [true, false, true]);
    /// ```
    ///
    /// # Panics
    /// Throws [`Error::Dtype`] when the types differ, [`Error::Argument`] for negative limits.
    #[track_caller]
    pub fn isclose(&self, other: &Tensor, limits: Closeness) -> Tensor {
        let Closeness { rtol, atol, equal_nan } = limits;
        if self.dtype() != other.dtype() {
            let (a, b) = (self.dtype(), other.dtype());
            throw(Error::dtype("isclose", format!("takes tensors of one type, got {a} and {b}")));
        }
        for (name, value) in [("rtol", rtol), ("atol", atol)] {
            if value.is_nan() || value < 0.0 {
                throw(Error::argument("isclose", name, format!("{value}; must be at least 0")));
            }
        }
        let equal = self.eq(other);
        let equal = if equal_nan { equal | (self.isnan() & other.isnan()) } else { equal };
        let wide = |t: &Tensor| match t.dtype().is_differentiable() {
            true => t.detach(),
            false => t.to_dtype(Dtype::F64),
        };
        let (x, other) = (wide(self), wide(other));
        let distance = (&x - &other).abs();
        let near = distance.le(&(other.abs() * rtol + atol)) & distance.isfinite();
        equal | near
    }

    /// Where values are real numbers (`torch.isreal`): everywhere, unless the tensor is complex.
    ///
    /// ```
    /// use torchrs::{Complex, Tensor};
    /// let z = Tensor::from([Complex::new(1f32, 0.), Complex::new(1., 2.)]);
    /// assert_eq!(z.isreal().to_vec::<bool>(), [true, false]);
    /// ```
    #[track_caller]
    pub fn isreal(&self) -> Tensor {
        if self.dtype().is_complex() {
            return self.detach().imag().eq(0.0);
        }
        Tensor::ones(self.shape(), (Dtype::Bool, self.device()))
    }

    /// True when all values are [close](Self::isclose) (`torch.allclose`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f64, 2.]);
    /// assert!(x.allclose(&(&x + 1e-9), Default::default()));
    /// assert!(!x.allclose(&(&x + 1e-3), Default::default()));
    /// ```
    ///
    /// # Panics
    /// As `isclose`.
    #[track_caller]
    pub fn allclose(&self, other: &Tensor, limits: Closeness) -> bool {
        self.assert_has_values("allclose");
        self.isclose(other, limits).all().item() != 0.0
    }

    /// True when shapes and all values are the same (`torch.equal`).
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let x = Tensor::from([1f32, 2.]);
    /// assert!(x.equal(&Tensor::from([1f32, 2.])));
    /// assert!(!x.equal(&Tensor::from([1f32, 3.])) && !x.equal(&Tensor::from([[1f32, 2.]])));
    /// ```
    #[track_caller]
    pub fn equal(&self, other: &Tensor) -> bool {
        self.assert_has_values("equal");
        self.shape() == other.shape() && self.eq(other).all().item() != 0.0
    }
}
