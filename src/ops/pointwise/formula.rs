//! The language of formulas: what the right-hand side of a row may call. Each function works on any
//! compute type and on whole tensors; all of them are also functions in CUDA C, under these names.
//!
//! ```
//! torchrs::pointwise! {
//!     table rows;
//!     /// The distance from `low..high`.
//!     pub numeric outside(x, low, high) = select(lt(x, low), low - x, maximum(x - high, 0.0));
//! }
//! let x = torchrs::Tensor::from([-1f32, 1., 5.]);
//! assert_eq!(outside(&x, 0.0, 2.0).to_vec::<f32>(), [1.0, 0.0, 3.0]);
//! ```

use std::ops::{BitAnd, BitOr, BitXor, Not};

/// Infinity, by the name that CUDA C has for it too.
pub const INFINITY: f64 = f64::INFINITY;
pub use std::f64::consts::{
    FRAC_1_SQRT_2, FRAC_2_SQRT_PI, FRAC_PI_2, LN_2, LN_10, LOG2_E, LOG10_E, PI, SQRT_2,
};

pub use super::slopes::{i1_slope, i1_slope_near, j1_slope_near, over_squares, sinc_slope};
pub use crate::cpu::numbers::lane::{Bits, Float, Lift, Literal, Number, Special};

/// The outcome of a comparison; `&`, `|`, `^` and `!` combine them.
///
/// ```
/// use torchrs::Tensor;
/// torchrs::pointwise! {
///     table rows;
///     /** 1 from 0 to 2, else -1. */
///     pub numeric inside(x) = select(ge(x, 0.0) & !gt(x, 2.0), 1.0, -1.0);
/// }
/// assert_eq!(inside(&Tensor::from([-1f32, 1., 3.])).to_vec::<f32>(), [-1.0, 1.0, -1.0]);
/// ```
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

impl<S: Number> Lift<S> for Mask<S> {
    #[inline(always)]
    fn lift(self) -> S {
        S::choose(self.0, S::from(1.0), S::from(0.0))
    }
}

/// `a` where `condition` holds, else `b`. Both are computed.
///
/// ```
/// use torchrs::Tensor;
/// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x) = select(lt(x, 0.0), -1.0, x * x); }
/// assert_eq!(row(&Tensor::from([-3f32, 3.])).to_vec::<f32>(), [-1.0, 9.0]);
/// ```
#[inline(always)]
pub fn select<S: Number>(condition: Mask<S>, a: impl Lift<S>, b: impl Lift<S>) -> S {
    S::choose(condition.0, a.lift(), b.lift())
}

macro_rules! comparisons {
    ($($(#[$doc:meta])+ $name:ident($a:ident, $b:ident) $body:expr;)*) => {$(
        $(#[$doc])+
        #[inline(always)]
        pub fn $name<S: Number>($a: S, b: impl Lift<S>) -> Mask<S> {
            let $b = b.lift();
            Mask($body)
        }
    )*};
}
comparisons! {
    /// `a < b`; comparisons with NaN are false, but for [`ne`].
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x, y) = lt(x, y); }
    /// let x = torchrs::Tensor::from([1f32, 2., 3.]);
    /// assert_eq!(row(&x, 2.0).to_vec::<f32>(), [1.0, 0.0, 0.0]);
    /// ```
    lt(a, b) a.less(b);
    /// `a <= b`.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x, y) = le(x, y); }
    /// let x = torchrs::Tensor::from([1f32, 2., 3.]);
    /// assert_eq!(row(&x, 2.0).to_vec::<f32>(), [1.0, 1.0, 0.0]);
    /// ```
    le(a, b) a.less_equal(b);
    /// `a > b`.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x, y) = gt(x, y); }
    /// let x = torchrs::Tensor::from([1f32, 2., 3.]);
    /// assert_eq!(row(&x, 2.0).to_vec::<f32>(), [0.0, 0.0, 1.0]);
    /// ```
    gt(a, b) b.less(a);
    /// `a >= b`.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x, y) = ge(x, y); }
    /// let x = torchrs::Tensor::from([1f32, 2., 3.]);
    /// assert_eq!(row(&x, 2.0).to_vec::<f32>(), [0.0, 1.0, 1.0]);
    /// ```
    ge(a, b) b.less_equal(a);
    /// `a == b`.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x, y) = eq(x, y); }
    /// let x = torchrs::Tensor::from([1f32, 2., 3.]);
    /// assert_eq!(row(&x, 2.0).to_vec::<f32>(), [0.0, 1.0, 0.0]);
    /// ```
    eq(a, b) a.equal(b);
    /// `a != b`.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x, y) = ne(x, y); }
    /// let x = torchrs::Tensor::from([1f32, 2., 3.]);
    /// assert_eq!(row(&x, 2.0).to_vec::<f32>(), [1.0, 0.0, 1.0]);
    /// ```
    ne(a, b) !a.equal(b);
}

