//! Pooling (`torch/nn/modules/pooling.py`).

use super::display::{python_bool, python_float, python_size, python_tuple};
use super::{Forward, Module, PerDim, functional as F};
use crate::error::Result;
use crate::onnx::{Graph, Value};
use crate::ops::PoolOptions;
use crate::tensor::Tensor;

macro_rules! pooling {
    ($(#[$doc:meta])* $name:ident, $op:ident, $dims:literal, $repr:expr) => {
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug)]
        #[module(extra_repr = Self::settings)]
        pub struct $name {
            options: PoolOptions<$dims>,
        }

        impl $name {
            /// Windows of this size, side by side.
            pub fn new(kernel_size: impl Into<PerDim<$dims>>) -> Self {
                $name { options: PoolOptions::new(kernel_size.into().0) }
            }

            /// With all options.
            ///
            /// ```
            /// use torchrs::{Dtype, Tensor, ops::PoolOptions};
            #[doc = concat!("use torchrs::nn::{Forward, ", stringify!($name), "};")]
            #[doc = concat!("let x = Tensor::ones([7; 2 + ", $dims, "], Dtype::F32);")]
            #[doc = concat!("let mut options = PoolOptions::new([2; ", $dims, "]);")]
            /// options.ceil_mode = true;
            #[doc = concat!("let pool = ", stringify!($name), "::with_options(options);")]
            /// assert_eq!(pool.forward(&x).size(-1), 4);
            /// ```
            pub fn with_options(options: PoolOptions<$dims>) -> Self {
                $name { options }
            }

            /// With another distance between windows.
            #[must_use]
            pub fn stride(mut self, stride: impl Into<PerDim<$dims>>) -> Self {
                self.options.stride = Some(stride.into().0);
                self
            }

            /// With rows and columns added on each side.
            #[must_use]
            pub fn padding(mut self, padding: impl Into<PerDim<$dims>>) -> Self {
                self.options.padding = padding.into().0;
                self
            }

            fn settings(&self) -> String {
                let o = &self.options;
                let stride = o.stride.unwrap_or(o.kernel_size);
                // `AvgPool1d` alone keeps its sizes as tuples.
                let size: fn(&[usize]) -> String = match stringify!($name) {
                    "AvgPool1d" => python_tuple,
                    _ => python_size,
                };
                let text = format!(
                    "kernel_size={}, stride={}, padding={}",
                    size(&o.kernel_size),
                    size(&stride),
                    size(&o.padding)
                );
                text + &$repr(o)
            }
        }

        impl Forward for $name {
            #[track_caller]
            #[crate::nn::forward]
            fn forward(&self, input: &Tensor) -> Tensor {
                input.$op(self.options)
            }

            fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
                let operator = match stringify!($name).starts_with("Max") {
                    true => "MaxPool",
                    false => "AveragePool",
                };
                graph.pool(operator, input, &self.options)
            }
        }
    };
}

fn max_settings<const D: usize>(o: &PoolOptions<D>) -> String {
    format!(", dilation={}, ceil_mode={}", python_size(&o.dilation), python_bool(o.ceil_mode))
}

fn no_settings<const D: usize>(_: &PoolOptions<D>) -> String {
    String::new()
}

