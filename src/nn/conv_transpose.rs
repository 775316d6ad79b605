//! Transposed convolutions (`torch/nn/modules/conv.py`).

use super::conv::{groups_unless_one, unless_all};
use super::display::python_tuple;
use super::{Forward, Module, Parameter, PerDim, init};
use crate::error::{Error, Result, throw};
use crate::onnx::{Graph, Value};
use crate::ops::ConvTransposeOptions;
use crate::tensor::Tensor;

macro_rules! transposed {
    ($($(#[$doc:meta])* $name:ident, $op:ident, $dims:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Module, Clone)]
        #[module(extra_repr = Self::settings)]
        pub struct $name {
            /// `[in_channels, out_channels / groups, kernel size..]`.
            pub weight: Parameter,
            /// `[out_channels]`.
            pub bias: Option<Parameter>,
            #[module(skip)]
            options: ConvTransposeOptions<$dims>,
        }

        impl $name {
            /// With a bias. Weight and bias start uniform within 1 / sqrt(out_channels / groups *
            /// kernel size).
            ///
            /// ```
            #[doc = concat!("use torchrs::{ops::ConvTransposeOptions, nn::", stringify!($name), "};")]
            /// let options = ConvTransposeOptions { groups: 2, ..Default::default() };
            #[doc = concat!("let layer = ", stringify!($name), "::new(4, 6, 3, options);")]
            /// assert_eq!((layer.weight.size(0), layer.weight.size(1), layer.weight.size(-1)), (4, 3, 3));
            /// ```
            ///
            /// # Panics
            /// Throws [`Error::Argument`] when the groups do not divide both numbers of channels.
            #[track_caller]
            pub fn new(
                in_channels: usize,
                out_channels: usize,
                kernel_size: impl Into<PerDim<$dims>>,
                options: ConvTransposeOptions<$dims>,
            ) -> Self {
                let groups = options.groups;
                let divides = |n: usize| groups > 0 && n.is_multiple_of(groups);
                if !divides(in_channels) || !divides(out_channels) {
                    let message = format!(
                        "{groups}; must divide in_channels, {in_channels}, and out_channels, \
                         {out_channels}"
                    );
                    throw(Error::argument(stringify!($name), "groups", message));
                }
                let mut shape = vec![in_channels, out_channels / groups];
                shape.extend(kernel_size.into().0);
                let (weight, bias) = init::default_parameters(&shape, out_channels);
                $name { weight, bias: Some(bias), options }
            }

            /// Without a bias.
            #[must_use]
            pub fn no_bias(mut self) -> Self {
                self.bias = None;
                self
            }
        }

        impl $name {
            /// Stride, padding, dilation and groups.
            pub fn options(&self) -> &ConvTransposeOptions<$dims> {
                &self.options
            }

            fn settings(&self) -> String {
                let o = &self.options;
                let &[inputs, per_group, ref kernel @ ..] = self.weight.shape() else {
                    unreachable!("a convolution's weight has at least three dimensions")
                };
                format!(
                    "{inputs}, {}, kernel_size={}, stride={}{}{}{}{}{}",
                    per_group * o.groups,
                    python_tuple(kernel),
                    python_tuple(&o.stride),
                    unless_all("padding", &o.padding, 0),
                    unless_all("dilation", &o.dilation, 1),
                    unless_all("output_padding", &o.output_padding, 0),
                    groups_unless_one(o.groups),
                    if self.bias.is_some() { "" } else { ", bias=False" }
                )
            }
        }

        impl Forward for $name {
            #[track_caller]
            #[crate::nn::forward]
            fn forward(&self, input: &Tensor) -> Tensor {
                input.$op(&self.weight, self.bias.as_deref(), self.options)
            }

            fn onnx(&self, graph: &mut Graph, input: &Value) -> Result<Value> {
                graph.conv_transpose(input, &self.weight, self.bias.as_deref(), &self.options)
            }
        }
    )*};
}

transposed! {
    /// Transposed convolution over `[N, C, L]` (`torch.nn.ConvTranspose1d`).
    ///
    /// ```
    /// use torchrs::{Tensor, nn::{ConvTranspose1d, Forward, Parameter}};
    /// let mut layer = ConvTranspose1d::new(1, 1, 2, Default::default()).no_bias();
    /// layer.weight = Parameter::new(Tensor::from([[[1f32, 10.]]]));
    /// assert_eq!(layer.forward(&Tensor::from([[[1f32, 2.]]])).to_vec::<f32>(), [1.0, 12.0, 20.0]);
    /// ```
    ConvTranspose1d, conv_transpose1d, 1;
    /// Transposed convolution over `[N, C, H, W]` (`torch.nn.ConvTranspose2d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{ConvTranspose2d, Forward}, ops::ConvTransposeOptions};
    /// let options = ConvTransposeOptions { stride: [2, 2], padding: [1, 1], ..Default::default() };
    /// let layer = ConvTranspose2d::new(3, 8, 4, options);
    /// assert_eq!(layer.forward(&Tensor::ones([1, 3, 6, 6], Dtype::F32)).shape(), &[1, 8, 12, 12]);
    /// ```
    ConvTranspose2d, conv_transpose2d, 2;
    /// Transposed convolution over `[N, C, D, H, W]` (`torch.nn.ConvTranspose3d`).
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor, nn::{ConvTranspose3d, Forward}};
    /// let layer = ConvTranspose3d::new(3, 2, [1, 2, 3], Default::default());
    /// assert_eq!(layer.forward(&Tensor::ones([1, 3, 4, 4, 4], Dtype::F32)).shape(), &[1, 2, 4, 5, 6]);
    /// ```
    ConvTranspose3d, conv_transpose3d, 3;
}
