//! Matrix products, in TFLOP/s.

use torchrs::{Dtype, Result, backends, no_grad};

use crate::bench::{Bench, normal};

/// Square ones and those of GPT-2's layers: in bf16, in f32 exactly, and in f32 rounded to tf32 by the switch.
pub fn rows(bench: &Bench) -> Result<()> {
    let kinds: [(&str, Dtype, &[usize]); 3] = [
        ("bf16", Dtype::BF16, &[1024, 4096, 8192]),
        ("f32", Dtype::F32, &[1024, 2048, 4096]),
        ("tf32", Dtype::F32, &[4096, 8192]),
    ];
    let layers = [(16384, 768, 3072), (16384, 3072, 768), (8192, 768, 50304)];
    for (short, dtype, squares) in kinds {
        backends::cuda::matmul::set_allow_tf32(short == "tf32");
        for (m, k, n) in squares.iter().map(|&n| (n, n, n)).chain(layers) {
            product(bench, &format!("gemm_{short}_{m}x{k}x{n}"), dtype, (m, k, n));
        }
    }
    backends::cuda::matmul::set_allow_tf32(false);
    Ok(())
}

/// `x W^T`, as linear layers have it.
fn product(bench: &Bench, name: &str, dtype: Dtype, (m, k, n): (usize, usize, usize)) {
    let small = |size: usize| bench.size(size, size / 256);
    let (m, k, n) = (small(m), small(k), small(n));
    let (x, w) = (normal(&[m, k], dtype), normal(&[n, k], dtype));
    let work = 2e-12 * (m * k * n) as f64;
    no_grad(|| bench.device(name, "TFLOP/s", work, || drop(x.matmul(&w.t()))));
}
