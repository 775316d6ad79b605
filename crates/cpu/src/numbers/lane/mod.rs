//! What a pointwise formula is written over: a value of some compute type. The same generic formula
//! runs over [`F32`] and [`F64`] (floating point; with or without fused multiply-add), [`I64`]
//! (integers and bool), and over whole tensors when it is to be differentiated again (`ops`).
//!
//! f16 and bf16 compute in f32, all integers and bool in i64: loaders and storers convert
//! (`format.rs`).

mod float;
mod integer;
mod near;

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

pub use float::{F32, F64};
pub use integer::I64;
pub use near::{NEAR_FUNCTIONS, Near};

/// A value of a pointwise formula: arithmetic with its like and with literals, comparison, choice.
///
/// ```
/// use torchrs::ops::pointwise::{Symbol, formula::Number};
/// fn clipped<S: Number>(x: S) -> S {
///     x.maximum(S::from(0.0)).minimum(S::from(1.0)) * 2.0
/// }
/// assert!(matches!(clipped(Symbol::Number(0.25)), Symbol::Number(0.5)));
/// assert!(matches!(clipped(Symbol::Number(7.0)), Symbol::Number(2.0)));
/// ```
pub trait Number:
    Copy
    + From<f64>
    + Neg<Output = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Add<f64, Output = Self>
    + Sub<f64, Output = Self>
    + Mul<f64, Output = Self>
    + Div<f64, Output = Self>
{
    /// The outcome of a comparison.
    type Truth: Copy
        + BitAnd<Output = Self::Truth>
        + BitOr<Output = Self::Truth>
        + BitXor<Output = Self::Truth>
        + Not<Output = Self::Truth>;

    /// `a` where `c` holds, else `b`. Both are computed.
    ///
    /// ```
    /// use torchrs::ops::pointwise::{Symbol, formula::Number};
    /// let (a, b) = (Symbol::Number(1.0), Symbol::Number(2.0));
    /// assert!(matches!(Symbol::choose(a.less(b), a, b), Symbol::Number(1.0)));
    /// ```
    fn choose(c: Self::Truth, a: Self, b: Self) -> Self;
    /// `self < other`; false for NaN, as the next two.
    ///
    /// ```
    /// use torchrs::ops::pointwise::{Symbol, formula::Number};
    /// let [one, two] = [1.0, 2.0].map(Symbol::Number);
    /// assert!(matches!(one.less(two), Symbol::Number(1.0)));
    /// assert!(matches!(one.less(one), Symbol::Number(0.0)));
    /// ```
    fn less(self, other: Self) -> Self::Truth;
    /// `self <= other`.
    ///
    /// ```
    /// use torchrs::ops::pointwise::{Symbol, formula::Number};
    /// let [one, two] = [1.0, 2.0].map(Symbol::Number);
    /// assert!(matches!(one.less_equal(one), Symbol::Number(1.0)));
    /// assert!(matches!(two.less_equal(one), Symbol::Number(0.0)));
    /// ```
    fn less_equal(self, other: Self) -> Self::Truth;
    /// `self == other`.
    ///
    /// ```
    /// use torchrs::ops::pointwise::{Symbol, formula::Number};
    /// let [one, two] = [1.0, 2.0].map(Symbol::Number);
    /// assert!(matches!(one.equal(one), Symbol::Number(1.0)));
    /// assert!(matches!(one.equal(two), Symbol::Number(0.0)));
    /// ```
    fn equal(self, other: Self) -> Self::Truth;
    /// Absolute value.
    ///
    /// ```
    /// use torchrs::ops::pointwise::{Symbol, formula::Number};
    /// assert!(matches!(Symbol::Number(-2.5).abs(), Symbol::Number(2.5)));
    /// ```
    fn abs(self) -> Self;
    /// -1, 0 or 1; 0 for NaN.
    ///
    /// ```
    /// use torchrs::ops::pointwise::{Symbol, formula::Number};
    /// assert!(matches!(Symbol::Number(-2.5).sign(), Symbol::Number(-1.0)));
    /// ```
    fn sign(self) -> Self;
    /// The larger one; NaN if one is.
    ///
    /// ```
    /// use torchrs::ops::pointwise::{Symbol, formula::Number};
    /// assert!(matches!(Symbol::Number(1.0).maximum(Symbol::Number(2.0)), Symbol::Number(2.0)));
    /// ```
    fn maximum(self, other: Self) -> Self;
    /// The smaller one; NaN if one is.
    ///
    /// ```
    /// use torchrs::ops::pointwise::{Symbol, formula::Number};
    /// assert!(matches!(Symbol::Number(1.0).minimum(Symbol::Number(2.0)), Symbol::Number(1.0)));
    /// ```
    fn minimum(self, other: Self) -> Self;
    /// Largest integer not above.
    ///
    /// ```
    /// use torchrs::ops::pointwise::{Symbol, formula::Number};
    /// assert!(matches!(Symbol::Number(-2.5).floor(), Symbol::Number(-3.0)));
    /// ```
    fn floor(self) -> Self;
    /// Smallest integer not below.
    ///
    /// ```
    /// use torchrs::ops::pointwise::{Symbol, formula::Number};
    /// assert!(matches!(Symbol::Number(-2.5).ceil(), Symbol::Number(-2.0)));
    /// ```
    fn ceil(self) -> Self;
    /// Nearest integer, ties to the even one.
    ///
    /// ```
    /// use torchrs::ops::pointwise::{Symbol, formula::Number};
    /// assert!(matches!(Symbol::Number(2.5).round(), Symbol::Number(2.0)));
    /// ```
    fn round(self) -> Self;
    /// Integer part, towards zero.
    ///
    /// ```
    /// use torchrs::ops::pointwise::{Symbol, formula::Number};
    /// assert!(matches!(Symbol::Number(-2.5).trunc(), Symbol::Number(-2.0)));
    /// ```
    fn trunc(self) -> Self;
    /// Remainder of the floored division: it has the sign of `other`.
    ///
    /// ```
    /// use torchrs::ops::pointwise::{Symbol, formula::Number};
    /// assert!(matches!(Symbol::Number(-7.0).remainder(Symbol::Number(3.0)), Symbol::Number(2.0)));
    /// ```
    fn remainder(self, other: Self) -> Self;
    /// Quotient rounded down.
    ///
    /// ```
    /// use torchrs::ops::pointwise::{Symbol, formula::Number};
    /// assert!(matches!(Symbol::Number(-7.0).floor_divide(Symbol::Number(2.0)), Symbol::Number(-4.0)));
    /// ```
    fn floor_divide(self, other: Self) -> Self;
    /// Remainder of the division that is rounded towards zero: it has the sign of `self`.
    ///
    /// ```
    /// use torchrs::ops::pointwise::{Symbol, formula::Number};
    /// assert!(matches!(Symbol::Number(-7.0).fmod(Symbol::Number(3.0)), Symbol::Number(-1.0)));
    /// ```
    fn fmod(self, other: Self) -> Self;
    /// `self` to the power `other`.
    ///
    /// ```
    /// use torchrs::ops::pointwise::{Symbol, formula::Number};
    /// assert!(matches!(Symbol::Number(3.0).pow(Symbol::Number(2.0)), Symbol::Number(9.0)));
    /// ```
    fn pow(self, other: Self) -> Self;
}

