//! Times of matrix products, convolutions, attention, normalisation, pooling and sampling of images, one JSON line per
//! row, with names and units as PyTorch's side of the benchmarks prints them.
//!
//! `cargo bench --bench nn_ops -- [FILTER ..] [--threads 1,2] [--budget SECONDS]`: rows whose name
//! contains one of the filters.

#[path = "common/bench.rs"]
mod bench;

use bench::Bench;
use torchrs::nn::functional as F;
use torchrs::ops::{
    Conv2dOptions, Conv3dOptions, ConvTransposeOptions, GridSampleMode, GridSampleOptions,
    InterpolateMode, InterpolateOptions, PadMode, Pool2dOptions, Pool3dOptions,
};
use torchrs::{Dtype, Tensor, autograd, no_grad};

use Dtype::{BF16, F16, F32, F64};

fn numbers(shape: &[usize], dtype: Dtype) -> Tensor {
    bench::numbers(shape).to_dtype(dtype)
}

fn forward_and_backward(inputs: &[&Tensor], gradient: &Tensor, forward: impl Fn() -> Tensor) {
    let y = forward();
    drop(autograd::grad(&[&y], inputs, &[Some(gradient)], autograd::GraphMode::Free));
}

fn gflops(b: &Bench, name: &str, work: f64, call: impl Fn()) {
    b.row(name, "GFLOP/s", work, || no_grad(&call));
}

fn gemm(b: &Bench) {
    let product = |m: usize, k: usize, n: usize, dtype: Dtype, name: &str| {
        let (x, y) = (numbers(&[m, k], dtype), numbers(&[k, n], dtype));
        let name = format!("gemm_{name}_{m}x{k}x{n}");
        gflops(b, &name, 2e-9 * (m * k * n) as f64, || drop(x.mm(&y)));
    };
    for n in [64, 128, 256, 512, 1024, 2048, 4096] {
        product(n, n, n, F32, "float32");
    }
    for n in [256, 1024] {
        product(n, n, n, F64, "float64");
    }
    for n in [256, 1024, 2048] {
        product(n, n, n, BF16, "bfloat16");
    }
    product(1024, 1024, 1024, F16, "float16");
    for (m, k, n) in [
        (512, 768, 3072),
        (512, 3072, 768),
        (512, 768, 768),
        (8, 768, 50257),
        (256, 768, 50257),
        (1, 768, 3072),
        (32, 64, 128),
        (64, 400, 120),
        (1600, 512, 2048),
    ] {
        product(m, k, n, F32, "float32");
    }
    for (m, k, n) in [(512, 768, 3072), (8, 768, 50257)] {
        let (x, w, g) = (numbers(&[m, k], F32), numbers(&[n, k], F32), numbers(&[m, n], F32));
        let work = 2e-9 * (m * k * n) as f64;
        gflops(b, &format!("linear_fwd_f32_{m}x{k}x{n}"), work, || drop(x.mm(&w.t())));
        gflops(b, &format!("linear_dx_f32_{m}x{k}x{n}"), work, || drop(g.mm(&w)));
        gflops(b, &format!("linear_dw_f32_{m}x{k}x{n}"), work, || drop(g.t().mm(&x)));
    }
    let (x, y) = (numbers(&[16, 128, 64], F32), numbers(&[16, 64, 128], F32));
    let work = 2e-9 * (16 * 128 * 64 * 128) as f64;
    gflops(b, "bmm_f32_16x128x64x128", work, || drop(x.bmm(&y)));
}

