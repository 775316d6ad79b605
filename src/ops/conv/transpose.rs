//! Transposed convolutions.
//!
//! ```text
//! y[n, o, j] = bias[o] + sum over c, t with j = i * stride + t * dilation - padding of x[n, c, i] w[c, o, t]
//! out = (in - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1
//! ```
//!
//! x is `[N, C, ..]`, w is `[C, O / groups, ..]`: this is the gradient by its input of the convolution
//! that has w as its filter, and is computed as such. Rows of output that no input reaches
//! (`output_padding`) are 0.

use super::integer;
use super::options::{Conv2dOptions, Conv3dOptions};
use crate::amp::cast_op;
use crate::error::{Error, throw};
#[cfg(test)]
use crate::ops::checks::samples::{OpSample, values};
use crate::ops::conv;
use crate::tensor::Tensor;

/// Stride, padding, dilation and groups of a transposed convolution.
///
/// ```
/// use torchrs::Tensor;
/// use torchrs::ops::ConvTransposeOptions;
/// let (x, w) = (Tensor::from([[[1f32, 2.]]]), Tensor::from([[[1f32, 10.]]]));
/// let options = ConvTransposeOptions { stride: [2], ..Default::default() };
/// assert_eq!(x.conv_transpose1d(&w, None, options).to_vec::<f32>(), [1.0, 10.0, 2.0, 20.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConvTransposeOptions<const D: usize> {
    /// Distance between the outputs of neighbouring inputs.
    pub stride: [usize; D],
    /// Rows taken away from the output on each side.
    pub padding: [usize; D],
    /// Rows given back at the output's end; less than stride or dilation.
    pub output_padding: [usize; D],
    /// Distance between the outputs of neighbouring filter taps.
    pub dilation: [usize; D],
    /// Groups into which input and output channels are divided.
    pub groups: usize,
}

impl<const D: usize> Default for ConvTransposeOptions<D> {
    fn default() -> Self {
        ConvTransposeOptions {
            stride: [1; D],
            padding: [0; D],
            output_padding: [0; D],
            dilation: [1; D],
            groups: 1,
        }
    }
}

/// Output sizes, after checking shapes, options and types.
#[track_caller]
fn check<const D: usize>(
    op: &str,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    o: &ConvTransposeOptions<D>,
) -> [usize; D] {
    for (name, values) in [("stride", o.stride), ("dilation", o.dilation)] {
        if values.contains(&0) {
            throw(Error::argument(op, name, format!("{values:?}; each must be at least 1")));
        }
    }
    if (0..D).any(|d| o.output_padding[d] >= o.stride[d].max(o.dilation[d])) {
        throw(Error::argument(
            op,
            "output_padding",
            format!(
                "{:?}; must be less than stride {:?} or dilation {:?}",
                o.output_padding, o.stride, o.dilation
            ),
        ));
    }
    if !(x.dtype().is_floating_point() || conv::is_integer(x.dtype())) {
        crate::tensor::dtype::not_floating(op, x.dtype());
    }
    let (xs, ws) = (x.shape(), weight.shape());
    let rule = if x.dim() != D + 2 || weight.dim() != D + 2 {
        format!("both must have {} dimensions (the input's batch may be absent)", D + 2)
    } else if xs[1] != ws[0] {
        format!("the weight takes {} input channels, the input has {}", ws[0], xs[1])
    } else if o.groups == 0 || !ws[0].is_multiple_of(o.groups) || weight.numel() == 0 {
        format!("the weight must not be empty, its first size a multiple of groups {}", o.groups)
    } else if xs[2..].contains(&0) {
        "the input must not be empty but for its batch".into()
    } else if bias.is_some_and(|b| b.shape() != [ws[1] * o.groups]) {
        format!("the bias must have one number for each of {} output channels", ws[1] * o.groups)
    } else if let Some(t) =
        [Some(weight), bias].into_iter().flatten().find(|t| t.dtype() != x.dtype())
    {
        throw(Error::dtype(
            op,
            format!(
                "input {}, weight or bias {}: must be equal; convert with `.to_dtype`",
                x.dtype(),
                t.dtype()
            ),
        ))
    } else {
        let full = |d: usize| {
            (xs[d + 2] - 1) * o.stride[d]
                + o.dilation[d] * (ws[d + 2] - 1)
                + o.output_padding[d]
                + 1
        };
        match (0..D).find(|&d| full(d) <= 2 * o.padding[d]) {
            None => return std::array::from_fn(|d| full(d) - 2 * o.padding[d]),
            Some(d) => format!("padding {:?} leaves nothing of dimension {}", o.padding, d + 2),
        }
    };
    throw(Error::shape(op, format!("input {xs:?}, weight {ws:?} do not fit: {rule}")))
}