macro_rules! declare {
    (
        elementary { $($doc:literal $name:ident: $f32:ident $f64:ident $cuda:ident;)* }
        special { $($special_doc:literal $special:ident: $s32:ident $s64:ident $s:ident;)* }
        pairs { $($pair_doc:literal $pair:ident: $p:ident;)* }
        $($others:tt)*
    ) => {
        /// A value with the elementary functions.
        ///
        /// ```
        /// use torchrs::ops::pointwise::{Symbol, formula::Float};
        /// fn gaussian<S: Float>(x: S) -> S {
        ///     (x * x * -0.5).exp()
        /// }
        /// let Symbol::Number(y) = gaussian(Symbol::Number(2.0)) else { panic!("a number") };
        /// assert!((y - (-2f64).exp()).abs() < 1e-12);
        /// ```
        pub trait Float: Special {
            $(
                #[doc = $doc]
                ///
                /// ```
                /// use torchrs::{Tensor, ops::pointwise::{Symbol, formula::Float}};
                #[doc = concat!("let y = Symbol::Number(0.5).", stringify!($name), "();")]
                #[doc = concat!("let of_tensor = Tensor::from([0.5f64]).", stringify!($name), "().item();")]
                /// assert!(matches!(y, Symbol::Number(y) if (y - of_tensor).abs() < 1e-12));
                /// ```
                fn $name(self) -> Self;
            )*
        }

        /// A value with functions that are rare in training.
        ///
        /// ```
        /// use torchrs::ops::pointwise::{Symbol, formula::Special};
        /// fn factorial<S: Special>(n: S) -> S {
        ///     (n + 1.0).lgamma()
        /// }
        /// let Symbol::Number(y) = factorial(Symbol::Number(4.0)) else { panic!("a number") };
        /// assert!((y - 24f64.ln()).abs() < 1e-12);
        /// ```
        pub trait Special: Number {
            $(
                #[doc = $special_doc]
                ///
                /// ```
                /// use torchrs::{Tensor, ops::pointwise::{Symbol, formula::Special}};
                #[doc = concat!("let y = Symbol::Number(0.5).", stringify!($special), "();")]
                #[doc = concat!("let of_tensor = Tensor::from([0.5f64]).", stringify!($special), "().item();")]
                /// assert!(matches!(y, Symbol::Number(y) if (y - of_tensor).abs() < 1e-12));
                /// ```
                fn $special(self) -> Self;
            )*
            $(
                #[doc = $pair_doc]
                ///
                /// ```
                /// use torchrs::{Tensor, ops::pointwise::{Symbol, formula::Special}};
                #[doc = concat!("let y = Symbol::Number(0.5).", stringify!($pair), "(Symbol::Number(2.0));")]
                #[doc = concat!("let of_tensor = Tensor::from([0.5f64]).", stringify!($pair), "(2.0).item();")]
                /// assert!(matches!(y, Symbol::Number(y) if (y - of_tensor).abs() < 1e-12));
                /// ```
                fn $pair(self, other: Self) -> Self;
            )*
            /// Hurwitz's zeta function with this exponent.
            ///
            /// ```
            /// use torchrs::ops::pointwise::{Symbol, formula::Special};
            /// let y = Symbol::Number(2.0).zeta(Symbol::Number(1.0));
            /// let expected = std::f64::consts::PI.powi(2) / 6.0;
            /// assert!(matches!(y, Symbol::Number(y) if (y - expected).abs() < 1e-12));
            /// ```
            fn zeta(self, q: Self) -> Self;
            /// Angle of the point with ordinate `self` and abscissa `x`.
            ///
            /// ```
            /// use torchrs::ops::pointwise::{Symbol, formula::Special};
            /// let y = Symbol::Number(1.0).atan2(Symbol::Number(-1.0));
            /// let expected = 0.75 * std::f64::consts::PI;
            /// assert!(matches!(y, Symbol::Number(y) if (y - expected).abs() < 1e-12));
            /// ```
            fn atan2(self, x: Self) -> Self;
            /// The next number of the type in the direction of `other`.
            ///
            /// ```
            /// use torchrs::ops::pointwise::{Symbol, formula::Special};
            /// let y = Symbol::Number(1.0).nextafter(Symbol::Number(2.0));
            /// assert!(matches!(y, Symbol::Number(y) if y == 1.0 + f64::EPSILON));
            /// ```
            fn nextafter(self, other: Self) -> Self;
        }
    };
}
torchrs_loops::functions!(declare);

