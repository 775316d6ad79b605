//! What is bound by memory, in GB/s of the bytes that have to move.

use torchrs::nn::functional as F;
use torchrs::{Dtype, Result, Tensor, no_grad};

use crate::bench::{Bench, GPU, normal, short};

/// A copy, which is the ceiling, elementwise ops, reductions, softmax, norms, cross entropy.
pub fn rows(bench: &Bench) -> Result<()> {
    let n = bench.size(64 << 20, 4096);
    {
        let (x, y) = (normal(&[4 * n], Dtype::F32), normal(&[4 * n], Dtype::F32));
        no_grad(|| bench.device("copy_f32_256Mi", "GB/s", 32e-9 * n as f64, || _ = y.copy_(&x)));
    }
    // What training needs most comes first.
    [Dtype::BF16, Dtype::F32].into_iter().for_each(|dtype| rowwise(bench, dtype));
    batch_norm(bench);
    cross_entropy(bench);
    [Dtype::BF16, Dtype::F32]
        .into_iter()
        .for_each(|dtype| no_grad(|| elementwise(bench, dtype, n)));
    Ok(())
}

fn elementwise(bench: &Bench, dtype: Dtype, n: usize) {
    let (x, y) = (normal(&[n], dtype), normal(&[n], dtype));
    let bytes = |times: usize| (times * n * dtype.size()) as f64 * 1e-9;
    let row = |name: &str, times: usize, call: &dyn Fn() -> Tensor| {
        let name = format!("{name}_{}_64Mi", short(dtype));
        bench.device(&name, "GB/s", bytes(times), || drop(call()));
    };
    row("add", 3, &|| &x + &y);
    row("mul_scalar", 2, &|| &x * 1.5);
    row("gelu", 2, &|| x.gelu());
    row("exp", 2, &|| x.exp());
    row("relu", 2, &|| x.relu());
    row("sum", 1, &|| x.sum());
    let side = (n as f64).sqrt() as usize;
    let square = x.view([side as i64, side as i64]);
    row("sum_dim0", 1, &|| square.sum_dim(&[0], false));
    row("transpose_copy", 2, &|| square.t().contiguous());
    if dtype == Dtype::F32 {
        let bytes = 6e-9 * n as f64;
        bench.device("cast_f32_bf16_64Mi", "GB/s", bytes, || drop(x.to_dtype(Dtype::BF16)));
    }
}

/// Softmax and layer norm, forward and with backward.
fn rowwise(bench: &Bench, dtype: Dtype) {
    let (rows, columns) = (bench.size(16384, 8), bench.size(4096, 128));
    let x = normal(&[rows, columns], dtype).requires_grad_(true);
    let g = normal(&[rows, columns], dtype);
    let (w, b) = (normal(&[columns], dtype), normal(&[columns], dtype));
    let (w, b) = (w.requires_grad_(true), b.requires_grad_(true));
    let bytes = |times: usize| (times * x.numel() * dtype.size()) as f64 * 1e-9;
    let both = |name: &str, call: &dyn Fn() -> Tensor| {
        let name = format!("{name}_{}_16384x4096", short(dtype));
        no_grad(|| bench.device(&format!("{name}_fwd"), "GB/s", bytes(2), || drop(call())));
        bench.device(&format!("{name}_fwdbwd"), "GB/s", bytes(5), || {
            torchrs::autograd::backward(
                &[&call()],
                &[Some(&g)],
                torchrs::autograd::GraphMode::Free,
            );
            [&x, &w, &b].into_iter().for_each(|x: &Tensor| x.set_grad(None));
        });
    };
    both("softmax", &|| x.softmax(-1));
    both("layer_norm", &|| x.layer_norm(&[columns], Some(&w), Some(&b), 1e-5));
}

fn batch_norm(bench: &Bench) {
    let shape = [bench.size(64, 2), bench.size(256, 4), bench.size(56, 8), bench.size(56, 8)];
    let x = normal(&shape, Dtype::F32).requires_grad_(true);
    let g = normal(&shape, Dtype::F32);
    let ones = || Tensor::ones([shape[1]], (Dtype::F32, GPU)).requires_grad_(true);
    let (w, b) = (ones(), ones());
    let bytes = |times: usize| (times * x.numel() * 4) as f64 * 1e-9;
    let (weight, bias) = (Some(&w), Some(&b));
    let options = F::BatchNormOptions { weight, bias, training: true, ..Default::default() };
    let norm = || F::batch_norm(&x, options);
    let name = "batch_norm_f32_64x256x56x56";
    no_grad(|| bench.device(&format!("{name}_fwd"), "GB/s", bytes(3), || drop(norm())));
    bench.device(&format!("{name}_fwdbwd"), "GB/s", bytes(8), || {
        torchrs::autograd::backward(&[&norm()], &[Some(&g)], torchrs::autograd::GraphMode::Free);
        [&x, &w, &b].into_iter().for_each(|x: &Tensor| x.set_grad(None));
    });
}

fn cross_entropy(bench: &Bench) {
    let (rows, classes) = (bench.size(8192, 8), bench.size(50304, 128));
    let x = normal(&[rows, classes], Dtype::BF16).requires_grad_(true);
    let y = Tensor::randint(0, classes as i64, [rows], Dtype::I64).to_device(GPU);
    let bytes = (3 * x.numel() * 2) as f64 * 1e-9;
    bench.device("cross_entropy_bf16_8192x50304_fwdbwd", "GB/s", bytes, || {
        x.cross_entropy(&y).backward();
        x.set_grad(None);
    });
}