pooling!(
    /// The largest element of each window of `[N, C, L]` (`torch.nn.MaxPool1d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, MaxPool1d}};
    /// let y = MaxPool1d::new(2).forward(&Tensor::from([[[1f32, 3., 2., 5.]]]));
    /// assert_eq!(y.to_vec::<f32>(), [3.0, 5.0]);
    /// ```
    MaxPool1d, max_pool1d, 1, max_settings
);
pooling!(
    /// The largest element of each window of `[N, C, H, W]` (`torch.nn.MaxPool2d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, MaxPool2d}};
    /// let y = MaxPool2d::new((2, 1)).forward(&Tensor::from([[[[1f32, 2.], [3., 4.]]]]));
    /// assert_eq!(y.to_vec::<f32>(), [3.0, 4.0]);
    /// ```
    MaxPool2d, max_pool2d, 2, max_settings
);
pooling!(
    /// The largest element of each window of `[N, C, D, H, W]` (`torch.nn.MaxPool3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Forward, MaxPool3d}};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// assert_eq!(MaxPool3d::new([2, 2, 1]).forward(&x).to_vec::<f32>(), [6.0, 7.0]);
    /// ```
    MaxPool3d, max_pool3d, 3, max_settings
);
pooling!(
    /// The mean of each window of `[N, C, L]` (`torch.nn.AvgPool1d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{AvgPool1d, Forward}};
    /// let y = AvgPool1d::new(2).forward(&Tensor::from([[[1f32, 3., 2., 6.]]]));
    /// assert_eq!(y.to_vec::<f32>(), [2.0, 4.0]);
    /// ```
    AvgPool1d, avg_pool1d, 1, no_settings
);
pooling!(
    /// The mean of each window of `[N, C, H, W]` (`torch.nn.AvgPool2d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{AvgPool2d, Forward}};
    /// let y = AvgPool2d::new((2, 1)).forward(&Tensor::from([[[[1f32, 2.], [3., 4.]]]]));
    /// assert_eq!(y.to_vec::<f32>(), [2.0, 3.0]);
    /// ```
    AvgPool2d, avg_pool2d, 2, no_settings
);
pooling!(
    /// The mean of each window of `[N, C, D, H, W]` (`torch.nn.AvgPool3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{AvgPool3d, Forward}};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// assert_eq!(AvgPool3d::new([2, 2, 1]).forward(&x).to_vec::<f32>(), [3.0, 4.0]);
    /// ```
    AvgPool3d, avg_pool3d, 3, no_settings
);

macro_rules! with_indices {
    ($($name:ident $op:ident $dims:literal),*) => {$(
        impl $name {
            /// The maxima and their positions in the plane (`return_indices=True`).
            ///
            /// ```
            #[doc = concat!("use torchrs::{Dtype, Tensor, nn::", stringify!($name), "};")]
            #[doc = concat!("let x = Tensor::ones([2; 2 + ", $dims, "], Dtype::F32).cumsum(-1);")]
            #[doc = concat!("let pool = ", stringify!($name), "::new(2);")]
            /// let (largest, places) = pool.forward_with_indices(&x);
            /// assert_eq!((largest.min().item(), places.max().item()), (2.0, 1.0));
            /// ```
            ///
            /// # Panics
            /// As [`Forward::forward`].
            #[track_caller]
            #[crate::nn::forward]
            pub fn forward_with_indices(&self, input: &Tensor) -> (Tensor, Tensor) {
                input.$op(self.options)
            }
        }
    )*};
}
with_indices! {
    MaxPool1d max_pool1d_with_indices 1,
    MaxPool2d max_pool2d_with_indices 2,
    MaxPool3d max_pool3d_with_indices 3
}

