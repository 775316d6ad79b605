//! Rust's operators on tensors: `&a + &b`, `a * 2.0`, `1.0 - &a`, `-a`, `a += &b`, `&mask & &other`.
//!
//! Of the number types only f64 and i64 are here: with f32 as well a literal such as `2.0` would have
//! no single type any more.

use std::ops::{
    Add, AddAssign, BitAnd, BitOr, BitXor, Div, DivAssign, Mul, MulAssign, Neg, Not, Rem, Sub,
    SubAssign,
};

use super::{apply, arithmetic, comparison, division};
use crate::tensor::{Operand, Tensor};

macro_rules! tensor_operators {
    ($($Trait:ident $f:ident $row:expr;)*) => {$(
        impl $Trait<&Tensor> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            #[inline]
            fn $f(self, other: &Tensor) -> Tensor { apply($row, &[self.into(), other.into()], &[]) }
        }
        impl $Trait<Tensor> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            #[inline]
            fn $f(self, other: Tensor) -> Tensor { self.$f(&other) }
        }
        impl $Trait<&Tensor> for Tensor {
            type Output = Tensor;
            #[track_caller]
            #[inline]
            fn $f(self, other: &Tensor) -> Tensor { (&self).$f(other) }
        }
        impl $Trait<Tensor> for Tensor {
            type Output = Tensor;
            #[track_caller]
            #[inline]
            fn $f(self, other: Tensor) -> Tensor { (&self).$f(&other) }
        }
    )*};
}

macro_rules! number_operators {
    ($($Trait:ident $f:ident $row:expr, $numbers:tt;)*) => {
        $(number_operators!(@each $Trait $f $row, $numbers);)*
    };
    (@each $Trait:ident $f:ident $row:expr, ($($number:ty),*)) => {$(
        impl $Trait<$number> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            #[inline]
            fn $f(self, other: $number) -> Tensor { apply($row, &[self.into(), other.into()], &[]) }
        }
        impl $Trait<$number> for Tensor {
            type Output = Tensor;
            #[track_caller]
            #[inline]
            fn $f(self, other: $number) -> Tensor { (&self).$f(other) }
        }
        impl $Trait<&Tensor> for $number {
            type Output = Tensor;
            #[track_caller]
            #[inline]
            fn $f(self, other: &Tensor) -> Tensor { apply($row, &[self.into(), other.into()], &[]) }
        }
        impl $Trait<Tensor> for $number {
            type Output = Tensor;
            #[track_caller]
            #[inline]
            fn $f(self, other: Tensor) -> Tensor { self.$f(&other) }
        }
    )*};
}

tensor_operators! {
    Add add &arithmetic::rows::add;
    Sub sub &arithmetic::rows::sub;
    Mul mul &arithmetic::rows::mul;
    Div div &arithmetic::rows::div;
    BitAnd bitand &comparison::rows::bitwise_and;
    BitOr bitor &comparison::rows::bitwise_or;
    BitXor bitxor &comparison::rows::bitwise_xor;
}
number_operators! {
    Add add &arithmetic::rows::add, (f64, i64);
    Sub sub &arithmetic::rows::sub, (f64, i64);
    Mul mul &arithmetic::rows::mul, (f64, i64);
    Div div &arithmetic::rows::div, (f64, i64);
}

macro_rules! rem {
    ($($right:ty)*) => {$(
        impl Rem<$right> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn rem(self, other: $right) -> Tensor { self.remainder(other) }
        }
        impl Rem<$right> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn rem(self, other: $right) -> Tensor { self.remainder(other) }
        }
    )*};
}
rem!(&Tensor f64 i64);

macro_rules! rem_of_number {
    ($($number:ty)*) => {$(
        impl Rem<&Tensor> for $number {
            type Output = Tensor;
            #[track_caller]
            fn rem(self, other: &Tensor) -> Tensor {
                let other = division::checked_divisor("remainder", self.into(), other.into());
                apply(&division::checked::remainder, &[self.into(), other], &[])
            }
        }
    )*};
}
rem_of_number!(f64 i64);

macro_rules! assigning {
    ($($Trait:ident $f:ident $method:ident;)*) => {$(
        /// In place, as in Python: all handles to the tensor and its views see the change.
        impl<'a, T: Into<Operand<'a>>> $Trait<T> for Tensor {
            #[track_caller]
            #[inline]
            fn $f(&mut self, other: T) { self.$method(other.into()); }
        }
    )*};
}
assigning! {
    AddAssign add_assign add_;
    SubAssign sub_assign sub_;
    MulAssign mul_assign mul_;
    DivAssign div_assign div_;
}

macro_rules! unary_operators {
    ($($Trait:ident $f:ident $row:expr;)*) => {$(
        impl $Trait for &Tensor {
            type Output = Tensor;
            #[track_caller]
            #[inline]
            fn $f(self) -> Tensor { apply($row, &[self.into()], &[]) }
        }
        impl $Trait for Tensor {
            type Output = Tensor;
            #[track_caller]
            #[inline]
            fn $f(self) -> Tensor { (&self).$f() }
        }
    )*};
}
unary_operators! {
    Neg neg &arithmetic::rows::neg;
    Not not &comparison::rows::bitwise_not;
}
