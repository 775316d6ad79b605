//! Convolutions of integers, which have no gradient: the windows, gathered, times the filters.

use super::options::ConvOptions;
use crate::tensor::Tensor;

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
    match bias {
        None => y,
        Some(bias) => {
            let mut shape = vec![1; D + 2];
            shape[1] = weight.size(0);
            y + bias.reshape_to(&shape)
        }
    }
}