macro_rules! unpooling {
    ($($(#[$doc:meta])* $name:ident, $function:ident, $dims:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug)]
        #[module(extra_repr = Self::settings)]
        pub struct $name {
            options: PoolOptions<$dims>,
        }

        impl $name {
            /// Of windows of this size, side by side.
            pub fn new(kernel_size: impl Into<PerDim<$dims>>) -> Self {
                Self::with_options(PoolOptions::new(kernel_size.into().0))
            }

            /// With size, stride and padding of the pooling.
            pub fn with_options(options: PoolOptions<$dims>) -> Self {
                $name { options }
            }

            /// Zeros with the numbers of `input` at `indices`, as
            /// `forward_with_indices` of the pooling gave them, in the usual size or in this.
            ///
            /// ```
            #[doc = concat!("use torchrs::{Dtype, Tensor, nn::", stringify!($name), "};")]
            #[doc = concat!("let x = Tensor::full([1; 2 + ", $dims, "], 5.0, Dtype::F32);")]
            #[doc = concat!("let places = Tensor::ones([1; 2 + ", $dims, "], Dtype::I64);")]
            #[doc = concat!("let unpool = ", stringify!($name), "::new(2);")]
            #[doc = concat!("let y = unpool.forward(&x, &places, Some([3; ", $dims, "]));")]
            /// assert_eq!((y.size(-1), y.sum().item(), y.to_vec::<f32>()[1]), (3, 5.0, 5.0));
            /// ```
            ///
            /// # Panics
            /// As [`Tensor::max_unpool`].
            #[track_caller]
            #[crate::nn::forward]
            pub fn forward(
                &self,
                input: &Tensor,
                indices: &Tensor,
                output_size: Option<[usize; $dims]>,
            ) -> Tensor {
                F::$function(input, indices, self.options, output_size)
            }

            fn settings(&self) -> String {
                let o = &self.options;
                format!(
                    "kernel_size={}, stride={}, padding={}",
                    python_tuple(&o.kernel_size),
                    python_tuple(&o.stride.unwrap_or(o.kernel_size)),
                    python_tuple(&o.padding)
                )
            }
        }
    )*};
}

unpooling! {
    /// The reverse of [`MaxPool1d`] (`torch.nn.MaxUnpool1d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{MaxPool1d, MaxUnpool1d}};
    /// let (y, places) = MaxPool1d::new(2).forward_with_indices(&Tensor::from([[[1f32, 3., 5., 2.]]]));
    /// let x = MaxUnpool1d::new(2).forward(&y, &places, None);
    /// assert_eq!(x.to_vec::<f32>(), [0.0, 3.0, 5.0, 0.0]);
    /// ```
    MaxUnpool1d, max_unpool1d, 1;
    /// The reverse of [`MaxPool2d`] (`torch.nn.MaxUnpool2d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{MaxPool2d, MaxUnpool2d}};
    /// let (y, places) = MaxPool2d::new(2).forward_with_indices(&Tensor::from([[[[1f32, 2.], [4., 3.]]]]));
    /// let x = MaxUnpool2d::new(2).forward(&y, &places, None);
    /// assert_eq!(x.to_vec::<f32>(), [0.0, 0.0, 4.0, 0.0]);
    /// ```
    MaxUnpool2d, max_unpool2d, 2;
    /// The reverse of [`MaxPool3d`] (`torch.nn.MaxUnpool3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{MaxPool3d, MaxUnpool3d}};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// let (y, places) = MaxPool3d::new(2).forward_with_indices(&x);
    /// let x = MaxUnpool3d::new(2).forward(&y, &places, None);
    /// assert_eq!(x.to_vec::<f32>(), [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 7.0]);
    /// ```
    MaxUnpool3d, max_unpool3d, 3;
}

macro_rules! adaptive {
    ($($(#[$doc:meta])* $name:ident, $dims:literal, |$x:ident, $size:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug)]
        #[module(extra_repr = Self::settings)]
        pub struct $name {
            output_size: [Option<usize>; $dims],
        }

        impl $name {
            /// With these output sizes; `1` is one window over everything.
            pub fn new(output_size: impl Into<PerDim<$dims>>) -> Self {
                Self::with_sizes(output_size.into().0.map(Some))
            }

            /// With these output sizes; `None` keeps the input's.
            ///
            /// ```
            #[doc = concat!("use torchrs::{Dtype, Tensor, nn::{", stringify!($name), ", Forward}};")]
            #[doc = concat!("let x = Tensor::ones([5; 2 + ", $dims, "], Dtype::F32);")]
            #[doc = concat!("let pool = ", stringify!($name), "::with_sizes([None; ", $dims, "]);")]
            /// assert_eq!(pool.forward(&x).size(-1), 5);
            /// ```
            pub fn with_sizes(output_size: [Option<usize>; $dims]) -> Self {
                $name { output_size }
            }

            fn settings(&self) -> String {
                let size = |s: &Option<usize>| s.map_or("None".into(), |n| n.to_string());
                let sizes: Vec<String> = self.output_size.iter().map(size).collect();
                let all = self.output_size.iter().all(|s| *s == self.output_size[0]);
                match all {
                    true => format!("output_size={}", sizes[0]),
                    false => format!("output_size=({})", sizes.join(", ")),
                }
            }
        }

        impl Forward for $name {
            #[track_caller]
            #[crate::nn::forward]
            fn forward(&self, $x: &Tensor) -> Tensor {
                let $size = self.output_size;
                $body
            }

            fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
                let operator = match stringify!($name).starts_with("AdaptiveMax") {
                    true => "MaxPool",
                    false => "AveragePool",
                };
                graph.adaptive_pool(operator, input, self.output_size)
            }
        }
    )*};
}

/// An output size of one dimension; `None` keeps the input's.
fn size_or_own(x: &Tensor, size: Option<usize>) -> usize {
    size.unwrap_or_else(|| x.size(-1))
}

adaptive! {
    /// The means of `[N, C, L]` over windows chosen so that the output has a certain size
    /// (`torch.nn.AdaptiveAvgPool1d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{AdaptiveAvgPool1d, Forward}};
    /// let y = AdaptiveAvgPool1d::new(2).forward(&Tensor::from([[[1f32, 3., 2., 6.]]]));
    /// assert_eq!(y.to_vec::<f32>(), [2.0, 4.0]);
    /// ```
    AdaptiveAvgPool1d, 1, |x, size| x.adaptive_avg_pool1d(size_or_own(x, size[0]));
    /// The means of `[N, C, H, W]` over windows chosen so that the output has a certain size
    /// (`torch.nn.AdaptiveAvgPool2d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{AdaptiveAvgPool2d, Forward}};
    /// let x = Tensor::from([[[[1f32, 2.], [3., 4.]]]]);
    /// assert_eq!(AdaptiveAvgPool2d::with_sizes([Some(1), None]).forward(&x).to_vec::<f32>(), [2.0, 3.0]);
    /// ```
    AdaptiveAvgPool2d, 2, |x, size| x.adaptive_avg_pool2d(size);
    /// The means of `[N, C, D, H, W]` over windows chosen so that the output has a certain size
    /// (`torch.nn.AdaptiveAvgPool3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{AdaptiveAvgPool3d, Forward}};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// assert_eq!(AdaptiveAvgPool3d::new([1, 1, 2]).forward(&x).to_vec::<f32>(), [3.0, 4.0]);
    /// ```
    AdaptiveAvgPool3d, 3, |x, size| x.adaptive_avg_pool3d(size);
    /// The maxima of `[N, C, L]` over windows chosen so that the output has a certain size
    /// (`torch.nn.AdaptiveMaxPool1d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{AdaptiveMaxPool1d, Forward}};
    /// let y = AdaptiveMaxPool1d::new(2).forward(&Tensor::from([[[1f32, 3., 2., 6.]]]));
    /// assert_eq!(y.to_vec::<f32>(), [3.0, 6.0]);
    /// ```
    AdaptiveMaxPool1d, 1, |x, size| Self::with_sizes(size).forward_with_indices(x).0;
    /// The maxima of `[N, C, H, W]` over windows chosen so that the output has a certain size
    /// (`torch.nn.AdaptiveMaxPool2d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{AdaptiveMaxPool2d, Forward}};
    /// let x = Tensor::from([[[[1f32, 2.], [3., 4.]]]]);
    /// assert_eq!(AdaptiveMaxPool2d::with_sizes([Some(1), None]).forward(&x).to_vec::<f32>(), [3.0, 4.0]);
    /// ```
    AdaptiveMaxPool2d, 2, |x, size| Self::with_sizes(size).forward_with_indices(x).0;
    /// The maxima of `[N, C, D, H, W]` over windows chosen so that the output has a certain size
    /// (`torch.nn.AdaptiveMaxPool3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{AdaptiveMaxPool3d, Forward}};
    /// let x = Tensor::arange(0.0, 8.0, 1.0, Dtype::F32).view([1, 1, 2, 2, 2]);
    /// assert_eq!(AdaptiveMaxPool3d::new([1, 1, 2]).forward(&x).to_vec::<f32>(), [6.0, 7.0]);
    /// ```
    AdaptiveMaxPool3d, 3, |x, size| Self::with_sizes(size).forward_with_indices(x).0;
}

macro_rules! adaptive_with_indices {
    ($($name:ident $dims:literal |$x:ident, $size:ident| $body:expr;)*) => {$(
        impl $name {
            /// The maxima and their positions in the plane (`return_indices=True`).
            ///
            /// ```
            #[doc = concat!("use torchrs::{Dtype, Tensor, nn::", stringify!($name), "};")]
            #[doc = concat!("let x = Tensor::ones([2; 2 + ", $dims, "], Dtype::F32).cumsum(-1);")]
            #[doc = concat!("let pool = ", stringify!($name), "::new(1);")]
            /// let (largest, places) = pool.forward_with_indices(&x);
            /// assert_eq!((largest.min().item(), places.max().item()), (2.0, 1.0));
            /// ```
            ///
            /// # Panics
            /// As [`Forward::forward`].
            #[track_caller]
            #[crate::nn::forward]
            pub fn forward_with_indices(&self, $x: &Tensor) -> (Tensor, Tensor) {
                let $size = self.output_size;
                $body
            }
        }
    )*};
}
adaptive_with_indices! {
    AdaptiveMaxPool1d 1 |x, size| x.adaptive_max_pool1d(size_or_own(x, size[0]));
    AdaptiveMaxPool2d 2 |x, size| x.adaptive_max_pool2d(size);
    AdaptiveMaxPool3d 3 |x, size| x.adaptive_max_pool3d(size);
}

macro_rules! power_average {
    ($($(#[$doc:meta])* $name:ident, $op:ident, $dims:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug)]
        #[module(extra_repr = Self::settings)]
        pub struct $name {
            norm_type: f64,
            options: PoolOptions<$dims>,
        }

        impl $name {
            /// Of power `norm_type`, over the windows of `options` (size, stride, `ceil_mode`).
            ///
            /// ```
            /// use torchrs::{Dtype, Tensor, ops::PoolOptions};
            #[doc = concat!("use torchrs::nn::{Forward, ", stringify!($name), "};")]
            #[doc = concat!("let x = Tensor::ones([7; 2 + ", $dims, "], Dtype::F32);")]
            #[doc = concat!("let mut options = PoolOptions::new([2; ", $dims, "]);")]
            /// options.ceil_mode = true;
            #[doc = concat!("let pool = ", stringify!($name), "::new(2.0, options);")]
            /// assert_eq!(pool.forward(&x).size(-1), 4);
            /// ```
            pub fn new(norm_type: f64, options: PoolOptions<$dims>) -> Self {
                $name { norm_type, options }
            }

            fn settings(&self) -> String {
                let o = &self.options;
                format!(
                    "norm_type={}, kernel_size={}, stride={}, ceil_mode={}",
                    python_float(self.norm_type),
                    python_size(&o.kernel_size),
                    o.stride.map_or("None".to_owned(), |s| python_size(&s)),
                    python_bool(o.ceil_mode)
                )
            }
        }

        impl Forward for $name {
            #[track_caller]
            #[crate::nn::forward]
            fn forward(&self, input: &Tensor) -> Tensor {
                input.$op(self.norm_type, self.options)
            }

            fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
                graph.lp_pool(input, self.norm_type, &self.options)
            }
        }
    )*};
}

power_average! {
    /// The p-norm of each window of `[N, C, L]` (`torch.nn.LPPool1d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Forward, LPPool1d}, ops::PoolOptions};
    /// let y = LPPool1d::new(2.0, PoolOptions::new([2])).forward(&Tensor::from([[[3f64, 4.]]]));
    /// assert!((y.item() - 5.0).abs() < 1e-9);
    /// ```
    LPPool1d, lp_pool1d, 1;
    /// The p-norm of each window of `[N, C, H, W]` (`torch.nn.LPPool2d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Forward, LPPool2d}, ops::PoolOptions};
    /// let y = LPPool2d::new(2.0, PoolOptions::new([2, 2])).forward(&Tensor::ones([1, 1, 2, 2], Dtype::F64));
    /// assert!((y.item() - 2.0).abs() < 1e-9);
    /// ```
    LPPool2d, lp_pool2d, 2;
    /// The p-norm of each window of `[N, C, D, H, W]` (`torch.nn.LPPool3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Forward, LPPool3d}, ops::PoolOptions};
    /// let pool = LPPool3d::new(3.0, PoolOptions::new([2, 2, 2]));
    /// assert!((pool.forward(&Tensor::ones([1, 1, 2, 2, 2], Dtype::F64)).item() - 2.0).abs() < 1e-9);
    /// ```
    LPPool3d, lp_pool3d, 3;
}