fn conv(b: &Bench) {
    // Name, batch, input channels, height and width, output channels, kernel, stride, padding,
    // groups, whether the input needs a gradient.
    for (name, batch, ci, size, co, k, stride, padding, groups, input_gradient) in [
        ("stem_3x224_7x7s2_64", 8, 3, 224, 64, 7, 2, 3, 1, false),
        ("64x56_3x3", 8, 64, 56, 64, 3, 1, 1, 1, true),
        ("128x28_3x3", 8, 128, 28, 128, 3, 1, 1, 1, true),
        ("256x14_3x3", 8, 256, 14, 256, 3, 1, 1, 1, true),
        ("512x7_3x3", 8, 512, 7, 512, 3, 1, 1, 1, true),
        ("256_64x56_1x1", 8, 256, 56, 64, 1, 1, 0, 1, true),
        ("512_2048x7_1x1", 8, 512, 7, 2048, 1, 1, 0, 1, true),
        ("128x56_3x3s2", 8, 128, 56, 128, 3, 2, 1, 1, true),
        ("dw96x112_3x3s2", 8, 96, 112, 96, 3, 2, 1, 96, true),
        ("dw144x56_3x3", 8, 144, 56, 144, 3, 1, 1, 144, true),
        ("dw384x14_3x3", 8, 384, 14, 384, 3, 1, 1, 384, true),
        ("vgg64x224_3x3_b2", 2, 64, 224, 64, 3, 1, 1, 1, true),
        ("lenet_1x28_5x5_6", 64, 1, 28, 6, 5, 1, 2, 1, false),
        ("lenet_6x14_5x5_16", 64, 6, 14, 16, 5, 1, 0, 1, true),
        ("mnist_1x28_3x3_32", 64, 1, 28, 32, 3, 1, 0, 1, false),
        ("mnist_32x26_3x3_64", 64, 32, 26, 64, 3, 1, 0, 1, true),
        ("digits_1x8_3x3_32", 64, 1, 8, 32, 3, 1, 1, 1, false),
        ("digits_32x8_3x3_64", 64, 32, 8, 64, 3, 1, 1, 1, true),
    ] {
        let x = numbers(&[batch, ci, size, size], F32);
        let w = numbers(&[co, ci / groups, k, k], F32);
        let options = Conv2dOptions {
            stride: [stride; 2],
            padding: [padding; 2],
            groups,
            ..Default::default()
        };
        let out = (size + 2 * padding - k) / stride + 1;
        let work = 2e-9 * (batch * co * out * out * (ci / groups) * k * k) as f64;
        let row = format!("conv_{name}_nchw");
        gflops(b, &format!("{row}_fwd"), work, || drop(x.conv2d(&w, None, options)));
        let gradient = numbers(&[batch, co, out, out], F32);
        let (x, w) = (x.requires_grad_(input_gradient), w.requires_grad_(true));
        let inputs = if input_gradient { vec![&x, &w] } else { vec![&w] };
        let passes = if input_gradient { 3.0 } else { 2.0 };
        b.row(&format!("{row}_fwdbwd"), "GFLOP/s", work * passes, || {
            forward_and_backward(&inputs, &gradient, || x.conv2d(&w, None, options));
        });
    }
}

fn half_conv(b: &Bench) {
    let (x, w) = (numbers(&[8, 256, 14, 14], BF16), numbers(&[256, 256, 3, 3], BF16));
    let options = Conv2dOptions { padding: [1; 2], ..Default::default() };
    let work = 2e-9 * (8 * 256 * 14 * 14 * 256 * 9) as f64;
    gflops(b, "conv_256x14_3x3_nchw_fwd_bf16", work, || drop(x.conv2d(&w, None, options)));
}

fn attention(b: &Bench) {
    let shape = [4, 12, 512, 64];
    let work = 4e-9 * (4 * 12 * 512 * 512 * 64) as f64;
    let (q, k, v) = (numbers(&shape, F32), numbers(&shape, F32), numbers(&shape, F32));
    gflops(b, "attn_naive_full_4x12x512x64_fwd", work, || {
        drop((q.matmul(&k.transpose(-1, -2)) * 0.125).softmax(-1).matmul(&v))
    });
    for (name, causal) in [("full", false), ("causal", true)] {
        let work = 4e-9 * (4 * 12 * 512 * 512 * 64) as f64 * if causal { 0.5 } else { 1.0 };
        let leaf = || numbers(&shape, F32).requires_grad_(true);
        let (q, k, v, gradient) = (leaf(), leaf(), leaf(), numbers(&shape, F32));
        let attend = || q.scaled_dot_product_attention(&k, &v, None, causal, None);
        gflops(b, &format!("sdpa_{name}_4x12x512x64_fwd"), work, || drop(attend()));
        b.row(&format!("sdpa_{name}_4x12x512x64_fwdbwd"), "GFLOP/s", work * 3.5, || {
            forward_and_backward(&[&q, &k, &v], &gradient, attend);
        });
    }
}

