//! Convolutions of integers, which have no gradient: the windows, gathered, times the filters.

use super::options::ConvOptions;
use super::transpose::{ConvTransposeOptions, add_bias};
use crate::tensor::{Dtype, Tensor};

/// The output, for operands that fit; sums wrap around like all of the type's.
pub(super) fn convolved<const D: usize>(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: &ConvOptions<D>,
) -> Tensor {
    // The last dimension comes first.
    let padding: Vec<i64> =
        options.padding.iter().rev().flat_map(|&p| [p as i64, p as i64]).collect();
    let x = x.constant_pad_nd(&padding, 0i64).contiguous();
    let (images, channels, groups) = (x.size(0), x.size(1), options.groups);
    let (filters, taps) = (weight.size(0) / groups, weight.numel() / weight.size(0));
    let counts: Vec<usize> = (0..D)
        .map(|d| {
            let unpadded = x.size(d as i64 + 2) - 2 * options.padding[d];
            options.count(d, unpadded, weight.shape()[d + 2]).expect("checked before")
        })
        .collect();
    let points: usize = counts.iter().product();
    let steps = |by: [usize; D]| {
        let strides: Vec<isize> = (0..D).map(|d| by[d] as isize * x.strides()[d + 2]).collect();
        strides
    };
    let shape = [&[images, channels], &weight.shape()[2..], &counts[..]].concat();
    let strides =
        [x.strides()[..2].to_vec(), steps(options.dilation), steps(options.stride)].concat();
    let windows = x.as_strided(&shape, &strides, x.storage_offset());
    let windows = windows.reshape_to(&[images, groups, taps, points]);
    let filters = weight.reshape_to(&[groups, filters, taps]);
    let y = filters.unsqueeze(0).matmul(&windows);
    let y = y.reshape_to(&[&[images, weight.size(0)], &counts[..]].concat());
    add_bias(y, bias)
}

/// The transposed convolution of operands that fit: that of the input, `stride` apart among zeros, with the filters
/// turned around.
pub(super) fn transposed<const D: usize>(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    out: [usize; D],
    options: &ConvTransposeOptions<D>,
) -> Tensor {
    let (channels, groups) = (x.size(1), options.groups);
    let (inputs, filters) = (channels / groups, weight.size(1));
    // What of each output is read before and behind the input; less than nothing is cut off.
    let span = |d: usize| (options.dilation[d] * (weight.shape()[d + 2] - 1)) as i64;
    let mut x = x.clone();
    for d in 0..D {
        let (dim, stride) = (d as i64 + 2, options.stride[d]);
        let wide = (x.size(dim) - 1) * stride + 1;
        let mut shape = x.shape().to_vec();
        shape[d + 2] = wide;
        let places = Tensor::arange(0i64, wide, stride, Dtype::I64).to_device(x.device());
        x = Tensor::zeros(&shape, (x.dtype(), x.device())).index_copy(dim, &places, &x);
    }
    let padding: Vec<i64> = (0..D)
        .rev()
        .flat_map(|d| {
            let before = span(d) - options.padding[d] as i64;
            let behind = out[d] as i64 + span(d) - before - x.size(d as i64 + 2) as i64;
            [before, behind]
        })
        .collect();
    let x = x.constant_pad_nd(&padding, 0i64);
    let turned: Vec<i64> = (0..D as i64).map(|d| d + 2).collect();
    let sizes = &weight.shape()[2..];
    let weight = weight
        .flip(&turned)
        .reshape_to(&[&[groups, inputs, filters], sizes].concat())
        .transpose(1, 2)
        .reshape_to(&[&[groups * filters, inputs], sizes].concat());
    let plain = ConvOptions { dilation: options.dilation, groups, ..Default::default() };
    convolved(&x, &weight, bias, &plain)
}
