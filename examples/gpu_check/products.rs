//! Matrix products, in TFLOP/s.

use torchrs::{Dtype, Result, no_grad};

use crate::bench::{Bench, normal, short};

/// Square ones and those of GPT-2's layers.
pub fn rows(bench: &Bench) -> Result<()> {
    let square = |n: usize| (n, n, n);
    let layers = [(16384, 768, 3072), (16384, 3072, 768), (8192, 768, 50304)];
    for dtype in [Dtype::BF16, Dtype::F32] {
        let squares = if dtype == Dtype::BF16 { [1024, 4096, 8192] } else { [1024, 2048, 4096] };
        for (m, k, n) in squares.into_iter().map(square).chain(layers) {
            let name = format!("gemm_{}_{m}x{k}x{n}", short(dtype));
            product(bench, &name, dtype, (m, k, n));
        }
    }
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
