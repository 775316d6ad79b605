//! Floating-point numbers as values of formulas.

use std::ops::{Add, Div, Mul, Neg, Sub};

use super::{Float, Number, Special};
use crate::numbers::math::{double, single, special};

/// f32; `FMA` says whether `mul_add` is an instruction.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct F32<const FMA: bool>(pub f32);

/// f64; `FMA` says whether `mul_add` is an instruction.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct F64<const FMA: bool>(pub f64);

macro_rules! float_lane {
    ($Lane:ident, $t:ty, $math:ident) => {
        impl<const FMA: bool> From<f64> for $Lane<FMA> {
            #[inline(always)]
            fn from(value: f64) -> Self { $Lane(value as $t) }
        }
        impl<const FMA: bool> Neg for $Lane<FMA> {
            type Output = Self;
            #[inline(always)]
            fn neg(self) -> Self { $Lane(-self.0) }
        }
        float_lane!(@operator $Lane, $t, Add add +);
        float_lane!(@operator $Lane, $t, Sub sub -);
        float_lane!(@operator $Lane, $t, Mul mul *);
        float_lane!(@operator $Lane, $t, Div div /);

        impl<const FMA: bool> Number for $Lane<FMA> {
            type Truth = bool;
            #[inline(always)]
            fn choose(c: bool, a: Self, b: Self) -> Self { if c { a } else { b } }
            #[inline(always)]
            fn less(self, other: Self) -> bool { self.0 < other.0 }
            #[inline(always)]
            fn less_equal(self, other: Self) -> bool { self.0 <= other.0 }
            #[inline(always)]
            fn equal(self, other: Self) -> bool { self.0 == other.0 }
            #[inline(always)]
            fn abs(self) -> Self { $Lane(self.0.abs()) }
            #[inline(always)]
            fn sign(self) -> Self {
                let x = self.0;
                $Lane((x > 0.0) as i32 as $t - (x < 0.0) as i32 as $t)
            }
            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                let (a, b) = (self.0, other.0);
                let y = if a > b { a } else { b };
                $Lane(if a.is_nan() { a } else { y })
            }
            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                let (a, b) = (self.0, other.0);
                let y = if a < b { a } else { b };
                $Lane(if a.is_nan() { a } else { y })
            }
            #[inline(always)]
            fn floor(self) -> Self { $Lane(self.0.floor()) }
            #[inline(always)]
            fn ceil(self) -> Self { $Lane(self.0.ceil()) }
            #[inline(always)]
            fn round(self) -> Self { $Lane(self.0.round_ties_even()) }
            #[inline(always)]
            fn trunc(self) -> Self { $Lane(self.0.trunc()) }
            #[inline(always)]
            fn remainder(self, other: Self) -> Self {
                $Lane($math::floored_remainder(self.0 % other.0, other.0))
            }
            #[inline(always)]
            fn floor_divide(self, other: Self) -> Self {
                $Lane($math::floored_quotient(self.0, other.0, self.0 % other.0))
            }
            #[inline(always)]
            fn fmod(self, other: Self) -> Self { $Lane(self.0 % other.0) }
            #[inline(always)]
            fn pow(self, other: Self) -> Self { $Lane($math::pow::<FMA>(self.0, other.0)) }
        }
    };
    (@operator $Lane:ident, $t:ty, $Trait:ident $f:ident $op:tt) => {
        impl<const FMA: bool> $Trait for $Lane<FMA> {
            type Output = Self;
            #[inline(always)]
            fn $f(self, other: Self) -> Self { $Lane(self.0 $op other.0) }
        }
        impl<const FMA: bool> $Trait<f64> for $Lane<FMA> {
            type Output = Self;
            #[inline(always)]
            fn $f(self, other: f64) -> Self { $Lane(self.0 $op other as $t) }
        }
        impl<const FMA: bool> $Trait<$Lane<FMA>> for f64 {
            type Output = $Lane<FMA>;
            #[inline(always)]
            fn $f(self, other: $Lane<FMA>) -> $Lane<FMA> { $Lane(self as $t $op other.0) }
        }
    };
}

float_lane!(F32, f32, single);
float_lane!(F64, f64, double);

/// A function of one number, by its word in the table.
macro_rules! function {
    ($f:ident of $Lane:ident, $t:ty, $math:ident: vector) => {
        #[inline(always)]
        fn $f(self) -> Self {
            $Lane($math::$f::<FMA>(self.0))
        }
    };
    ($f:ident of $Lane:ident, $t:ty, $math:ident: std) => {
        #[inline(always)]
        fn $f(self) -> Self {
            $Lane(<$t>::$f(self.0))
        }
    };
    ($f:ident of $Lane:ident, $t:ty, $math:ident: scalar) => {
        #[inline(always)]
        fn $f(self) -> Self {
            $Lane(special::$f(self.0 as f64) as $t)
        }
    };
}

/// A function of two numbers in f64.
macro_rules! pair {
    ($f:ident $Lane:ident $t:ty) => {
        #[inline(always)]
        fn $f(self, other: Self) -> Self {
            $Lane(special::$f(self.0 as f64, other.0 as f64) as $t)
        }
    };
}

macro_rules! binary {
    ($Lane:ident, $t:ty, $math:ident) => {
        #[inline(always)]
        fn zeta(self, q: Self) -> Self {
            $Lane(special::zeta(self.0 as f64, q.0 as f64) as $t)
        }
        #[inline(always)]
        fn atan2(self, x: Self) -> Self {
            $Lane($math::atan2::<FMA>(self.0, x.0))
        }
        #[inline(always)]
        fn nextafter(self, other: Self) -> Self {
            let (a, b) = (self.0, other.0);
            let next = if b > a { a.next_up() } else { a.next_down() };
            let next = if a == b { b } else { next };
            $Lane(if a.is_nan() {
                a
            } else if b.is_nan() {
                b
            } else {
                next
            })
        }
    };
}

macro_rules! functions {
    (
        elementary { $($doc:literal $f:ident: $f32:ident $f64:ident $cuda:ident;)* }
        special { $($special_doc:literal $special:ident: $s32:ident $s64:ident $s:ident;)* }
        pairs { $($pair_doc:literal $pair:ident: $p:ident;)* }
        $($others:tt)*
    ) => {
        impl<const FMA: bool> Float for F32<FMA> {
            $(function!($f of F32, f32, single: $f32);)*
        }
        impl<const FMA: bool> Float for F64<FMA> {
            $(function!($f of F64, f64, double: $f64);)*
        }
        impl<const FMA: bool> Special for F32<FMA> {
            $(function!($special of F32, f32, single: $s32);)*
            $(pair!($pair F32 f32);)*
            binary!(F32, f32, single);
        }
        impl<const FMA: bool> Special for F64<FMA> {
            $(function!($special of F64, f64, double: $s64);)*
            $(pair!($pair F64 f64);)*
            binary!(F64, f64, double);
        }
    };
}
torchrs_loops::functions!(functions);
