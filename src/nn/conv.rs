//! Convolutions (`torch/nn/modules/conv.py`).

use super::display::python_tuple;
use super::{Forward, Module, Parameter, PerDim, init};
use crate::error::{Error, Result, throw};
use crate::onnx::{Graph, Value};
use crate::ops::{ConvOptions, PadMode};
use crate::tensor::Tensor;

macro_rules! convolution {
    ($(#[$doc:meta])* $name:ident, $op:ident, $dims:literal, $weight_shape:literal) => {
        $(#[$doc])*
        #[derive(Module, Clone)]
        #[module(extra_repr = Self::settings)]
        pub struct $name {
            #[doc = $weight_shape]
            pub weight: Parameter,
            /// `[out_channels]`.
            pub bias: Option<Parameter>,
            options: ConvOptions<$dims>,
            #[module(skip)]
            mode: Option<PadMode>,
            same: bool,
        }

        impl $name {
            /// Stride 1, no padding, with a bias. Weight and bias start uniform within
            /// 1 / sqrt(in_channels * kernel size).
            ///
            /// ```
            #[doc = concat!("let layer = torchrs::nn::", stringify!($name), "::new(4, 8, 3);")]
            /// assert_eq!(layer.weight.shape()[..3], [8, 4, 3]);
            /// assert_eq!(layer.bias.unwrap().shape(), &[8]);
            /// ```
            #[track_caller]
            pub fn new(
                in_channels: usize,
                out_channels: usize,
                kernel_size: impl Into<PerDim<$dims>>,
            ) -> Self {
                let mut shape = vec![out_channels, in_channels];
                shape.extend(kernel_size.into().0);
                let (weight, bias) = init::default_parameters(&shape, out_channels);
                let options = ConvOptions::default();
                $name { weight, bias: Some(bias), options, mode: None, same: false }
            }

            /// With another distance between outputs.
            ///
            /// # Panics
            /// Throws [`Error::Argument`] for another than 1 with [`same_padding`](Self::same_padding).
            #[track_caller]
            #[must_use]
            pub fn stride(mut self, stride: impl Into<PerDim<$dims>>) -> Self {
                self.options.stride = stride.into().0;
                self.checked()
            }

            /// With zeros added on each side.
            #[must_use]
            pub fn padding(mut self, padding: impl Into<PerDim<$dims>>) -> Self {
                self.options.padding = padding.into().0;
                self.same = false;
                self
            }

            /// With as much padding as keeps the input's size (`padding="same"`); for stride 1.
            ///
            /// # Panics
            /// Throws [`Error::Argument`] for another stride.
            #[track_caller]
            #[must_use]
            pub fn same_padding(mut self) -> Self {
                self.same = true;
                self.checked()
            }

            #[track_caller]
            fn checked(self) -> Self {
                let stride = self.options.stride;
                if self.same && stride != [1; $dims] {
                    let message = format!("'same' with stride {stride:?}; the stride must be 1");
                    throw(Error::argument(stringify!($name), "padding", message));
                }
                self
            }

            /// With another kind of padding than zeros (`padding_mode`).
            ///
            /// ```
            /// use torchrs::{Dtype, Tensor, ops::PadMode};
            #[doc = concat!("use torchrs::nn::{", stringify!($name), ", Forward, init};")]
            #[doc = concat!("let x = Tensor::ones([2; 2 + ", $dims, "], Dtype::F32);")]
            #[doc = concat!("let layer = ", stringify!($name), "::new(2, 1, 3).padding(1).no_bias();")]
            /// init::ones_(&layer.weight);
            /// let y = layer.padding_mode(PadMode::Replicate).forward(&x);
            /// assert_eq!(y.min().item(), y.max().item());
            /// ```
            #[must_use]
            pub fn padding_mode(mut self, mode: PadMode) -> Self {
                self.mode = Some(mode);
                self
            }

            /// With another distance between filter taps.
            #[must_use]
            pub fn dilation(mut self, dilation: impl Into<PerDim<$dims>>) -> Self {
                self.options.dilation = dilation.into().0;
                self
            }

            /// With channels divided into groups; weight and bias are drawn anew.
            ///
            /// ```
            #[doc = concat!("let layer = torchrs::nn::", stringify!($name), "::new(4, 8, 3).groups(2);")]
            /// assert_eq!(layer.weight.shape()[..2], [8, 2]);
            /// ```
            ///
            /// # Panics
            /// Throws [`Error::Argument`] when the groups do not divide both numbers of channels.
            #[track_caller]
            #[must_use]
            pub fn groups(mut self, groups: usize) -> Self {
                let mut shape = self.weight.shape().to_vec();
                let channels = shape[1] * self.options.groups;
                if groups == 0 || channels % groups != 0 || shape[0] % groups != 0 {
                    let message = format!(
                        "{groups}; must divide in_channels, {channels}, and out_channels, {}",
                        shape[0]
                    );
                    throw(Error::argument(stringify!($name), "groups", message));
                }
                shape[1] = channels / groups;
                let (weight, bias) = init::default_parameters(&shape, shape[0]);
                self.weight = weight;
                self.bias = self.bias.map(|_| bias);
                self.options.groups = groups;
                self
            }

            /// Without a bias.
            #[must_use]
            pub fn no_bias(mut self) -> Self {
                self.bias = None;
                self
            }

            /// Stride, padding, dilation and groups.
            pub fn options(&self) -> &ConvOptions<$dims> {
                &self.options
            }

            fn settings(&self) -> String {
                settings(&self.weight, self.bias.is_some(), &self.options, self.same, self.mode)
            }
        }

        impl Forward for $name {
            #[track_caller]
            #[crate::nn::forward]
            fn forward(&self, input: &Tensor) -> Tensor {
                let (bias, mut options) = (self.bias.as_deref(), self.options);
                let Some(mode) = self.mode else {
                    if !self.same {
                        return input.$op(&self.weight, bias, options);
                    }
                    let (input, options) = options.same(input, &self.weight);
                    return input.$op(&self.weight, bias, options);
                };
                // The last dimension first; "same" puts the odd one behind.
                let mut sides = Vec::with_capacity(2 * $dims);
                for d in (0..$dims).rev() {
                    let total = options.dilation[d] * (self.weight.size(d as i64 + 2) - 1);
                    let before = if self.same { total / 2 } else { options.padding[d] };
                    let behind = if self.same { total - total / 2 } else { before };
                    sides.extend([before as i64, behind as i64]);
                }
                options.padding = [0; $dims];
                input.pad(&sides, mode).$op(&self.weight, bias, options)
            }

            fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
                let mut options = self.options;
                let (weight, bias) = (&self.weight, self.bias.as_deref());
                // Before and behind each dimension, the last one first.
                let mut sides = [0; 2 * $dims];
                for d in 0..$dims {
                    let total = match self.same {
                        true => options.dilation[d] * (weight.size(d as i64 + 2) - 1),
                        false => 2 * options.padding[d],
                    };
                    let place = 2 * ($dims - 1 - d);
                    sides[place] = (total / 2) as i64;
                    sides[place + 1] = (total - total / 2) as i64;
                    options.padding[d] = total / 2;
                }
                let even = sides.chunks(2).all(|pair| pair[0] == pair[1]);
                if (even && self.mode.is_none()) || sides == [0; 2 * $dims] {
                    return graph.conv(input, weight, bias, &options);
                }
                let mode = self.mode.unwrap_or(PadMode::Constant(0i64.into()));
                options.padding = [0; $dims];
                let padded = graph.pad(input, &sides, mode)?;
                graph.conv(&padded, weight, bias, &options)
            }
        }
    };
}

convolution!(
    /// Convolution over `[N, C, L]` (`torch.nn.Conv1d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{Conv1d, Forward, Parameter}};
    /// let mut layer = Conv1d::new(1, 1, 2).no_bias();
    /// layer.weight = Parameter::new(Tensor::from([[[1f32, -1.]]]));
    /// assert_eq!(layer.forward(&Tensor::from([[[1f32, 2., 4.]]])).to_vec::<f32>(), [-1.0, -2.0]);
    /// ```
    Conv1d, conv1d, 1, "`[out_channels, in_channels / groups, kernel]`."
);
convolution!(
    /// Convolution over `[N, C, H, W]` (`torch.nn.Conv2d`).
    ///
    /// ```
    /// use torchrs::{Tensor, Dtype::F32, nn::{Conv2d, Forward}};
    /// let layer = Conv2d::new(3, 8, 3).padding(1).stride(2).no_bias();
    /// assert_eq!(layer.forward(&Tensor::ones([1, 3, 6, 6], F32)).shape(), &[1, 8, 3, 3]);
    /// ```
    Conv2d, conv2d, 2, "`[out_channels, in_channels / groups, kernel height, kernel width]`."
);

convolution!(
    /// Convolution over `[N, C, D, H, W]` (`torch.nn.Conv3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{Conv3d, Forward}};
    /// let layer = Conv3d::new(3, 8, 3).padding(1).stride([1, 2, 2]);
    /// assert_eq!(layer.forward(&Tensor::ones([1, 3, 4, 6, 6], Dtype::F32)).shape(), &[1, 8, 4, 3, 3]);
    /// ```
    Conv3d, conv3d, 3, "`[out_channels, in_channels / groups, kernel depth, height, width]`."
);

/// A convolution's text, without what is as by default.
fn settings<const D: usize>(
    weight: &Tensor,
    bias: bool,
    options: &ConvOptions<D>,
    same: bool,
    mode: Option<PadMode>,
) -> String {
    let &[out, per_group, ref kernel @ ..] = weight.shape() else {
        unreachable!("a convolution's weight has at least three dimensions")
    };
    let ConvOptions { stride, padding, dilation, groups } = options;
    let padding = match same {
        true => ", padding=same".to_owned(),
        false => unless_all("padding", padding, 0),
    };
    let mode = match mode {
        None => "",
        Some(PadMode::Constant(_)) => ", padding_mode=constant",
        Some(PadMode::Reflect) => ", padding_mode=reflect",
        Some(PadMode::Replicate) => ", padding_mode=replicate",
        Some(PadMode::Circular) => ", padding_mode=circular",
    };
    format!(
        "{}, {out}, kernel_size={}, stride={}{padding}{}{}{}{mode}",
        per_group * groups,
        python_tuple(kernel),
        python_tuple(stride),
        unless_all("dilation", dilation, 1),
        groups_unless_one(*groups),
        if bias { "" } else { ", bias=False" }
    )
}

/// `, name=(2, 2)`, or nothing if all sizes are the usual one.
pub(super) fn unless_all(name: &str, sizes: &[usize], usual: usize) -> String {
    match sizes.iter().all(|size| *size == usual) {
        true => String::new(),
        false => format!(", {name}={}", python_tuple(sizes)),
    }
}

/// `, groups=2`, or nothing for one.
pub(super) fn groups_unless_one(groups: usize) -> String {
    if groups == 1 { String::new() } else { format!(", groups={groups}") }
}
