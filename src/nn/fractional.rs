//! Maxima over windows at random places as modules (`torch/nn/modules/pooling.py`).

use super::display::python_tuple;
use super::{Buffer, Forward, Module, PerDim};
use crate::error::{Error, Result};
use crate::onnx::{Graph, Value};
use crate::ops::FractionalSize;
use crate::tensor::Tensor;

macro_rules! fractional {
    ($($(#[$doc:meta])* $name:ident, $op:ident, $dims:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone)]
        #[module(extra_repr = Self::settings)]
        pub struct $name {
            #[module(rename = "_random_samples")]
            samples: Option<Buffer>,
            kernel_size: [usize; $dims],
            #[module(skip)]
            output: FractionalSize<$dims>,
        }

        impl $name {
            /// Of windows of this size, so many along each dimension.
            pub fn new(
                kernel_size: impl Into<PerDim<$dims>>,
                output: FractionalSize<$dims>,
            ) -> Self {
                $name { samples: None, kernel_size: kernel_size.into().0, output }
            }

            /// With the numbers from 0 to 1 that place the windows, the same ones in every call: `[N, C,
            #[doc = concat!(stringify!($dims), "]` (`_random_samples`).")]
            #[must_use]
            pub fn samples(mut self, samples: Tensor) -> Self {
                self.samples = Some(Buffer::new(samples));
                self
            }

            /// The maxima and their positions in the plane (`return_indices=True`).
            ///
            /// # Panics
            #[doc = concat!("As [`Tensor::", stringify!($op), "`].")]
            #[track_caller]
            #[crate::nn::forward]
            pub fn forward_with_indices(&self, input: &Tensor) -> (Tensor, Tensor) {
                self.pool(input)
            }

            #[track_caller]
            fn pool(&self, input: &Tensor) -> (Tensor, Tensor) {
                input.$op(self.kernel_size, self.output, self.samples.as_deref())
            }

            fn settings(&self) -> String {
                let size = match &self.output {
                    FractionalSize::Size(size) => format!("output_size={}", python_tuple(size)),
                    FractionalSize::Ratio(ratio) => format!("output_ratio={ratio:?}"),
                };
                format!("kernel_size={}, {size}", python_tuple(&self.kernel_size))
            }
        }

        impl Forward for $name {
            #[track_caller]
            #[crate::nn::forward]
            fn forward(&self, input: &Tensor) -> Tensor {
                self.pool(input).0
            }

            fn onnx(&self, _: &mut Graph, _: &Value) -> Result<Value> {
                let message = concat!("`", stringify!($name), "` has windows at random places, which ONNX has not");
                Err(Error::argument("onnx", "module", message))
            }
        }
    )*};
}

fractional! {
    /// The maxima of windows at random places of `[N, C, H, W]` or `[C, H, W]` (`torch.nn.FractionalMaxPool2d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{FractionalMaxPool2d, Forward}, ops::FractionalSize};
    /// let pool = FractionalMaxPool2d::new(2, FractionalSize::Ratio([0.5, 0.7]));
    /// assert_eq!(pool.forward(&Tensor::ones([1, 3, 10, 10], Dtype::F32)).shape(), &[1, 3, 5, 7]);
    /// ```
    FractionalMaxPool2d, fractional_max_pool2d, 2;
    /// The maxima of windows at random places of `[N, C, D, H, W]` or `[C, D, H, W]`
    /// (`torch.nn.FractionalMaxPool3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{FractionalMaxPool3d, Forward}, ops::FractionalSize};
    /// let pool = FractionalMaxPool3d::new(2, FractionalSize::Size([2, 3, 4]));
    /// assert_eq!(pool.forward(&Tensor::ones([3, 8, 8, 8], Dtype::F32)).shape(), &[3, 2, 3, 4]);
    /// ```
    FractionalMaxPool3d, fractional_max_pool3d, 3;
}
