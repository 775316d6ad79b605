//! Activations: those of elements by their rows (`ops/pointwise`), softmax and dropout.

use crate::ops::pointwise::{activation, elementary};
use crate::tensor::Tensor;

/// A function for each row that has `nn { functional .. }`.
macro_rules! rows {
    ($($nn:tt $name:ident $inputs:tt $params:tt $defaults:tt $body:tt)*) => {
        $(function! { $nn $name $inputs $params })*
    };
}
macro_rules! function {
    ({} $($row:tt)*) => {};
    ({ functional $($more:tt)* } $name:ident ($x:ident $(, $operand:ident)*) [$($p:ident),*]) => {
        #[doc = concat!("[`Tensor::", stringify!($name), "`] as a function (`torch.nn.functional.", stringify!($name), "`).")]
        #[track_caller]
        pub fn $name($x: &Tensor $(, $operand: &Tensor)* $(, $p: f64)*) -> Tensor {
            $x.$name($($operand,)* $($p),*)
        }
    };
}
activation::rows::in_nn!();
activation::checked::in_nn!();
elementary::rows::in_nn!();

methods! {
    gelu_tanh(x);
    softmax(x, dim: i64);
    log_softmax(x, dim: i64);
    dropout(x, p: f64, training: bool);
}
