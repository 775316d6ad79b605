//! Rows: comparisons, logic and bits.
#![allow(clippy::eq_op, reason = "`x - x` is NaN for what is not finite, `x != x` is true for NaN")]

use super::arithmetic::Rounding;
use crate::error::{Error, throw};
use crate::tensor::Operand;
use crate::{Dtype, Tensor};

crate::pointwise! {
    table rows for Tensor;

    /// Equal (`torch.eq`).
    pub compare eq / eq_ (x, other) = eq(x, other);
    /// Not equal (`torch.ne`); true for NaN.
    pub compare ne / ne_ (x, other) = ne(x, other);
    /// Less (`torch.lt`).
    pub compare lt / lt_ (x, other) = lt(x, other);
    /// Less or equal (`torch.le`).
    pub compare le / le_ (x, other) = le(x, other);
    /// Greater (`torch.gt`).
    pub compare gt / gt_ (x, other) = gt(x, other);
    /// Greater or equal (`torch.ge`).
    pub compare ge / ge_ (x, other) = ge(x, other);

    /// Both are not zero (`torch.logical_and`).
    pub compare logical_and / logical_and_ (x, other) = ne(x, 0.0) & ne(other, 0.0);
    /// One is not zero (`torch.logical_or`).
    pub compare logical_or / logical_or_ (x, other) = ne(x, 0.0) | ne(other, 0.0);
    /// Exactly one is not zero (`torch.logical_xor`).
    pub compare logical_xor / logical_xor_ (x, other) = ne(x, 0.0) ^ ne(other, 0.0);
    /// Is zero (`torch.logical_not`).
    pub compare logical_not / logical_not_ (x) = eq(x, 0.0);

    /// Is not a number (`torch.isnan`).
    pub compare isnan(x) = ne(x, x);
    /// Is plus or minus infinity (`torch.isinf`).
    pub compare isinf(x) = eq(abs(x), INFINITY);
    /// Is neither infinite nor NaN (`torch.isfinite`).
    pub compare isfinite(x) = eq(x - x, 0.0);

    /// Is plus infinity (`torch.isposinf`).
    pub compare isposinf(x) = eq(x, INFINITY);
    /// Is minus infinity (`torch.isneginf`).
    pub compare isneginf(x) = eq(x, -INFINITY);
    /// Is negative or -0 (`torch.signbit`).
    pub compare signbit(x) = signbit(x);

    /// Bits set in both (`torch.bitwise_and`).
    pub bitwise bitwise_and / bitwise_and_ (x, other) = x & other;
    /// Bits set in one (`torch.bitwise_or`).
    pub bitwise bitwise_or / bitwise_or_ (x, other) = x | other;
    /// Bits set in exactly one (`torch.bitwise_xor`).
    pub bitwise bitwise_xor / bitwise_xor_ (x, other) = x ^ other;
    /// All bits flipped (`torch.bitwise_not`); of bool, "not".
    pub bitwise bitwise_not / bitwise_not_ (x) = !x;

    /// Shifted left by `other` bits (`torch.bitwise_left_shift`).
    pub bitwise bitwise_left_shift / bitwise_left_shift_ (x, other) = shift_left(x, other);
    /// Shifted right by `other` bits, keeping the sign (`torch.bitwise_right_shift`).
    pub bitwise bitwise_right_shift / bitwise_right_shift_ (x, other) = shift_right(x, other);
    /// Greatest common divisor (`torch.gcd`).
    pub bitwise gcd / gcd_ (x, other) = gcd(x, other);
}

/// Limits of [`Tensor::isclose`]; the defaults are PyTorch's.
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
    #[track_caller]
    pub fn lcm<'a>(&self, other: impl Into<Operand<'a>>) -> Tensor {
        let other = other.into();
        let divisor = self.gcd(other);
        // Where both are 0, so is their multiple.
        let share = self.div_rounded(&divisor.maximum(1i64), Rounding::Trunc);
        (share.mul(other)).abs()
    }

    /// In-place form of [`lcm`](Self::lcm) (`torch.Tensor.lcm_`).
    #[track_caller]
    pub fn lcm_<'a>(&self, other: impl Into<Operand<'a>>) -> &Tensor {
        self.copy_(&self.lcm(other))
    }

    /// Where values are equal, or finite and at most `atol + rtol |other|` apart (`torch.isclose`).
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
    #[track_caller]
    pub fn isreal(&self) -> Tensor {
        if self.dtype().is_complex() {
            return self.detach().imag().eq(0.0);
        }
        Tensor::ones(self.shape(), Dtype::Bool)
    }

    /// True when all values are [close](Self::isclose) (`torch.allclose`).
    ///
    /// # Panics
    /// As `isclose`.
    #[track_caller]
    pub fn allclose(&self, other: &Tensor, limits: Closeness) -> bool {
        self.isclose(other, limits).all().item() != 0.0
    }

    /// True when shapes and all values are the same (`torch.equal`).
    pub fn equal(&self, other: &Tensor) -> bool {
        self.shape() == other.shape() && self.eq(other).all().item() != 0.0
    }
}
