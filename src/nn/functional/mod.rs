//! Functions of `torch.nn.functional`: the tensor methods of that name as functions, and those that
//! are made of several ops.

/// A tensor, where nothing else is said.
macro_rules! result {
    () => {
        Tensor
    };
    ($t:ty) => {
        $t
    };
}

/// Methods of tensors as functions, a row each.
macro_rules! methods {
    ($($name:ident($x:ident $(, $argument:ident: $t:ty)* $(,)?) $(-> $r:ty)?;)*) => {$(
        #[doc = concat!("[`Tensor::", stringify!($name), "`] as a function, as in `torch.nn.functional`.")]
        #[track_caller]
        #[allow(clippy::too_many_arguments, reason = "PyTorch's signature")]
        pub fn $name($x: &Tensor $(, $argument: $t)*) -> result!($($r)?) {
            $x.$name($($argument),*)
        }
    )*};
}

mod activation;
mod conv;
mod distance;
mod gate;
mod image;
mod linear;
mod loss;
mod margin;
mod norm;
mod pool;

pub use crate::ops::{CTCLossOptions, ctc_loss};
pub use activation::*;
pub use conv::{
    conv_transpose1d, conv_transpose2d, conv_transpose3d, conv1d, conv2d, conv3d, fold, unfold,
};
pub use distance::*;
pub use gate::*;
pub use image::*;
pub use linear::*;
pub use loss::*;
pub use margin::*;
pub use norm::*;
pub use pool::*;
