//! Integers and truth values as values of formulas.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

use super::{Bits, Number};

/// i64 with wrapping arithmetic, of which the low bits are right for every narrower integer.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct I64(pub i64);

impl From<f64> for I64 {
    #[inline(always)]
    fn from(value: f64) -> Self {
        I64(value as i64)
    }
}

impl Neg for I64 {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        I64(self.0.wrapping_neg())
    }
}

/// Quotient towards zero; 0 for a zero divisor, which ops refuse beforehand.
#[inline(always)]
fn truncated_quotient(a: i64, b: i64) -> i64 {
    if b == 0 { 0 } else { a.wrapping_div(b) }
}

macro_rules! integer_operator {
    ($($Trait:ident $f:ident $of:expr;)*) => {$(
        impl $Trait for I64 {
            type Output = Self;
            #[inline(always)]
            fn $f(self, other: Self) -> Self { I64($of(self.0, other.0)) }
        }
        impl $Trait<f64> for I64 {
            type Output = Self;
            #[inline(always)]
            fn $f(self, other: f64) -> Self { I64($of(self.0, other as i64)) }
        }
        impl $Trait<I64> for f64 {
            type Output = I64;
            #[inline(always)]
            fn $f(self, other: I64) -> I64 { I64($of(self as i64, other.0)) }
        }
    )*};
}
integer_operator! {
    Add add i64::wrapping_add;
    Sub sub i64::wrapping_sub;
    Mul mul i64::wrapping_mul;
    Div div truncated_quotient;
}

macro_rules! bit_operator {
    ($($Trait:ident $f:ident $op:tt;)*) => {$(
        impl $Trait for I64 {
            type Output = Self;
            #[inline(always)]
            fn $f(self, other: Self) -> Self { I64(self.0 $op other.0) }
        }
    )*};
}
bit_operator! {
    BitAnd bitand &;
    BitOr bitor |;
    BitXor bitxor ^;
}

impl Not for I64 {
    type Output = Self;
    #[inline(always)]
    fn not(self) -> Self {
        I64(!self.0)
    }
}

impl Bits for I64 {
    #[inline(always)]
    fn shift_left(self, bits: Self) -> Self {
        I64(if (0..64).contains(&bits.0) { self.0 << bits.0 } else { 0 })
    }
    #[inline(always)]
    fn shift_right(self, bits: Self) -> Self {
        I64(self.0 >> if (0..64).contains(&bits.0) { bits.0 } else { 63 })
    }
    #[inline(always)]
    fn gcd(self, other: Self) -> Self {
        let (mut a, mut b) = (self.0, other.0);
        while b != 0 {
            (a, b) = (b, a.wrapping_rem(b));
        }
        I64(a.wrapping_abs())
    }
}

impl Number for I64 {
    type Truth = bool;
    #[inline(always)]
    fn choose(c: bool, a: Self, b: Self) -> Self {
        if c { a } else { b }
    }
    #[inline(always)]
    fn less(self, other: Self) -> bool {
        self.0 < other.0
    }
    #[inline(always)]
    fn less_equal(self, other: Self) -> bool {
        self.0 <= other.0
    }
    #[inline(always)]
    fn equal(self, other: Self) -> bool {
        self.0 == other.0
    }
    #[inline(always)]
    fn abs(self) -> Self {
        I64(self.0.wrapping_abs())
    }
    #[inline(always)]
    fn sign(self) -> Self {
        I64(self.0.signum())
    }
    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        I64(self.0.max(other.0))
    }
    #[inline(always)]
    fn minimum(self, other: Self) -> Self {
        I64(self.0.min(other.0))
    }
    #[inline(always)]
    fn floor(self) -> Self {
        self
    }
    #[inline(always)]
    fn ceil(self) -> Self {
        self
    }
    #[inline(always)]
    fn round(self) -> Self {
        self
    }
    #[inline(always)]
    fn trunc(self) -> Self {
        self
    }
    #[inline(always)]
    fn remainder(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        let r = if b == 0 { 0 } else { a.wrapping_rem(b) };
        I64(if r != 0 && (r < 0) != (b < 0) { r.wrapping_add(b) } else { r })
    }
    #[inline(always)]
    fn floor_divide(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        let q = truncated_quotient(a, b);
        let inexact = q.wrapping_mul(b) != a;
        I64(if inexact && (a < 0) != (b < 0) { q - 1 } else { q })
    }
    #[inline(always)]
    fn fmod(self, other: Self) -> Self {
        I64(if other.0 == 0 { 0 } else { self.0.wrapping_rem(other.0) })
    }
    /// Wraps like a chain of multiplications. Of the negative powers only those of 1 and -1 are not 0.
    #[inline(always)]
    fn pow(self, other: Self) -> Self {
        let (mut base, mut exponent) = (self.0, other.0);
        if exponent < 0 {
            let odd = exponent & 1 != 0;
            return I64(match base {
                1 => 1,
                -1 => {
                    if odd {
                        -1
                    } else {
                        1
                    }
                }
                _ => 0,
            });
        }
        let mut y = 1i64;
        while exponent > 0 {
            if exponent & 1 != 0 {
                y = y.wrapping_mul(base);
            }
            base = base.wrapping_mul(base);
            exponent >>= 1;
        }
        I64(y)
    }
}
