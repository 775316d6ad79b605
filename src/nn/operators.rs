//! Arithmetic with [`Parameter`]s and [`Buffer`]s as if they were tensors: `x * &self.weight`.
//! Dereferencing does not reach operators, so they are passed on here.

use std::ops::{Add, Mul};

use super::{Buffer, Parameter};
use crate::Tensor;
use crate::tensor::Operand;

macro_rules! operators {
    ($($Trait:ident $method:ident),*; $($Wrapper:ident),*) => {
        operators!(@each [$($Wrapper),*] $($Trait $method),*);
        $(impl<'a> From<&'a $Wrapper> for Operand<'a> {
            fn from(wrapper: &'a $Wrapper) -> Self { Operand::Tensor(wrapper.tensor()) }
        })*
    };
    (@each $wrappers:tt $($Trait:ident $method:ident),*) => {
        $(operators!(@operator $Trait $method $wrappers);)*
    };
    (@operator $Trait:ident $method:ident [$($Wrapper:ident),*]) => {$(
        operators!(@pair $Trait $method, &Tensor, &$Wrapper, |a, b| a.$method(b.tensor()));
        operators!(@pair $Trait $method, Tensor, &$Wrapper, |a, b| a.$method(b.tensor()));
        operators!(@pair $Trait $method, &$Wrapper, &Tensor, |a, b| a.tensor().$method(b));
        operators!(@pair $Trait $method, &$Wrapper, Tensor, |a, b| a.tensor().$method(b));
        operators!(@pair $Trait $method, &$Wrapper, f64, |a, b| a.tensor().$method(b));
        operators!(@pair $Trait $method, &$Wrapper, &Parameter, |a, b| a.tensor().$method(b.tensor()));
        operators!(@pair $Trait $method, &$Wrapper, &Buffer, |a, b| a.tensor().$method(b.tensor()));
    )*};
    (@pair $Trait:ident $method:ident, $A:ty, $B:ty, |$a:ident, $b:ident| $body:expr) => {
        impl $Trait<$B> for $A {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: $B) -> Tensor {
                let ($a, $b) = (self, other);
                $body
            }
        }
    };
}
operators!(Add add, Mul mul; Parameter, Buffer);