macro_rules! two_arguments {
    ($Bound:ident: $($(#[$doc:meta])+ $name:ident;)*) => {$(
        $(#[$doc])+
        #[inline(always)]
        pub fn $name<S: $Bound>(a: S, b: impl Lift<S>) -> S {
            a.$name(b.lift())
        }
    )*};
}
two_arguments! { Number:
    /// The larger one; NaN if one is.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x, y) = maximum(x, y); }
    /// assert_eq!(row(-7, 2).item(), 2.0);
    /// ```
    maximum;
    /// The smaller one; NaN if one is.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x, y) = minimum(x, y); }
    /// assert_eq!(row(-7, 2).item(), -7.0);
    /// ```
    minimum;
    /// Remainder of the floored division: it has the sign of `b`.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x, y) = remainder(x, y); }
    /// assert_eq!(row(-7, 2).item(), 1.0);
    /// ```
    remainder;
    /// Quotient rounded down.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x, y) = floor_divide(x, y); }
    /// assert_eq!(row(-7, 2).item(), -4.0);
    /// ```
    floor_divide;
    /// Remainder of the division rounded towards zero: it has the sign of `a`.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x, y) = fmod(x, y); }
    /// assert_eq!(row(-7, 2).item(), -1.0);
    /// ```
    fmod;
    /// `a` to the power `b`.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x, y) = pow(x, y); }
    /// assert_eq!(row(3, 4).item(), 81.0);
    /// ```
    pow;
}
two_arguments! { Special:
    /// Angle of the point with ordinate `a` and abscissa `b`.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub float row(x, y) = atan2(x, y); }
    /// assert_eq!(row(1.0, 0.0).item(), f64::from(std::f32::consts::FRAC_PI_2));
    /// ```
    atan2;
    /// The next number of the type from `a` in the direction of `b`.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub float row(x, y) = nextafter(x, y); }
    /// assert_eq!(row(1.0, 2.0).item(), 1.0 + f64::from(f32::EPSILON));
    /// ```
    nextafter;
}
two_arguments! { Bits:
    /// `a` shifted left by `b` bits.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub bitwise row(x, y) = shift_left(x, y); }
    /// assert_eq!(row(3, 4).item(), 48.0);
    /// ```
    shift_left;
    /// `a` shifted right by `b` bits, with its sign.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub bitwise row(x, y) = shift_right(x, y); }
    /// assert_eq!(row(-48, 4).item(), -3.0);
    /// ```
    shift_right;
    /// Greatest common divisor.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub bitwise row(x, y) = gcd(x, y); }
    /// assert_eq!(row(12, 18).item(), 6.0);
    /// ```
    gcd;
}

/// Hurwitz's zeta function with exponent `s`.
///
/// ```
/// use std::f64::consts::PI;
/// use torchrs::Tensor;
/// torchrs::pointwise! { table rows; /** Doc. */ pub float row(x) = zeta(2.0, x); }
/// let sixth = PI.powi(2) / 6.0;
/// assert!((row(&Tensor::from([1f64])).item() - sixth).abs() < 1e-6);
/// ```
#[inline(always)]
pub fn zeta<S: Special>(s: impl Lift<S>, q: S) -> S {
    s.lift().zeta(q)
}

/// True for negative numbers and -0.
///
/// ```
/// use torchrs::Tensor;
/// torchrs::pointwise! { table rows; /** Doc. */ pub compare row(x) = signbit(x); }
/// assert_eq!(row(&Tensor::from([1f32, -1., 0., -0.])).to_vec::<bool>(), [false, true, false, true]);
/// ```
#[inline(always)]
pub fn signbit<S: Number>(x: S) -> Mask<S>
where
    f64: Literal<S>,
{
    lt(x, 0.0) | lt(1.0 / x, 0.0)
}

/// `x`. A derivative that uses it is evaluated op by op where the tensors hold f16, with every
/// step rounded to that, so that it overflows where PyTorch's does; else formulas of f16 are loops in f32.
///
/// ```
/// use torchrs::{Dtype, Tensor};
/// let x = Tensor::from([1.5674f32]).to_dtype(Dtype::F16).requires_grad_(true);
/// // About 300, whose square f16 does not hold.
/// (x.tan() * 0.1).backward();
/// assert_eq!(x.grad().unwrap().item(), f64::INFINITY);
/// ```
#[inline(always)]
pub fn stepwise<S>(x: S) -> S {
    x
}

macro_rules! one_argument {
    ($Bound:ident: $($(#[$doc:meta])+ $name:ident,)*) => {$(
        $(#[$doc])+
        #[inline(always)]
        pub fn $name<S: $Bound>(x: S) -> S {
            x.$name()
        }
    )*};
}
one_argument! { Number:
    /// Absolute value.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x) = abs(x); }
    /// assert_eq!(row(-2.5).item(), 2.5);
    /// ```
    abs,
    /// -1, 0 or 1; 0 for NaN.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x) = sign(x); }
    /// assert_eq!(row(-2.5).item(), -1.0);
    /// ```
    sign,
    /// Largest integer not above.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x) = floor(x); }
    /// assert_eq!(row(-2.5).item(), -3.0);
    /// ```
    floor,
    /// Smallest integer not below.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x) = ceil(x); }
    /// assert_eq!(row(-2.5).item(), -2.0);
    /// ```
    ceil,
    /// Nearest integer, ties to the even one.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x) = round(x); }
    /// assert_eq!(row(-2.5).item(), -2.0);
    /// ```
    round,
    /// Integer part, towards zero.
    ///
    /// ```
    /// torchrs::pointwise! { table rows; /** Doc. */ pub numeric row(x) = trunc(x); }
    /// assert_eq!(row(-2.5).item(), -2.0);
    /// ```
    trunc,
}

/// Functions of the table, with an example: the tensor's method of that name is a row of it.
macro_rules! with_example {
    ($Bound:ident: $($doc:literal $name:ident)*) => {
        one_argument! { $Bound: $(
            #[doc = $doc]
            ///
            /// ```
            /// torchrs::pointwise! { table rows; /** Doc. */
            #[doc = concat!("    pub float row(x) = ", stringify!($name), "(x) * 2.0; }")]
            /// let x = torchrs::Tensor::from([0.25f64, 1.0]);
            #[doc = concat!("assert!(row(&x).equal(&(x.", stringify!($name), "() * 2.0)));")]
            /// ```
            $name,
        )* }
    };
}
/// The same of two numbers.
macro_rules! pairs_with_example {
    ($($doc:literal $name:ident)*) => {
        two_arguments! { Special: $(
            #[doc = $doc]
            ///
            /// ```
            /// torchrs::pointwise! { table rows; /** Doc. */
            #[doc = concat!("    pub float row(x) = ", stringify!($name), "(x, 2.0) * 2.0; }")]
            /// let x = torchrs::Tensor::from([0.25f64, 1.0]);
            #[doc = concat!("assert!(row(&x).equal(&(x.", stringify!($name), "(2.0) * 2.0)));")]
            /// ```
            $name;
        )* }
    };
}
macro_rules! functions {
    (
        elementary { $($doc:literal $name:ident: $f32:ident $f64:ident $cuda:ident;)* }
        special { $($special_doc:literal $special:ident: $s32:ident $s64:ident $s:ident;)* }
        pairs { $($pair_doc:literal $pair:ident: $p:ident;)* }
        $($others:tt)*
    ) => {
        with_example! { Float: $($doc $name)* }
        with_example! { Special: $($special_doc $special)* }
        pairs_with_example! { $($pair_doc $pair)* }
    };
}
crate::loops::functions!(functions);
