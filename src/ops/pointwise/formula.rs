//! The language of formulas: what the right-hand side of a row may call. Each function works on any
//! compute type and on whole tensors; all of them are also functions in CUDA C, under these names.

use std::ops::{BitAnd, BitOr, BitXor, Not};

/// Infinity, by the name that CUDA C has for it too.
pub const INFINITY: f64 = f64::INFINITY;
pub use std::f64::consts::{
    FRAC_1_SQRT_2, FRAC_2_SQRT_PI, FRAC_PI_2, LN_2, LN_10, LOG2_E, LOG10_E, PI, SQRT_2,
};

pub use crate::cpu::lane::{Bits, Float, Literal, Number, Special};

/// The outcome of a comparison; `&`, `|`, `^` and `!` combine them.
#[derive(Clone, Copy)]
pub struct Mask<S: Number>(S::Truth);

impl<S: Number> BitAnd for Mask<S> {
    type Output = Self;
    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        Mask(self.0 & other.0)
    }
}
impl<S: Number> BitOr for Mask<S> {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Mask(self.0 | other.0)
    }
}
impl<S: Number> BitXor for Mask<S> {
    type Output = Self;
    #[inline(always)]
    fn bitxor(self, other: Self) -> Self {
        Mask(self.0 ^ other.0)
    }
}
impl<S: Number> Not for Mask<S> {
    type Output = Self;
    #[inline(always)]
    fn not(self) -> Self {
        Mask(!self.0)
    }
}

/// What a formula may yield or pass on where a value is wanted: a value, a literal, or the outcome of
/// a comparison (1 or 0).
pub trait Lift<S> {
    /// The value.
    fn lift(self) -> S;
}
impl<S: Number> Lift<S> for S {
    #[inline(always)]
    fn lift(self) -> S {
        self
    }
}
impl<S: Number> Lift<S> for f64 {
    #[inline(always)]
    fn lift(self) -> S {
        S::from(self)
    }
}
impl<S: Number> Lift<S> for Mask<S> {
    #[inline(always)]
    fn lift(self) -> S {
        S::choose(self.0, S::from(1.0), S::from(0.0))
    }
}

/// `a` where `condition` holds, else `b`. Both are computed.
#[inline(always)]
pub fn select<S: Number>(condition: Mask<S>, a: impl Lift<S>, b: impl Lift<S>) -> S {
    S::choose(condition.0, a.lift(), b.lift())
}

macro_rules! comparisons {
    ($($doc:literal $name:ident($a:ident, $b:ident) $body:expr;)*) => {$(
        #[doc = $doc]
        #[inline(always)]
        pub fn $name<S: Number>($a: S, b: impl Lift<S>) -> Mask<S> {
            let $b = b.lift();
            Mask($body)
        }
    )*};
}
comparisons! {
    "`a < b`; comparisons with NaN are false, but for [`ne`]." lt(a, b) a.less(b);
    "`a <= b`." le(a, b) a.less_equal(b);
    "`a > b`." gt(a, b) b.less(a);
    "`a >= b`." ge(a, b) b.less_equal(a);
    "`a == b`." eq(a, b) a.equal(b);
    "`a != b`." ne(a, b) !a.equal(b);
}

macro_rules! two_arguments {
    ($Bound:ident: $($doc:literal $name:ident;)*) => {$(
        #[doc = $doc]
        #[inline(always)]
        pub fn $name<S: $Bound>(a: S, b: impl Lift<S>) -> S {
            a.$name(b.lift())
        }
    )*};
}
two_arguments! { Number:
    "The larger one; NaN if one is." maximum;
    "The smaller one; NaN if one is." minimum;
    "Remainder of the floored division: it has the sign of `b`." remainder;
    "Quotient rounded down." floor_divide;
    "Remainder of the division rounded towards zero: it has the sign of `a`." fmod;
    "`a` to the power `b`." pow;
}
two_arguments! { Special:
    "Angle of the point with ordinate `a` and abscissa `b`." atan2;
    "The next number of the type from `a` in the direction of `b`." nextafter;
}
two_arguments! { Bits:
    "`a` shifted left by `b` bits." shift_left;
    "`a` shifted right by `b` bits, with its sign." shift_right;
    "Greatest common divisor." gcd;
}

/// Hurwitz's zeta function with exponent `s`.
#[inline(always)]
pub fn zeta<S: Special>(s: impl Lift<S>, q: S) -> S {
    s.lift().zeta(q)
}

/// True for negative numbers and -0.
#[inline(always)]
pub fn signbit<S: Number>(x: S) -> Mask<S>
where
    f64: Literal<S>,
{
    lt(x, 0.0) | lt(1.0 / x, 0.0)
}

macro_rules! one_argument {
    ($Bound:ident: $($doc:literal $name:ident,)*) => {$(
        #[doc = $doc]
        #[inline(always)]
        pub fn $name<S: $Bound>(x: S) -> S {
            x.$name()
        }
    )*};
}
one_argument! { Number:
    "Absolute value." abs, "-1, 0 or 1; 0 for NaN." sign,
    "Largest integer not above." floor, "Smallest integer not below." ceil,
    "Nearest integer, ties to the even one." round, "Integer part, towards zero." trunc,
}
macro_rules! float_argument {
    ($($rows:tt)*) => { one_argument! { Float: $($rows)* } };
}
crate::cpu::lane::float_functions!(float_argument);
macro_rules! special_argument {
    ($($rows:tt)*) => { one_argument! { Special: $($rows)* } };
}
crate::cpu::lane::special_functions!(special_argument);
