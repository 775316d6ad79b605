//! Convolutions on a GPU against the CPU: y, dx, dw and the bias's gradient.

use super::products::{compare, whole};
use torchrs::backends::cudnn;
use torchrs::ops::{Conv1dOptions, Conv2dOptions, Conv3dOptions};
use torchrs::{Dtype, MemoryFormat, Tensor};

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

/// By cuDNN, in either order of the channels, the fastest plan, and only reproducible ones.
fn by_cudnn(dtype: Dtype) {
    cases(dtype);
    cudnn::set_allow_tf32(false);
    cases(dtype);
    cudnn::set_benchmark(true);
    cudnn::set_deterministic(true);
    cases(dtype);
}

/// By our own kernels.
fn by_ours(body: fn(Dtype), dtype: Dtype) {
    cudnn::set_enabled(false);
    body(dtype);
}

fn channels_stay_last() {
    let (x, w) = (whole(&[2, 8, 6, 6], 1, Dtype::BF16), whole(&[16, 8, 3, 3], 2, Dtype::BF16));
    let (x, w) = (x.cuda(0), w.cuda(0));
    let y = x.conv2d(&w, None, Conv2dOptions::default());
    assert!(y.is_contiguous_in(MemoryFormat::ChannelsLast) && !y.is_contiguous());
    assert!(y.relu().is_contiguous_in(MemoryFormat::ChannelsLast));
    let y = x.to_dtype(Dtype::F64).conv2d(&w.to_dtype(Dtype::F64), None, Default::default());
    assert!(y.is_contiguous(), "f64 is not for tensor cores");
}

fn tensor_cores_round_f32() {
    let x = Tensor::full([1, 2, 4, 4], 1.0 + 1.0 / 8192.0, Dtype::F32).cuda(0);
    let w = Tensor::ones([1, 2, 1, 1], Dtype::F32).cuda(0);
    let first = || x.conv2d(&w, None, Default::default()).i((0, 0, 0, 0)).item();
    assert_eq!(first(), 2.0);
    cudnn::set_allow_tf32(false);
    assert_eq!(first(), 2.0 + 2.0 / 8192.0);
    let (x, w) = (x.reshape([8, 4]), Tensor::ones([4, 4], Dtype::F32).cuda(0));
    assert_eq!(x.matmul(&w).i((0, 0)).item(), 4.0 + 4.0 / 8192.0);
    torchrs::backends::cuda::matmul::set_allow_tf32(true);
    assert_eq!(x.matmul(&w).i((0, 0)).item(), 4.0);
}

simulated! {
    fn convolutions_of_f32() { by_ours(cases, Dtype::F32); }
    fn convolutions_of_f64() { by_ours(cases, Dtype::F64); }
    fn convolutions_of_f16() { by_ours(cases, Dtype::F16); }
    fn convolutions_of_bf16() { by_ours(cases, Dtype::BF16); }
    fn large_convolutions_of_f32() { by_ours(large, Dtype::F32); }
    fn large_convolutions_of_bf16() { by_ours(large, Dtype::BF16); }
    fn convolutions_of_f32_by_cudnn() { by_cudnn(Dtype::F32); large(Dtype::F32); }
    fn convolutions_of_f64_by_cudnn() { by_cudnn(Dtype::F64); }
    fn convolutions_of_f16_by_cudnn() { by_cudnn(Dtype::F16); }
    fn convolutions_of_bf16_by_cudnn() { by_cudnn(Dtype::BF16); }
    fn cudnn_leaves_channels_last() { channels_stay_last(); }
    fn tf32_is_what_is_allowed() { tensor_cores_round_f32(); }
}
