//! Transposed convolutions (`torch/nn/modules/conv.py`).

use super::conv::{groups_unless_one, unless_all};
use super::display::python_tuple;
use super::{Forward, Module, Parameter, PerDim, init};
use crate::Tensor;
use crate::error::{Error, throw};
use crate::ops::ConvTransposeOptions;

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
            fn forward(&self, input: &Tensor) -> Tensor {
                input.$op(&self.weight, self.bias.as_deref(), self.options)
            }
        }
    )*};
}

transposed! {
    /// Transposed convolution over `[N, C, L]` (`torch.nn.ConvTranspose1d`).
    ConvTranspose1d, conv_transpose1d, 1;
    /// Transposed convolution over `[N, C, H, W]` (`torch.nn.ConvTranspose2d`).
    ConvTranspose2d, conv_transpose2d, 2;
    /// Transposed convolution over `[N, C, D, H, W]` (`torch.nn.ConvTranspose3d`).
    ConvTranspose3d, conv_transpose3d, 3;
}
