//! Pooling (`torch/nn/modules/pooling.py`).

use super::display::{python_bool, python_float, python_size, python_tuple};
use super::{Forward, Module, PerDim, functional as F};
use crate::Tensor;
use crate::ops::PoolOptions;

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
            fn forward(&self, input: &Tensor) -> Tensor {
                input.$op(self.options)
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
    MaxPool1d, max_pool1d, 1, max_settings
);
pooling!(
    /// The largest element of each window of `[N, C, H, W]` (`torch.nn.MaxPool2d`).
    MaxPool2d, max_pool2d, 2, max_settings
);
pooling!(
    /// The largest element of each window of `[N, C, D, H, W]` (`torch.nn.MaxPool3d`).
    MaxPool3d, max_pool3d, 3, max_settings
);
pooling!(
    /// The mean of each window of `[N, C, L]` (`torch.nn.AvgPool1d`).
    AvgPool1d, avg_pool1d, 1, no_settings
);
pooling!(
    /// The mean of each window of `[N, C, H, W]` (`torch.nn.AvgPool2d`).
    AvgPool2d, avg_pool2d, 2, no_settings
);
pooling!(
    /// The mean of each window of `[N, C, D, H, W]` (`torch.nn.AvgPool3d`).
    AvgPool3d, avg_pool3d, 3, no_settings
);

macro_rules! with_indices {
    ($($name:ident $op:ident),*) => {$(
        impl $name {
            /// The maxima and their positions in the plane (`return_indices=True`).
            ///
            /// # Panics
            /// As [`Forward::forward`].
            #[track_caller]
            pub fn forward_with_indices(&self, input: &Tensor) -> (Tensor, Tensor) {
                input.$op(self.options)
            }
        }
    )*};
}
with_indices! {
    MaxPool1d max_pool1d_with_indices,
    MaxPool2d max_pool2d_with_indices,
    MaxPool3d max_pool3d_with_indices
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
            /// # Panics
            /// As [`Tensor::max_unpool`].
            #[track_caller]
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
    MaxUnpool1d, max_unpool1d, 1;
    /// The reverse of [`MaxPool2d`] (`torch.nn.MaxUnpool2d`).
    MaxUnpool2d, max_unpool2d, 2;
    /// The reverse of [`MaxPool3d`] (`torch.nn.MaxUnpool3d`).
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
            fn forward(&self, $x: &Tensor) -> Tensor {
                let $size = self.output_size;
                $body
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
    AdaptiveAvgPool1d, 1, |x, size| x.adaptive_avg_pool1d(size_or_own(x, size[0]));
    /// The means of `[N, C, H, W]` over windows chosen so that the output has a certain size
    /// (`torch.nn.AdaptiveAvgPool2d`).
    AdaptiveAvgPool2d, 2, |x, size| x.adaptive_avg_pool2d(size);
    /// The means of `[N, C, D, H, W]` over windows chosen so that the output has a certain size
    /// (`torch.nn.AdaptiveAvgPool3d`).
    AdaptiveAvgPool3d, 3, |x, size| x.adaptive_avg_pool3d(size);
    /// The maxima of `[N, C, L]` over windows chosen so that the output has a certain size
    /// (`torch.nn.AdaptiveMaxPool1d`).
    AdaptiveMaxPool1d, 1, |x, size| Self::with_sizes(size).forward_with_indices(x).0;
    /// The maxima of `[N, C, H, W]` over windows chosen so that the output has a certain size
    /// (`torch.nn.AdaptiveMaxPool2d`).
    AdaptiveMaxPool2d, 2, |x, size| Self::with_sizes(size).forward_with_indices(x).0;
    /// The maxima of `[N, C, D, H, W]` over windows chosen so that the output has a certain size
    /// (`torch.nn.AdaptiveMaxPool3d`).
    AdaptiveMaxPool3d, 3, |x, size| Self::with_sizes(size).forward_with_indices(x).0;
}

macro_rules! adaptive_with_indices {
    ($($name:ident |$x:ident, $size:ident| $body:expr;)*) => {$(
        impl $name {
            /// The maxima and their positions in the plane (`return_indices=True`).
            ///
            /// # Panics
            /// As [`Forward::forward`].
            #[track_caller]
            pub fn forward_with_indices(&self, $x: &Tensor) -> (Tensor, Tensor) {
                let $size = self.output_size;
                $body
            }
        }
    )*};
}
adaptive_with_indices! {
    AdaptiveMaxPool1d |x, size| x.adaptive_max_pool1d(size_or_own(x, size[0]));
    AdaptiveMaxPool2d |x, size| x.adaptive_max_pool2d(size);
    AdaptiveMaxPool3d |x, size| x.adaptive_max_pool3d(size);
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
            fn forward(&self, input: &Tensor) -> Tensor {
                input.$op(self.norm_type, self.options)
            }
        }
    )*};
}

power_average! {
    /// The p-norm of each window of `[N, C, L]` (`torch.nn.LPPool1d`).
    LPPool1d, lp_pool1d, 1;
    /// The p-norm of each window of `[N, C, H, W]` (`torch.nn.LPPool2d`).
    LPPool2d, lp_pool2d, 2;
    /// The p-norm of each window of `[N, C, D, H, W]` (`torch.nn.LPPool3d`).
    LPPool3d, lp_pool3d, 3;
}