/// An integer value with bitwise operators.
///
/// ```
/// use torchrs::Tensor;
/// torchrs::pointwise! {
///     table masks;
///
///     /// The lowest bit that is set.
///     pub bitwise lowest_bit(x) = x & -x;
/// }
/// assert_eq!(lowest_bit(&Tensor::from([12i64, 7])).to_vec::<i64>(), [4, 1]);
/// ```
pub trait Bits:
    Number + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
    /// Shifted left; 0 for shifts outside of the type.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// torchrs::pointwise! {
    ///     table rows;
    ///
    ///     /// Eight times as much.
    ///     pub bitwise example(x) = shift_left(x, 3.0);
    /// }
    /// assert_eq!(example(&Tensor::from([5i64])).to_vec::<i64>(), [40]);
    /// ```
    fn shift_left(self, bits: Self) -> Self;
    /// Shifted right with the sign; 0 or -1 for shifts outside of the type.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// torchrs::pointwise! {
    ///     table rows;
    ///
    ///     /// A quarter, rounded down.
    ///     pub bitwise example(x) = shift_right(x, 2.0);
    /// }
    /// assert_eq!(example(&Tensor::from([9i64, -9])).to_vec::<i64>(), [2, -3]);
    /// ```
    fn shift_right(self, bits: Self) -> Self;
    /// Greatest common divisor, not negative.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// torchrs::pointwise! {
    ///     table rows;
    ///
    ///     /// What it has in common with 12.
    ///     pub bitwise example(x) = gcd(x, 12.0);
    /// }
    /// assert_eq!(example(&Tensor::from([8i64, -9])).to_vec::<i64>(), [4, 3]);
    /// ```
    fn gcd(self, other: Self) -> Self;
}

/// A literal on the left: `1.0 - x`. Formulas are generic over `S: Number where f64: Literal<S>`.
///
/// ```
/// use torchrs::ops::pointwise::{Symbol, formula::{Literal, Number}};
/// fn rest<S: Number>(x: S) -> S
/// where
///     f64: Literal<S>,
/// {
///     1.0 - x
/// }
/// assert!(matches!(rest(Symbol::Number(0.25)), Symbol::Number(0.75)));
/// ```
pub trait Literal<S>:
    Add<S, Output = S> + Sub<S, Output = S> + Mul<S, Output = S> + Div<S, Output = S>
{
}
impl<S, T> Literal<S> for T where
    T: Add<S, Output = S> + Sub<S, Output = S> + Mul<S, Output = S> + Div<S, Output = S>
{
}

/// What a formula may yield or pass on where a value is wanted: a value, a literal, or the outcome of
/// a comparison (1 or 0).
///
/// ```
/// use torchrs::ops::pointwise::formula::{Lift, lt};
/// use torchrs::ops::pointwise::Symbol;
/// let (literal, outcome): (Symbol, Symbol) = (2.5.lift(), lt(Symbol::from(1.0), 2.0).lift());
/// assert!(matches!((literal, outcome), (Symbol::Number(2.5), Symbol::Number(1.0))));
/// ```
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