fn norm_and_pool(b: &Bench) {
    let gigabytes = |t: &Tensor, passes: f64| passes * t.numel() as f64 * 4e-9;
    let leaf = |shape: &[usize]| numbers(shape, F32).requires_grad_(true);
    let (x, w, bias) = (leaf(&[4096, 768]), leaf(&[768]), leaf(&[768]));
    let norm = || x.layer_norm(&[768], Some(&w), Some(&bias), 1e-5);
    b.row("layer_norm_4096x768", "GB/s", gigabytes(&x, 2.0), || no_grad(|| drop(norm())));
    let gradient = numbers(&[4096, 768], F32);
    b.row("layer_norm_4096x768_fwdbwd", "GB/s", gigabytes(&x, 5.0), || {
        forward_and_backward(&[&x, &w, &bias], &gradient, norm);
    });

    let (x, w, bias) = (leaf(&[8, 64, 56, 56]), leaf(&[64]), leaf(&[64]));
    let (mean, var) = (Tensor::zeros([64], F32), Tensor::ones([64], F32));
    let options = F::BatchNormOptions {
        running_mean: Some(&mean),
        running_var: Some(&var),
        weight: Some(&w),
        bias: Some(&bias),
        training: true,
        ..Default::default()
    };
    let norm = || F::batch_norm(&x, options);
    let row = "batch_norm_train_8x64x56x56_nchw";
    b.row(&format!("{row}_fwd"), "GB/s", gigabytes(&x, 2.0), || no_grad(|| drop(norm())));
    let gradient = numbers(x.shape(), F32);
    b.row(&format!("{row}_fwdbwd"), "GB/s", gigabytes(&x, 5.0), || {
        forward_and_backward(&[&x, &w, &bias], &gradient, norm);
    });

    let x = leaf(&[8, 64, 112, 112]);
    let options =
        Pool2dOptions { stride: Some([2, 2]), padding: [1, 1], ..Pool2dOptions::new([3, 3]) };
    let row = "maxpool3s2_8x64x112x112_nchw";
    let pool = || x.max_pool2d(options);
    b.row(&format!("{row}_fwd"), "GB/s", gigabytes(&x, 1.25), || no_grad(|| drop(pool())));
    let gradient = numbers(&[8, 64, 56, 56], F32);
    b.row(&format!("{row}_fwdbwd"), "GB/s", gigabytes(&x, 2.5), || {
        forward_and_backward(&[&x], &gradient, pool);
    });
}

/// Forward, and forward with backward, which moves (or computes) `passes` times as much.
fn both(
    b: &Bench,
    name: &str,
    (unit, work, passes): (&str, f64, f64),
    inputs: &[&Tensor],
    op: impl Fn() -> Tensor,
) {
    if !b.wants(name) {
        return;
    }
    let gradient = numbers(no_grad(&op).shape(), F32);
    b.row(&format!("{name}_fwd"), unit, work, || no_grad(|| drop(op())));
    b.row(&format!("{name}_fwdbwd"), unit, work * passes, || {
        forward_and_backward(inputs, &gradient, &op);
    });
}

