//! Padding (`torch/nn/modules/padding.py`).

use super::display::python_float;
use super::{Forward, Module};
use crate::error::Result;
use crate::onnx::{Graph, Value};
use crate::ops::PadMode;
use crate::tensor::Tensor;

/// Elements added before and behind each of the last dimensions, the last dimension first: `[left,
/// right, top, bottom]`. One number stands for all.
///
/// ```
/// use torchrs::nn::{Module, Sides, ZeroPad2d};
/// assert_eq!(Sides::from(1), Sides([1, 1, 1, 1]));
/// assert_eq!(ZeroPad2d::new([1, 2, 0, 0]).repr(), "ZeroPad2d((1, 2, 0, 0))");
/// ```
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
            ///
            /// ```
            #[doc = concat!("use torchrs::{Dtype, Tensor, nn::{Forward, ", stringify!($name), "}};")]
            #[doc = concat!("let x = Tensor::ones([4; 1 + ", $sides, " / 2], Dtype::F32);")]
            #[doc = concat!("let (mut sides, value) = ([0; ", $sides, "], 7.0);")]
            /// sides[..2].copy_from_slice(&[2, -1]);
            #[doc = concat!("let pad = ", stringify!($name), "::new(sides", $(stringify!(, $value),)? ");")]
            /// assert_eq!(pad.forward(&x).size(-1), 4 + 2 - 1);
            /// ```
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
            #[crate::nn::forward]
            fn forward(&self, input: &Tensor) -> Tensor {
                $(let $value = self.$value;)?
                input.pad(&self.padding, $mode)
            }

            fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
                $(let $value = self.$value;)?
                graph.pad(input, &self.padding, $mode)
            }
        }
    )*};
}