/// `[O]` as one number per channel of `[N, O, ..]`.
pub(super) fn add_bias(y: Tensor, bias: Option<&Tensor>) -> Tensor {
    let Some(bias) = bias else { return y };
    let mut shape = vec![1; y.dim() - 1];
    shape[0] = bias.numel();
    y + bias.reshape_to(&shape)
}

impl Tensor {
    /// One-dimensional transposed convolution (`torch.nn.functional.conv_transpose1d`) of `[N, C, L]`
    /// or `[C, L]` with `weight` `[C, O / groups, K]` and `bias` `[O]`.
    ///
    /// ```
    /// use torchrs::Tensor;
    /// let (x, w) = (Tensor::from([[[1f32, 2.]]]), Tensor::from([[[1f32, 10.]]]));
    /// assert_eq!(x.conv_transpose1d(&w, None, Default::default()).to_vec::<f32>(), [1.0, 12.0, 20.0]);
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::conv_transpose2d`].
    #[track_caller]
    pub fn conv_transpose1d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: ConvTransposeOptions<1>,
    ) -> Tensor {
        cast_op!("conv_transpose1d", [x = self, w = weight, b = bias] => x.conv_transpose1d(&w, b.as_ref(), options));
        if self.dim() == 2 {
            return self.unsqueeze(0).conv_transpose1d(weight, bias, options).squeeze_dim(0);
        }
        check("conv_transpose1d", self, weight, bias, &options);
        let options = ConvTransposeOptions {
            stride: [1, options.stride[0]],
            padding: [0, options.padding[0]],
            output_padding: [0, options.output_padding[0]],
            dilation: [1, options.dilation[0]],
            groups: options.groups,
        };
        self.unsqueeze(2).conv_transpose2d(&weight.unsqueeze(2), bias, options).squeeze_dim(2)
    }

    /// Two-dimensional transposed convolution (`torch.nn.functional.conv_transpose2d`) of
    /// `[N, C, H, W]` or `[C, H, W]` with `weight` `[C, O / groups, KH, KW]` and `bias` `[O]`.
    ///
    /// # Panics
    /// Throws [`Error::Shape`] when shapes do not fit, [`Error::Argument`] for a stride or dilation of
    /// 0 or too much `output_padding`, [`Error::Dtype`] when dtypes differ or are bool.
    ///
    /// ```
    /// use torchrs::{Tensor, Dtype::F32, ops::ConvTransposeOptions};
    /// let (x, w) = (Tensor::ones([1, 1, 2, 2], F32), Tensor::ones([1, 1, 2, 2], F32));
    /// let y = x.conv_transpose2d(&w, None, ConvTransposeOptions::default());
    /// assert_eq!(y.to_vec::<f32>(), [1., 2., 1., 2., 4., 2., 1., 2., 1.]);
    /// ```
    #[track_caller]
    pub fn conv_transpose2d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: ConvTransposeOptions<2>,
    ) -> Tensor {
        cast_op!("conv_transpose2d", [x = self, w = weight, b = bias] => x.conv_transpose2d(&w, b.as_ref(), options));
        if self.dim() == 3 {
            return self.unsqueeze(0).conv_transpose2d(weight, bias, options).squeeze_dim(0);
        }
        let out = check("conv_transpose2d", self, weight, bias, &options);
        let o = options;
        let plain = Conv2dOptions {
            stride: o.stride,
            padding: o.padding,
            dilation: o.dilation,
            groups: o.groups,
        };
        if conv::is_integer(self.dtype()) {
            return integer::transposed(self, weight, bias, out, &o);
        }
        let channels = weight.shape()[1] * o.groups;
        let y = conv::transposed(self, weight, [channels, out[0], out[1]], plain);
        add_bias(y, bias)
    }

    /// Three-dimensional transposed convolution (`torch.nn.functional.conv_transpose3d`) of
    /// `[N, C, D, H, W]` or `[C, D, H, W]` with `weight` `[C, O / groups, KD, KH, KW]`, `bias` `[O]`.
    ///
    /// ```
    /// use torchrs::{Dtype, Tensor};
    /// let (x, w) = (Tensor::ones([1, 1, 1, 2], Dtype::F32), Tensor::ones([1, 1, 2, 2, 2], Dtype::F32));
    /// let y = x.conv_transpose3d(&w, None, Default::default());
    /// assert_eq!((y.shape(), y.sum().item(), y.max().item()), (&[1, 2, 2, 3][..], 16.0, 2.0));
    /// ```
    ///
    /// # Panics
    /// As [`Tensor::conv_transpose2d`].
    #[track_caller]
    pub fn conv_transpose3d(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: ConvTransposeOptions<3>,
    ) -> Tensor {
        cast_op!("conv_transpose3d", [x = self, w = weight, b = bias] => x.conv_transpose3d(&w, b.as_ref(), options));
        if self.dim() == 4 {
            return self.unsqueeze(0).conv_transpose3d(weight, bias, options).squeeze_dim(0);
        }
        let out = check("conv_transpose3d", self, weight, bias, &options);
        let o = options;
        let plain = Conv3dOptions {
            stride: o.stride,
            padding: o.padding,
            dilation: o.dilation,
            groups: o.groups,
        };
        if conv::is_integer(self.dtype()) {
            return integer::transposed(self, weight, bias, out, &o);
        }
        let channels = weight.shape()[1] * o.groups;
        add_bias(conv::transposed3d(self, weight, [channels, out[0], out[1], out[2]], plain), bias)
    }
}

