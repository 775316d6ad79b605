//! Pooling (`torch/nn/modules/pooling.py`).

use super::display::{python_bool, python_size};
use super::{Forward, Module, PerDim};
use crate::Tensor;
use crate::ops::Pool2dOptions;

macro_rules! pooling {
    ($(#[$doc:meta])* $name:ident, $op:ident, $repr:expr) => {
        $(#[$doc])*
        #[derive(Module, Clone, Copy, Debug)]
        #[module(extra_repr = Self::settings)]
        pub struct $name {
            options: Pool2dOptions,
        }

        impl $name {
            /// Windows of this size, side by side.
            pub fn new(kernel_size: impl Into<PerDim<2>>) -> Self {
                $name { options: Pool2dOptions::new(kernel_size.into().0) }
            }

            /// With all options.
            pub fn with_options(options: Pool2dOptions) -> Self {
                $name { options }
            }

            /// With another distance between windows.
            #[must_use]
            pub fn stride(mut self, stride: impl Into<PerDim<2>>) -> Self {
                self.options.stride = Some(stride.into().0);
                self
            }

            /// With rows and columns added on each side.
            #[must_use]
            pub fn padding(mut self, padding: impl Into<PerDim<2>>) -> Self {
                self.options.padding = padding.into().0;
                self
            }

            fn settings(&self) -> String {
                let o = &self.options;
                let stride = o.stride.unwrap_or(o.kernel_size);
                let text = format!(
                    "kernel_size={}, stride={}, padding={}",
                    python_size(&o.kernel_size),
                    python_size(&stride),
                    python_size(&o.padding)
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

pooling!(
    /// The largest element of each window of `[N, C, H, W]` (`torch.nn.MaxPool2d`).
    MaxPool2d,
    max_pool2d,
    |o: &Pool2dOptions| format!(
        ", dilation={}, ceil_mode={}",
        python_size(&o.dilation),
        python_bool(o.ceil_mode)
    )
);
pooling!(
    /// The mean of each window of `[N, C, H, W]` (`torch.nn.AvgPool2d`).
    AvgPool2d,
    avg_pool2d,
    |_: &Pool2dOptions| String::new()
);

/// The means of `[N, C, H, W]` over windows chosen so that the output has a certain size
/// (`torch.nn.AdaptiveAvgPool2d`).
#[derive(Module, Clone, Copy, Debug)]
#[module(extra_repr = Self::settings)]
pub struct AdaptiveAvgPool2d {
    output_size: [usize; 2],
}

impl AdaptiveAvgPool2d {
    /// With this output height and width; `1` is the mean over the whole image.
    pub fn new(output_size: impl Into<PerDim<2>>) -> Self {
        AdaptiveAvgPool2d { output_size: output_size.into().0 }
    }

    fn settings(&self) -> String {
        format!("output_size={}", python_size(&self.output_size))
    }
}

impl Forward for AdaptiveAvgPool2d {
    #[track_caller]
    fn forward(&self, input: &Tensor) -> Tensor {
        input.adaptive_avg_pool2d(self.output_size.map(Some))
    }
}