paddings! {
    /// Zeros around the last dimension (`torch.nn.ZeroPad1d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, ZeroPad1d}};
    /// let y = ZeroPad1d::new([1, 2]).forward(&Tensor::from([[1f32, 2.]]));
    /// assert_eq!(y.to_vec::<f32>(), [0.0, 1.0, 2.0, 0.0, 0.0]);
    /// ```
    ZeroPad1d, 2, PadMode::Constant(0i64.into());
    /// Zeros around the last two dimensions (`torch.nn.ZeroPad2d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, ZeroPad2d}};
    /// let y = ZeroPad2d::new([1, 0, 0, 1]).forward(&Tensor::from([[[1f32, 2.]]]));
    /// assert_eq!((y.shape(), y.to_vec::<f32>()), (&[1, 2, 3][..], vec![0.0, 1.0, 2.0, 0.0, 0.0, 0.0]));
    /// ```
    ZeroPad2d, 4, PadMode::Constant(0i64.into());
    /// Zeros around the last three dimensions (`torch.nn.ZeroPad3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Forward, ZeroPad3d}};
    /// let y = ZeroPad3d::new(1).forward(&Tensor::ones([1, 1, 2, 2, 2], Dtype::F32));
    /// assert_eq!((y.shape(), y.sum().item()), (&[1, 1, 4, 4, 4][..], 8.0));
    /// ```
    ZeroPad3d, 6, PadMode::Constant(0i64.into());
    /// The last dimension mirrored at its ends (`torch.nn.ReflectionPad1d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, ReflectionPad1d}};
    /// let y = ReflectionPad1d::new(2).forward(&Tensor::from([[1f32, 2., 3.]]));
    /// assert_eq!(y.to_vec::<f32>(), [3.0, 2.0, 1.0, 2.0, 3.0, 2.0, 1.0]);
    /// ```
    ReflectionPad1d, 2, PadMode::Reflect;
    /// The last two dimensions mirrored at their ends (`torch.nn.ReflectionPad2d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, ReflectionPad2d}};
    /// let y = ReflectionPad2d::new([1, 0, 1, 0]).forward(&Tensor::from([[[1f32, 2.], [3., 4.]]]));
    /// assert_eq!(y.to_vec::<f32>(), [4.0, 3.0, 4.0, 2.0, 1.0, 2.0, 4.0, 3.0, 4.0]);
    /// ```
    ReflectionPad2d, 4, PadMode::Reflect;
    /// The last three dimensions mirrored at their ends (`torch.nn.ReflectionPad3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Forward, ReflectionPad3d}};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// let y = ReflectionPad3d::new(1).forward(&x);
    /// assert_eq!((y.shape(), y.i((0, 0, 0, 0, 0)).item()), (&[1, 1, 4, 4, 4][..], 7.0));
    /// ```
    ReflectionPad3d, 6, PadMode::Reflect;
    /// The ends of the last dimension repeated (`torch.nn.ReplicationPad1d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, ReplicationPad1d}};
    /// let y = ReplicationPad1d::new(2).forward(&Tensor::from([[1f32, 2., 3.]]));
    /// assert_eq!(y.to_vec::<f32>(), [1.0, 1.0, 1.0, 2.0, 3.0, 3.0, 3.0]);
    /// ```
    ReplicationPad1d, 2, PadMode::Replicate;
    /// The ends of the last two dimensions repeated (`torch.nn.ReplicationPad2d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, ReplicationPad2d}};
    /// let y = ReplicationPad2d::new([1, 0, 1, 0]).forward(&Tensor::from([[[1f32, 2.], [3., 4.]]]));
    /// assert_eq!(y.to_vec::<f32>(), [1.0, 1.0, 2.0, 1.0, 1.0, 2.0, 3.0, 3.0, 4.0]);
    /// ```
    ReplicationPad2d, 4, PadMode::Replicate;
    /// The ends of the last three dimensions repeated (`torch.nn.ReplicationPad3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Forward, ReplicationPad3d}};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// let y = ReplicationPad3d::new(1).forward(&x);
    /// assert_eq!((y.shape(), y.i((0, 0, 3, 3, 3)).item()), (&[1, 1, 4, 4, 4][..], 7.0));
    /// ```
    ReplicationPad3d, 6, PadMode::Replicate;
    /// The last dimension as a ring (`torch.nn.CircularPad1d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{CircularPad1d, Forward}};
    /// let y = CircularPad1d::new(2).forward(&Tensor::from([[1f32, 2., 3.]]));
    /// assert_eq!(y.to_vec::<f32>(), [2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0]);
    /// ```
    CircularPad1d, 2, PadMode::Circular;
    /// The last two dimensions as rings (`torch.nn.CircularPad2d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{CircularPad2d, Forward}};
    /// let y = CircularPad2d::new([1, 0, 1, 0]).forward(&Tensor::from([[[1f32, 2.], [3., 4.]]]));
    /// assert_eq!(y.to_vec::<f32>(), [4.0, 3.0, 4.0, 2.0, 1.0, 2.0, 4.0, 3.0, 4.0]);
    /// ```
    CircularPad2d, 4, PadMode::Circular;
    /// The last three dimensions as rings (`torch.nn.CircularPad3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{CircularPad3d, Forward}};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// let y = CircularPad3d::new(1).forward(&x);
    /// assert_eq!((y.shape(), y.i((0, 0, 0, 0, 0)).item()), (&[1, 1, 4, 4, 4][..], 7.0));
    /// ```
    CircularPad3d, 6, PadMode::Circular;
    /// A number around the last dimension (`torch.nn.ConstantPad1d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{ConstantPad1d, Forward}};
    /// let y = ConstantPad1d::new([1, 2], 9.0).forward(&Tensor::from([[1f32, 2.]]));
    /// assert_eq!(y.to_vec::<f32>(), [9.0, 1.0, 2.0, 9.0, 9.0]);
    /// ```
    ConstantPad1d(value: f64), 2, PadMode::Constant(value.into());
    /// A number around the last two dimensions (`torch.nn.ConstantPad2d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{ConstantPad2d, Forward}};
    /// let y = ConstantPad2d::new([1, 0, 0, 1], 9.0).forward(&Tensor::from([[[1f32, 2.]]]));
    /// assert_eq!((y.shape(), y.to_vec::<f32>()), (&[1, 2, 3][..], vec![9.0, 1.0, 2.0, 9.0, 9.0, 9.0]));
    /// ```
    ConstantPad2d(value: f64), 4, PadMode::Constant(value.into());
    /// A number around the last three dimensions (`torch.nn.ConstantPad3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{ConstantPad3d, Forward}};
    /// let y = ConstantPad3d::new(1, 0.5).forward(&Tensor::ones([1, 1, 2, 2, 2], Dtype::F32));
    /// assert_eq!((y.shape(), y.sum().item()), (&[1, 1, 4, 4, 4][..], 8.0 + 0.5 * 56.0));
    /// ```
    ConstantPad3d(value: f64), 6, PadMode::Constant(value.into());
}
