//! f32 whose functions are quick and right for moderate arguments, and that remember others.

use std::ops::{Add, BitAnd, BitOr, BitXor, Div, Mul, Neg, Not, Sub};

use super::{F32, Float, Number, Special};
use crate::numbers::math::single;

/// f32 with fused multiply-add, and whether a function on the way to it had an argument that it is wrong for: then
/// [`F32`] has to compute it again. Sines and remainders are several times as fast that way as those that are right for
/// every number, and a loop of them is vector code, which has no branch for each.
#[derive(Clone, Copy)]
pub struct Near {
    value: F32<true>,
    far: bool,
}

/// The functions for which it is another than [`F32`], and those that are composed of them.
pub const NEAR_FUNCTIONS: &[&str] =
    &["sin", "cos", "tan", "remainder", "fmod", "floor_divide", "sinc_slope"];

/// What a comparison of [`Near`] gives.
#[derive(Clone, Copy)]
pub struct NearTruth {
    value: bool,
    far: bool,
}

impl Near {
    /// A number, which is right.
    #[inline(always)]
    pub fn new(value: F32<true>) -> Self {
        Near { value, far: false }
    }

    /// The number, and whether it may be wrong.
    #[inline(always)]
    pub fn parts(self) -> (F32<true>, bool) {
        (self.value, self.far)
    }

    #[inline(always)]
    fn map(self, f: impl Fn(F32<true>) -> F32<true>) -> Self {
        Near { value: f(self.value), far: self.far }
    }

    #[inline(always)]
    fn with(self, other: Self, f: impl Fn(F32<true>, F32<true>) -> F32<true>) -> Self {
        Near { value: f(self.value, other.value), far: self.far | other.far }
    }

    #[inline(always)]
    fn compare(self, other: Self, f: impl Fn(F32<true>, F32<true>) -> bool) -> NearTruth {
        NearTruth { value: f(self.value, other.value), far: self.far | other.far }
    }

    /// `f` of a number that is to be some turns at most.
    #[inline(always)]
    fn of_turns(self, f: impl Fn(f32) -> f32) -> Self {
        let x = self.value.0;
        Near { value: F32(f(x)), far: self.far | single::is_far_turn(x) }
    }

    /// `f` of dividend, divisor and remainder, where the quotient is to be moderate.
    #[inline(always)]
    fn of_remainder(self, other: Self, f: impl Fn(f32, f32, f32) -> f32) -> Self {
        let (a, b) = (self.value.0, other.value.0);
        let value = F32(f(a, b, single::near_fmod(a, b)));
        Near { value, far: self.far | other.far | !single::is_near_quotient(a, b) }
    }
}

impl From<f64> for Near {
    #[inline(always)]
    fn from(value: f64) -> Self {
        Near::new(F32(value as f32))
    }
}

impl Neg for Near {
    type Output = Self;
    #[inline(always)]
    fn neg(self) -> Self {
        self.map(|x| -x)
    }
}

macro_rules! operators {
    ($($Trait:ident $f:ident)*) => {$(
        impl $Trait for Near {
            type Output = Self;
            #[inline(always)]
            fn $f(self, other: Self) -> Self { self.with(other, $Trait::$f) }
        }
        impl $Trait<f64> for Near {
            type Output = Self;
            #[inline(always)]
            fn $f(self, other: f64) -> Self { self.map(|x| $Trait::$f(x, other)) }
        }
        impl $Trait<Near> for f64 {
            type Output = Near;
            #[inline(always)]
            fn $f(self, other: Near) -> Near { other.map(|x| $Trait::$f(self, x)) }
        }
    )*};
}
operators!(Add add Sub sub Mul mul Div div);

impl NearTruth {
    #[inline(always)]
    fn with(self, other: Self, value: bool) -> Self {
        NearTruth { value, far: self.far | other.far }
    }
}

macro_rules! truth_operators {
    ($($Trait:ident $f:ident)*) => {$(
        impl $Trait for NearTruth {
            type Output = Self;
            #[inline(always)]
            fn $f(self, other: Self) -> Self { self.with(other, self.value.$f(other.value)) }
        }
    )*};
}
truth_operators!(BitAnd bitand BitOr bitor BitXor bitxor);

impl Not for NearTruth {
    type Output = Self;
    #[inline(always)]
    fn not(self) -> Self {
        NearTruth { value: !self.value, far: self.far }
    }
}

macro_rules! delegated {
    (map $($f:ident)*) => {$(
        #[inline(always)]
        fn $f(self) -> Self { self.map(|x| x.$f()) }
    )*};
    (with $($f:ident)*) => {$(
        #[inline(always)]
        fn $f(self, other: Self) -> Self { self.with(other, |x, y| x.$f(y)) }
    )*};
    (compare $($f:ident)*) => {$(
        #[inline(always)]
        fn $f(self, other: Self) -> NearTruth { self.compare(other, |x, y| x.$f(y)) }
    )*};
}

impl Number for Near {
    type Truth = NearTruth;
    #[inline(always)]
    fn choose(c: NearTruth, a: Self, b: Self) -> Self {
        Near { value: F32::choose(c.value, a.value, b.value), far: c.far | a.far | b.far }
    }
    delegated!(compare less less_equal equal);
    delegated!(map abs sign floor ceil round trunc);
    delegated!(with maximum minimum pow);
    #[inline(always)]
    fn remainder(self, other: Self) -> Self {
        self.of_remainder(other, |_, b, r| single::floored_remainder(r, b))
    }
    #[inline(always)]
    fn floor_divide(self, other: Self) -> Self {
        self.of_remainder(other, single::floored_quotient)
    }
    #[inline(always)]
    fn fmod(self, other: Self) -> Self {
        self.of_remainder(other, |_, _, r| r)
    }
}

/// The function of the value; of some another one, which is quick and may be wrong for a far argument.
macro_rules! near {
    (sin $x:ident) => {
        $x.of_turns(single::near_sin)
    };
    (cos $x:ident) => {
        $x.of_turns(single::near_cos)
    };
    (tan $x:ident) => {
        $x.of_turns(single::near_tan)
    };
    ($f:ident $x:ident) => {
        $x.map(|x| x.$f())
    };
}

macro_rules! delegated_functions {
    (
        elementary { $($doc:literal $f:ident: $f32:ident $f64:ident $cuda:ident;)* }
        special { $($special_doc:literal $special:ident: $s32:ident $s64:ident $s:ident;)* }
        pairs { $($pair_doc:literal $pair:ident: $p:ident;)* }
        $($others:tt)*
    ) => {
        impl Float for Near {$(
            #[inline(always)]
            fn $f(self) -> Self { near!($f self) }
        )*}
        impl Special for Near {
            delegated!(map $($special)*);
            delegated!(with zeta atan2 nextafter);
            delegated!(with $($pair)*);
        }
    };
}
torchrs_loops::functions!(delegated_functions);