fn images(b: &Bench) {
    let leaf = |shape: &[usize]| numbers(shape, F32).requires_grad_(true);
    // GB/s of reading the input and writing the output once.
    let moved = |numbers: usize| ("GB/s", numbers as f64 * 4e-9, 2.0);
    let x = leaf(&[8, 64, 56, 56]);
    let n = x.numel();
    for (name, mode) in [
        ("nearest", InterpolateMode::Nearest),
        ("bilinear", InterpolateMode::Bilinear),
        ("bicubic", InterpolateMode::Bicubic),
    ] {
        let options = InterpolateOptions::scale(2.0, mode);
        let name = format!("interpolate_{name}_x2_8x64x56x56");
        both(b, &name, moved(5 * n), &[&x], || x.interpolate(options.clone()));
    }
    let options = InterpolateOptions::size([40, 40], InterpolateMode::Bilinear);
    both(b, "interpolate_bilinear_to40_8x64x56x56", moved(n * 3 / 2), &[&x], || {
        x.interpolate(options.clone())
    });
    let grid = numbers(&[8, 56, 56, 2], F32) * 0.5;
    let grid = grid.requires_grad_(true);
    for (name, mode) in
        [("bilinear", GridSampleMode::Bilinear), ("bicubic", GridSampleMode::Bicubic)]
    {
        let options = GridSampleOptions { mode, ..Default::default() };
        let name = format!("grid_sample_{name}_8x64x56x56");
        both(b, &name, moved(2 * n), &[&x, &grid], || x.grid_sample(&grid, options));
    }
    both(b, "pad_reflect1_8x64x56x56", moved(2 * n), &[&x], || x.pad(&[1; 4], PadMode::Reflect));
    both(b, "adaptive_maxpool7_8x64x56x56", moved(n), &[&x], || {
        x.adaptive_max_pool2d([Some(7), Some(7)]).0
    });

    let two = Pool2dOptions::new([2, 2]);
    let three =
        Pool2dOptions { stride: Some([2, 2]), padding: [1, 1], ..Pool2dOptions::new([3, 3]) };
    both(b, "avgpool2_8x64x56x56", moved(n * 5 / 4), &[&x], || x.avg_pool2d(two));
    both(b, "avgpool3s2_8x64x56x56", moved(n * 5 / 4), &[&x], || x.avg_pool2d(three));
    for shape in [[2, 64, 224, 224], [64, 6, 28, 28]] {
        let x = leaf(&shape);
        let name = format!("maxpool2_{}", shape.map(|n| n.to_string()).join("x"));
        both(b, &name, moved(x.numel() * 5 / 4), &[&x], || x.max_pool2d(two));
    }
    for shape in [[8, 2048, 7, 7], [8, 64, 56, 56]] {
        let x = leaf(&shape);
        let name = format!("global_avgpool_{}", shape.map(|n| n.to_string()).join("x"));
        both(b, &name, moved(x.numel()), &[&x], || x.adaptive_avg_pool2d([Some(1), Some(1)]));
    }

    let x = leaf(&[2, 32, 16, 56, 56]);
    let n = x.numel();
    let options = Pool3dOptions::new([2; 3]);
    both(b, "maxpool3d_2_2x32x16x56x56", moved(n * 9 / 8), &[&x], || x.max_pool3d(options));
    both(b, "avgpool3d_2_2x32x16x56x56", moved(n * 9 / 8), &[&x], || x.avg_pool3d(options));

    let (x, w) = (leaf(&[2, 32, 16, 28, 28]), leaf(&[32, 32, 3, 3, 3]));
    let work = 2e-9 * (x.numel() * 32 * 27) as f64;
    let options = Conv3dOptions { padding: [1; 3], ..Default::default() };
    both(b, "conv3d_2x32x16x28x28_3x3x3", ("GFLOP/s", work, 3.0), &[&x, &w], || {
        x.conv3d(&w, None, options)
    });
    let (x, w) = (leaf(&[2, 32, 8, 14, 14]), leaf(&[32, 32, 4, 4, 4]));
    let work = 2e-9 * (x.numel() * 32 * 64) as f64;
    let options = ConvTransposeOptions { stride: [2; 3], padding: [1; 3], ..Default::default() };
    both(b, "conv_transpose3d_2x32x8x14x14_4x4x4s2", ("GFLOP/s", work, 3.0), &[&x, &w], || {
        x.conv_transpose3d(&w, None, options)
    });
}

fn main() {
    Bench::main(|bench| {
        gemm(bench);
        conv(bench);
        half_conv(bench);
        attention(bench);
        norm_and_pool(bench);
        images(bench);
    });
}
