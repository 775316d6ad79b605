//! Convolutions on a GPU against the CPU: y, dx, dw and the bias's gradient.

use super::products::{compare, whole};
use torchrs::Dtype;
use torchrs::ops::{Conv1dOptions, Conv2dOptions, Conv3dOptions};

fn options(
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
    groups: usize,
) -> Conv2dOptions {
    Conv2dOptions { stride, padding, dilation, groups }
}

fn conv2d(dtype: Dtype, x: [usize; 4], w: [usize; 4], o: Conv2dOptions) {
    let what = format!("conv2d({x:?}, {w:?}, {o:?})");
    let inputs = [whole(&x, 1, dtype), whole(&w, 2, dtype), whole(&w[..1], 3, dtype)];
    let op = |t: &[torchrs::Tensor]| t[0].conv2d(&t[1], t.get(2), o);
    compare(&what, &op, &inputs);
    compare(&format!("{what} without a bias"), &op, &inputs[..2]);
}

fn cases(dtype: Dtype) {
    let plain = Conv2dOptions::default();
    for (x, w, o) in [
        ([2, 3, 9, 8], [4, 3, 3, 3], options([1, 1], [1, 1], [1, 1], 1)),
        ([2, 5, 13, 11], [9, 5, 5, 3], options([2, 2], [2, 1], [1, 1], 1)),
        ([2, 4, 9, 11], [6, 2, 3, 2], options([2, 3], [1, 0], [2, 1], 2)),
        ([1, 2, 12, 7], [3, 2, 4, 3], options([3, 1], [3, 2], [1, 2], 1)),
        ([2, 8, 4, 6], [16, 8, 1, 1], plain),
        ([2, 8, 7, 7], [16, 8, 1, 1], options([2, 2], [0, 0], [1, 1], 1)),
        ([2, 8, 5, 4], [6, 4, 1, 1], options([1, 1], [0, 0], [1, 1], 2)),
        ([1, 2, 3, 3], [2, 2, 2, 2], options([4, 4], [0, 0], [1, 1], 1)),
        ([2, 6, 9, 12], [6, 1, 3, 3], options([1, 1], [1, 1], [1, 1], 6)),
        ([2, 3, 10, 9], [6, 1, 3, 5], options([2, 1], [1, 2], [1, 2], 3)),
        ([0, 3, 8, 8], [4, 3, 3, 3], plain),
    ] {
        conv2d(dtype, x, w, o);
    }
    let o = Conv1dOptions { stride: [2], padding: [1], ..Default::default() };
    let inputs = [whole(&[2, 3, 19], 1, dtype), whole(&[4, 3, 3], 2, dtype)];
    compare("conv1d", &|t| t[0].conv1d(&t[1], None, o), &inputs);
    let o =
        Conv3dOptions { stride: [2, 1, 2], padding: [1, 0, 1], groups: 2, ..Default::default() };
    let inputs = [
        whole(&[2, 4, 5, 4, 6], 1, dtype),
        whole(&[6, 2, 3, 2, 3], 2, dtype),
        whole(&[6], 3, dtype),
    ];
    compare("conv3d", &|t| t[0].conv3d(&t[1], Some(&t[2]), o), &inputs);
    let inputs = [inputs[0].permute(&[0, 1, 2, 4, 3]), inputs[1].clone(), inputs[2].clone()];
    compare("conv3d of a strided input", &|t| t[0].conv3d(&t[1], Some(&t[2]), o), &inputs);
}

fn large(dtype: Dtype) {
    // Many tiles, of 128 too; filter sums in parts of the points. The CPU computes these directly: its minimal
    // filtering, of 3x3 filters, is not exact.
    conv2d(dtype, [4, 16, 24, 24], [104, 16, 2, 3], options([1, 1], [1, 1], [1, 1], 1));
    conv2d(dtype, [2, 16, 16, 16], [12, 16, 3, 3], options([2, 2], [1, 1], [1, 1], 1));
}

simulated! {
    fn convolutions_of_f32() { cases(Dtype::F32); }
    fn convolutions_of_f64() { cases(Dtype::F64); }
    fn convolutions_of_f16() { cases(Dtype::F16); }
    fn convolutions_of_bf16() { cases(Dtype::BF16); }
    fn large_convolutions_of_f32() { large(Dtype::F32); }
    fn large_convolutions_of_bf16() { large(Dtype::BF16); }
}
