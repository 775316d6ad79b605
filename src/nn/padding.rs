//! Padding (`torch/nn/modules/padding.py`).

use super::display::python_float;
use super::{Forward, Module};
use crate::Tensor;
use crate::ops::PadMode;

/// Elements added before and behind each of the last dimensions, the last dimension first: `[left,
/// right, top, bottom]`. One number stands for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sides<const N: usize>(pub [i64; N]);

impl<const N: usize> From<i64> for Sides<N> {
    fn from(all: i64) -> Self {
        Sides([all; N])
    }
}

impl<const N: usize> From<[i64; N]> for Sides<N> {
    fn from(sides: [i64; N]) -> Self {
        Sides(sides)
    }
}

macro_rules! paddings {
    ($(
        $(#[$doc:meta])* $name:ident $(($value:ident: $t:ty))?, $sides:literal, $mode:expr;
    )*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug)]
        #[module(extra_repr = Self::settings)]
        pub struct $name {
            padding: [i64; $sides],
            $($value: $t,)?
        }

        impl $name {
            /// By these numbers of elements; negative ones cut off.
            pub fn new(padding: impl Into<Sides<$sides>> $(, $value: $t)?) -> Self {
                $name { padding: padding.into().0 $(, $value)? }
            }

            fn settings(&self) -> String {
                let sides: Vec<String> = self.padding.iter().map(i64::to_string).collect();
                let sides = format!("({})", sides.join(", "));
                $(let sides = format!(
                    "padding={sides}, {}={}", stringify!($value), python_float(self.$value)
                );)?
                sides
            }
        }

        impl Forward for $name {
            #[track_caller]
            fn forward(&self, input: &Tensor) -> Tensor {
                $(let $value = self.$value;)?
                input.pad(&self.padding, $mode)
            }
        }
    )*};
}

paddings! {
    /// Zeros around the last dimension (`torch.nn.ZeroPad1d`).
    ZeroPad1d, 2, PadMode::Constant(0i64.into());
    /// Zeros around the last two dimensions (`torch.nn.ZeroPad2d`).
    ZeroPad2d, 4, PadMode::Constant(0i64.into());
    /// Zeros around the last three dimensions (`torch.nn.ZeroPad3d`).
    ZeroPad3d, 6, PadMode::Constant(0i64.into());
    /// The last dimension mirrored at its ends (`torch.nn.ReflectionPad1d`).
    ReflectionPad1d, 2, PadMode::Reflect;
    /// The last two dimensions mirrored at their ends (`torch.nn.ReflectionPad2d`).
    ReflectionPad2d, 4, PadMode::Reflect;
    /// The last three dimensions mirrored at their ends (`torch.nn.ReflectionPad3d`).
    ReflectionPad3d, 6, PadMode::Reflect;
    /// The ends of the last dimension repeated (`torch.nn.ReplicationPad1d`).
    ReplicationPad1d, 2, PadMode::Replicate;
    /// The ends of the last two dimensions repeated (`torch.nn.ReplicationPad2d`).
    ReplicationPad2d, 4, PadMode::Replicate;
    /// The ends of the last three dimensions repeated (`torch.nn.ReplicationPad3d`).
    ReplicationPad3d, 6, PadMode::Replicate;
    /// The last dimension as a ring (`torch.nn.CircularPad1d`).
    CircularPad1d, 2, PadMode::Circular;
    /// The last two dimensions as rings (`torch.nn.CircularPad2d`).
    CircularPad2d, 4, PadMode::Circular;
    /// The last three dimensions as rings (`torch.nn.CircularPad3d`).
    CircularPad3d, 6, PadMode::Circular;
    /// A number around the last dimension (`torch.nn.ConstantPad1d`).
    ConstantPad1d(value: f64), 2, PadMode::Constant(value.into());
    /// A number around the last two dimensions (`torch.nn.ConstantPad2d`).
    ConstantPad2d(value: f64), 4, PadMode::Constant(value.into());
    /// A number around the last three dimensions (`torch.nn.ConstantPad3d`).
    ConstantPad3d(value: f64), 6, PadMode::Constant(value.into());
}