#[cfg(test)]
pub(in crate::ops) fn samples() -> Vec<OpSample> {
    let two = |name: &str, x: &[usize], w: &[usize], options: ConvTransposeOptions<2>| {
        let inputs = [values(x, 1), values(w, 2), values([w[1] * options.groups], 3)];
        let call = move |x: &[Tensor]| x[0].conv_transpose2d(&x[1], Some(&x[2]), options);
        OpSample::new(format!("conv_transpose2d({name})"), inputs, call).slack(4.0)
    };
    let plain = ConvTransposeOptions::default();
    vec![
        two("plain", &[2, 3, 3, 4], &[3, 2, 2, 3], plain),
        two(
            "stride, groups, output_padding beyond the stride",
            &[1, 4, 3, 2],
            &[4, 1, 3, 2],
            ConvTransposeOptions {
                stride: [2, 1],
                padding: [1, 2],
                output_padding: [1, 2],
                dilation: [1, 3],
                groups: 2,
            },
        ),
        OpSample::new(
            "conv_transpose3d(stride 2)",
            [values([1, 2, 2, 3, 2], 1), values([2, 2, 2, 2, 2], 2)],
            |x| {
                let options = ConvTransposeOptions {
                    stride: [2, 1, 1],
                    padding: [1, 0, 0],
                    ..Default::default()
                };
                x[0].conv_transpose3d(&x[1], None, options)
            },
        )
        .slack(4.0),
        OpSample::new(
            "conv_transpose3d(groups, dilation, output_padding beyond the stride)",
            [values([2, 4, 2, 1, 2], 1), values([4, 1, 2, 1, 2], 2), values([2], 3)],
            |x| {
                let options = ConvTransposeOptions {
                    stride: [2, 1, 3],
                    padding: [1, 0, 1],
                    output_padding: [2, 1, 0],
                    dilation: [3, 2, 1],
                    groups: 2,
                };
                x[0].conv_transpose3d(&x[1], Some(&x[2]), options)
            },
        )
        .slack(4.0),
    ]
}
